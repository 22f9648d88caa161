import { createHash, createHmac } from 'node:crypto';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { canonicalRequest } from './canonical-request.ts';
import { percentEncode } from './percent-encoding.ts';
import { type SignableRequest, sign } from './sign.ts';
import { stringToSign } from './string-to-sign.ts';

const KEY = { access: 'AK', secret: 'secret' };
const now = () => Date.UTC(2026, 10, 14, 10, 0, 0, 999);

const signatureOf = async (request: SignableRequest, key = KEY, clock = now) =>
  (await sign(request, key, { now: clock })).Authorization.split('Signature=')[1];

test('signs host, date and every header of the request, and the date has no milliseconds', async () => {
  const headers = { Accept: '*/*', 'X-Project-Id': 'p' };
  const signed = await sign({ method: 'get', url: 'https://example.com/', headers }, KEY, { now });
  expect(signed['X-Sdk-Date']).toBe('20261114T100000Z');
  expect(signed.Authorization).toMatch(
    /^SDK-HMAC-SHA256 Access=AK, SignedHeaders=accept;host;x-project-id;x-sdk-date, Signature=[0-9a-f]{64}$/,
  );
});

test('a request that was signed before is signed anew', async () => {
  const request = { method: 'GET', url: 'https://example.com/' };
  const before = await sign(request, KEY, { now: () => 0 });
  expect(await sign({ ...request, headers: before }, KEY, { now })).toEqual(
    await sign(request, KEY, { now }),
  );
});

test('the content hash that the request carries stands in for the body', async () => {
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

test('without a body, with an empty one, and past a fragment the signature is the same', async () => {
  const plain = await signatureOf({ method: 'GET', url: 'https://example.com/a' });
  expect(await signatureOf({ method: 'GET', url: 'https://example.com:443/a#b', body: '' })).toBe(plain);
});

test('bytes in shared memory are a body too', async () => {
  const request = { method: 'POST', url: 'https://example.com/' };
  const body = new Uint8Array(new SharedArrayBuffer(2));
  expect(await signatureOf({ ...request, body })).toBe(await signatureOf({ ...request, body: '\0\0' }));
});

test('a host header of the request is signed in place of the host of the address', async () => {
  const headers = { Host: 'waf.example.com' };
  expect(await signatureOf({ method: 'GET', url: 'http://10.0.0.1:8080/', headers })).toBe(
    await signatureOf({ method: 'GET', url: 'https://waf.example.com/' }),
  );
});

test('an empty key is refused by name, not by Web Crypto', async () => {
  const request = { method: 'GET', url: 'https://example.com/' };
  await expect(sign(request, { access: 'AK', secret: '' })).rejects.toThrow('its secret is empty');
});

test('any one character of a signed part changes the signature', async () => {
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
    fc.asyncProperty(change, fc.nat(), async ([one, other, part], place) => {
      const at = place % one[part].length;
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

let server: Server;
let origin: string;

beforeAll(async () => {
  server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => response.writeHead(verified(request, Buffer.concat(chunks)) ? 204 : 401).end());
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  // A server that listens on a port has an address of this form.
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

afterAll(() => new Promise((closed) => server.close(closed)));

test('what is signed is what fetch sends, and a server verifies it with the same stages and node:crypto', async () => {
  const text = fc.string({ unit: 'binary', maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(fc.array(text), fc.array(text), text, async (segments, pairs, body) => {
      const request = { method: 'POST', url: `${origin}/${segments.join('/')}?${pairs.join('&')}`, body };
      const headers = await sign(request, KEY, { now });
      expect((await fetch(request.url, { ...request, headers })).status).toBe(204);
    }),
  );
});

function verified(request: IncomingMessage, body: Buffer): boolean {
  const [path = '', query = ''] = (request.url ?? '').split(/\?(.*)/s);
  const [, names = '', signature] =
    /SignedHeaders=([^,]+), Signature=([0-9a-f]+)$/.exec(request.headers.authorization ?? '') ?? [];
  const headers = Object.fromEntries(names.split(';').map((name) => [name, String(request.headers[name])]));
  const bodyHash = createHash('sha256').update(body).digest('hex');
  const canonical = canonicalRequest({ method: request.method ?? '', path, query, headers, bodyHash });
  const toSign = stringToSign(
    headers['x-sdk-date'] ?? '',
    createHash('sha256').update(canonical).digest('hex'),
  );
  return createHmac('sha256', KEY.secret).update(toSign).digest('hex') === signature;
}
