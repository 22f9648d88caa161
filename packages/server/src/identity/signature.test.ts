import { createHash, createHmac, createSecretKey } from 'node:crypto';
import { canonicalRequest, sign } from '@wafstat/signer';
import { scopedKey, scopedStringToSign } from '@wafstat/signer/scoped';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { scaled } from '../../../../test/random.ts';
import { CLOCK_SKEW_MS_MAX, checkSignature, parseSignature, type SignedRequest } from './signature.ts';

const NOW = Date.UTC(2026, 6, 1, 12);
const KEY = { access: 'QTWAOYTTINDUT2QVKYUC', secret: 'MFyfvK41ba2giqM7Uio6PznpdUKGpownRZlmVmHc' };
const NO_BODY = new Uint8Array(0);

/** The request as the server sees it: header names in lower case. */
function received(method: string, url: string, headers: Record<string, string>): SignedRequest {
  const { host, pathname, search } = new URL(url);
  const lower = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]);
  return { method, url: `${pathname}${search}`, headers: { host, ...Object.fromEntries(lower) } };
}

function check(request: SignedRequest, secret: string, body: Uint8Array = NO_BODY, now = NOW): string {
  const parsed = parseSignature(request, now);
  return parsed.kind === 'malformed'
    ? parsed.problem
    : (checkSignature(request, parsed.pending, createSecretKey(secret, 'utf8'), body)?.reason ?? 'valid');
}

describe('test vectors', () => {
  const vpcs = 'https://service.region.example.com/v1/77b6a44cba5143ab91d13ab9a8ff44fd/vpcs';
  const certificates =
    'https://service.region.example.com/v5/iotps/77b6a44cba5143ab91d13ab9a8ff44fd/certificates';
  const query = '?limit=2&marker=13551d6b-755d-4757-b956-536f674975c0';
  const endpoint = 'https://service.endpoint.myhuaweicloud.com';
  const plain = (access: string, signed: string, signature: string) =>
    `SDK-HMAC-SHA256 Access=${access}, SignedHeaders=${signed}, Signature=${signature}`;
  const scoped = (scope: string, signature: string) =>
    `SDK-HMAC-SHA256 Credential=ak/${scope}/sdk_request, SignedHeaders=host;x-project-id;x-sdk-date, Signature=${signature}`;

  test.each([
    [
      'content-type, host and date',
      'GET',
      vpcs + query,
      KEY.secret,
      {
        'Content-Type': 'application/json',
        'X-Sdk-Date': '20191115T033655Z',
        Authorization: plain(
          KEY.access,
          'content-type;host;x-sdk-date',
          '7be6668032f70418fcc22abc52071e57aff61b84a1d2381bb430d6870f4f6ebe',
        ),
      },
      '',
    ],
    [
      'host and date',
      'GET',
      `${endpoint}/resources?size=1`,
      'SecretKey',
      {
        'X-Sdk-Date': '20200608T023900Z',
        Authorization: plain(
          'AccessKey',
          'host;x-sdk-date',
          'cfb4171acec81de07d50e53d57eb77edd537414d66ddb1d7d780f128e12cd842',
        ),
      },
      '',
    ],
    [
      'a body',
      'POST',
      `${endpoint}/resources?size=1`,
      'SecretKey',
      {
        'X-Sdk-Date': '20200608T023900Z',
        Authorization: plain(
          'AccessKey',
          'host;x-sdk-date',
          '436b1ac0a1ae03705934bb70ef2f2e09f7bfed2117d731a38235053199323a1f',
        ),
      },
      '{"name":"test","id":1}',
    ],
    [
      'the date alone',
      'GET',
      `${endpoint}/path?limit=1`,
      'SecretKey',
      {
        'X-Sdk-Date': '20060102T150405Z',
        Authorization: plain(
          'AccessKey',
          'x-sdk-date',
          '5a2ce64c865e0e6046321c6f3d5a77ba8413eeaf355c3166c03d58d02ac79624',
        ),
      },
      '',
    ],
    [
      'the date alone, of a POST whose body ends with a newline',
      'POST',
      `${endpoint}/path?key=value`,
      'SecretKey',
      {
        'Content-Type': 'application/json',
        'X-Sdk-Date': '20060102T150405Z',
        Authorization: plain(
          'AccessKey',
          'x-sdk-date',
          'cecc2af119b18ab70b4d094c0750f3b42c02f254903179a0fc2cc72fc9db4f59',
        ),
      },
      '{"Name":"test","Id":1}\n',
    ],
    [
      'a list of certificates',
      'GET',
      certificates + query,
      'testSK',
      {
        'Content-Type': 'application/json',
        'X-Sdk-Date': '20191115T033655Z',
        Authorization: plain(
          'testAK',
          'content-type;host;x-sdk-date',
          '2f1e228b4e2c68e428f7377c12a15526f26c27795dcf4cb641cc90c5b3fba962',
        ),
      },
      '',
    ],
    [
      'a list of certificates, another key',
      'GET',
      certificates + query,
      KEY.secret,
      {
        'Content-Type': 'application/json',
        'X-Sdk-Date': '20191115T033655Z',
        Authorization: plain(
          KEY.access,
          'content-type;host;x-sdk-date',
          '012cac5e920807f98bf7b23dfe05d29596d544a9b76c37cf933b274a6d4aa874',
        ),
      },
      '',
    ],
    [
      'a path that ends with a slash',
      'GET',
      `${vpcs}/${query}`,
      'your_secret_access_key',
      {
        'Content-Type': 'application/json',
        'X-Sdk-Date': '20191115T033655Z',
        Authorization: plain(
          'your_access_key_id',
          'content-type;host;x-sdk-date',
          '8037a231336d8904f667c082dd84fc06d7e6c7c278c2d8599db31d14e8ee19f9',
        ),
      },
      '',
    ],
    [
      'a scope with empty region and service',
      'GET',
      'http://example.com',
      'sk',
      {
        'X-Sdk-Date': '19700101T000001Z',
        'X-Project-Id': 'project',
        Authorization: scoped(
          '19700101//',
          'ec385090522c25504a5b574c7195ac56bf37081d90f74fc093a2676f906cb057',
        ),
      },
      '',
    ],
    [
      'a scope with region and service',
      'GET',
      'http://example.com',
      'sk',
      {
        'X-Sdk-Date': '19700101T000001Z',
        'X-Project-Id': 'project',
        Authorization: scoped(
          '19700101/region/service',
          '8bdb0e44341d71482390afe6536fa5f3ecfa6da7956ee95d1f8a60b7ab871240',
        ),
      },
      '',
    ],
  ])('%s', (_name, method, url, secret, headers, body) => {
    const request = received(method, url, headers);
    const date = headers['X-Sdk-Date'].replace(/(....)(..)(..)T(..)(..)(..)Z/, '$1-$2-$3T$4:$5:$6Z');
    expect(check(request, secret, Buffer.from(body), Date.parse(date))).toBe('valid');
    expect(check(request, `${secret}x`, Buffer.from(body), Date.parse(date))).toBe('wrong_signature');
  });
});

const segment = fc.string({ unit: 'grapheme', maxLength: 8 }).map(encodeURIComponent);
const name = fc
  .string({ unit: fc.constantFrom(...'abc+ %é一/&=?#'), minLength: 1, maxLength: 6 })
  .map(encodeURIComponent);
const pair = fc
  .tuple(
    name,
    fc.oneof(fc.constant(''), fc.string({ unit: 'grapheme', maxLength: 10 }).map(encodeURIComponent)),
  )
  .map(([key, value]) => `${key}=${value}`);
const anyRequest = fc.record({
  method: fc.constantFrom('GET', 'POST', 'PUT', 'DELETE', 'HEAD', 'PATCH'),
  url: fc
    .tuple(fc.array(segment, { maxLength: 4 }), fc.array(pair, { maxLength: 6 }))
    .map(
      ([path, query]) =>
        `http://waf.example.com/${path.join('/')}${query.length ? `?${query.join('&')}` : ''}`,
    ),
  headers: fc.dictionary(
    fc.constantFrom('x-project-id', 'content-type', 'user-agent', 'x-other'),
    fc.string({ unit: 'grapheme-ascii', maxLength: 12 }).map((text) => text.trim()),
  ),
  body: fc.uint8Array({ maxLength: 64 }),
});

describe('any request', () => {
  test('is valid if the signer signed it, and invalid after any change of a signed part', async () => {
    await fc.assert(
      fc.asyncProperty(anyRequest, fc.nat(), async ({ method, url, headers, body }, position) => {
        const added = await sign({ method, url, headers, body }, KEY, { now: () => NOW });
        const request = received(method, url, { ...headers, ...added });
        expect(check(request, KEY.secret, body)).toBe('valid');

        const changed = (change: Partial<SignedRequest>, other = body) =>
          check({ ...request, ...change }, KEY.secret, other);
        expect(changed({ method: method === 'GET' ? 'PUT' : 'GET' })).toBe('wrong_signature');
        expect(changed({ url: request.url.replace('/', '/x') })).toBe('wrong_signature');
        expect(changed({ url: `${request.url}${request.url.includes('?') ? '&' : '?'}extra=1` })).toBe(
          'wrong_signature',
        );
        expect(changed({}, Uint8Array.of(...body, 0))).toBe('wrong_signature');
        if (body.length > 0) {
          const flipped = body.slice();
          flipped[position % body.length] = (flipped[position % body.length] ?? 0) ^ 1;
          expect(changed({}, flipped)).toBe('wrong_signature');
        }
        for (const header of Object.keys(headers)) {
          expect(changed({ headers: { ...request.headers, [header]: `${headers[header]}x` } })).toBe(
            'wrong_signature',
          );
        }
        expect(changed({ headers: { ...request.headers, host: 'other.example.com' } })).toBe(
          'wrong_signature',
        );
        expect(changed({ headers: { ...request.headers, 'x-sdk-date': '20260701T120001Z' } })).toBe(
          'wrong_signature',
        );
      }),
    );
  });

  test('is valid with its secret alone, whatever characters that has', async () => {
    const text = fc.string({ unit: 'binary', minLength: 1 });
    await fc.assert(
      fc.asyncProperty(anyRequest, text, text, async ({ method, url, body }, secret, other) => {
        const added = await sign({ method, url, body }, { ...KEY, secret }, { now: () => NOW });
        const request = received(method, url, added);
        expect(check(request, secret, body)).toBe('valid');
        expect(check(request, `${secret}${other}x`, body)).toBe('wrong_signature');
      }),
      { numRuns: scaled(30) },
    );
  });

  test('is valid in the scoped variant with the derived key, and invalid with the plain secret', () => {
    fc.assert(
      fc.property(anyRequest, ({ method, url, headers, body }) => {
        const scope = { date: '20260701', region: 'eu-de', service: 'waf' };
        const request = received(method, url, { ...headers, 'X-Sdk-Date': '20260701T120000Z' });
        const [path = '', query = ''] = request.url.split('?');
        const signed = { host: 'waf.example.com', 'x-sdk-date': '20260701T120000Z' };
        const bodyHash = createHash('sha256').update(body).digest('hex');
        const hash = createHash('sha256')
          .update(canonicalRequest({ method, path, query, headers: signed, bodyHash }))
          .digest('hex');
        const hmac = (key: string | Uint8Array, text: string) =>
          createHmac('sha256', key).update(text).digest();
        const text = scopedStringToSign('20260701T120000Z', scope, hash);
        const authorization = (credential: string, signature: Buffer) =>
          `SDK-HMAC-SHA256 Credential=${KEY.access}/${credential}, SignedHeaders=host;x-sdk-date, Signature=${signature.toString('hex')}`;
        const withHeader = (value: string) => ({
          ...request,
          headers: { ...request.headers, authorization: value },
        });
        const scopeText = '20260701/eu-de/waf/sdk_request';
        const right = authorization(scopeText, hmac(scopedKey(KEY.secret, scope, hmac), text));
        expect(check(withHeader(right), KEY.secret, body)).toBe('valid');
        expect(check(withHeader(authorization(scopeText, hmac(KEY.secret, text))), KEY.secret, body)).toBe(
          'wrong_signature',
        );
        expect(check(withHeader(right.replace('eu-de', 'eu-nl')), KEY.secret, body)).toBe('wrong_signature');
      }),
      { numRuns: scaled(30) },
    );
  });
});

describe('a signed request', () => {
  const url = 'http://waf.example.com/v1/p/waf/event/timeline?timezone=+08:00&hosts=b&hosts=a';
  const signed = async (headers: Record<string, string> = {}, body: string | undefined = undefined) => {
    const added = await sign({ method: 'GET', url, headers, ...(body === undefined ? {} : { body }) }, KEY, {
      now: () => NOW,
    });
    return received('GET', url, { ...headers, ...added });
  };

  test('is invalid if any digit of its signature is different', async () => {
    const request = await signed();
    const authorization = String(request.headers.authorization);
    for (let i = authorization.length - 64; i < authorization.length; i++) {
      const digit = authorization[i] === '0' ? '1' : '0';
      const forged = authorization.slice(0, i) + digit + authorization.slice(i + 1);
      const headers = { ...request.headers, authorization: forged };
      expect(check({ ...request, headers }, KEY.secret)).toBe('wrong_signature');
    }
  });

  test('may have a plus in the query signed as a plus or as a space', async () => {
    expect(check(await signed(), KEY.secret)).toBe('valid');
    const added = await sign({ method: 'GET', url: url.replace('+', '%20') }, KEY, { now: () => NOW });
    expect(check(received('GET', url, { ...added }), KEY.secret)).toBe('valid');
  });

  test('may list a signed header twice', async () => {
    const request = await signed();
    const authorization = String(request.headers.authorization);
    const twice = authorization.replace('SignedHeaders=host;', 'SignedHeaders=host;host;');
    expect(twice).not.toBe(authorization);
    const headers = { ...request.headers, authorization: twice };
    expect(check({ ...request, headers }, KEY.secret)).toBe('valid');
  });

  test('is invalid if a repeated parameter lost a value', async () => {
    const request = await signed();
    expect(check({ ...request, url: request.url.replace('&hosts=a', '') }, KEY.secret)).toBe(
      'wrong_signature',
    );
  });

  test('may leave its body unsigned, but a given hash must match', async () => {
    const unsigned = await signed({ 'X-Sdk-Content-Sha256': 'UNSIGNED-PAYLOAD' });
    expect(check(unsigned, KEY.secret, Buffer.from('anything'))).toBe('valid');
    const hash = createHash('sha256').update('body').digest('hex');
    const announced = await signed({ 'X-Sdk-Content-Sha256': hash });
    expect(check(announced, KEY.secret, Buffer.from('body'))).toBe('valid');
    expect(check(announced, KEY.secret, Buffer.from('other'))).toBe('body_differs');
  });

  test('may be up to 15 minutes off', async () => {
    const request = await signed();
    expect(check(request, KEY.secret, NO_BODY, NOW + CLOCK_SKEW_MS_MAX)).toBe('valid');
    expect(check(request, KEY.secret, NO_BODY, NOW - CLOCK_SKEW_MS_MAX)).toBe('valid');
    expect(check(request, KEY.secret, NO_BODY, NOW + CLOCK_SKEW_MS_MAX + 1_000)).toMatch(
      /more than 15 minutes off/,
    );
    expect(check(request, KEY.secret, NO_BODY, NOW - CLOCK_SKEW_MS_MAX - 1_000)).toMatch(
      /more than 15 minutes off/,
    );
  });

  test.each([
    [{ authorization: 'Basic abc' }, /^Basic authentication is for reading/],
    [
      { authorization: 'V11-HMAC-SHA256 Credential=x' },
      /Authorization uses V11-HMAC-SHA256, which is not supported/,
    ],
    [{ authorization: 'AWS4-HMAC-SHA256 Credential=x' }, /Authorization uses AWS4-HMAC-SHA256, which is not/],
    [{ authorization: 'SDK-HMAC-SM3 Access=x' }, /Authorization uses SDK-HMAC-SM3, which is not supported/],
    [{ authorization: 'SDK-ECDSA-P256-SHA256 Access=x' }, /Authorization uses SDK-ECDSA-P256-SHA256, which/],
    [
      { authorization: 'SDK-HMAC-SHA256 Access=a, SignedHeaders=x-sdk-date, Signature=zz' },
      /Authorization must be/,
    ],
    [{ authorization: 'SDK-HMAC-SHA256 ' }, /Authorization must be/],
    [{ 'x-sdk-date': '2026-07-01' }, /X-Sdk-Date must be a UTC time/],
    [{ 'x-sdk-date': undefined }, /X-Sdk-Date must be a UTC time/],
    [{ authorization: auth('host') }, /SignedHeaders must include x-sdk-date/],
    [
      { authorization: auth('x-sdk-date;x-missing') },
      /SignedHeaders lists 'x-missing', but the request has no such header/,
    ],
    [
      { authorization: auth('x-sdk-date').replace('Access=a', 'Credential=a/20260702/sdk_request') },
      /Authorization must be/,
    ],
    [
      { authorization: auth('x-sdk-date').replace('Access=a', 'Credential=a/20260702/r/s/sdk_request') },
      /must be the day of X-Sdk-Date/,
    ],
  ])('is rejected with an explanation if it is malformed: %j', async (change, message) => {
    const request = await signed();
    expect(check({ ...request, headers: { ...request.headers, ...change } }, KEY.secret)).toMatch(message);
  });

  test('never causes an exception, whatever its headers contain', async () => {
    const request = await signed();
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.string(), (authorization, date) => {
        const headers = {
          ...request.headers,
          authorization: `SDK-HMAC-SHA256 ${authorization}`,
          'x-sdk-date': date,
        };
        expect(typeof check({ ...request, headers }, KEY.secret)).toBe('string');
      }),
    );
  });
});

function auth(signedHeaders: string): string {
  return `SDK-HMAC-SHA256 Access=a, SignedHeaders=${signedHeaders}, Signature=${'0'.repeat(64)}`;
}

test('the fields of Authorization may come in any order and with any spacing', () => {
  const text = (characters: string) =>
    fc.string({ unit: fc.constantFrom(...characters), minLength: 1, maxLength: 6 });
  const signature = fc.string({ unit: fc.constantFrom(...'0af'), minLength: 64, maxLength: 64 });
  const blank = fc.constantFrom('', ' ', '\t ');
  fc.assert(
    fc.property(text('AZ09'), signature, blank, blank, fc.nat(2), (access, hex, before, after, first) => {
      const fields = [`Access=${access}`, 'SignedHeaders=x-sdk-date;host', `Signature=${hex}`];
      const ordered = [...fields.slice(first), ...fields.slice(0, first)].map(
        (field) => before + field + after,
      );
      const headers = {
        host: 'waf.example.com',
        'x-sdk-date': '20260701T120000Z',
        authorization: `SDK-HMAC-SHA256 ${ordered.join(',')}`,
      };
      expect(parseSignature({ method: 'GET', url: '/', headers }, NOW)).toEqual({
        kind: 'parsed',
        pending: {
          access,
          scope: null,
          signedHeaders: ['x-sdk-date', 'host'],
          signature: hex,
          date: '20260701T120000Z',
        },
      });
    }),
  );
});
