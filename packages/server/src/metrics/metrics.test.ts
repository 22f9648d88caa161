import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { setImmediate } from 'node:timers/promises';
import fc from 'fast-check';
import { AggregatorRegistry, Counter, Histogram, type MetricValueWithName, Registry } from 'prom-client';
import { afterEach, describe, expect, test } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import { scaled } from '../../../../test/random.ts';
import { BoundedCache } from '../cache.ts';
import { loginRefused, queryAdmitted, requestShed } from '../diagnostics.ts';
import { CODE_CLASSES, type Event } from '../event.ts';
import { HOUR_MS, type Store, StoreUnavailable } from '../store/store.ts';
import { collectMetrics, createMetricsServer, metricsText, WorkerMetrics } from './listener.ts';
import { createMetrics, METRICS, type MetricDescription, type Metrics, type MetricsJson } from './metrics.ts';
import { createStoreMetrics } from './store-metrics.ts';

const START = Date.UTC(2026, 6, 1, 0, 30);
const DAY_MS = 24 * HOUR_MS;
const PROJECT = { domain: 'default', project: 'shop' };

let metrics: Metrics;
afterEach(() => metrics.close());

function open(): Metrics {
  metrics = createMetrics({ version: '1.2.3', store: 'memory' });
  return metrics;
}

/** The value of a series, or undefined. */
function sample(json: MetricsJson, name: string, labels: object = {}): number | undefined {
  const text = (some: object) =>
    JSON.stringify(
      Object.entries(some)
        .map(([key, value]) => [key, String(value)])
        .sort(),
    );
  const values: readonly MetricValueWithName<string>[] =
    json.find((metric) => name.startsWith(metric.name))?.values ?? [];
  return values.find((one) => (one.metricName ?? name) === name && text(one.labels) === text(labels))?.value;
}

function event(time: number, more: Partial<Event> = {}): Event {
  return { time, hostId: null, request: true, attack: null, count: 1, ...more };
}

function append(store: Store, events: readonly Event[], more: object = {}) {
  const source = { name: 'log', format: 'access' };
  return store.append({ project: 'p', source, events, dropped: {}, ...more });
}

describe('the page of metrics', () => {
  test('equals docs/metrics.md (npx vitest run metrics.test -u writes it)', async () => {
    const described = new Map<string, MetricDescription>(Object.entries(METRICS));
    const registered = open().registry.getMetricsAsArray() as unknown as {
      name: string;
      type: string;
      help: string;
    }[];
    expect(registered.map(({ name }) => name)).toEqual(expect.arrayContaining(Object.keys(METRICS)));
    const shown = new Set<string>();
    /** With its values, the first time. */
    const describeLabel = ([label, values]: [string, string]) => {
      const text = `\`${label}\`: ${values}`;
      if (shown.has(text)) return `\`${label}\``;
      shown.add(text);
      return text;
    };
    const rows = registered
      .filter(({ name }) => described.has(name))
      .map(({ name, type, help }) => {
        const labels = Object.entries(described.get(name)?.labels ?? {});
        const cell = labels.map(describeLabel).join('<br>');
        return `| \`${name}\` | ${type} | ${help.replaceAll(/--[\w-]+|wafstat_\w+|wafstat \w+/g, '`$&`')} | ${cell} |`;
      })
      .join('\n');
    const others = registered.filter(({ name }) => !described.has(name)).map(({ name }) => `\`${name}\``);
    await expect(page(rows, others.join(',\n'))).toMatchFileSnapshot('../../../../docs/metrics.md');
  });

  test('has a sentence for each, and names with units', () => {
    for (const { name, help } of open().registry.getMetricsAsArray()) {
      expect(help, name).toMatch(/^[A-Z].*\.$/);
      expect(name).toMatch(/^(wafstat|process|nodejs)_[a-z0-9_]+$/);
    }
    for (const [name, { type }] of Object.entries(METRICS)) {
      expect([name, name.endsWith('_total')]).toEqual([name, type === 'counter']);
      if (type === 'histogram') expect(name).toMatch(/_seconds$/);
    }
  });
});

describe('what the process reports', () => {
  test('is counted by reason, and unknown reasons are one series', async () => {
    open();
    requestShed.publish('queue');
    for (const reason of ['wrong_credentials', 'hostile"\n', '__proto__', 'other one'])
      loginRefused.publish(reason);
    queryAdmitted.publish(20);
    const json = await metrics.json();
    expect(sample(json, 'wafstat_shed_requests_total', { reason: 'queue' })).toBe(1);
    expect(sample(json, 'wafstat_shed_requests_total', { reason: 'rate_limit' })).toBe(0);
    expect(sample(json, 'wafstat_failed_logins_total', { reason: 'wrong_credentials' })).toBe(1);
    expect(sample(json, 'wafstat_failed_logins_total', { reason: 'other' })).toBe(3);
    expect(sample(json, 'wafstat_query_queue_duration_seconds_bucket', { le: 0.01 })).toBe(0);
    expect(sample(json, 'wafstat_query_queue_duration_seconds_bucket', { le: 0.025 })).toBe(1);
    expect(json.find(({ name }) => name === 'wafstat_failed_logins_total')?.values).toHaveLength(6);
  });

  test('includes the caches, added up by name, and not those without a name', async () => {
    open();
    const weighted = { name: 'chunks', entriesMax: 9, weightMax: 100, unitBytes: 8 } as const;
    const caches = [1, 2].map(
      () => new BoundedCache<string, number>({ ...weighted, weight: (value) => value }),
    );
    new BoundedCache<string, number>({ name: null, entriesMax: 9 }).get('x');
    for (const cache of caches) {
      cache.set('a', 3);
      cache.get('a');
      cache.get('b');
    }
    caches[0]?.get('b');
    for (let scrape = 0; scrape < 2; scrape++) {
      const json = await metrics.json();
      const chunks = (name: string) => sample(json, `wafstat_cache_${name}`, { cache: 'chunks' });
      expect(['hits_total', 'misses_total', 'entries', 'bytes'].map(chunks)).toEqual([2, 3, 2, 48]);
      expect(json.find(({ name }) => name === 'wafstat_cache_bytes')?.values).toHaveLength(1);
    }
  });

  test('includes the time of appends, and those that failed', async () => {
    const store = open().measured(memoryStore(() => START));
    await append(store, [event(START)]);
    await expect(append(store, [event(START, { attack: 'none' as never })])).rejects.toThrow(/category/);
    const json = await metrics.json();
    expect(sample(json, 'wafstat_store_commit_duration_seconds_count')).toBe(1);
    expect(sample(json, 'wafstat_store_commit_failures_total')).toBe(1);
  });
});

describe('metrics of the store', () => {
  function follow(store: Store, options: Partial<Parameters<typeof createStoreMetrics>[0]> = {}) {
    const readStore = createStoreMetrics({
      store,
      metrics: open(),
      labelsOf: (project) => (project.startsWith('deleted') ? null : { domain: 'default', project: 'shop' }),
      formats: ['access', 'events'],
      hostsMax: 0,
      retentionMs: 10 * DAY_MS,
      directory: null,
      now: () => START,
      minAgeMs: 0,
      ...options,
    });
    // Read before, because a scrape does not wait longer than 5 s for the store, which a busy machine may need.
    return async () => {
      await readStore();
      return collectMetrics(metrics, async () => {});
    };
  }

  test('count what was counted since the start, by project, category and format', async () => {
    const store = memoryStore(() => START);
    const before = [
      event(START - HOUR_MS, { attack: 'sqli', details: { blocked: true } }),
      event(START - HOUR_MS),
    ];
    await append(store, before, { dropped: { not_json: 5 } });
    await append(store, before, { project: 'deleted' });
    const scrape = follow(store);
    const sqli = { ...PROJECT, category: 'sqli' };
    const first = await scrape();
    expect(sample(first, 'wafstat_requests_total', PROJECT)).toBe(0);
    expect(sample(first, 'wafstat_attacks_total', sqli)).toBe(0);
    const response = { status: 404, bytesIn: 7, bytesOut: 5_000_000_000 };
    await append(
      store,
      [event(START, { attack: 'sqli', details: { blocked: true }, count: 3, ...response })],
      { dropped: { not_json: 2 } },
    );
    await append(store, [event(START, { attack: 'xss', request: false })]);
    const json = await scrape();
    expect(sample(json, 'wafstat_requests_total', PROJECT)).toBe(3);
    expect(sample(json, 'wafstat_attacks_total', sqli)).toBe(3);
    expect(sample(json, 'wafstat_attacks_total', { ...PROJECT, category: 'xss' })).toBe(1);
    expect(sample(json, 'wafstat_blocked_attacks_total', sqli)).toBe(3);
    const responses = CODE_CLASSES.map((code) =>
      sample(json, 'wafstat_responses_total', { ...PROJECT, code }),
    );
    expect(responses).toEqual([0, 0, 0, 3, 0, 0]);
    const bytes = (direction: string) =>
      sample(json, 'wafstat_traffic_bytes_total', { ...PROJECT, direction });
    expect([bytes('in'), bytes('out')]).toEqual([7, 5_000_000_000]);
    const access = { ...PROJECT, format: 'access' };
    expect(sample(json, 'wafstat_ingest_records_total', access)).toBe(2);
    expect(sample(json, 'wafstat_ingest_dropped_records_total', { ...access, reason: 'not_json' })).toBe(2);
    const newest = 'wafstat_source_last_event_timestamp_seconds';
    expect(sample(json, newest, { ...PROJECT, source: 'log' })).toBe(START / 1_000);
    expect(json.find(({ name }) => name === 'wafstat_requests_total')?.values).toHaveLength(1);
  });

  test('show a series that appears later as zero first, so that its increase includes its first events', async () => {
    const store = memoryStore(() => START);
    const scrape = follow(store);
    await scrape();
    const source = { name: 'other', format: 'events' };
    await append(store, [event(START), event(START)], {
      source,
      dropped: { bad_time: 4, no_such_reason: 1 },
    });
    const names = ['wafstat_requests_total', 'wafstat_ingest_records_total'];
    const labels = [PROJECT, { ...PROJECT, format: 'events' }];
    for (const total of [0, 2, 2]) {
      const json = await scrape();
      expect(names.map((name, i) => sample(json, name, labels[i]))).toEqual([total, total]);
      const dropped = json.find(({ name }) => name === 'wafstat_ingest_dropped_records_total')?.values;
      expect(dropped?.map(({ value }) => value)).toEqual([2 * total]);
    }
    // Another format of the same source is another series, and nothing counts twice.
    await append(store, [event(START)], { source: { name: 'other', format: 'access' } });
    await scrape();
    const json = await scrape();
    expect(sample(json, 'wafstat_ingest_records_total', { ...PROJECT, format: 'events' })).toBe(2);
    expect(sample(json, 'wafstat_ingest_records_total', { ...PROJECT, format: 'mixed' })).toBe(1);
  });

  test('never decrease while retention hides and deletes events, and never miss or repeat any', async () => {
    const step = fc.record({
      hours: fc.double({ min: 0, max: 1, noNaN: true }),
      ages: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 5 }),
      retention: fc.constantFrom('none', 'prune', 'hide', 'restore'),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(4 * HOUR_MS, 30 * HOUR_MS),
        fc.array(step, { minLength: 5, maxLength: 40 }),
        async (retentionMs, steps) => {
          let now = START;
          const store = memoryStore(() => now);
          const scrape = follow(store, { retentionMs, now: () => now });
          await append(store, [event(START)]);
          await scrape();
          // Late events may be missed in the last hours before the horizon.
          const ageMax = retentionMs - Math.min(3 * HOUR_MS, retentionMs / 2);
          let expected = 0;
          for (const { hours, ages, retention } of steps) {
            // There is a scrape at least once an hour.
            now += Math.floor(hours * Math.min(HOUR_MS, retentionMs / 16));
            const appended = await append(
              store,
              ages.map((age) => event(now - Math.floor(age * ageMax), { attack: 'xss' })),
            );
            expected += ages.length - (appended.kind === 'appended' ? appended.beforeHorizon : 0);
            if (retention === 'prune') await store.prune(now - retentionMs);
            if (retention === 'hide') await store.prune(now - retentionMs / 4, { freeBefore: 0 });
            if (retention === 'restore') await store.restoreHorizon(0);
            const json = await scrape();
            expect(sample(json, 'wafstat_requests_total', PROJECT)).toBe(expected);
            expect(sample(json, 'wafstat_attacks_total', { ...PROJECT, category: 'xss' })).toBe(expected);
          }
          metrics.close();
        },
      ),
      { numRuns: scaled(30) },
    );
  });

  test('count late events as soon as the horizon moves back, and do not repeat those that it hid', async () => {
    const store = memoryStore(() => START);
    const added = await store.addHost({ project: 'p', hostname: 'a.example', limit: 9 });
    const hostId = added.kind === 'added' ? added.host.id : null;
    await append(store, [event(START - 5 * DAY_MS, { hostId, attack: 'xss', count: 100 })]);
    await store.prune(START - DAY_MS, { freeBefore: 0 });
    const scrape = follow(store, { hostsMax: 1 });
    await scrape();
    await store.restoreHorizon(START - 9 * DAY_MS);
    await append(store, [event(START - 5 * DAY_MS, { hostId, attack: 'xss', count: 7 })]);
    const json = await scrape();
    expect(sample(json, 'wafstat_requests_total', PROJECT)).toBe(7);
    expect(sample(json, 'wafstat_attacks_total', { ...PROJECT, category: 'xss' })).toBe(7);
    expect(sample(json, 'wafstat_host_requests_total', { ...PROJECT, host: 'a.example' })).toBe(7);
  });

  test('count new events after the clock was ahead and is right again', async () => {
    let now = START + 400 * DAY_MS;
    const store = memoryStore(() => now);
    await append(store, [event(START, { count: 100 })]);
    const scrape = follow(store, { now: () => now });
    await scrape();
    now = START;
    await scrape();
    await append(store, [event(START, { count: 7 })]);
    expect(sample(await scrape(), 'wafstat_requests_total', PROJECT)).toBe(7);
  });

  test('have hosts up to the limit, the oldest first, and say how many more there are', async () => {
    let now = START;
    const store = memoryStore(() => now++);
    const ids: string[] = [];
    for (const hostname of ['c.example', 'a.example', 'b.example']) {
      const added = await store.addHost({ project: 'p', hostname, limit: 9 });
      if (added.kind === 'added') ids.push(added.host.id);
    }
    await append(store, []);
    const scrape = follow(store, { hostsMax: 2, now: () => now });
    await scrape();
    await append(
      store,
      ids.map((hostId, i) => event(START, { hostId, count: i + 1, attack: 'xss' })),
    );
    const json = await scrape();
    for (const kind of ['requests', 'attacks']) {
      const values = json.find(({ name }) => name === `wafstat_host_${kind}_total`)?.values;
      expect(values?.map(({ labels: { host }, value }) => [host, value])).toEqual([
        ['c.example', 1],
        ['a.example', 2],
      ]);
    }
    expect(sample(json, 'wafstat_metrics_omitted', { kind: 'host' })).toBe(1);
  });

  test('do not count the past of a host that enters the limit later', async () => {
    let now = START;
    const store = memoryStore(() => now++);
    const addHost = async (hostname: string) => {
      const added = await store.addHost({ project: 'p', hostname, limit: 9 });
      if (added.kind !== 'added') throw new Error(added.kind);
      return added.host.id;
    };
    const first = await addHost('first.example');
    const second = await addHost('second.example');
    await append(store, [event(START, { hostId: second, count: 100 })]);
    const scrape = follow(store, { hostsMax: 1, now: () => now });
    await scrape();
    await store.deleteHost({ project: 'p', id: first });
    await scrape();
    await append(store, [event(START, { hostId: second, count: 3 })]);
    const requests = async (host: string) =>
      sample(await scrape(), 'wafstat_host_requests_total', { ...PROJECT, host });
    expect(await requests('second.example')).toBe(3);
    // A host that was not there before counts from its first event.
    await store.deleteHost({ project: 'p', id: second });
    const third = await addHost('third.example');
    await append(store, [event(START, { hostId: third, count: 5 })]);
    expect(await requests('third.example')).toBe(0);
    expect(await requests('third.example')).toBe(5);
  });

  test('do not count the past of a project and its sources that enter the limit later', async () => {
    const store = memoryStore(() => START);
    const project = (i: number) => `p${String(i).padStart(4, '0')}`;
    for (let i = 0; i < 1_001; i++) await append(store, [event(START)], { project: project(i) });
    const deleted = new Set<string>();
    const labelsOf = (id: string) => (deleted.has(id) ? null : { domain: 'default', project: id });
    const scrape = follow(store, { labelsOf });
    expect(sample(await scrape(), 'wafstat_metrics_omitted', { kind: 'project' })).toBe(1);
    deleted.add(project(0));
    await scrape();
    await append(store, [event(START), event(START)], { project: project(1_000) });
    const json = await scrape();
    const labels = { domain: 'default', project: project(1_000) };
    expect(sample(json, 'wafstat_requests_total', labels)).toBe(2);
    expect(sample(json, 'wafstat_ingest_records_total', { ...labels, format: 'access' })).toBe(2);
  });

  test('have free space and sizes of files only if there is a data directory', async () => {
    const names = ['wafstat_filesystem_free_bytes', 'wafstat_filesystem_size_bytes'];
    const samples = (json: MetricsJson) => names.map((name) => sample(json, name));
    expect(samples(await follow(memoryStore(() => START))())).toEqual([undefined, undefined]);
    metrics.close();
    const [free = 0, size = 0] = samples(
      await follow(
        memoryStore(() => START),
        { directory: tmpdir() },
      )(),
    );
    expect([free > 0, size > free]).toEqual([true, true]);
  });

  test('have a limit of sources', async () => {
    const store = memoryStore(() => START);
    for (let i = 0; i < 1_003; i++) {
      await append(store, [event(START)], { source: { name: `s${i}`, format: 'access' } });
    }
    const json = await follow(store)();
    const newest = json.find(({ name }) => name === 'wafstat_source_last_event_timestamp_seconds');
    expect(newest?.values).toHaveLength(1_000);
    expect(sample(json, 'wafstat_metrics_omitted', { kind: 'source' })).toBe(3);
  });

  test('keep their values while the store fails, and say so', async () => {
    const store = memoryStore(() => START);
    await append(store, [event(START)]);
    const failing = { ...store };
    const scrape = follow(failing);
    await scrape();
    await append(store, [event(START)]);
    const unavailable = async () => {
      throw new StoreUnavailable('the database does not respond');
    };
    Object.assign(failing, { projects: unavailable, check: unavailable });
    const during = await scrape();
    expect(sample(during, 'wafstat_requests_total', PROJECT)).toBe(0);
    expect(sample(during, 'wafstat_store_read_failures_total')).toBe(1);
    expect(sample(during, 'wafstat_store_writable')).toBe(0);
    Object.assign(failing, store);
    const after = await scrape();
    expect(sample(after, 'wafstat_requests_total', PROJECT)).toBe(1);
    expect(sample(after, 'wafstat_store_writable')).toBe(1);
  });
});

describe('metrics of several workers', () => {
  const json = (value: number): MetricsJson =>
    [
      { name: 'x_total', help: 'X.', type: 'counter', aggregator: 'sum', values: [{ value, labels: {} }] },
      { name: 'g', help: 'G.', type: 'gauge', aggregator: 'sum', values: [{ value, labels: {} }] },
    ] as unknown as MetricsJson;
  const sum = (all: readonly MetricsJson[], name: string) =>
    all.map((one) => sample(one, name) ?? 0).reduce((a, b) => a + b);

  function workers() {
    open();
    const primary = new WorkerMetrics();
    const requests: [number, boolean][] = [];
    const values = new Map<number, number>();
    const add = (id: number, respond = (receive: () => void) => receive()) =>
      primary.add({
        id,
        isConnected: () => true,
        request(includesStore) {
          requests.push([id, includesStore]);
          respond(() => primary.receive(id, json(values.get(id) ?? 0)));
        },
      });
    return { primary, requests, values, add };
  }

  test('are those of all; one of them reads the store', async () => {
    const { primary, requests, values, add } = workers();
    for (const id of [1, 2, 3]) {
      add(id);
      values.set(id, 10 ** id);
    }
    const [all, same] = await Promise.all([primary.collect(), primary.collect()]);
    expect([sum(all, 'x_total'), sum(all, 'g')]).toEqual([1_110, 1_110]);
    expect(same).toBe(all);
    expect(requests).toEqual([
      [1, true],
      [2, false],
      [3, false],
    ]);
  });

  test('keep the counts of those that have ended, but not their gauges', async () => {
    const { primary, requests, values, add } = workers();
    for (const id of [1, 2]) {
      add(id);
      values.set(id, 10 ** id);
    }
    await primary.collect();
    primary.remove(1);
    add(3);
    const all = await primary.collect();
    expect([sum(all, 'x_total'), sum(all, 'g')]).toEqual([110, 100]);
    for (const id of [2, 3]) primary.remove(id);
    const scrapes = [await primary.collect(), await primary.collect()];
    expect(scrapes.map((none) => [sum(none, 'x_total'), sum(none, 'g')])).toEqual([
      [110, 0],
      [110, 0],
    ]);
    expect(requests.slice(2)).toEqual([
      [2, true],
      [3, false],
    ]);
  });

  test('do not wait for one that ends during a scrape', async () => {
    const { primary, values, add } = workers();
    values.set(2, 5);
    let hangs = false;
    add(1, (receive) => hangs || receive());
    add(2);
    await primary.collect();
    hangs = true;
    const scrape = primary.collect();
    primary.remove(1);
    expect(sum(await scrape, 'x_total')).toBe(5);
  });
});

function page(rows: string, others: string): string {
  return `# Metrics

\`wafstat serve --metrics-listen 9464\` serves metrics for [Prometheus](https://prometheus.io/) at
\`http://127.0.0.1:9464/metrics\`. It is off by default. A port alone is on loopback; for another machine, give its address:
\`--metrics-listen 10.0.0.5:9464\`. The listener has neither TLS nor authentication, and shows names of projects and log
sources: let only Prometheus reach it. The log says where it listens.

[deploy/prometheus](../deploy/prometheus) has a scrape configuration and alert rules; [operations.md](operations.md#alerts)
says what to do about each alert. This page is generated from the code.

## What the numbers mean

- **Counts of logs come from the store** when Prometheus scrapes. They include what \`wafstat ingest\`, \`wafstat follow\` and
  other machines count. They start at zero with the service, so use \`increase()\` and \`rate()\`; exact totals of any range are in
  the [API](api.md). An event counts when it is ingested, whatever its time is within the retention time.
- **Scrape at least once an hour.** Events that are counted while the service is down, or less than two hours before their retention
  time ends, may be missed here; they are in the API.
- **With \`--workers\`**, metrics are sums over all workers.
- **With several machines**, each service reports all counts of logs. Use one of them, or \`max by (domain, project)\`; do not
  add them up.
- **Labels have a limited number of values.** Requests cannot create series: an unknown path is \`route="none"\`. At most 1,000
  projects and 1,000 sources have metrics; \`wafstat_metrics_omitted\` is the number of the others. Hosts have metrics only
  with \`--metrics-hosts <n>\`: the \`n\` hosts that were registered first.
- **Times are in seconds, sizes in bytes.** For the age of the newest event:
  \`time() - wafstat_source_last_event_timestamp_seconds\`.
- **Not every store has every metric.** Sizes of files and free space are those of the data directory of the embedded store.

## Metrics of the service

The values of a label are in the first row that has it.

| name | type | meaning | labels |
|---|---|---|---|
${rows}

## Metrics of the processes

The standard metrics of processes and of Node.js. With \`--workers\`, these are sums over all processes, except for the lag of the
event loop, which is an average.

${others}
`;
}

describe('the text of a scrape', () => {
  async function series(count: number): Promise<MetricsJson> {
    const registry = new Registry();
    const registers = [registry];
    const counter = new Counter({ name: 'many_total', help: 'Many.', labelNames: ['n'], registers });
    for (let n = 0; n < count; n++) counter.inc({ n: String(n) }, n);
    const histogram = new Histogram({ name: 'h', help: 'H.', labelNames: ['n'], registers });
    for (let n = 0; n < 10; n++) histogram.observe({ n: String(n) }, n);
    new Counter({ name: 'none_total', help: 'None.', labelNames: ['n'], registers });
    return registry.getMetricsAsJSON();
  }

  test.each([[[2_500]], [[2_500, 2_500]], [[0, 2_500, 0]], [[1_500, 0, 2_500]]])(
    'is the same as that of the library, for processes with %j series',
    async (counts) => {
      const all = await Promise.all(counts.map(series));
      const whole = await AggregatorRegistry.aggregate(all).metrics();
      expect(String(await metricsText(all))).toBe(whole);
    },
  );

  test.each([
    ['one process', [30_000], 30],
    ['several workers, one of which reads the store', [0, 30_000, 0], 30],
    ['several workers, after one of them has ended', [30_000, 0, 30_000], 60],
  ])('is divided and written in slices: %s', async (_what, counts, divided) => {
    const all = await Promise.all(counts.map(series));
    let turns = 0;
    let isDone = false;
    const counting = (async () => {
      for (; !isDone; turns++) await setImmediate();
    })();
    await metricsText(all);
    isDone = true;
    await counting;
    const written = 30;
    expect(turns).toBeGreaterThanOrEqual(divided + written);
  });

  test('is written once for concurrent scrapes', async () => {
    const metrics = await series(30_000);
    let collected = 0;
    const server = createMetricsServer(async () => {
      collected++;
      return [metrics];
    });
    let connected = 0;
    server.on('connection', () => connected++);
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/metrics`;
    const texts = await Promise.all(Array.from({ length: 8 }, async () => (await fetch(url)).text()));
    expect(connected).toBeGreaterThan(1);
    expect(collected).toBeLessThan(8);
    expect(new Set(texts).size).toBe(1);
    server.close();
    server.closeAllConnections();
  });
});
