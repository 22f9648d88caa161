import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { createClient } from './client.ts';
import { passwordAuthorizer } from './password-authorizer.ts';

const START = Date.UTC(2026, 10, 14, 10);
const HOUR_MS = 3_600_000;
const CREDENTIALS = { user: 'u', password: 'secret', domain: 'd', projectId: 'p1' };

interface Service {
  /** What the API was asked with, and what the identity service was. */
  tokensUsed: unknown[];
  tokenRequests: { url: string | undefined; body: unknown }[];
  valid: (token: unknown) => boolean;
  tokenReply: (count: number) => { status: number; headers?: Record<string, string>; body: unknown };
}

/** A service that numbers its tokens and accepts those in `valid`, and a client of it with a clock to turn. */
async function setUp() {
  const service: Service = {
    tokensUsed: [],
    tokenRequests: [],
    valid: () => true,
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
    response.writeHead(service.valid(token) ? 200 : 401).end('{"total":0,"items":[]}');
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(() => {
    server.close();
  });
  // A server that listens on a port has an address of this form.
  const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const identity = { ...CREDENTIALS, identityUrl: `${baseUrl}/identity`, now: () => clock.now };
  const client = createClient({ baseUrl, projectId: 'p1', authorize: passwordAuthorizer(identity) });
  return { service, clock, client, identity, baseUrl };
}

test('asks for a token as the specification says', async () => {
  const { service, client } = await setUp();
  await client.connections();
  const user = { name: 'u', password: 'secret', domain: { name: 'd' } };
  const auth = { identity: { methods: ['password'], password: { user } }, scope: { project: { id: 'p1' } } };
  expect(service.tokenRequests).toEqual([{ url: '/identity/v3/auth/tokens', body: { auth } }]);
});

test.each(['/identity/', '/identity/v3', '/identity/v3/'])('the address may end in %s', async (path) => {
  const { service, identity, baseUrl } = await setUp();
  const authorize = passwordAuthorizer({ ...identity, identityUrl: `${baseUrl}${path}` });
  await createClient({ baseUrl, projectId: 'p1', authorize }).connections();
  expect(service.tokenRequests[0]?.url).toBe('/identity/v3/auth/tokens');
});

test('calls at the same time share one token, and later ones use it until five minutes before its end', async () => {
  const { service, client, clock } = await setUp();
  await Promise.all([client.connections(), client.hosts(), client.connections()]);
  clock.now = START + 24 * HOUR_MS - 5 * 60_000 - 1;
  await client.connections();
  expect(service.tokensUsed).toEqual(['t1', 't1', 't1', 't1']);
  clock.now += 1;
  await client.connections();
  expect(service.tokensUsed.at(-1)).toBe('t2');
});

test('without an end in the answer a token lasts 24 hours', async () => {
  const { service, client, clock } = await setUp();
  service.tokenReply = (count) => ({ status: 201, headers: { 'X-Subject-Token': `t${count}` }, body: {} });
  await client.connections();
  clock.now += 23 * HOUR_MS;
  await client.connections();
  clock.now += HOUR_MS;
  await client.connections();
  expect(service.tokensUsed).toEqual(['t1', 't1', 't2']);
});

test('calls that are refused together get one new token', async () => {
  const { service, client } = await setUp();
  await client.connections();
  service.valid = (token) => token !== 't1';
  await Promise.all([client.connections(), client.hosts(), client.connections()]);
  expect(service.tokenRequests).toHaveLength(2);
  expect(service.tokensUsed.filter((token) => token === 't2')).toHaveLength(3);
});

test('a call that the new token does not help fails with the second 401', async () => {
  const { service, client } = await setUp();
  service.valid = () => false;
  await expect(client.connections()).rejects.toMatchObject({ status: 401 });
  expect(service.tokensUsed).toEqual(['t1', 't2']);
});

test('a wrong password is reported in the words of the identity service, and not tried again', async () => {
  const { service, client } = await setUp();
  const tokenReply = service.tokenReply;
  const error = { code: 401, title: 'Unauthorized', message: 'The username or password is wrong.' };
  service.tokenReply = () => ({ status: 401, body: { error } });
  await expect(client.connections()).rejects.toMatchObject({
    name: 'WafstatError',
    status: 401,
    message: 'The username or password is wrong.',
  });
  expect(service.tokenRequests).toHaveLength(1);
  expect(service.tokensUsed).toEqual([]);

  service.tokenReply = tokenReply;
  await client.connections();
  expect(service.tokensUsed).toEqual(['t2']);
});

test('an answer without a token is reported as that', async () => {
  const { service, client } = await setUp();
  service.tokenReply = () => ({ status: 201, body: {} });
  await expect(client.connections()).rejects.toThrow(/POST http.* has no X-Subject-Token\.$/);
});

test('the failure of one aborted caller leaves the token to the others', async () => {
  const { service, client } = await setUp();
  const controller = new AbortController();
  const aborted = client.connections({ signal: controller.signal });
  const other = client.connections();
  controller.abort();
  await expect(aborted).rejects.toMatchObject({ name: 'AbortError' });
  await other;
  expect(service.tokenRequests).toHaveLength(1);
});
