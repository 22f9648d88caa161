/** From log lines to counted events: read them, resolve their hosts, append. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { BoundedCache } from '../cache.ts';
import { type AttackDetails, countRecords, type Event, normalHostname } from '../event.ts';
import type { GeoIp } from '../geoip.ts';
import { reached } from '../rare-states.ts';
import { type Appended, type Batch, type ErrorPages, mergeFormats, type Store } from '../store/store.ts';
import { BatchReader, type Outcome, type ReadLimits, type ReadLines } from './batch-reader.ts';
import type { LogRecord } from './formats/format.ts';

export interface Limits extends ReadLimits {
  /** Host names registered from logs, per project. Traffic of further hosts counts in the project's total only. */
  hostsMax: number;
  /** Finds the countries that logs do not name. */
  geo?: GeoIp | undefined;
  /** Sources per project; no limit if absent. Batches of further sources are refused. */
  sourcesMax?: number | undefined;
}

export class SourceLimitReached extends Error {}

/** Lines are in the future, and none is in time: the clock of this machine may be wrong. They were not counted. */
export class LinesInFuture extends Error {
  /** The time of the first such line. */
  readonly time: number;

  constructor(time: number, now: number) {
    super(
      `no line is in time, and the first that is more than 24 hours in the future has the time ${timeText(time)}; ` +
        `the clock of this machine says ${timeText(now)}`,
    );
    this.time = time;
  }
}

/** A line can have a time that is no date. */
function timeText(time: number): string {
  return Math.abs(time) <= 8.64e15 ? new Date(time).toISOString() : String(time);
}

/** A clock that nobody has set in this time is trusted, as in retention: then the log is wrong, and its lines are dropped. */
const DOUBT_MS_MAX = 24 * 3_600_000;
/** A clock that differs by more than this from the monotonic clock was set, and may be wrong or right again. */
const CLOCK_SET_MS_MIN = 3_600_000;
/** How many batches of a file or push wait for a line in time: 1 GB of a file. They have no events, and take 3 KB each. */
const WAITING_MAX = 1_000;

/** `duplicate`: the store has the batch already. `conflict`: another process counted the same part of a file first. */
export type Counted = { kind: 'counted'; outcome: Outcome } | { kind: 'duplicate' } | { kind: 'conflict' };

export type NewBatch = Omit<Batch, 'events' | 'pages' | 'dropped'>;

/** What the records of a batch count. */
export interface Resolved {
  events: readonly Event[];
  pages: readonly ErrorPages[];
}

export class Pipeline extends BatchReader {
  readonly #store: Store;
  readonly #limits: Limits;
  readonly #monotonicNow: () => number;
  readonly #sources = new BoundedCache<string, ProjectSources>({
    name: 'source_names',
    entriesMax: PROJECTS_MAX,
    unitBytes: 4_096,
  });

  /** What lines have shown since the clock was last set. `offset`: its difference from the monotonic clock. */
  #clock = { offset: Number.NaN, since: Number.NaN, confirmedBy: new Set<string>() };

  constructor(
    store: Store,
    limits: Limits,
    now: () => number,
    monotonicNow: () => number = () => performance.now(),
  ) {
    super(limits, now);
    this.#store = store;
    this.#limits = limits;
    this.#monotonicNow = monotonicNow;
  }

  /**
   * The error if lines are in the future, and no line of the project that this process has read is in time: they would be lost
   * if the clock is wrong. Lines of other projects are no evidence, because others write them.
   */
  doubt({ records, outcome }: ReadLines, project: string): LinesInFuture | null {
    const { future_time: time, dropped_in_time: droppedInTime = false } = outcome;
    const isInTime = records.length > 0 || droppedInTime;
    if (!isInTime && time === undefined) return null;
    const now = this.now();
    const running = this.#monotonicNow();
    if (!(Math.abs(now - running - this.#clock.offset) <= CLOCK_SET_MS_MIN)) {
      if (!Number.isNaN(this.#clock.offset)) reached('pipeline.clock-set');
      this.#clock = { offset: now - running, since: running, confirmedBy: new Set() };
    }
    const { since, confirmedBy } = this.#clock;
    if (isInTime) confirmedBy.add(project);
    const isTrusted = confirmedBy.has(project) || running - since >= DOUBT_MS_MAX;
    if (time === undefined || isTrusted) {
      if (time !== undefined && !confirmedBy.has(project)) reached('pipeline.clock-trusted-after-a-day');
      return null;
    }
    reached('pipeline.doubt');
    return new LinesInFuture(time, now);
  }

  async count(read: ReadLines, batch: NewBatch): Promise<Counted> {
    return this.append(read, await this.resolve(read, batch.project), batch);
  }

  /** Turns records into events. Each batch resolves its host names again, so that new or renamed hosts take effect. */
  async resolve({ records, outcome, hosts, pages }: ReadLines, project: string): Promise<Resolved> {
    const ids = await this.#hostIds(project, hosts);
    for (let i = 0; i < records.length; i++) {
      if (i % RECORDS_PER_TURN === RECORDS_PER_TURN - 1) await nextTurn();
      // The index is within the length.
      const record = records[i] as LogRecord;
      const { host, hostId } = record;
      const id = hostId ?? (host === undefined ? null : (ids.get(host) ?? null));
      if (id === null && host !== undefined) outcome.unregistered_host += record.recordCount ?? 1;
      if (record.details !== undefined) this.#addCountry(record.details);
      // The record itself becomes the event: a new object per line would take a tenth of the time.
      Object.assign(record as Omit<LogRecord, 'hostId'>, { hostId: id });
    }
    const events = records as readonly LogRecord[] as readonly Event[];
    return { events, pages: pages.pages((host) => ids.get(host) ?? null) };
  }

  #addCountry(details: AttackDetails): void {
    const { source, country } = details;
    if (source === undefined || country !== undefined) return;
    const found = this.#limits.geo?.country(source);
    if (found !== undefined) details.country = found;
  }

  async append(
    { outcome, examples }: ReadLines,
    { events, pages }: Resolved,
    batch: NewBatch,
  ): Promise<Counted> {
    const { name, format } = batch.source;
    const { sourcesMax } = this.#limits;
    if (sourcesMax !== undefined) await this.#admitSource(batch.project, name, sourcesMax);
    // For `auto`, store the formats that were found.
    const source = { name, format: format === 'auto' ? mergeFormats(Object.keys(outcome.formats)) : format };
    const appended = await this.#store.append({
      ...batch,
      source,
      events,
      ...(pages.length > 0 && { pages }),
      dropped: outcome.dropped,
      examples: this.keepsExamples() ? examples : null,
    });
    return toCounted(outcome, events, appended);
  }

  /** Other processes may add sources at the same time, so a project can slightly exceed the limit. */
  async #admitSource(project: string, name: string, max: number): Promise<void> {
    let known = this.#sources.get(project);
    if (known?.names.has(name)) return;
    if (known === undefined || known.listedAt < this.now() - SOURCES_AGE_MS_MAX) {
      known = { listedAt: this.now(), names: new Set(), listing: this.#store.sources(project) };
      this.#sources.set(project, known);
    }
    // Batches that wait for the same list continue in the order in which they arrived.
    const { names, listing } = known;
    try {
      for (const source of await listing) names.add(source.name);
    } catch (error) {
      this.#sources.delete(project);
      throw error;
    }
    if (!names.has(name) && names.size >= max) {
      throw new SourceLimitReached(
        `source '${name}' is new, but the project has reached its limit of ${max} sources: ` +
          'use one of them, or raise --sources-max',
      );
    }
    names.add(name);
  }

  /** IDs by the name as the lines spell it; names that are not registered are absent. */
  async #hostIds(project: string, hosts: ReadonlyMap<string, string>): Promise<Map<string, string>> {
    const ids = new Map<string, string>();
    if (hosts.size === 0) return ids;
    const spellings: string[] = [];
    const hostnames: string[] = [];
    let names = 0;
    for (const spelling of hosts.keys()) {
      if (++names % NAMES_PER_TURN === 0) await nextTurn();
      const hostname = normalHostname(spelling);
      if (hostname === null) continue;
      spellings.push(spelling);
      hostnames.push(hostname);
    }
    const limit = this.#limits.hostsMax;
    const resolved = await this.#store.resolveHosts({ project, hostnames, limit });
    for (const [i, id] of resolved.entries()) {
      if (i % RECORDS_PER_TURN === RECORDS_PER_TURN - 1) await nextTurn();
      if (id !== null) ids.set(spellings[i] ?? '', id);
    }
    return ids;
  }
}

/** The batches of a file or push. Those of lines in the future wait until a line in time shows that the clock is right. */
export class DoubtedBatches {
  readonly #pipeline: Pipeline;
  readonly #project: string;
  /** They have no events: a line that counts is in time. */
  readonly #waiting: (() => void)[] = [];
  /** The lines of the first batch that waits. */
  #doubted: ReadLines | null = null;

  constructor(pipeline: Pipeline, project: string) {
    this.#pipeline = pipeline;
    this.#project = project;
  }

  /** Calls `append` now or later, in the order of the batches. Returns whether it was called. */
  add(read: ReadLines, append: () => void): boolean {
    this.#waiting.push(append);
    if (this.#pipeline.doubt(read, this.#project)) this.#doubted ??= read;
    const doubt = this.#appendUnlessDoubted();
    if (doubt && this.#waiting.length > WAITING_MAX) throw doubt;
    return doubt === null;
  }

  /** Throws LinesInFuture if batches must still wait: they are not appended. */
  end(): void {
    const doubt = this.#appendUnlessDoubted();
    if (doubt) throw doubt;
  }

  #appendUnlessDoubted(): LinesInFuture | null {
    const doubt = this.#doubted && this.#pipeline.doubt(this.#doubted, this.#project);
    if (doubt) return doubt;
    if (this.#doubted !== null) reached('pipeline.doubt-removed');
    this.#doubted = null;
    for (const append of this.#waiting.splice(0)) append();
    return null;
  }
}

/** The sources of a project, as far as this process knows them. */
interface ProjectSources {
  listedAt: number;
  names: Set<string>;
  listing: Promise<readonly { name: string }[]>;
}

/** How long a list of sources is used for new names: listing a thousand sources for each would be slow. */
const SOURCES_AGE_MS_MAX = 10_000;
const PROJECTS_MAX = 1_000;

/** How much is processed, in a few ms, before other work gets a turn: a batch of a million hosts must not block it. */
const RECORDS_PER_TURN = 20_000;
const NAMES_PER_TURN = 5_000;

function toCounted(outcome: Outcome, events: readonly Event[], appended: Appended): Counted {
  if (appended.kind !== 'appended') return appended;
  outcome.accepted = countRecords(events) - appended.beforeHorizon;
  for (const i of appended.sameRequests ?? []) dropSameRequest(outcome, events[i] as Event);
  outcome.without_host = appended.withoutHost;
  // Events before the horizon were resolved too, but not counted.
  outcome.unregistered_host = Math.min(
    outcome.unregistered_host + appended.unknownHosts,
    appended.withoutHost,
  );
  if (appended.beforeHorizon > 0) {
    reached('pipeline.horizon-moved-during-read');
    outcome.dropped.too_old = (outcome.dropped.too_old ?? 0) + appended.beforeHorizon;
  }
  return { kind: 'counted', outcome };
}

/** Another record of the request has counted its attack. */
function dropSameRequest(
  outcome: Outcome,
  { attack, request, flagged, count, recordCount = 1 }: Event,
): void {
  if (attack !== null) outcome.attacks[attack] = (outcome.attacks[attack] ?? 0) - count;
  if (request) return;
  outcome.accepted -= recordCount;
  outcome.dropped.same_request = (outcome.dropped.same_request ?? 0) + recordCount;
  const format = flagged?.log ?? '';
  outcome.formats[format] = (outcome.formats[format] ?? 0) - recordCount;
}
