/** Health checks, OpenAPI, the root page and request IDs. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Api, call, sendRaw } from './api.ts';
import { Sandbox } from './sandbox.ts';

const REQUEST_ID = /^[0-9A-Za-z-]{8,}$/;

const sandbox = new Sandbox();
let api: Api;
let otherProject: Api;
let address: string;

beforeAll(async () => {
  ({ api } = await sandbox.service());
  address = api.address;
  otherProject = new Api(address, 'other', api.token);
});
afterAll(() => sandbox.clear());

test('/healthz and /readyz need no credentials', async () => {
  for (const path of ['/healthz', '/readyz']) expect((await call(address, path)).status).toBe(200);
});

test('/openapi.json describes every operation of the specification, without credentials', async () => {
  const { status, headers, text } = await call(address, '/openapi.json');
  expect(status).toBe(200);
  expect(headers['content-type']).toMatch(/^application\/json/);
  const { openapi, paths } = JSON.parse(text);
  expect(openapi).toMatch(/^3\.1\./);
  for (const path of [
    '/v1/{project_id}/waf/event/timeline',
    '/v1/{project_id}/waf/event/attack/type',
    '/v1/{project_id}/connections',
    '/v1/{project_id}/waf/instance',
  ]) {
    expect(paths[path].get.responses['200']).toBeDefined();
  }
  expect(paths['/v3/auth/tokens'].post.responses['201']).toBeDefined();
});

describe('GET /', () => {
  test('is a page for a browser, possibly after a redirect', async () => {
    const headers = { accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8' };
    const first = await call(address, '/', { headers });
    const { location } = first.headers;
    const page = location === undefined ? first : await call(address, location, { headers });
    expect(page.status).toBe(200);
    expect(page.headers['content-type']).toMatch(/^text\/html/);
    expect(page.text).toMatch(/<title>/);
    for (const answer of [first, page]) expect(answer.headers['x-request-id']).toMatch(REQUEST_ID);
  });

  test.each([{ accept: 'application/json' }, { accept: '*/*' }, {}])(
    'has the versions for a client with %j',
    async (headers) => {
      const { status, text } = await call(address, '/', { headers });
      expect(status).toBe(300);
      expect(JSON.parse(text).versions.values).toHaveLength(3);
    },
  );
});

describe('every response has a request ID', () => {
  const large = { method: 'POST', body: 'x'.repeat(66_000) };

  test.each<[number, string, () => ReturnType<typeof call>]>([
    [200, 'a query', () => api.get('waf/event/timeline?from=0&to=1')],
    [200, 'a check of health', () => call(address, '/healthz')],
    [400, 'a bad parameter', () => api.get('waf/event/timeline?from=x&to=1')],
    [400, 'a path that cannot be decoded', () => call(address, '/v1/%zz')],
    [401, 'no token', () => call(address, '/v1/p/connections')],
    [403, 'another project', () => otherProject.get('connections')],
    [404, 'no such path', () => call(address, '/nowhere')],
    [405, 'a wrong method', () => call(address, '/healthz', { method: 'DELETE' })],
    [413, 'a large body', () => call(address, '/v3/auth/tokens', large)],
  ])('%i: %s', async (status, _, ask) => {
    const answer = await ask();
    expect(answer.status).toBe(status);
    expect(answer.headers['x-request-id']).toMatch(REQUEST_ID);
  });

  test.each([
    ['what is not HTTP', 'HELLO\r\n\r\n'],
    ['a length that is none', 'POST / HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n'],
    ['headers that are too long', `GET / HTTP/1.1\r\nHost: x\r\nX-Long: ${'x'.repeat(300_000)}\r\n\r\n`],
    ['no Host header', 'GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n'],
    [
      'an expectation that cannot be met',
      'GET /healthz HTTP/1.1\r\nHost: x\r\nExpect: tea\r\nConnection: close\r\n\r\n',
    ],
  ])('malformed request: %s', async (_, bytes) => {
    const answer = await sendRaw(address, bytes);
    expect(answer).toMatch(/^HTTP\/1\.1 4\d\d /);
    expect(answer).toMatch(/^X-Request-Id: [0-9A-Za-z-]{8,}\r$/im);
    expect(JSON.parse(answer.split('\r\n\r\n', 2)[1] ?? '')).toEqual({
      error_code: 'WAF.1001',
      error_msg: expect.any(String),
    });
  });

  test('all different', async () => {
    const ids = new Set<unknown>();
    for (let i = 0; i < 50; i++) ids.add((await call(address, '/healthz')).headers['x-request-id']);
    expect(ids.size).toBe(50);
  });
});
