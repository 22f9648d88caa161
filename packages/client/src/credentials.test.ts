import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { buildClient } from './client.ts';
import { sleep } from './transport.ts';

const START = Date.UTC(2026, 10, 14, 10);
const HOUR_MS = 3_600_000;
const CREDENTIALS = { user: 'u', password: 'secret', domain: 'd' };

interface Service {
  tokensUsed: unknown[];
  tokenRequests: { url: string | undefined; body: unknown }[];
  isValid: (token: unknown) => boolean;
  tokenReply: (count: number) => { status: number; headers?: Record<string, string>; body: unknown };
}

/** A service that numbers its tokens, and a client with a clock to set. */
async function setUp() {
  const service: Service = {
    tokensUsed: [],
    tokenRequests: [],
    isValid: () => true,
    tokenReply: (count) => ({
      status: 201,
      headers: { 'X-Subject-Token': `t${count}` },
      body: { token: { expires_at: new Date(clock.now + 24 * HOUR_MS).toISOString().replace('Z', '000Z') } },
    }),
  };
  const clock = { now: START };
  const server = createServer(async (request, response) => {
    if (request.method === 'POST') {
      const count = service.tokenRequests.push({ url: request.url, body: JSON.parse(await text(request)) });
      const { status, headers = {}, body } = service.tokenReply(count);
      response.writeHead(status, headers).end(JSON.stringify(body));
      return;
    }
    const token = request.headers['x-auth-token'];
    service.tokensUsed.push(token);
    response.writeHead(service.isValid(token) ? 200 : 401).end('{"total":0,"items":[]}');
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(() => {
    server.close();
  });
  // A TCP server has an address of this form.
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const clientOf = (identityUrl?: string) =>
    buildClient(
      { url, projectId: 'p1', credentials: { ...CREDENTIALS, identityUrl } },
      { now: () => clock.now, sleep, random: Math.random },
    );
  return { service, clock, client: clientOf(), clientOf, url };
}

test('requests a token as the API specification says', async () => {
  const { service, client } = await setUp();
  await client.sources();
  const user = { name: 'u', password: 'secret', domain: { name: 'd' } };
  const auth = { identity: { methods: ['password'], password: { user } }, scope: { project: { id: 'p1' } } };
  expect(service.tokenRequests).toEqual([{ url: '/v3/auth/tokens', body: { auth } }]);
});

test.each(['/identity', '/identity/', '/identity/v3', '/identity/v3/'])(
  'identityUrl may end in %s',
  async (path) => {
    const { service, clientOf, url } = await setUp();
    await clientOf(`${url}${path}`).sources();
    expect(service.tokenRequests[0]?.url).toBe('/identity/v3/auth/tokens');
  },
);

test('concurrent calls share one token, and later calls use it until five minutes before it expires', async () => {
  const { service, client, clock } = await setUp();
  await Promise.all([client.sources(), client.hosts(), client.sources()]);
  clock.now = START + 24 * HOUR_MS - 5 * 60_000 - 1;
  await client.sources();
  expect(service.tokensUsed).toEqual(['t1', 't1', 't1', 't1']);
  clock.now += 1;
  await client.sources();
  expect(service.tokensUsed.at(-1)).toBe('t2');
});

test('a token without expires_at is used for 24 hours', async () => {
  const { service, client, clock } = await setUp();
  service.tokenReply = (count) => ({ status: 201, headers: { 'X-Subject-Token': `t${count}` }, body: {} });
  await client.sources();
  clock.now += 23 * HOUR_MS;
  await client.sources();
  clock.now += HOUR_MS;
  await client.sources();
  expect(service.tokensUsed).toEqual(['t1', 't1', 't2']);
});

test('concurrent calls that are refused get one new token', async () => {
  const { service, client } = await setUp();
  await client.sources();
  service.isValid = (token) => token !== 't1';
  await Promise.all([client.sources(), client.hosts(), client.sources()]);
  expect(service.tokenRequests).toHaveLength(2);
  expect(service.tokensUsed.filter((token) => token === 't2')).toHaveLength(3);
});

test('a call fails if the new token is refused too', async () => {
  const { service, client } = await setUp();
  service.isValid = () => false;
  await expect(client.sources()).rejects.toMatchObject({ status: 401 });
  expect(service.tokensUsed).toEqual(['t1', 't2']);
});

test('a wrong password is reported with the message of the identity service, and not retried', async () => {
  const { service, client } = await setUp();
  const tokenReply = service.tokenReply;
  const error = { code: 401, title: 'Unauthorized', message: 'The username or password is wrong.' };
  service.tokenReply = () => ({ status: 401, body: { error } });
  await expect(client.sources()).rejects.toMatchObject({
    name: 'WafstatError',
    status: 401,
    message: 'The username or password is wrong.',
  });
  expect(service.tokenRequests).toHaveLength(1);
  expect(service.tokensUsed).toEqual([]);

  service.tokenReply = tokenReply;
  await client.sources();
  expect(service.tokensUsed).toEqual(['t2']);
});

test('a response without a token is an error', async () => {
  const { service, client } = await setUp();
  service.tokenReply = () => ({ status: 201, body: {} });
  await expect(client.sources()).rejects.toThrow(/POST http.* has no X-Subject-Token\.$/);
});

test('an aborted call leaves the token request to the other calls', async () => {
  const { service, client } = await setUp();
  const controller = new AbortController();
  const aborted = client.sources({ signal: controller.signal });
  const other = client.sources();
  controller.abort();
  await expect(aborted).rejects.toMatchObject({ name: 'AbortError' });
  await other;
  expect(service.tokenRequests).toHaveLength(1);
});
