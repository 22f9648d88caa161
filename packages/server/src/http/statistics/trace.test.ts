import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { type FastifyInstance, fastify } from 'fastify';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { patientAdmission } from '../../../../../test/admission.ts';
import { stepDone } from '../../diagnostics.ts';
import { lmdbStore } from '../../store/lmdb/lmdb.ts';
import type { Store } from '../../store/store.ts';
import type {} from '../connections.ts';
import { sendFailure } from '../failures.ts';
import { mount } from '../route.ts';
import { statisticsRoutes } from './routes.ts';
import { Trace } from './trace.ts';

const NOW = Date.UTC(2026, 6, 1, 12);
const DAY_MS = 86_400_000;
const DAY = `/v1/p/waf/event/timeline?from=${NOW - DAY_MS}&to=${NOW}`;
const TOP = `/v1/p/waf/event/attack/domain?from=${NOW - DAY_MS}&to=${NOW}`;

let directory: string;
let store: Store;
let app: FastifyInstance;
let logged: { reqId: string; trace?: object }[];

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-trace-'));
  store = lmdbStore(join(directory, 'statistics.mdb'), () => NOW);
  const event = { time: NOW - 5_000, hostId: null, request: true, attack: 'sqli', count: 1 } as const;
  await store.append({
    project: 'p',
    source: { name: 's', format: 'events' },
    events: [event],
    dropped: {},
  });
  app = startApp('info');
});

afterEach(async () => {
  await store.close();
  rmSync(directory, { recursive: true });
});

function startApp(level: string): FastifyInstance {
  logged = [];
  const stream = new Writable({
    write(line, _, done) {
      logged.push(JSON.parse(line.toString()));
      done();
    },
  });
  const started = fastify({ logger: { level, stream }, disableRequestLogging: true });
  started.setValidatorCompiler(() => () => true);
  started.setErrorHandler(sendFailure);
  started.decorate('stopping', false);
  started.decorateRequest('caller', null);
  started.decorateRequest('isAdmin', false);
  started.addHook('onRequest', async (request) => {
    request.caller = { user: { id: 'u', name: 'u', domain_id: 'd', roles: {} }, scope: 'unscoped' };
    request.isAdmin = request.headers['x-role'] === 'admin';
  });
  mount(
    started,
    statisticsRoutes(store, () => NOW, patientAdmission()),
  );
  return started as unknown as FastifyInstance;
}

function get(url: string, headers: Record<string, string> = {}, role = 'admin') {
  return app.inject({ url, headers: { ...headers, 'x-role': role } });
}

/** The metrics of a `Server-Timing` header. */
function timing(response: Awaited<ReturnType<typeof get>>): Record<string, string> {
  const metrics = String(response.headers['server-timing']).split(/, (?=\w+;)/);
  return Object.fromEntries(metrics.map((metric) => metric.split(/;(.*)/s).slice(0, 2)));
}

describe('a trace', () => {
  test('lists steps, records and caches, and leaves the response as it is', async () => {
    const plain = await get(DAY);
    expect(plain.headers['server-timing']).toBeUndefined();
    const traced = await get(`${DAY}&trace=1`, { 'accept-encoding': 'br' });
    expect(timing(traced)).toMatchObject({
      total: expect.stringMatching(/^dur=[0-9.]+$/),
      queue: expect.stringMatching(/^dur=/),
      version: expect.stringMatching(/^dur=/),
      count: expect.stringMatching(/^dur=/),
      compute: expect.stringMatching(/^dur=/),
      compress: expect.stringMatching(/^dur=/),
      cache_responses: 'desc="0 hits, 1 misses"',
      cache_points: 'desc="1 hits, 0 misses"',
    });
    const again = await get(`${DAY}&trace=1`);
    expect(again.body).toBe(plain.body);
    expect(again.headers.etag).toBe(plain.headers.etag);
    // The second response to a URL is kept, and the third is that one.
    expect(timing(await get(`${DAY}&trace=1`))).toMatchObject({ cache_responses: 'desc="1 hits, 0 misses"' });
  });

  test('counts the records that the query read, and not those of others', async () => {
    const other = `${DAY}&hosts=a`;
    const [traced] = await Promise.all([get(`${DAY}&trace=1`), get(other), get(TOP)]);
    const { records, ...rest } = timing(traced);
    expect(records).toMatch(/^desc="[1-9][0-9]*"$/);
    expect(rest).not.toHaveProperty('cache_host_lists');
    expect(timing(await get(`${DAY}&trace=1`)).records).toBe('desc="0"');
  });

  test('is in a 304 and in responses that are not cached, too', async () => {
    const { etag } = (await get(DAY)).headers;
    const unchanged = await get(`${DAY}&trace=1`, { 'if-none-match': String(etag) });
    expect([unchanged.statusCode, timing(unchanged)]).toMatchObject([304, { total: expect.any(String) }]);
    expect(timing(await get(`${TOP}&trace=1`))).toHaveProperty('compute');
  });

  test('is refused without the role admin, and if its value is unknown', async () => {
    const refused = await get(`${DAY}&trace=1`, {}, 'reader');
    expect([refused.statusCode, refused.json()]).toEqual([
      403,
      { error_code: 'WAF.9002', error_msg: "trace needs the role 'admin' in this project" },
    ]);
    expect((await get(`${DAY}&trace=yes`)).statusCode).toBe(400);
    const without = await get(`${DAY}&trace=0`, {}, 'reader');
    expect([without.statusCode, without.headers['server-timing']]).toEqual([200, undefined]);
  });

  test('of every query is in the log at level debug, for any role, and only there', async () => {
    app = startApp('debug');
    const response = await get(DAY, {}, 'reader');
    expect(response.headers['server-timing']).toBeUndefined();
    expect(logged).toMatchObject([
      {
        reqId: response.headers['x-request-id'],
        trace: {
          total_us: expect.any(Number),
          steps_us: { queue: expect.any(Number), count: expect.any(Number) },
          caches: { points: { hits: 0, misses: 1 } },
          records: expect.any(Number),
        },
      },
    ]);
  });

  test('observes nothing while the query waits for its turn', async () => {
    const start = new Trace(true).queued(async () => stepDone.isWatched);
    expect(stepDone.isWatched).toBe(false);
    expect(await Promise.all([start(), start()])).toEqual([true, true]);
    expect(stepDone.isWatched).toBe(false);
  });

  test('ends with the response, also if the query fails', async () => {
    await get(`${DAY}&trace=1`);
    expect(stepDone.isWatched).toBe(false);
    const failing = await get(`/v1/p/waf/event/timeline?from=2&to=1&trace=1`);
    expect([failing.statusCode, stepDone.isWatched]).toEqual([400, false]);
  });
});
