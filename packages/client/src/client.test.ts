import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { tokenAuthorizer } from './authorize.ts';
import { type ClientOptions, createClient } from './client.ts';
import { WafstatError } from './error.ts';
import { ATTACK_TYPES } from './results.ts';
import { ANSWER_MS_MAX } from './send.ts';

interface Reply {
  status?: number;
  headers?: Record<string, string>;
  body?: unknown;
}

const NOW = Date.UTC(2026, 10, 14, 10);
const TIMELINE = { requests: [{ time: 60_000, num: 7 }], attacks: [{ time: 60_000, num: 2 }] };
const RANGE = { from: 0, to: 60_000 };

/** A client of a real server that gives these replies in turn, the last one for ever; its waits are only noted. */
async function setUp(replies: Reply[], options: Partial<ClientOptions> = {}) {
  const requests: IncomingMessage[] = [];
  const baseUrl = await listen((request) => {
    requests.push(request);
    return replies[Math.min(requests.length, replies.length) - 1] ?? {};
  });
  const waits_ms: number[] = [];
  const sleep = async (time_ms: number) => {
    waits_ms.push(time_ms);
  };
  const defaults = {
    baseUrl,
    projectId: 'p1',
    authorize: tokenAuthorizer('t'),
    now: () => NOW,
    random: () => 0,
  };
  return { client: createClient({ ...defaults, sleep, ...options }), requests, waits_ms, baseUrl };
}

async function listen(reply: (request: IncomingMessage) => Reply): Promise<string> {
  // Node.js allows 16 KiB by default, which a thousand hosts exceed.
  const server = createServer({ maxHeaderSize: 64 * 1024 }, (request, response) => {
    const { status = 200, headers = {}, body = '' } = reply(request);
    if (status === 0) return; // A server that accepts the request and never answers.
    response.writeHead(status, headers).end(typeof body === 'string' ? body : JSON.stringify(body));
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  // A server that listens on a port has an address of this form.
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const failureOf = (call: Promise<unknown>) =>
  call.then(
    () => expect.unreachable(),
    (error: unknown) => error,
  );

describe('queries', () => {
  test('a timeline: the plus of the time zone is encoded, and hosts repeat', async () => {
    const { client, requests } = await setUp([{ body: TIMELINE }]);
    expect(await client.timeline({ ...RANGE, timezone: '+08:00', hosts: ['a', 'b'] })).toEqual(TIMELINE);
    expect(requests[0]?.method).toBe('GET');
    expect(requests[0]?.url).toBe(
      '/v1/p1/waf/event/timeline?from=0&to=60000&timezone=%2B08%3A00&hosts=a&hosts=b',
    );
    expect(requests[0]?.headers).toMatchObject({ 'x-auth-token': 't', accept: 'application/json' });
  });

  test('a thousand hosts fit', async () => {
    const { client, requests } = await setUp([{ body: TIMELINE }]);
    const hosts = Array.from({ length: 1000 }, (_, n) => n.toString(16).padStart(32, '0'));
    await client.timeline({ recent: '1week', hosts });
    expect(new URL(requests[0]?.url ?? '', 'http://x').searchParams.getAll('hosts')).toEqual(hosts);
    expect(requests[0]?.url).toMatch(/&recent=1week$/);
  });

  test('attack types', async () => {
    const counts = Object.fromEntries(ATTACK_TYPES.map((type, n) => [type, n]));
    const { client, requests } = await setUp([{ body: counts }]);
    expect((await client.attackTypes(RANGE)).webshell).toBe(12);
    expect(requests[0]?.url).toBe('/v1/p1/waf/event/attack/type?from=0&to=60000');
  });

  test('hosts and connections, with a space that is no plus', async () => {
    const { client, requests } = await setUp([{ body: { total: 0, items: [] } }]);
    expect(await client.hosts({ offset: 10, limit: 5, hostname: 'a b+c' })).toEqual({ total: 0, items: [] });
    await client.hosts();
    expect(await client.connections()).toEqual({ total: 0, items: [] });
    await client.connections({ offset: 20, limit: 10 });
    expect(requests.map(({ url }) => url)).toEqual([
      '/v1/p1/waf/instance?offset=10&limit=5&hostname=a%20b%2Bc',
      '/v1/p1/waf/instance',
      '/v1/p1/connections',
      '/v1/p1/connections?offset=20&limit=10',
    ]);
  });

  test('an empty list of hosts is not taken for all of them', async () => {
    const { client, requests } = await setUp([{ body: TIMELINE }]);
    await expect(client.timeline({ ...RANGE, hosts: [] })).rejects.toThrow('hosts is empty');
    expect(requests).toHaveLength(0);
  });

  test('a slash at the end of the address, and a project ID that needs encoding', async () => {
    const { baseUrl, requests } = await setUp([{ body: { total: 0, items: [] } }]);
    const options = { baseUrl: `${baseUrl}/api/`, projectId: 'a/b', authorize: tokenAuthorizer('t') };
    await createClient(options).connections();
    expect(requests[0]?.url).toBe('/api/v1/a%2Fb/connections');
  });
});

describe('failures', () => {
  test('the words and the code of the API, with the request ID', async () => {
    const body = { error_code: 'WAF.1025', error_msg: 'from (2) is after to (1)' };
    const { client } = await setUp([{ status: 400, headers: { 'X-Request-Id': 'r1' }, body }]);
    const error = await failureOf(client.timeline({ from: 2, to: 1 }));
    expect(error).toBeInstanceOf(WafstatError);
    expect(error).toMatchObject({
      name: 'WafstatError',
      status: 400,
      errorCode: 'WAF.1025',
      message: 'from (2) is after to (1)',
      requestId: 'r1',
    });
  });

  test.each([
    ['<h1>Bad Gateway</h1>', 502, /^GET http:.*\/connections answered 502 and gave no reason\.$/],
    ['null', 500, /answered 500 and gave no reason/],
    ['<!doctype html>', 200, /^The answer to GET http:.*\/connections is not JSON/],
    ['{"total":1}', 200, /lacks items/],
    ['[]', 200, /lacks total/],
  ])('%s with status %i', async (body, status, message) => {
    const { client } = await setUp([{ status, body }]);
    const error = await failureOf(client.connections());
    expect(error).toMatchObject({ name: 'WafstatError', status, message: expect.stringMatching(message) });
  });

  test('a 401 is final when the authorizer has nothing new', async () => {
    const { client, requests } = await setUp([{ status: 401 }]);
    await expect(client.connections()).rejects.toMatchObject({ status: 401 });
    expect(requests).toHaveLength(1);
  });

  test('no server', async () => {
    const { client } = await setUp([], { baseUrl: 'http://127.0.0.1:1' });
    const error = await failureOf(client.connections());
    expect(error).toMatchObject({ name: 'WafstatError', status: undefined });
    expect(String(error)).toMatch(/GET http:\/\/127\.0\.0\.1:1\/v1\/p1\/connections got no answer: .+\.$/);
  });

  test('a redirect is not followed, because the token would go with it', async () => {
    const elsewhere = await setUp([{ body: { total: 0, items: [] } }]);
    const { client } = await setUp([{ status: 307, headers: { Location: elsewhere.baseUrl } }]);
    await expect(client.connections()).rejects.toThrow('got no answer: unexpected redirect');
    expect(elsewhere.requests).toHaveLength(0);
  });

  test('a server that never answers', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => {
      vi.useRealTimers();
    });
    const { client, requests } = await setUp([{ status: 0 }]);
    const failure = failureOf(client.connections());
    await vi.waitUntil(() => requests.length === 1);
    vi.advanceTimersByTime(ANSWER_MS_MAX);
    expect(String(await failure)).toMatch(/got no answer within 60 seconds\.$/);
  });
});

describe('retries', () => {
  const ok = { body: { total: 0, items: [] } };

  test('429 and 503 are tried again, each wait twice as long', async () => {
    const { client, requests, waits_ms } = await setUp([
      { status: 429 },
      { status: 503 },
      { status: 503 },
      ok,
    ]);
    await client.connections();
    expect(requests).toHaveLength(4);
    expect(waits_ms).toEqual([250, 500, 1000]);
  });

  test('the random part is at most as long again', async () => {
    const { client, waits_ms } = await setUp([{ status: 429 }, ok], { random: () => 1 });
    await client.connections();
    expect(waits_ms).toEqual([500]);
  });

  test('the fourth failure is the last', async () => {
    const { client, requests } = await setUp([{ status: 503, body: { error_code: 'WAF.5001' } }]);
    await expect(client.connections()).rejects.toMatchObject({ status: 503, errorCode: 'WAF.5001' });
    expect(requests).toHaveLength(4);
  });

  test.each([
    ['7', 7000],
    ['0', 0],
    [new Date(NOW + 3000).toUTCString(), 3000],
    [new Date(NOW - 3000).toUTCString(), 0],
    ['soon', 250],
  ])('Retry-After: %s is a wait of %i ms', async (value, wait_ms) => {
    const { client, waits_ms } = await setUp([{ status: 429, headers: { 'Retry-After': value } }, ok]);
    await client.connections();
    expect(waits_ms).toEqual([wait_ms]);
  });

  test('a wait of more than a minute is left to the caller', async () => {
    const { client, waits_ms } = await setUp([{ status: 429, headers: { 'Retry-After': '61' } }, ok]);
    await expect(client.connections()).rejects.toMatchObject({ status: 429 });
    expect(waits_ms).toEqual([]);
  });

  test.each([400, 403, 404, 500, 502])('%i is not tried again', async (status) => {
    const { client, requests } = await setUp([{ status }, ok]);
    await expect(client.connections()).rejects.toMatchObject({ status });
    expect(requests).toHaveLength(1);
  });

  test('every attempt is authorized anew, because a signature has a date', async () => {
    let count = 0;
    const authorize = () => ({ 'X-Auth-Token': `t${++count}` });
    const { client, requests } = await setUp([{ status: 503 }, ok], { authorize });
    await client.connections();
    expect(requests.map(({ headers }) => headers['x-auth-token'])).toEqual(['t1', 't2']);
  });
});

describe('an aborted signal', () => {
  const reason = new Error('the user left the page');

  test('before the call sends nothing', async () => {
    const { client, requests } = await setUp([]);
    expect(await failureOf(client.connections({ signal: AbortSignal.abort(reason) }))).toBe(reason);
    expect(requests).toHaveLength(0);
  });

  test('ends the request', async () => {
    const { client, requests } = await setUp([{ status: 0 }]);
    const controller = new AbortController();
    const failure = failureOf(client.timeline({ ...RANGE, signal: controller.signal }));
    await vi.waitUntil(() => requests.length === 1);
    controller.abort(reason);
    expect(await failure).toBe(reason);
  });

  test('ends the wait between attempts', async () => {
    const { client, requests } = await setUp([{ status: 503, headers: { 'Retry-After': '60' } }], {
      sleep: undefined,
    });
    const controller = new AbortController();
    const failure = failureOf(client.connections({ signal: controller.signal }));
    await vi.waitUntil(() => requests.length === 1);
    controller.abort(reason);
    expect(await failure).toBe(reason);
  });

  test('ends the wait for a token', async () => {
    const controller = new AbortController();
    const { client } = await setUp([], { authorize: () => new Promise(() => controller.abort(reason)) });
    expect(await failureOf(client.connections({ signal: controller.signal }))).toBe(reason);
  });
});
