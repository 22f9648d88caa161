import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { scaled } from '../../../test/random.ts';
import {
  canonicalHeaders,
  canonicalPath,
  canonicalQuery,
  canonicalRequest,
  percentDecode,
  percentEncode,
  recodedQuery,
  signedHeaders,
} from './canonical-request.ts';

test('the method is in upper case, and every part has its own line', () => {
  const parts = { method: 'get', path: '/a', query: 'b', headers: { Host: 'c' }, bodyHash: 'd' };
  expect(canonicalRequest(parts)).toBe('GET\n/a/\nb=\nhost:c\n\nhost\nd');
});

describe('path', () => {
  test.each([
    ['', '/'],
    ['/', '/'],
    ['/v1/p/waf', '/v1/p/waf/'],
    ['/v1/p/waf/', '/v1/p/waf/'],
    ['/a%2fb', '/a%2Fb/'],
    ['/%7Euser/%41', '/~user/A/'],
    ['/a b', '/a%20b/'],
    ['/a+b', '/a%2Bb/'],
    ['/100%', '/100%25/'],
    ['/%zz', '/%25zz/'],
    ['//x', '//x/'],
    ['/一', '/%E4%B8%80/'],
  ])('%j is %j', (path, canonical) => {
    expect(canonicalPath(path)).toBe(canonical);
  });

  test('paths that differ in a malformed byte stay different', () => {
    expect(canonicalPath('/%FE')).not.toBe(canonicalPath('/%FF'));
  });

  test('canonicalization of a path is idempotent', () => {
    fc.assert(
      fc.property(fc.webPath(), fc.string({ unit: 'binary' }), (path, more) => {
        const once = canonicalPath(`${path}/${more}`);
        expect(canonicalPath(once)).toBe(once);
      }),
    );
  });
});

describe('query', () => {
  test.each([
    ['', ''],
    ['b=2&a=1', 'a=1&b=2'],
    ['a=2&a=10&a=1', 'a=1&a=10&a=2'],
    ['a&b=', 'a=&b='],
    ['a=b=c', 'a=b%3Dc'],
    ['=v', '=v'],
    ['&&a=1&', 'a=1'],
    ['a-=1&a=2', 'a=2&a-=1'],
    ['timezone=+08:00', 'timezone=%2B08%3A00'],
    ['timezone=%2b08:00', 'timezone=%2B08%3A00'],
    ['timezone=%2008:00', 'timezone=%2008%3A00'],
    ['rate=100%', 'rate=100%25'],
  ])('%j is %j', (query, canonical) => {
    expect(canonicalQuery(query)).toBe(canonical);
  });

  test('is sorted before it is encoded: ~ comes before a letter outside ASCII', () => {
    expect(canonicalQuery('%E4%B8%80=1&~=2')).toBe('~=2&%E4%B8%80=1');
    expect(canonicalQuery('a=%E4%B8%80&a=~')).toBe('a=~&a=%E4%B8%80');
  });

  test('is sorted by code point: a surrogate pair comes after U+FF5E', () => {
    expect(canonicalQuery('a=\u{1F600}&a=\uFF5E')).toBe('a=%EF%BD%9E&a=%F0%9F%98%80');
  });

  test('matches the published test vector', () => {
    const test = percentEncode('一 (&=?!#%.*)');
    expect(canonicalQuery(`limit=1&enable=true&test=${test}&path=/tmp/123&multi=1&multi=2&multi=3`)).toBe(
      'enable=true&limit=1&multi=1&multi=2&multi=3&path=%2Ftmp%2F123&test=%E4%B8%80%20%28%26%3D%3F%21%23%25.%2A%29',
    );
  });

  test('the fast path returns what the general case returns', () => {
    const name = fc.string({ unit: fc.constantFrom(...'abZ_'), minLength: 1, maxLength: 4 });
    const value = fc.string({ unit: fc.constantFrom(...'aZ0-_.~,'), maxLength: 4 });
    const plain = fc.array(fc.tuple(name, value), { minLength: 1 }).map(joined);
    const nearlyPlain = fc.string({ unit: fc.constantFrom(...'ab1-.,=&%+') });
    fc.assert(
      fc.property(fc.oneof(plain, nearlyPlain), (query) => {
        expect(canonicalQuery(query)).toBe(recodedQuery(query));
      }),
      { numRuns: scaled(2_000) },
    );

    function joined(pairs: readonly (readonly [string, string])[]): string {
      return pairs.map(([name, value]) => `${name}=${value}`).join('&');
    }
  });

  test('the order of the parameters does not matter', () => {
    const text = fc.string({ unit: 'binary', maxLength: 3 });
    const shuffled = fc
      .array(fc.tuple(text, text))
      .chain((all) =>
        fc.tuple(
          fc.constant(all),
          fc.shuffledSubarray(all, { minLength: all.length, maxLength: all.length }),
        ),
      );
    fc.assert(
      fc.property(shuffled, ([pairs, others]) => {
        expect(canonicalQuery(encoded(pairs))).toBe(canonicalQuery(encoded(others)));
      }),
    );
  });

  function encoded(pairs: readonly (readonly [string, string])[]): string {
    return pairs.map(([name, value]) => `${percentEncode(name)}=${percentEncode(value)}`).join('&');
  }
});

describe('headers', () => {
  test('names are in lower case and sorted, values are trimmed, and every line ends in a newline', () => {
    const headers = {
      'X-Sdk-Date': ' 20191115T033655Z ',
      Accept: 'a  b',
      'Content-Type': 'application/json',
    };
    expect(canonicalHeaders(headers)).toBe(
      'accept:a  b\ncontent-type:application/json\nx-sdk-date:20191115T033655Z\n',
    );
    expect(signedHeaders(headers)).toBe('accept;content-type;x-sdk-date');
  });

  test.each([
    ['example.com:443', 'example.com'],
    ['example.com:80', 'example.com'],
    ['example.com:8080', 'example.com:8080'],
    ['[2001:db8::80]', '[2001:db8::80]'],
    ['[2001:db8::1]:443', '[2001:db8::1]'],
  ])('the host %s is signed as %s', (host, signed) => {
    expect(canonicalHeaders({ Host: host })).toBe(`host:${signed}\n`);
  });
});

describe('percent encoding', () => {
  const anyText = fc.string({ unit: 'binary' });
  const textOf = (bytes: Uint8Array) => new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);

  test.each([
    ['AZaz09-_.~', 'AZaz09-_.~'],
    [' ', '%20'],
    ['+', '%2B'],
    ["!*'()/", '%21%2A%27%28%29%2F'],
    ['一', '%E4%B8%80'],
    ['😀', '%F0%9F%98%80'],
    ['a\ud800b', 'a%EF%BF%BDb'],
    ['', ''],
  ])('%j is encoded as %s', (text, encoded) => {
    expect(percentEncode(text)).toBe(encoded);
  });

  test.each([
    ['%', '%'],
    ['%%41', '%A'],
    ['100%', '100%'],
    ['%4', '%4'],
    ['%zz', '%zz'],
    ['%4z%7E', '%4z~'],
    ['%e4%b8%80', '一'],
    ['a+b', 'a+b'],
  ])('%j decodes to %j, what is malformed stays', (encoded, text) => {
    expect(textOf(percentDecode(encoded))).toBe(text);
  });

  test('ASCII text is encoded like its bytes', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary-ascii' }), (text) => {
        expect(percentEncode(text)).toBe(percentEncode(new TextEncoder().encode(text)));
      }),
    );
  });

  test('decoding reverses encoding for any text; lone surrogates become the replacement character', () => {
    const withSurrogates = fc
      .array(fc.oneof(anyText, fc.constantFrom('\ud800', '\udfff', '%')))
      .map((all) => all.join(''));
    fc.assert(
      fc.property(withSurrogates, (text) => {
        expect(textOf(percentDecode(percentEncode(text)))).toBe(textOf(new TextEncoder().encode(text)));
      }),
    );
  });

  test('decoding reverses encoding for any bytes, so invalid UTF-8 stays distinct', () => {
    fc.assert(
      fc.property(fc.uint8Array(), (bytes) => {
        expect(percentDecode(percentEncode(bytes))).toEqual(bytes);
      }),
    );
  });

  test('valid text is encoded like encodeURIComponent does, with five more characters escaped', () => {
    const strict = (text: string) =>
      encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
    fc.assert(
      fc.property(anyText, (text) => {
        expect(percentEncode(text)).toBe(strict(text));
      }),
    );
  });
});
