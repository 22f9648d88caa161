import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { ATTACK_TYPES, buildClient, type Client, type ClientOptions, createClient } from './client.ts';
import { sleep, type Timing, unlessAborted, WafstatError } from './transport.ts';

interface Reply {
  /** 0: the server accepts the request and never responds. -1: it closes the connection. */
  status?: number;
  headers?: Record<string, string>;
  body?: unknown;
}

interface Received {
  method: string | undefined;
  url: string | undefined;
  headers: IncomingMessage['headers'];
  body: string;
}

const NOW = Date.UTC(2026, 10, 14, 10);
const TIMELINE = { requests: [{ time: 60_000, num: 7 }], attacks: [{ time: 60_000, num: 2 }] };
const RANGE = { from: 0, to: 60_000 };

/** A client of a real server that sends these replies in order, and repeats the last one. Waits are recorded, not waited. */
async function setUp(replies: Reply[], options: Partial<ClientOptions> = {}, timing: Partial<Timing> = {}) {
  const requests: Received[] = [];
  const url = await listen((request) => {
    requests.push(request);
    return replies[Math.min(requests.length, replies.length) - 1] ?? {};
  });
  const waitsMs: number[] = [];
  const clock: Timing = {
    now: () => NOW,
    random: () => 0,
    sleep: async (ms) => {
      waitsMs.push(ms);
    },
    ...timing,
  };
  const defaults = { url, projectId: 'p1', credentials: { token: 't' } };
  return { client: buildClient({ ...defaults, ...options }, clock), requests, waitsMs, url };
}

async function listen(reply: (request: Received) => Reply): Promise<string> {
  // The default of 16 KiB is too little for a thousand hosts.
  const server = createServer({ maxHeaderSize: 64 * 1024 }, async (request, response) => {
    const { method, url, headers: sent } = request;
    const {
      status = 200,
      headers = {},
      body = '',
    } = reply({ method, url, headers: sent, body: await text(request) });
    if (status === -1) request.socket.destroy();
    if (status <= 0) return;
    response.writeHead(status, headers).end(typeof body === 'string' ? body : JSON.stringify(body));
  });
  await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  // A TCP server has an address of this form.
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

const failureOf = (call: Promise<unknown>) =>
  call.then(
    () => expect.unreachable(),
    (error: unknown) => error,
  );

describe('queries', () => {
  test('timeline encodes the plus of the time zone and repeats hosts', async () => {
    const { client, requests } = await setUp([{ body: TIMELINE }]);
    expect(await client.timeline({ ...RANGE, timezone: '+08:00', hosts: ['a', 'b'] })).toEqual(TIMELINE);
    expect(requests[0]?.method).toBe('GET');
    expect(requests[0]?.url).toBe(
      '/v1/p1/waf/event/timeline?from=0&to=60000&timezone=%2B08%3A00&hosts=a&hosts=b',
    );
    expect(requests[0]?.headers).toMatchObject({ 'x-auth-token': 't', accept: 'application/json' });
  });

  test('a query may have a thousand hosts', async () => {
    const { client, requests } = await setUp([{ body: TIMELINE }]);
    const hosts = Array.from({ length: 1000 }, (_, n) => n.toString(16).padStart(32, '0'));
    await client.timeline({ recent: '1week', hosts });
    expect(new URL(requests[0]?.url ?? '', 'http://x').searchParams.getAll('hosts')).toEqual(hosts);
    expect(requests[0]?.url).toMatch(/&recent=1week$/);
  });

  test('attackTypes returns a count for each category', async () => {
    const counts = Object.fromEntries(ATTACK_TYPES.map((type, n) => [type, n]));
    const { client, requests } = await setUp([{ body: counts }]);
    expect((await client.attackTypes(RANGE)).webshell).toBe(12);
    expect(requests[0]?.url).toBe('/v1/p1/waf/event/attack/type?from=0&to=60000');
  });

  const list = { total: 0, items: [] };
  const threats = { threats: ['xss'], locale: { xss: 'XSS' } };
  const host = { id: 'a/b', hostname: 'www', timestamp: 0 };
  const coverage = { attacks: 3, distinct_is: 'exact', error: 0, from: 0, to: 3_600_000 };
  const attacks = { ...list, ...coverage };
  const classification = { domain: list, attack_type: list, ip: attacks, url: attacks, geo: attacks };
  const events = { ...list, matched_attacks: 0, attacks: 0, kept: 0, kept_attacks: 0, complete: true };
  const situation = { state: 'quiet', sentence: 'Quiet: no attacks in the last hour.', bursts: [] };
  const whole = { ...RANGE, timezone: '-01:00', hosts: ['h'] };
  const RANGE_SENT = 'from=0&to=60000';
  const WHOLE_SENT = `${RANGE_SENT}&timezone=-01%3A00&hosts=h`;

  test.each<[string, unknown, (client: Client) => Promise<unknown>]>([
    [`event/attack/num?${RANGE_SENT}`, { attack_num: 3 }, (client) => client.attackCount(RANGE)],
    [`event/attack/domain?${WHOLE_SENT}&top=3`, list, (client) => client.attackedHosts({ ...whole, top: 3 })],
    [`event/request/peak?${WHOLE_SENT}`, { qps: 7 }, (client) => client.requestPeak(whole)],
    ['overviews/statistics?recent=today', [], (client) => client.overviewTotals({ recent: 'today' })],
    [
      `overviews/request/timeline?${WHOLE_SENT}&group_by=DAY`,
      [{ key: 'ACCESS', timeline: [] }],
      (client) => client.overviewTimeline({ ...whole, groupBy: 'DAY' }),
    ],
    [
      `overviews/qps/timeline?${RANGE_SENT}&group_by=DAY&display_option=0`,
      [],
      (client) => client.qpsTimeline({ ...RANGE, groupBy: 'DAY', displayOption: 0 }),
    ],
    [
      `overviews/response-code/timeline?${WHOLE_SENT}&group_by=DAY&response_source=UPSTREAM`,
      [{ key: '200', timeline: [] }],
      (client) => client.responseCodeTimeline({ ...whole, groupBy: 'DAY', responseSource: 'UPSTREAM' }),
    ],
    [
      `overviews/bandwidth/timeline?${RANGE_SENT}&display_option=1`,
      [],
      (client) => client.bandwidthTimeline({ ...RANGE, displayOption: 1 }),
    ],
    [
      `overviews/abnormal?${RANGE_SENT}&top=3&code=502`,
      { ...list, ...coverage, requests: 3 },
      (client) => client.errorPages({ ...RANGE, top: 3, code: 502 }),
    ],
    [`overviews/attack/timeline?${WHOLE_SENT}`, [], (client) => client.attackTimeline(whole)],
    [
      `overviews/attack/top-domains?${RANGE_SENT}&top=9`,
      list,
      (client) => client.topDomains({ ...RANGE, top: 9 }),
    ],
    [`overviews/attack/distribution?${RANGE_SENT}`, list, (client) => client.attackDistribution(RANGE)],
    [`overviews/attack/action-types?${RANGE_SENT}`, list, (client) => client.attackActions(RANGE)],
    [
      `overviews/classification?${RANGE_SENT}&top=5`,
      classification,
      (client) => client.classification({ ...RANGE, top: 5 }),
    ],
    [
      `event/attack/source?${WHOLE_SENT}&top=3&attacks=xss&attacks=cc`,
      attacks,
      (client) => client.attackSources({ ...whole, top: 3, attacks: ['xss', 'cc'] }),
    ],
    [
      `event/attack/source/num?${RANGE_SENT}&attacks=lfi`,
      { sip: 2, ...coverage },
      (client) => client.attackSourceCount({ ...RANGE, attacks: ['lfi'] }),
    ],
    [`overviews/attack/ip?${RANGE_SENT}`, attacks, (client) => client.topIps(RANGE)],
    [
      `overviews/attack/top-domains?${RANGE_SENT}&top=3&sips=192.0.2.0%2F24&nip_countries=DE&response_codes=403`,
      list,
      (client) =>
        client.topDomains({
          ...RANGE,
          top: 3,
          sips: ['192.0.2.0/24'],
          nipCountries: ['DE'],
          responseCodes: [403],
        }),
    ],
    [
      `overviews/attack/url?${RANGE_SENT}&top=1000`,
      attacks,
      (client) => client.topUrls({ ...RANGE, top: 1_000 }),
    ],
    [`overviews/attack/network?${RANGE_SENT}`, attacks, (client) => client.topNetworks(RANGE)],
    ['overviews/attack/rule?recent=today', attacks, (client) => client.topRules({ recent: 'today' })],
    [`overviews/attack/country?${WHOLE_SENT}`, attacks, (client) => client.topCountries(whole)],
    ['overviews/situation', situation, (client) => client.situation()],
    [`overviews/situation?${WHOLE_SENT}`, situation, (client) => client.situation(whole)],
    ['tag/threat/map', threats, (client) => client.threatMap()],
    ['map/threat', threats, (client) => client.threats()],
    ['instance/a%2Fb', host, (client) => client.host('a/b')],
    ['event/a%2Fb', list, (client) => client.event('a/b')],
    [
      'event?recent=today&timezone=%2B08%3A00&hosts=h&page=2&pagesize=5&sort_direction=asc',
      events,
      (client) =>
        client.events({
          recent: 'today',
          timezone: '+08:00',
          hosts: ['h'],
          page: 2,
          limit: 5,
          sortDirection: 'asc',
        }),
    ],
    [
      `event?${RANGE_SENT}&attacks=xss&nsips=192.0.2.0%2F24&nip_countries=DE&response_codes=403&response_codes=500&url=a&query_mode=equal&page=1&pagesize=100`,
      events,
      (client) =>
        client.events({
          ...RANGE,
          attacks: ['xss'],
          nsips: ['192.0.2.0/24'],
          nipCountries: ['DE'],
          responseCodes: [403, 500],
          url: 'a',
          queryMode: 'equal',
        }),
    ],
  ])('%s', async (path, body, call) => {
    const { client, requests } = await setUp([{ body }]);
    expect(await call(client)).toEqual(body);
    expect(requests.map(({ url }) => url)).toEqual([`/v1/p1/waf/${path}`]);
  });

  test.each(['dump', 'timeline', '.', '..'])(
    'the event %j, which has no path, is read from the list',
    async (id) => {
      const items = [{ id }];
      const { client, requests } = await setUp([{ body: { ...events, total: 1, items } }, { body: events }]);
      expect(await client.event(id)).toEqual({ total: 1, items });
      expect(requests[0]?.url).toMatch(
        new RegExp(`^/v1/p1/waf/event\\?from=\\d+&to=\\d+&ids=${id}&page=1&pagesize=1000$`),
      );
      await expect(client.event(id)).rejects.toMatchObject({ status: 404, errorCode: 'WAF.4000' });
    },
  );

  test('a response of another form is an error', async () => {
    const { client } = await setUp([{ body: { error: 0, length: 0 } }]);
    for (const call of [
      client.overviewTotals,
      client.overviewTimeline,
      client.qpsTimeline,
      client.attackTimeline,
    ]) {
      await expect(call(RANGE)).rejects.toThrow(/^The response to GET http:.* is not a list\. Check the URL/);
    }
    await expect(client.requestPeak(RANGE)).rejects.toThrow("has no field 'qps'");
  });

  test('hosts and sources return a page, and a space is not encoded as a plus', async () => {
    const { client, requests } = await setUp([{ body: { total: 0, items: [] } }]);
    expect(await client.hosts({ page: 3, limit: 5, hostname: 'a b+c' })).toEqual({ total: 0, items: [] });
    await client.hosts();
    await client.compositeHosts({ page: 2 });
    await client.premiumHosts({ limit: 7 });
    expect(await client.sources()).toEqual({ total: 0, items: [] });
    await client.sources({ offset: 20, limit: 10 });
    expect(requests.map(({ url }) => url)).toEqual([
      '/v1/p1/waf/instance?page=3&pagesize=5&hostname=a%20b%2Bc',
      '/v1/p1/waf/instance?page=1&pagesize=1000',
      '/v1/p1/composite-waf/host?page=2&pagesize=1000',
      '/v1/p1/premium-waf/host?page=1&pagesize=7',
      '/v1/p1/connections',
      '/v1/p1/connections?offset=20&limit=10',
    ]);
  });

  test('an empty list of hosts or categories is an error, not all of them', async () => {
    const { client, requests } = await setUp([{ body: TIMELINE }]);
    await expect(client.timeline({ ...RANGE, hosts: [] })).rejects.toThrow('hosts is empty');
    await expect(client.topRules({ ...RANGE, attacks: [] })).rejects.toThrow('attacks is empty');
    await expect(client.events({ ...RANGE, sips: [] })).rejects.toThrow('sips is empty');
    await expect(client.deleteEvents({ ids: [] })).rejects.toThrow('ids is empty');
    expect(requests).toHaveLength(0);
  });

  test('deleteEvents sends the filter, and the timeout is not part of it', async () => {
    const { client, requests } = await setUp([{ body: { deleted: 2 } }]);
    expect(await client.deleteEvents({ sips: ['192.0.2.1'], timeoutMs: 5_000 })).toEqual({ deleted: 2 });
    expect(requests[0]).toMatchObject({ method: 'DELETE', url: '/v1/p1/waf/event?sips=192.0.2.1' });
  });

  test('the URL may end in a slash, and the project ID is encoded', async () => {
    const { url, requests } = await setUp([{ body: { total: 0, items: [] } }]);
    await createClient({ url: `${url}/api/`, projectId: 'a/b' }).sources();
    expect(requests[0]?.url).toBe('/api/v1/a%2Fb/connections');
  });

  test('without credentials no authorization is sent', async () => {
    const { client, requests } = await setUp([{ body: TIMELINE }], { credentials: undefined });
    await client.timeline(RANGE);
    expect(requests[0]?.headers).not.toHaveProperty('x-auth-token');
  });
});

describe('iteration over pages', () => {
  const items = ['a', 'b', 'c', 'd', 'e'].map((id) => ({ id }));

  async function setUpPages(offsetOf: (query: URLSearchParams) => number, sizeName: string) {
    const sent: Received[] = [];
    const url = await listen((request) => {
      sent.push(request);
      const query = new URL(request.url ?? '', 'http://x').searchParams;
      const offset = offsetOf(query);
      return { body: { total: 5, items: items.slice(offset, offset + Number(query.get(sizeName) ?? 1000)) } };
    });
    return { client: createClient({ url, projectId: 'p1' }), sent };
  }

  const idsOf = async (pages: AsyncIterable<{ id: string }>) =>
    (await collect(pages)).map(({ id }) => id).join('');

  test.each([
    [{}, 'abcde', 1],
    [{ limit: 5 }, 'abcde', 1],
    [{ limit: 2 }, 'abcde', 3],
    [{ limit: 2, page: 2 }, 'cde', 2],
    [{ page: 9 }, '', 1],
  ])('of hosts: %j', async (query, expected, requests) => {
    const offsetOf = (query: URLSearchParams) =>
      (Number(query.get('page')) - 1) * Number(query.get('pagesize'));
    const { client, sent } = await setUpPages(offsetOf, 'pagesize');
    expect(await idsOf(client.hosts({ ...query, hostname: 'x' }))).toBe(expected);
    expect(sent).toHaveLength(requests);
    for (const { url } of sent) expect(url).toContain('hostname=x');
  });

  test.each([
    [{}, 'abcde', 1],
    [{ limit: 5 }, 'abcde', 1],
    [{ limit: 2 }, 'abcde', 3],
    [{ limit: 1, offset: 3 }, 'de', 2],
    [{ offset: 9 }, '', 1],
  ])('of log sources: %j', async (query, expected, requests) => {
    const { client, sent } = await setUpPages((query) => Number(query.get('offset')), 'limit');
    expect(await idsOf(client.sources(query))).toBe(expected);
    expect(sent).toHaveLength(requests);
  });

  test('of events: repeats the range and the filter, until a page is not full', async () => {
    const page = (ids: string) => ({
      body: { total: 5, items: [...ids].map((id) => ({ id })), attacks: 9, kept: 5, complete: false },
    });
    const { client, requests } = await setUp([page('ab'), page('cd'), page('e')]);
    const events = client.events({ ...RANGE, rules: ['942100'], limit: 2 });
    expect(await idsOf(events)).toBe('abcde');
    expect((await events).complete).toBe(false);
    expect(requests.map(({ url }) => url)).toEqual(
      [1, 2, 3].map((n) => `/v1/p1/waf/event?from=0&to=60000&rules=942100&page=${n}&pagesize=2`),
    );
  });

  test('a host that another one moves to the next page is seen once', async () => {
    const { client } = await setUp([
      { body: { total: 3, items: [{ id: 'b' }, { id: 'c' }] } },
      { body: { total: 4, items: [{ id: 'c' }, { id: 'd' }] } },
    ]);
    expect(await idsOf(client.hosts({ limit: 2 }))).toBe('bcd');
  });

  test('ends when a page is empty, even if the total says otherwise', async () => {
    const { client, requests } = await setUp([
      { body: { total: 9, items: ['a'] } },
      { body: { total: 9, items: [] } },
    ]);
    expect(await collect(client.sources())).toEqual(['a']);
    expect(requests).toHaveLength(2);
  });
});

describe('ingest', () => {
  const RESULT = { accepted: 2, dropped: {}, first_drops: [], without_host: 0, duplicate: false };
  const ok = { body: RESULT };
  const keyOf = ({ headers }: Received) => headers['idempotency-key'];

  test.each<[string, () => Parameters<ReturnType<typeof createClient>['ingest']>[0]]>([
    ['text', () => 'a\nö\n'],
    ['bytes', () => new TextEncoder().encode('a\nö\n')],
    ['a stream of text', () => Readable.from(['a\n', '', 'ö\n'])],
    ['a stream of bytes', () => Readable.from([Buffer.from('a\n'), Buffer.from('ö\n')])],
    ['a function that opens a stream', () => () => Readable.from(['a\nö\n'])],
  ])('pushes %s', async (_, lines) => {
    const { client, requests } = await setUp([ok]);
    const options = {
      source: 'edge 1',
      format: 'combined',
      hosts: 'registered',
      timezone: '+01:00',
    } as const;
    expect(await client.ingest(lines(), options)).toEqual(RESULT);
    expect(requests).toMatchObject([{ method: 'POST', body: 'a\nö\n', headers: { 'x-auth-token': 't' } }]);
    expect(requests[0]?.url).toBe(
      '/ingest/v1/p1?source=edge%201&format=combined&hosts=registered&timezone=%2B01%3A00',
    );
  });

  test('the idempotency key is random unless it is given', async () => {
    const { client, requests } = await setUp([ok]);
    await client.ingest('a');
    await client.ingest('a');
    await client.ingest('a', { idempotencyKey: 'k', contentEncoding: 'gzip' });
    const [first, second, given] = requests.map(keyOf);
    expect(first).toMatch(/^[0-9a-f]{32}$/);
    expect(second).not.toBe(first);
    expect(given).toBe('k');
    expect(requests.map(({ headers }) => headers['content-encoding'])).toEqual([
      undefined,
      undefined,
      'gzip',
    ]);
  });

  test('a retry sends the same lines with the same key', async () => {
    const { client, requests } = await setUp([{ status: -1 }, { status: 503 }, ok, { status: 503 }, ok]);
    await client.ingest('a\n');
    await client.ingest(() => Readable.from(['a\n']));
    expect(requests.map(({ body }) => body)).toEqual(Array(5).fill('a\n'));
    expect(new Set(requests.map(keyOf)).size).toBe(2);
  });

  test.each([503, -1, 401])('a stream is not sent again after status %i', async (status) => {
    const { client, requests } = await setUp([{ status }, ok]);
    await expect(client.ingest(Readable.from(['a\n']))).rejects.toThrow(WafstatError);
    expect(requests).toHaveLength(1);
  });

  test.each<[string, typeof fetch]>([
    ['a response that did not wait for it', async () => new Response('{}', { status: 413 })],
    [
      'a timeout',
      (_, init) =>
        new Promise((_resolve, reject) => {
          init?.signal?.addEventListener('abort', reject);
        }),
    ],
  ])('the source of a stream is closed after %s', async (_, fetch) => {
    const { client } = await setUp([], { fetch, timeoutMs: 50 });
    const source = Readable.from(['a\n', 'b\n', 'c\n']);
    await expect(client.ingest(source)).rejects.toThrow(WafstatError);
    await expect.poll(() => source.destroyed).toBe(true);
  });

  test('an error of the stream is passed on, and not retried', async () => {
    const { client } = await setUp([ok]);
    let opened = 0;
    async function* broken() {
      opened++;
      yield 'a\n';
      throw new Error('disk failed');
    }
    await expect(client.ingest(broken)).rejects.toThrow('disk failed');
    expect(opened).toBe(1);
  });
});

describe('failures', () => {
  test('an error has the message, code and request ID of the response', async () => {
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
    ['<h1>Bad Gateway</h1>', 502, /^GET http:.*\/connections returned 502 without an error message\.$/],
    ['null', 500, /returned 500 without an error message/],
    ['<!doctype html>', 200, /^The response to GET http:.*\/connections is not JSON/],
    ['{"total":1}', 200, /has no field 'items'/],
    ['[]', 200, /has no field 'total'/],
  ])('%s with status %i', async (body, status, message) => {
    const { client } = await setUp([{ status, body }]);
    const error = await failureOf(client.sources());
    expect(error).toMatchObject({ name: 'WafstatError', status, message: expect.stringMatching(message) });
  });

  test('a 401 is final for a token that cannot be renewed', async () => {
    const { client, requests } = await setUp([{ status: 401 }]);
    await expect(client.sources()).rejects.toMatchObject({ status: 401 });
    expect(requests).toHaveLength(1);
  });

  test('a service that is not running', async () => {
    const { client, waitsMs } = await setUp([], { url: 'http://127.0.0.1:1' });
    const error = await failureOf(client.sources());
    expect(error).toMatchObject({ name: 'WafstatError', status: undefined });
    expect(String(error)).toMatch(/GET http:\/\/127\.0\.0\.1:1\/v1\/p1\/connections got no response: .+\.$/);
    expect(waitsMs).toEqual([250, 500, 1000]);
  });

  test('a redirect is not followed, because the token would go with it', async () => {
    const elsewhere = await setUp([{ body: { total: 0, items: [] } }]);
    const { client, requests } = await setUp([{ status: 307, headers: { Location: elsewhere.url } }]);
    await expect(client.sources()).rejects.toThrow('was redirected');
    expect(elsewhere.requests).toHaveLength(0);
    expect(requests).toHaveLength(1);
  });

  test('a timeout is not retried', async () => {
    const { client, requests } = await setUp([{ status: 0 }], { timeoutMs: 50 });
    expect(await timeoutOf(() => client.sources(), requests, 50)).toMatch(
      /got no response within 0\.05 seconds\.$/,
    );
    expect(requests).toHaveLength(1);
  });

  test('a call may have its own timeout, or none', async () => {
    const { client, requests } = await setUp([{ status: 0 }, { status: 0 }, { body: TIMELINE }]);
    const own = { timeoutMs: 50 };
    for (const call of [() => client.sources(own), () => client.ingest('a', own)]) {
      expect(await timeoutOf(call, requests, 50)).toContain('within 0.05 seconds');
    }
    expect(await client.timeline({ ...RANGE, timeoutMs: Number.POSITIVE_INFINITY })).toEqual(TIMELINE);
  });

  test('without a timeout the call waits a minute', async () => {
    const { client, requests } = await setUp([{ status: 0 }]);
    expect(await timeoutOf(() => client.sources(), requests, 60_000)).toMatch(
      /got no response within 60 seconds\.$/,
    );
  });

  /** How a call fails if this time passes after the server has got it, however long that takes. */
  async function timeoutOf(
    call: () => Promise<unknown>,
    requests: readonly Received[],
    timeMs: number,
  ): Promise<string> {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => {
      vi.useRealTimers();
    });
    const before = requests.length;
    const failure = failureOf(call());
    await expect.poll(() => requests.length).toBe(before + 1);
    vi.advanceTimersByTime(timeMs);
    return String(await failure);
  }
});

describe('retries', () => {
  const ok = { body: { total: 0, items: [] } };

  test('each wait is twice as long as the one before', async () => {
    const { client, requests, waitsMs } = await setUp([
      { status: 429 },
      { status: 503 },
      { status: 503 },
      ok,
    ]);
    await client.sources();
    expect(requests).toHaveLength(4);
    expect(waitsMs).toEqual([250, 500, 1000]);
  });

  test('the random part at most doubles the wait', async () => {
    const { client, waitsMs } = await setUp([{ status: 429 }, ok], {}, { random: () => 1 });
    await client.sources();
    expect(waitsMs).toEqual([500]);
  });

  test('a call is retried three times by default', async () => {
    const { client, requests } = await setUp([{ status: 503, body: { error_code: 'WAF.5001' } }]);
    await expect(client.sources()).rejects.toMatchObject({ status: 503, errorCode: 'WAF.5001' });
    expect(requests).toHaveLength(4);
  });

  test.each([
    ['7', 7000],
    ['0', 0],
    [new Date(NOW + 3000).toUTCString(), 3000],
    [new Date(NOW - 3000).toUTCString(), 0],
    ['soon', 250],
  ])('Retry-After: %s is a wait of %i ms', async (value, waitMs) => {
    const { client, waitsMs } = await setUp([{ status: 429, headers: { 'Retry-After': value } }, ok]);
    await client.sources();
    expect(waitsMs).toEqual([waitMs]);
  });

  test('a call that would have to wait for over a minute fails at once', async () => {
    const { client, waitsMs } = await setUp([{ status: 429, headers: { 'Retry-After': '61' } }, ok]);
    await expect(client.sources()).rejects.toMatchObject({ status: 429 });
    expect(waitsMs).toEqual([]);
  });

  test.each([-1, 429, 502, 503, 504])('%i is retried', async (status) => {
    const { client, requests } = await setUp([{ status }, ok]);
    await client.sources();
    expect(requests).toHaveLength(2);
  });

  test('maxRetries: 0 turns retries off', async () => {
    const { client, requests } = await setUp([{ status: 503 }, { status: -1 }], { maxRetries: 0 });
    await expect(client.sources()).rejects.toMatchObject({ status: 503 });
    await expect(client.sources()).rejects.toThrow('got no response');
    expect(requests).toHaveLength(2);
  });

  test.each([400, 403, 404, 500])('%i is not retried', async (status) => {
    const { client, requests } = await setUp([{ status }, ok]);
    await expect(client.sources()).rejects.toMatchObject({ status });
    expect(requests).toHaveLength(1);
  });

  test('every attempt is authorized, because a signature has a date', async () => {
    let count = 0;
    const authorize = () => ({ 'X-Auth-Token': `t${++count}` });
    const { client, requests } = await setUp([{ status: 503 }, ok], { credentials: { authorize } });
    await client.sources();
    expect(requests.map(({ headers }) => headers['x-auth-token'])).toEqual(['t1', 't2']);
  });
});

describe('an aborted signal', () => {
  const reason = new Error('the user left the page');

  test('before the call sends nothing', async () => {
    const { client, requests } = await setUp([]);
    expect(await failureOf(client.sources({ signal: AbortSignal.abort(reason) }))).toBe(reason);
    expect(requests).toHaveLength(0);
  });

  test('ends the request', async () => {
    const { client, requests } = await setUp([{ status: 0 }]);
    const controller = new AbortController();
    const failure = failureOf(client.timeline({ ...RANGE, signal: controller.signal }));
    await expect.poll(() => requests.length).toBe(1);
    controller.abort(reason);
    expect(await failure).toBe(reason);
  });

  test('ends the wait between attempts', async () => {
    const reply = { status: 503, headers: { 'Retry-After': '60' } };
    const { client, requests } = await setUp([reply], {}, { sleep });
    const controller = new AbortController();
    const failure = failureOf(client.sources({ signal: controller.signal }));
    await expect.poll(() => requests.length).toBe(1);
    controller.abort(reason);
    expect(await failure).toBe(reason);
  });

  test('ends the wait for a token', async () => {
    const controller = new AbortController();
    const authorize = () => new Promise<never>(() => controller.abort(reason));
    const { client } = await setUp([], { credentials: { authorize } });
    expect(await failureOf(client.sources({ signal: controller.signal }))).toBe(reason);
  });
});

test('an aborted sleep ends at once and leaves no timer that would keep the process alive', async () => {
  vi.useFakeTimers();
  onTestFinished(() => {
    vi.useRealTimers();
  });
  const slept = sleep(1000);
  await vi.advanceTimersByTimeAsync(1000);
  await slept;
  const controller = new AbortController();
  const aborted = expect(sleep(60_000, controller.signal)).rejects.toThrow('enough');
  controller.abort(new Error('enough'));
  await aborted;
  expect(vi.getTimerCount()).toBe(0);
});

test('work that fails after its caller has aborted causes no unhandled rejection', async () => {
  const signal = AbortSignal.abort(new Error('left'));
  await expect(unlessAborted(Promise.reject(new Error('failed')), signal)).rejects.toThrow('left');
});
