import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  anyQuery,
  canonicalHeaders,
  canonicalPath,
  canonicalQuery,
  canonicalRequest,
  signedHeaders,
} from './canonical-request.ts';
import { percentEncode } from './percent-encoding.ts';

test('the method is upper case, and every part has its line', () => {
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

  test('two malformed bytes are two paths', () => {
    expect(canonicalPath('/%FE')).not.toBe(canonicalPath('/%FF'));
  });

  test('the canonical form of any path is its own canonical form', () => {
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

  test('is sorted before it is encoded: ~ stands before a letter past ASCII', () => {
    expect(canonicalQuery('%E4%B8%80=1&~=2')).toBe('~=2&%E4%B8%80=1');
    expect(canonicalQuery('a=%E4%B8%80&a=~')).toBe('a=~&a=%E4%B8%80');
  });

  test('is sorted by code point: a surrogate pair stands after U+FF5E', () => {
    expect(canonicalQuery('a=\u{1F600}&a=\uFF5E')).toBe('a=%EF%BD%9E&a=%F0%9F%98%80');
  });

  test('the public known answer', () => {
    const test = percentEncode('一 (&=?!#%.*)');
    expect(canonicalQuery(`limit=1&enable=true&test=${test}&path=/tmp/123&multi=1&multi=2&multi=3`)).toBe(
      'enable=true&limit=1&multi=1&multi=2&multi=3&path=%2Ftmp%2F123&test=%E4%B8%80%20%28%26%3D%3F%21%23%25.%2A%29',
    );
  });

  test('of the usual kind is what the general form makes of it', () => {
    const name = fc.string({ unit: fc.constantFrom(...'abZ_'), minLength: 1, maxLength: 4 });
    const value = fc.string({ unit: fc.constantFrom(...'aZ0-_.~,'), maxLength: 4 });
    const usual = fc.array(fc.tuple(name, value), { minLength: 1 }).map(written);
    // And of kinds that are close to it.
    const other = fc.string({ unit: fc.constantFrom(...'ab1-.,=&%+') });
    fc.assert(
      fc.property(fc.oneof(usual, other), (query) => {
        expect(canonicalQuery(query)).toBe(anyQuery(query));
      }),
      { numRuns: 2_000 },
    );

    function written(pairs: readonly (readonly [string, string])[]): string {
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
        expect(canonicalQuery(written(pairs))).toBe(canonicalQuery(written(others)));
      }),
    );
  });

  function written(pairs: readonly (readonly [string, string])[]): string {
    return pairs.map(([name, value]) => `${percentEncode(name)}=${percentEncode(value)}`).join('&');
  }
});

describe('headers', () => {
  test('names are lower case and sorted, values trimmed, and the last line ends too', () => {
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
