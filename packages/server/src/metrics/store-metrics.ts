/** Metrics that are read from the store when Prometheus scrapes, so that they include what other processes count. */
import { stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import type { Counter, Gauge } from 'prom-client';
import { CATEGORIES, CODE_CLASSES, DROP_REASONS } from '../event.ts';
import {
  HOUR_MS,
  type Host,
  MIXED_FORMAT,
  type ProjectSources,
  type Source,
  type Store,
} from '../store/store.ts';
import { type Metrics, TRAFFIC_DIRECTIONS } from './metrics.ts';

/** Bounds the metrics: users with the role `ingest` can create sources, and administrators can create projects. */
const PROJECTS_MAX = 1_000;
const SOURCES_MAX = 1_000;
const MIN_AGE_MS = 1_000;
/** Events are up to a day in the future (`in_future`). */
const FUTURE_MS = 72 * HOUR_MS;
const MINUTE_MS = 60_000;
const FILESYSTEM = ['wafstat_filesystem_free_bytes', 'wafstat_filesystem_size_bytes'] as const;

export interface ProjectLabels {
  domain: string;
  project: string;
}

interface StoreMetricsOptions {
  store: Store;
  metrics: Metrics;
  /** Null if the project has been deleted. */
  labelsOf(project: string): ProjectLabels | null;
  /** The names of the log formats. */
  formats: readonly string[];
  /** How many hosts have metrics, in all projects together. */
  hostsMax: number;
  retentionMs: number;
  /** Null if nothing is stored here. */
  directory: string | null;
  now: () => number;
  /** Scrapes in quicker succession share a reading. */
  minAgeMs?: number | undefined;
}

/** Returns a function that updates the metrics. It never rejects: while the store fails, the values stay. */
export function createStoreMetrics(options: StoreMetricsOptions): () => Promise<void> {
  const { store, metrics, directory, now, minAgeMs = MIN_AGE_MS } = options;
  const counts = createCountMetrics(options);
  const sources = createSourceMetrics(options);
  const writable = metrics.gauge('wafstat_store_writable');
  // Gauges without labels are 0 until they are set.
  if (directory === null) for (const name of FILESYSTEM) metrics.registry.removeSingleMetric(name);
  let omitted: ReadonlySet<string> = new Set();
  let reading: Promise<void> | null = null;
  let readAt = Number.NEGATIVE_INFINITY;

  async function read(): Promise<void> {
    const [isWritable] = await Promise.all([
      store.check('appends').then(
        () => 1,
        () => 0,
      ),
      directory === null ? undefined : measureFiles(directory, metrics),
    ]);
    writable.set(isWritable);
    try {
      const known = (await store.projects()).flatMap((project) => {
        const labels = options.labelsOf(project.project);
        return labels === null ? [] : [{ ...project, labels, wasOmitted: omitted.has(project.project) }];
      });
      const projects = known.slice(0, PROJECTS_MAX);
      metrics.gauge('wafstat_metrics_omitted').set({ kind: 'project' }, known.length - projects.length);
      sources(projects);
      await counts(projects, now());
      omitted = new Set(known.slice(PROJECTS_MAX).map(({ project }) => project));
    } catch {
      metrics.counter('wafstat_store_read_failures_total').inc();
    }
  }

  return () => {
    if (reading === null && performance.now() - readAt >= minAgeMs) {
      reading = read().finally(() => {
        reading = null;
        readAt = performance.now();
      });
    }
    return reading ?? Promise.resolve();
  };
}

/** `wasOmitted`: whether the previous reading left it out because of the limit. */
type LabelledProject = ProjectSources & { labels: ProjectLabels; wasOmitted: boolean };

/**
 * A counter that follows totals of the store. It starts at zero: after a restart, Prometheus takes the whole value of a
 * counter as its increase. A series that appears later is zero in its first scrape, so that rates include its first
 * events. What existed when the service started, or was over a limit before, starts with its current total: its past is
 * not an increase.
 */
class StoreCounter {
  readonly #counter: Counter;
  readonly #totals = new Map<string, number>();
  readonly #series = new Set<string>();

  constructor(counter: Counter) {
    this.#counter = counter;
  }

  /** `key` identifies the total. Its labels may change, for example when a source sends another format. */
  update(key: string, labels: Readonly<Record<string, string>>, total: number, existed: boolean): void {
    const series = JSON.stringify(labels);
    const isNew = !this.#series.has(series);
    this.#series.add(series);
    const before = this.#totals.get(key) ?? (existed ? total : 0);
    // A total decreases only if someone repairs the store, or moves the horizon.
    const increase = isNew ? 0 : Math.max(0, total - before);
    this.#counter.inc(labels, increase);
    if (!isNew || existed) this.#totals.set(key, total);
  }
}

/** Requests and attacks by project, and by host if wanted. */
function createCountMetrics({ store, metrics, hostsMax, retentionMs }: StoreMetricsOptions) {
  const requests = new StoreCounter(metrics.counter('wafstat_requests_total'));
  const attacks = new StoreCounter(metrics.counter('wafstat_attacks_total'));
  const blocked = new StoreCounter(metrics.counter('wafstat_blocked_attacks_total'));
  const responses = new StoreCounter(metrics.counter('wafstat_responses_total'));
  const bytes = new StoreCounter(metrics.counter('wafstat_traffic_bytes_total'));
  const hostRequests = new StoreCounter(metrics.counter('wafstat_host_requests_total'));
  const hostAttacks = new StoreCounter(metrics.counter('wafstat_host_attacks_total'));
  const totalsByKey = new Map<string, MonotonicTotals>();
  let omitted: ReadonlySet<string> = new Set();
  let isFirst = true;

  function totalsOf(key: string): MonotonicTotals {
    const totals = totalsByKey.get(key) ?? new MonotonicTotals(retentionMs);
    totalsByKey.set(key, totals);
    return totals;
  }

  async function countProject(
    { project, labels, wasOmitted }: LabelledProject,
    freedBefore: number,
    now: number,
  ) {
    const existed = isFirst || wasOmitted;
    const totals = await totalsOf(project).read(freedBefore, now, (edges) =>
      store.count({ project, edges, rows: 'everything', ignoreHorizon: true }),
    );
    requests.update(project, { ...labels }, totals[0] ?? 0, existed);
    for (const [i, category] of CATEGORIES.entries()) {
      const key = `${project} ${category}`;
      attacks.update(key, { ...labels, category }, totals[1 + i] ?? 0, existed);
      blocked.update(key, { ...labels, category }, totals[1 + CATEGORIES.length + i] ?? 0, existed);
    }
    const read = (rows: 'codeClasses' | 'traffic') =>
      totalsOf(`${project} ${rows}`).read(freedBefore, now, (edges) =>
        store.count({ project, edges, rows, ignoreHorizon: true }),
      );
    for (const [i, total] of (await read('codeClasses')).entries())
      responses.update(`${project} ${i}`, { ...labels, code: CODE_CLASSES[i] ?? '' }, total, existed);
    for (const [i, total] of (await read('traffic')).entries())
      bytes.update(`${project} ${i}`, { ...labels, direction: TRAFFIC_DIRECTIONS[i] ?? '' }, total, existed);
  }

  async function countHost(
    { project, labels, wasOmitted }: LabelledProject,
    host: Host,
    freedBefore: number,
    now: number,
  ) {
    const key = `${project} ${host.id}`;
    const existed = isFirst || wasOmitted || omitted.has(key);
    const [requestTotal = 0, attackTotal = 0] = await totalsOf(key).read(freedBefore, now, (edges) =>
      store.count({ project, hosts: [host.id], edges, rows: 'timeline', ignoreHorizon: true }),
    );
    const hostLabels = { ...labels, host: host.hostname };
    hostRequests.update(key, hostLabels, requestTotal, existed);
    hostAttacks.update(key, hostLabels, attackTotal, existed);
  }

  return async (projects: readonly LabelledProject[], now: number): Promise<void> => {
    const { freedBefore } = await store.retention();
    let hosts = 0;
    const others = new Set<string>();
    for (const project of projects) {
      await countProject(project, freedBefore, now);
      // The embedded store responds without a turn of the event loop.
      await setImmediate();
      if (hostsMax === 0) continue;
      const all = await store.hosts(project.project);
      // The oldest first: which hosts have metrics must not change when one is added.
      all.sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
      const measured = all.slice(0, hostsMax - hosts);
      hosts += measured.length;
      for (const { id } of all.slice(measured.length)) others.add(`${project.project} ${id}`);
      for (const host of measured) await countHost(project, host, freedBefore, now);
    }
    metrics.gauge('wafstat_metrics_omitted').set({ kind: 'host' }, others.size);
    omitted = others;
    isFirst = false;
  };
}

/**
 * Totals that never decrease, although retention deletes old events: what is about to be deleted is read once more, in
 * the same snapshot as the rest, and then kept here. Late events are missed if they are of the two oldest hours in the
 * store. The horizon does not matter: it may move back, and events that it hid must not count again.
 */
class MonotonicTotals {
  readonly #retentionMs: number;
  readonly #leadMs: number;
  readonly #alignMs: number;
  #from: number | null = null;
  #deleted: number[] = [];

  constructor(retentionMs: number) {
    this.#retentionMs = retentionMs;
    this.#leadMs = Math.min(2 * HOUR_MS, retentionMs / 4);
    // Whole hours are the fastest to read.
    this.#alignMs = this.#leadMs < 2 * HOUR_MS ? MINUTE_MS : HOUR_MS;
  }

  /** `readSeries` returns the points of each series between the edges, from one snapshot. */
  async read(
    freedBefore: number,
    now: number,
    readSeries: (edges: readonly number[]) => Promise<readonly Float64Array[]>,
  ): Promise<number[]> {
    // Deletion may be late, and then delete hours at once.
    const deletedNext = Math.max(freedBefore, now - this.#retentionMs);
    const to = Math.ceil((now + FUTURE_MS) / HOUR_MS) * HOUR_MS;
    const next = Math.min(to, Math.ceil((deletedNext + this.#leadMs) / this.#alignMs) * this.#alignMs);
    const from = Math.min(to, this.#from ?? next);
    const isDue = from < deletedNext + this.#leadMs / 2;
    // If the clock was ahead, and is right now, what was kept here counts in the store again.
    const start = isDue || next < from ? next : from;
    const series = await readSeries(
      start === from ? [from, to] : [Math.min(from, start), Math.max(from, start), to],
    );
    this.#from = start;
    return series.map((points, i) => {
      const passed = start === from ? 0 : (points[0] ?? 0);
      const kept = this.#deleted[i] ?? 0;
      this.#deleted[i] = start < from ? kept - passed : kept + passed;
      return kept + (start < from ? 0 : passed) + (points.at(-1) ?? 0);
    });
  }
}

/** Records by format and drop reason, and the newest event, of each source. */
function createSourceMetrics({ metrics, formats }: StoreMetricsOptions) {
  const records = new StoreCounter(metrics.counter('wafstat_ingest_records_total'));
  const dropped = new StoreCounter(metrics.counter('wafstat_ingest_dropped_records_total'));
  const newest: Gauge = metrics.gauge('wafstat_source_last_event_timestamp_seconds');
  let omitted: ReadonlySet<string> = new Set();
  let isFirst = true;

  function updateSourceCounters(
    { project, labels, wasOmitted }: LabelledProject,
    source: Omit<Source, 'hosts'>,
  ): void {
    const format = formatLabel(source.format, formats);
    const key = `${project} ${source.id}`;
    const existed = isFirst || wasOmitted || omitted.has(key);
    records.update(key, { ...labels, format }, source.events, existed);
    for (const [reason, total] of Object.entries(source.dropped)) {
      if (!Object.hasOwn(DROP_REASONS, reason)) continue;
      dropped.update(`${key} ${reason}`, { ...labels, format, reason }, total, existed);
    }
    if (source.last_seen !== null) newest.set({ ...labels, source: source.name }, source.last_seen / 1_000);
  }

  return (projects: readonly LabelledProject[]): void => {
    newest.reset();
    const all = projects.flatMap((project) => project.sources.map((source) => ({ project, source })));
    for (const { project, source } of all.slice(0, SOURCES_MAX)) updateSourceCounters(project, source);
    omitted = new Set(all.slice(SOURCES_MAX).map(({ project, source }) => `${project.project} ${source.id}`));
    metrics.gauge('wafstat_metrics_omitted').set({ kind: 'source' }, omitted.size);
    isFirst = false;
  };
}

function formatLabel(format: string, formats: readonly string[]): string {
  return format === MIXED_FORMAT || formats.includes(format) ? format : 'auto';
}

async function measureFiles(directory: string, metrics: Metrics): Promise<void> {
  for (const file of ['statistics', 'identity']) {
    const found = await stat(join(directory, `${file}.mdb`)).catch(() => null);
    if (found !== null) metrics.gauge('wafstat_store_file_bytes').set({ file }, found.size);
  }
  const space = await statfs(directory).catch(() => null);
  if (space === null) return;
  const [free, size] = FILESYSTEM;
  metrics.gauge(free).set(space.bavail * space.bsize);
  metrics.gauge(size).set(space.blocks * space.bsize);
}
