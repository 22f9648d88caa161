import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { PassThrough } from 'node:stream';
import { expect, onTestFinished, test } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import { attackDetails } from '../attack-details.ts';
import { checkIsDemo, freeAddress, openSampleTraffic } from './demo.ts';
import { sampleEvents } from './sample-traffic.ts';

const HOUR_MS = 3_600_000;
const T = Date.UTC(2026, 6, 1, 14);

/** Requests per minute of the hour after T, filled at these times. */
async function fillAt(times: readonly number[]): Promise<number[]> {
  let now = T;
  const store = memoryStore(() => now);
  const last = { time: T - 1, hostId: null, request: true, attack: null, count: 1 };
  await store.append({
    project: 'p',
    source: { name: 'sample traffic', format: 'events' },
    events: [last],
    dropped: {},
  });
  const io = { stderr: new PassThrough(), now: () => now, stop: new AbortController().signal };
  const fill = await openSampleTraffic(store, 'p', io);
  for (const time of times) {
    now = time;
    await fill();
  }
  const edges = Array.from({ length: 61 }, (_, i) => T + i * 60_000);
  return [...(await store.count({ project: 'p', edges, rows: 'timeline' }))[0]];
}

test('live traffic has the same rate as the history', async () => {
  const history = await fillAt([T + HOUR_MS]);
  const live = await fillAt(Array.from({ length: 3_600 }, (_, i) => T + (i + 1) * 1_000));
  expect(live).toEqual(history);
  expect(live.reduce((sum, n) => sum + n, 0)).toBeGreaterThan(1_000);
});

test('attacks of the demo have all fields that are kept', async () => {
  const attacks = sampleEvents(T / 1_000, T / 1_000 + 12 * 3_600, ['a', 'b']).filter(
    ({ attack }) => attack !== null,
  );
  expect(attacks.length).toBeGreaterThan(100);
  const normal = attacks.map(({ details = {} }) => attackDetails({ ...details }));
  expect(attacks.map(({ details }) => details)).toEqual(normal);
  expect(new Set(attacks.map(({ details }) => details?.source)).size).toBeGreaterThan(50);
  expect(new Set(attacks.map(({ details }) => details?.id)).size).toBe(attacks.length);
  for (const { details = {} } of attacks) {
    expect(Object.keys(details)).toEqual(
      expect.arrayContaining(['method', 'status', 'score', 'userAgent', 'country']),
    );
    expect(details.rules?.[0]).toEqual({
      id: details.rule,
      variable: expect.any(String),
      value: expect.stringMatching(/./),
      severity: 'critical',
    });
  }
  expect(attacks.some(({ details }) => details?.query !== undefined)).toBe(true);
});

test('the demo uses the next port if its default port is in use', async () => {
  const other = createServer().listen(0, '127.0.0.1');
  onTestFinished(() => void other.close());
  await once(other, 'listening');
  // A server that listens on a port has an address of this form.
  const { port } = other.address() as AddressInfo;
  const stderr = new PassThrough();
  const free = await freeAddress({ host: '127.0.0.1', port }, { stderr, env: {} });
  expect(free.port).toBeGreaterThan(port);
  expect(String(stderr.read())).toBe(`wafstat: port ${port} is in use; using port ${free.port} instead\n`);
});

test('the demo accepts its directory after hosts were renamed or deleted, and refuses one with other data', async () => {
  const store = memoryStore(() => T);
  const other = { name: 'edge', format: 'events' };
  const events = [{ time: T - 1, hostId: null, request: true, attack: null, count: 1 }];
  await store.append({ project: 'p', source: other, events, dropped: {} });
  await expect(checkIsDemo('./data', store, 'p')).rejects.toThrow('./data was not created by the demo');
  const io = { stderr: new PassThrough(), now: () => T, stop: new AbortController().signal };
  await openSampleTraffic(store, 'demo', io);
  await checkIsDemo('./demo-data', store, 'demo');
  const sample = { name: 'sample traffic', format: 'events' };
  await store.append({ project: 'demo', source: sample, events, dropped: {} });
  const [renamed, deleted] = await store.hosts('demo');
  await store.renameHost({ project: 'demo', id: renamed?.id ?? '', hostname: 'journal.example.com' });
  await store.deleteHost({ project: 'demo', id: deleted?.id ?? '' });
  await checkIsDemo('./demo-data', store, 'demo');
});
