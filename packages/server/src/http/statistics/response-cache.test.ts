import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import { type FastifyInstance, fastify } from 'fastify';
import { beforeEach, describe, expect, test } from 'vitest';
import { patientAdmission } from '../../../../../test/admission.ts';
import { memoryStore } from '../../../../../test/memory-store.ts';
import { scaled } from '../../../../../test/random.ts';
import { cacheCreated, type NamedCache } from '../../diagnostics.ts';
import type { Store } from '../../store/store.ts';
import type {} from '../connections.ts';
import { mount } from '../route.ts';
import { statisticsRoutes } from './routes.ts';

const NOW = Date.UTC(2026, 6, 1, 12);
const DAY_MS = 86_400_000;
const DAY = `/v1/p/waf/event/timeline?from=${NOW - DAY_MS}&to=${NOW}`;
const TYPES = `/v1/p/waf/event/attack/type?from=${NOW - DAY_MS}&to=${NOW}`;

let app: FastifyInstance;
let store: Store;
const clock = { now: NOW };

beforeEach(startApp);

function startApp(): void {
  clock.now = NOW;
  store = memoryStore(() => clock.now);
  app = fastify();
  app.setValidatorCompiler(() => () => true);
  app.decorate('stopping', false);
  app.decorateRequest('caller', null);
  app.addHook('onRequest', async (request) => {
    request.caller = { user: { id: 'u', name: 'u', domain_id: 'd', roles: {} }, scope: 'unscoped' };
  });
  mount(
    app,
    statisticsRoutes(store, () => clock.now, patientAdmission()),
  );
}

async function count(time: number, events = 1): Promise<void> {
  const one = { time, hostId: null, request: true, attack: 'sqli', count: 1 } as const;
  const source = { name: 'test', format: 'events' };
  await store.append({ project: 'p', source, events: Array(events).fill(one), dropped: {} });
}

function get(url: string, headers: Record<string, string> = {}) {
  return app.inject({ url, headers });
}

describe('a response', () => {
  test('for a recent range has a new ETag when the range moves on to other counts', async () => {
    const url = '/v1/p/waf/event/attack/type?recent=yesterday';
    await count(NOW - DAY_MS, 3);
    await count(NOW, 5);
    const first = await get(url);
    expect(first.json()).toMatchObject({ sqli: 3 });
    clock.now += DAY_MS;
    const next = await get(url, { 'if-none-match': String(first.headers.etag) });
    expect([next.statusCode, next.json().sqli]).toEqual([200, 5]);
    expect((await get(url, { 'if-none-match': String(next.headers.etag) })).statusCode).toBe(304);
  });

  test('has an ETag that shows neither the version nor which ranges have the same one', async () => {
    store.version = async () => 'born.4.2';
    const earlier = TYPES.replace(/\d+$/, String(NOW - 1));
    const urls = [TYPES, earlier, TYPES.replace('/p/', '/q/')];
    const tags = new Set<unknown>();
    for (const url of urls) {
      // The second response is kept, the third one is the kept one.
      for (let time = 0; time < 3; time++) tags.add((await get(url)).headers.etag);
    }
    expect([...tags]).toEqual(urls.map(() => expect.stringMatching(/^W\/"[\w-]{22}"$/)));
    store.version = async () => 'born.4.3';
    for (const url of urls) tags.add((await get(url)).headers.etag);
    expect(tags.size).toBe(2 * urls.length);
  });

  test('that has not changed is a 304', async () => {
    const first = await get(DAY);
    expect(first.headers).toMatchObject({
      'cache-control': 'private, no-cache',
      vary: 'Accept-Encoding',
      'content-type': 'application/json; charset=utf-8',
    });
    const etag = String(first.headers.etag);
    for (const known of [etag, `"other", ${etag}`, `${etag.slice(2)},"other"`, '*']) {
      const again = await get(DAY, { 'if-none-match': known });
      expect([again.statusCode, again.body]).toEqual([304, '']);
      expect(again.headers.etag).toBe(etag);
    }
    for (const other of ['', etag.slice(0, -1), `x${etag}`, etag.slice(3, -1)])
      expect((await get(DAY, { 'if-none-match': other })).statusCode).toBe(200);
    await count(NOW - 1);
    const changed = await get(DAY, { 'if-none-match': etag });
    expect(changed.statusCode).toBe(200);
    expect(changed.headers.etag).not.toBe(etag);
    expect(changed.json().requests.at(-1)).toEqual({ time: NOW, num: 1 });
  });

  test('is compressed if the client accepts it, and decompresses to the same bytes each time', async () => {
    await count(NOW - 1, 20);
    const plain = await get(DAY);
    expect(plain.headers['content-encoding']).toBeUndefined();
    for (let time = 0; time < 4; time++) {
      const br = await get(DAY, { 'accept-encoding': 'gzip;q=0.9, br' });
      expect(br.headers['content-encoding']).toBe('br');
      expect(brotliDecompressSync(br.rawPayload).equals(plain.rawPayload)).toBe(true);
      const gzip = await get(DAY, { 'accept-encoding': 'br;q=0, gzip;q=0.5' });
      expect(gzip.headers['content-encoding']).toBe('gzip');
      expect(gunzipSync(gzip.rawPayload).equals(plain.rawPayload)).toBe(true);
    }
  });

  test('for a range that moves is the same in all codings, and brotli if the client accepts both', async () => {
    await count(NOW - 5 * 3_600_000, 20);
    const codings = [
      ['gzip, br', 'br', brotliDecompressSync],
      ['br;q=0.9, gzip;q=0.5', 'br', brotliDecompressSync],
      ['br', 'br', brotliDecompressSync],
      ['gzip', 'gzip', gunzipSync],
      ['identity', undefined, (bytes: Buffer) => bytes],
    ] as const;
    await get(DAY);
    for (const [i, [accepted, coding, decompress]] of codings.entries()) {
      if (i === 3) await count(NOW - 5 * 3_600_000);
      const range = `from=${NOW - DAY_MS + i + 1}&to=${NOW + i + 1}`;
      const url = `/v1/p/waf/event/timeline?${range}`;
      const { headers, rawPayload } = await get(url, { 'accept-encoding': accepted });
      expect(headers['content-encoding']).toBe(coding);
      expect(Number(headers['content-length'])).toBe(rawPayload.length);
      const { requests } = JSON.parse(decompress(rawPayload).toString());
      expect(requests.filter(({ num }: { num: number }) => num > 0)).toEqual([
        { time: NOW - 5 * 3_600_000 + 60_000, num: i < 3 ? 20 : 21 },
      ]);
      expect((await app.inject({ method: 'HEAD', url })).body).toBe('');
    }
  });

  test('to HEAD has the headers only', async () => {
    const whole = await get(DAY);
    for (let time = 0; time < 3; time++) {
      const { statusCode, headers, body } = await app.inject({ method: 'HEAD', url: DAY });
      expect([statusCode, body]).toEqual([200, '']);
      expect(Number(headers['content-length'])).toBe(whole.body.length);
      expect(headers.etag).toBe(whole.headers.etag);
    }
  });

  test('has a request ID, and `Connection: close` while the service stops', async () => {
    const ids = new Set<unknown>();
    for (let time = 0; time < 3; time++) {
      const { headers } = await get(DAY);
      expect(headers.connection).not.toBe('close');
      ids.add(headers['x-request-id']);
    }
    expect(ids.size).toBe(3);
    app.stopping = true;
    expect((await get(DAY)).headers.connection).toBe('close');
    expect((await get(DAY, { 'cache-control': 'no-cache' })).headers.connection).toBe('close');
  });

  test.each(['identity', 'gzip;q=0', 'br;q=0.0, gzip; q=0', 'x-gzip', ''])(
    'is not compressed if the client accepts %j',
    async (accepted) => {
      const { headers, body } = await get(DAY, { 'accept-encoding': accepted });
      expect(headers['content-encoding']).toBeUndefined();
      expect(Number(headers['content-length'])).toBe(body.length);
    },
  );

  test('that fits into a packet is not compressed', async () => {
    const { headers } = await get(TYPES, { 'accept-encoding': 'br' });
    expect(headers['content-encoding']).toBeUndefined();
  });

  test('for a range relative to now is not cached, however the parameter is encoded', async () => {
    const url = '/v1/p/waf/event/timeline?%72ecent=today';
    for (let time = 0; time < 3; time++) {
      clock.now += 60_000;
      expect((await get(url)).json().requests.at(-1).time).toBe(clock.now);
    }
  });

  test('is cached only if exactly its range was requested before, wherever the range is', async () => {
    const caches: NamedCache[] = [];
    const unsubscribe = cacheCreated.subscribe((cache) => caches.push(cache));
    startApp();
    unsubscribe();
    const cached = () => caches.find(({ name }) => name === 'responses')?.size;
    const hosts = Array.from({ length: 10 }, (_, i) => `host-${i}-`.padEnd(32, '0')).join();
    const url = (from: number) => `/v1/p/waf/event/attack/type?hosts=${hosts}&from=${from}&to=${NOW}`;
    await get(url(NOW - DAY_MS));
    await get(url(NOW - DAY_MS + 1));
    expect(cached()).toBe(0);
    await get(url(NOW - DAY_MS));
    expect(cached()).toBe(1);
  });

  test('from the cache always equals a newly computed one', async () => {
    const step = fc.record({
      count: fc.option(fc.integer({ min: NOW - 2 * DAY_MS, max: NOW + DAY_MS })),
      url: fc.constantFrom(DAY, TYPES, `${DAY}&hosts=a`, `${DAY}&timezone=%2B05:45`),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 12 }), async (steps) => {
        for (const { count: time, url } of steps) {
          if (time !== null) await count(time);
          const cached = await get(url);
          const computed = await get(url, { 'cache-control': 'no-cache' });
          expect([cached.statusCode, computed.statusCode]).toEqual([200, 200]);
          expect(cached.body).toBe(computed.body);
          expect(cached.headers.etag).toBe(computed.headers.etag);
        }
      }),
      { numRuns: scaled(30) },
    );
  });
});
