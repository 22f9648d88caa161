import { createHash, createHmac } from 'node:crypto';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buffer } from 'node:stream/consumers';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { canonicalRequest, percentEncode } from './canonical-request.ts';
import { type Scope, scopedKey, scopedStringToSign, scopeLine } from './scoped.ts';
import { type SignableRequest, sha256Hex, sign, signature, signedFetch, stringToSign } from './sign.ts';

const KEY = { access: 'AK', secret: 'secret' };
const now = () => Date.UTC(2026, 10, 14, 10, 0, 0, 999);

const signatureOf = async (request: SignableRequest, key = KEY, clock = now) =>
  (await sign(request, key, { now: clock })).Authorization.split('Signature=')[1];

test('host, date and every header of the request are signed, and the date has no milliseconds', async () => {
  const headers = { Accept: '*/*', 'X-Project-Id': 'p' };
  const signed = await sign({ method: 'get', url: 'https://example.com/', headers }, KEY, { now });
  expect(signed['X-Sdk-Date']).toBe('20261114T100000Z');
  expect(signed.Authorization).toMatch(
    /^SDK-HMAC-SHA256 Access=AK, SignedHeaders=accept;host;x-project-id;x-sdk-date, Signature=[0-9a-f]{64}$/,
  );
});

test('signing a signed request replaces its signature', async () => {
  const request = { method: 'GET', url: 'https://example.com/' };
  const before = await sign(request, KEY, { now: () => 0 });
  expect(await sign({ ...request, headers: before }, KEY, { now })).toEqual(
    await sign(request, KEY, { now }),
  );
});

test('X-Sdk-Content-Sha256 replaces the hash of the body', async () => {
  const request = { method: 'PUT', url: 'https://example.com/', body: 'one' };
  const headers = { 'X-Sdk-Content-Sha256': 'UNSIGNED-PAYLOAD' };
  expect(await signatureOf({ ...request, headers })).toBe(
    await signatureOf({ ...request, headers, body: 'two' }),
  );
  expect(await signatureOf({ ...request, headers })).not.toBe(await signatureOf(request));
});

test('bytes and the text they encode are the same body', async () => {
  const request = { method: 'POST', url: 'https://example.com/' };
  const body = new TextEncoder().encode('größe');
  expect(await signatureOf({ ...request, body })).toBe(await signatureOf({ ...request, body: 'größe' }));
});

test('an empty body, a fragment and the default port do not change the signature', async () => {
  const plain = await signatureOf({ method: 'GET', url: 'https://example.com/a' });
  expect(await signatureOf({ method: 'GET', url: 'https://example.com:443/a#b', body: '' })).toBe(plain);
});

test('a body may be in shared memory', async () => {
  const request = { method: 'POST', url: 'https://example.com/' };
  const body = new Uint8Array(new SharedArrayBuffer(2));
  expect(await signatureOf({ ...request, body })).toBe(await signatureOf({ ...request, body: '\0\0' }));
});

test('a Host header is signed instead of the host of the URL', async () => {
  const headers = { Host: 'waf.example.com' };
  expect(await signatureOf({ method: 'GET', url: 'http://10.0.0.1:8080/', headers })).toBe(
    await signatureOf({ method: 'GET', url: 'https://waf.example.com/' }),
  );
});

test('an incomplete key is refused with an error that names the empty part', async () => {
  const request = { method: 'GET', url: 'https://example.com/' };
  await expect(sign(request, { access: 'AK', secret: '' })).rejects.toThrow('secret is empty');
  expect(() => signedFetch({ access: '', secret: 's' })).toThrow('access is empty');
});

test('a change of one character in any signed part changes the signature', async () => {
  const text = fc.string({ unit: fc.constantFrom(...'abAB01-_.~ /?&=+%é一😀'), minLength: 1, maxLength: 6 });
  const parts = fc.record({
    method: fc.constantFrom('GET', 'PUT'),
    host: fc.constantFrom('a.example', 'b.example'),
    segment: text.map((t) => `s${t}`),
    name: text,
    value: text,
    header: fc.string({ unit: fc.constantFrom(...'abc012'), minLength: 1, maxLength: 6 }),
    body: text,
    secret: text,
    time: fc.integer({ min: 0, max: 4e9 }).map((second) => second * 1000),
  });
  const sent = ({
    method,
    host,
    segment,
    name,
    value,
    header,
    body,
    secret,
    time,
  }: PartsOf<typeof parts>) => {
    const url = `https://${host}/${percentEncode(segment)}/x?fixed=1&${percentEncode(name)}=${percentEncode(value)}`;
    return signatureOf(
      { method, url, headers: { 'X-Test': header }, body },
      { access: 'AK', secret },
      () => time,
    );
  };
  const change = fc.tuple(
    parts,
    parts,
    fc.constantFrom('segment', 'name', 'value', 'header', 'body', 'secret'),
  );
  await fc.assert(
    fc.asyncProperty(change, fc.nat(), async ([one, other, part], offset) => {
      const at = offset % one[part].length;
      const changed = `${one[part].slice(0, at)}${one[part][at] === 'b' ? 'a' : 'b'}${one[part].slice(at + 1)}`;
      expect(await sent({ ...one, [part]: changed })).not.toBe(await sent(one));
      for (const whole of ['method', 'host', 'time'] as const) {
        if (one[whole] === other[whole]) continue;
        expect(await sent({ ...one, [whole]: other[whole] })).not.toBe(await sent(one));
      }
    }),
  );
});

type PartsOf<T> = T extends fc.Arbitrary<infer Parts> ? Parts : never;

/** Public test vectors, stage by stage: the canonical request, the string to sign, the signature. */
const EMPTY_HASH = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';

const vectors = [
  {
    name: 'a list of networks',
    access: 'QTWAOYTTINDUT2QVKYUC',
    secret: 'MFyfvK41ba2giqM7Uio6PznpdUKGpownRZlmVmHc',
    date: '20191115T033655Z',
    request: {
      method: 'GET',
      path: '/v1/77b6a44cba5143ab91d13ab9a8ff44fd/vpcs',
      query: 'limit=2&marker=13551d6b-755d-4757-b956-536f674975c0',
      headers: { 'Content-Type': 'application/json', Host: 'service.region.example.com' },
      body: '',
    },
    canonical: [
      'GET',
      '/v1/77b6a44cba5143ab91d13ab9a8ff44fd/vpcs/',
      'limit=2&marker=13551d6b-755d-4757-b956-536f674975c0',
      'content-type:application/json',
      'host:service.region.example.com',
      'x-sdk-date:20191115T033655Z',
      '',
      'content-type;host;x-sdk-date',
      EMPTY_HASH,
    ],
    requestHash: 'b25362e603ee30f4f25e7858e8a7160fd36e803bb2dfe206278659d71a9bcd7a',
    signature: '7be6668032f70418fcc22abc52071e57aff61b84a1d2381bb430d6870f4f6ebe',
  },
  {
    name: 'a GET that signs the host and the date',
    access: 'AccessKey',
    secret: 'SecretKey',
    date: '20200608T023900Z',
    request: {
      method: 'GET',
      path: '/resources',
      query: 'size=1',
      headers: { Host: 'service.endpoint.myhuaweicloud.com' },
      body: '',
    },
    canonical: [
      'GET',
      '/resources/',
      'size=1',
      'host:service.endpoint.myhuaweicloud.com',
      'x-sdk-date:20200608T023900Z',
      '',
      'host;x-sdk-date',
      EMPTY_HASH,
    ],
    signature: 'cfb4171acec81de07d50e53d57eb77edd537414d66ddb1d7d780f128e12cd842',
  },
  {
    name: 'a POST with a body',
    access: 'AccessKey',
    secret: 'SecretKey',
    date: '20200608T023900Z',
    request: {
      method: 'POST',
      path: '/resources',
      query: 'size=1',
      headers: { Host: 'service.endpoint.myhuaweicloud.com' },
      body: '{"name":"test","id":1}',
    },
    canonical: [
      'POST',
      '/resources/',
      'size=1',
      'host:service.endpoint.myhuaweicloud.com',
      'x-sdk-date:20200608T023900Z',
      '',
      'host;x-sdk-date',
      createHash('sha256').update('{"name":"test","id":1}').digest('hex'),
    ],
    signature: '436b1ac0a1ae03705934bb70ef2f2e09f7bfed2117d731a38235053199323a1f',
  },
  {
    name: 'a GET that signs the date only',
    access: 'AccessKey',
    secret: 'SecretKey',
    date: '20060102T150405Z',
    request: { method: 'GET', path: '/path', query: 'limit=1', headers: {}, body: '' },
    canonical: ['GET', '/path/', 'limit=1', 'x-sdk-date:20060102T150405Z', '', 'x-sdk-date', EMPTY_HASH],
    signature: '5a2ce64c865e0e6046321c6f3d5a77ba8413eeaf355c3166c03d58d02ac79624',
  },
  {
    name: 'a POST that signs the date only, with a body that ends with a newline',
    access: 'AccessKey',
    secret: 'SecretKey',
    date: '20060102T150405Z',
    request: {
      method: 'POST',
      path: '/path',
      query: 'key=value',
      headers: {},
      body: '{"Name":"test","Id":1}\n',
    },
    canonical: [
      'POST',
      '/path/',
      'key=value',
      'x-sdk-date:20060102T150405Z',
      '',
      'x-sdk-date',
      createHash('sha256').update('{"Name":"test","Id":1}\n').digest('hex'),
    ],
    signature: 'cecc2af119b18ab70b4d094c0750f3b42c02f254903179a0fc2cc72fc9db4f59',
  },
] as const;

describe.each(vectors)('$name', (vector) => {
  const { method, path, query, headers, body } = vector.request;
  const canonical = vector.canonical.join('\n');

  test('canonical request', async () => {
    const bodyHash = await sha256Hex(body);
    const signed = { ...headers, 'X-Sdk-Date': vector.date };
    expect(canonicalRequest({ method, path, query, headers: signed, bodyHash })).toBe(canonical);
    if ('requestHash' in vector) expect(await sha256Hex(canonical)).toBe(vector.requestHash);
  });

  test('string to sign and signature', async () => {
    const toSign = stringToSign(vector.date, await sha256Hex(canonical));
    expect(toSign).toBe(`SDK-HMAC-SHA256\n${vector.date}\n${sha256(canonical)}`);
    expect(await signature(vector.secret, toSign)).toBe(vector.signature);
  });
});

// The last two vectors leave the host unsigned, which sign never does.
test.each(vectors.slice(0, 3))('sign returns the headers of $name', async (vector) => {
  const { Host, ...headers } = { Host: '', ...vector.request.headers };
  const { method, path, query, body } = vector.request;
  const [year, month, day, hour, minute, second] = vector.date.match(/^[0-9]{4}|[0-9]{2}/g) ?? [];
  const now = () => Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
  const signed = await sign({ method, url: `https://${Host}${path}?${query}`, headers, body }, vector, {
    now,
  });
  expect(signed['X-Sdk-Date']).toBe(vector.date);
  expect(signed.Authorization).toBe(
    `SDK-HMAC-SHA256 Access=${vector.access}, SignedHeaders=${vector.canonical.at(-2)}, Signature=${vector.signature}`,
  );
});

test.each([
  ['testAK', 'testSK', '2f1e228b4e2c68e428f7377c12a15526f26c27795dcf4cb641cc90c5b3fba962'],
  [
    'QTWAOYTTINDUT2QVKYUC',
    'MFyfvK41ba2giqM7Uio6PznpdUKGpownRZlmVmHc',
    '012cac5e920807f98bf7b23dfe05d29596d544a9b76c37cf933b274a6d4aa874',
  ],
])(
  'sign returns the signature of a list of certificates with the key %s',
  async (access, secret, expected) => {
    const url =
      'https://service.region.example.com/v5/iotps/77b6a44cba5143ab91d13ab9a8ff44fd/certificates' +
      '?limit=2&marker=13551d6b-755d-4757-b956-536f674975c0';
    const headers = { 'Content-Type': 'application/json' };
    const clock = () => Date.UTC(2019, 10, 15, 3, 36, 55);
    expect(await signatureOf({ method: 'GET', url, headers }, { access, secret }, clock)).toBe(expected);
  },
);

describe.each([
  {
    scope: { date: '19700101', region: '', service: '' },
    line: '19700101///sdk_request',
    signature: 'ec385090522c25504a5b574c7195ac56bf37081d90f74fc093a2676f906cb057',
  },
  {
    scope: { date: '19700101', region: 'region', service: 'service' },
    line: '19700101/region/service/sdk_request',
    signature: '8bdb0e44341d71482390afe6536fa5f3ecfa6da7956ee95d1f8a60b7ab871240',
  },
])('scoped: $line', (vector: { scope: Scope; line: string; signature: string }) => {
  const date = '19700101T000001Z';
  const canonical = `GET\n/\n\nhost:example.com\nx-project-id:project\nx-sdk-date:${date}\n\nhost;x-project-id;x-sdk-date\n${EMPTY_HASH}`;

  test('canonical request', () => {
    const headers = { Host: 'example.com', 'X-Sdk-Date': date, 'X-Project-Id': 'project' };
    const parts = { method: 'GET', path: '', query: '', headers, bodyHash: EMPTY_HASH };
    expect(canonicalRequest(parts)).toBe(canonical);
  });

  test('string to sign and signature', () => {
    expect(scopeLine(vector.scope)).toBe(vector.line);
    const toSign = scopedStringToSign(date, vector.scope, sha256(canonical));
    expect(toSign).toBe(`SDK-HMAC-SHA256\n${date}\n${vector.line}\n${sha256(canonical)}`);
    const hmac = (key: string | Uint8Array, message: string) =>
      createHmac('sha256', key).update(message).digest();
    expect(hmac(scopedKey('sk', vector.scope, hmac), toSign).toString('hex')).toBe(vector.signature);
  });
});

let server: Server;
let origin: string;

/** Verifies signatures with `node:crypto`. */
beforeAll(async () => {
  server = createServer(async (request, response) => {
    response.writeHead(isVerified(request, await buffer(request)) ? 204 : 401).end();
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  // A TCP server has an address of this form.
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

afterAll(() => new Promise((closed) => server.close(closed)));

test('a server verifies what fetch sends with the same stages and node:crypto', async () => {
  const text = fc.string({ unit: 'binary', maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(fc.array(text), fc.array(text), text, async (segments, pairs, body) => {
      const request = { method: 'POST', url: `${origin}/${segments.join('/')}?${pairs.join('&')}`, body };
      const headers = await sign(request, KEY, { now });
      expect((await fetch(request.url, { ...request, headers })).status).toBe(204);
    }),
  );
});

describe('signedFetch', () => {
  const fetchSigned = signedFetch(KEY);

  test.each<[string, () => Parameters<typeof fetch>]>([
    ['a URL', () => [new URL(`${origin}/a?b=+`)]],
    ['a Request', () => [new Request(`${origin}/a`, { method: 'PUT', body: 'text' })]],
    ['text', () => [`${origin}/a`, { method: 'POST', body: 'größe', headers: { 'X-Test': 'a' } }]],
    ['bytes', () => [`${origin}/a`, { method: 'POST', body: new Uint8Array([0, 255]) }]],
    ['form data', () => [`${origin}/a`, { method: 'POST', body: new URLSearchParams({ a: 'b' }) }]],
    ['a stream', () => [`${origin}/a`, streamInit()]],
  ])('signs a request with %s', async (_, request) => {
    expect((await fetchSigned(...request())).status).toBe(204);
    expect((await fetch(...request())).status).toBe(401);
  });

  test('sends through the given fetch, and passes the signal on', async () => {
    const sent: Request[] = [];
    const fetch: typeof globalThis.fetch = async (input) => {
      sent.push(new Request(input));
      return new Response();
    };
    const controller = new AbortController();
    await signedFetch(KEY, { fetch, now })(origin, { signal: controller.signal });
    expect(sent[0]?.headers.get('X-Sdk-Date')).toBe('20261114T100000Z');
    controller.abort();
    expect(sent[0]?.signal.aborted).toBe(true);
  });

  /** Node.js demands `duplex` for a stream; the types of the browser lack it. */
  function streamInit(): RequestInit {
    const body = new Blob(['one ', 'two']).stream();
    return { method: 'POST', body, duplex: 'half' } as RequestInit;
  }
});

function isVerified(request: IncomingMessage, body: Buffer): boolean {
  const [path = '', query = ''] = (request.url ?? '').split(/\?(.*)/s);
  const [, names = '', signature] =
    /SignedHeaders=([^,]+), Signature=([0-9a-f]+)$/.exec(request.headers.authorization ?? '') ?? [];
  const headers = Object.fromEntries(names.split(';').map((name) => [name, String(request.headers[name])]));
  const parts = { method: request.method ?? '', path, query, headers, bodyHash: sha256(body) };
  const toSign = stringToSign(headers['x-sdk-date'] ?? '', sha256(canonicalRequest(parts)));
  return createHmac('sha256', KEY.secret).update(toSign).digest('hex') === signature;
}

function sha256(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}
