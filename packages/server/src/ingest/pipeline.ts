/** From log lines to counted events: read them, resolve their hosts, append. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { BoundedCache } from '../cache.ts';
import { countRecords, type Event, normalHostname } from '../event.ts';
import { type Appended, type Batch, mergeFormats, type Store } from '../store/store.ts';
import { BatchReader, type Outcome, type ReadLimits, type ReadLines } from './batch-reader.ts';
import type { LogRecord } from './formats/format.ts';

export interface Limits extends ReadLimits {
  /** Host names registered from logs, per project. Traffic of further hosts counts in the project's total only. */
  hostsMax: number;
  /** Sources per project; no limit if absent. Batches of further sources are refused. */
  sourcesMax?: number | undefined;
}

export class SourceLimitReached extends Error {}

/** Most lines are in the future, which says more about the clock of this machine than about the log. Nothing was counted. */
export class LinesInFuture extends Error {}

/** A clock that nobody has set in this time is trusted, as in retention: then the log is wrong, and its lines are dropped. */
const DOUBT_MS_MAX = 24 * 3_600_000;
/** A clock that differs by more than this from the monotonic clock was set, and may be wrong or right again. */
const CLOCK_SET_MS_MIN = 3_600_000;

/** `duplicate`: the store has the batch already. `conflict`: another process counted the same part of a file first. */
export type Counted = { kind: 'counted'; outcome: Outcome } | { kind: 'duplicate' } | { kind: 'conflict' };

export type NewBatch = Omit<Batch, 'events' | 'dropped'>;

export class Pipeline extends BatchReader {
  readonly #store: Store;
  readonly #limits: Limits;
  readonly #sources = new BoundedCache<string, ProjectSources>({
    name: 'source_names',
    entriesMax: PROJECTS_MAX,
    unitBytes: 4_096,
  });

  /** When the clock was first doubted, on the monotonic clock, and its difference from that. */
  #doubt: { since: number; offset: number } | null = null;

  constructor(store: Store, limits: Limits, now: () => number) {
    super(limits, now);
    this.#store = store;
    this.#limits = limits;
  }

  /** Whether most lines are in the future, and the clock may be wrong: they would be lost if they were counted as dropped. */
  doubtsClock({ records, outcome }: ReadLines): boolean {
    const { in_future: inFuture = 0 } = outcome.dropped;
    if (inFuture === 0 || inFuture <= countRecords(records)) return false;
    const since = performance.now();
    const offset = this.now() - since;
    if (this.#doubt === null || Math.abs(offset - this.#doubt.offset) > CLOCK_SET_MS_MIN)
      this.#doubt = { since, offset };
    return since - this.#doubt.since < DOUBT_MS_MAX;
  }

  async count(read: ReadLines, batch: NewBatch): Promise<Counted> {
    return this.append(read, await this.resolve(read, batch.project), batch);
  }

  /** Turns records into events. Each batch resolves its host names again, so that new or renamed hosts take effect. */
  async resolve({ records, outcome, hosts }: ReadLines, project: string): Promise<readonly Event[]> {
    const ids = await this.#hostIds(project, hosts);
    for (let i = 0; i < records.length; i++) {
      if (i % RECORDS_PER_TURN === RECORDS_PER_TURN - 1) await nextTurn();
      // The index is within the length.
      const record = records[i] as LogRecord;
      const { host, hostId } = record;
      const id = hostId ?? (host === undefined ? null : (ids.get(host) ?? null));
      if (id === null && host !== undefined) outcome.unregistered_host += record.recordCount ?? 1;
      // The record itself becomes the event: a new object per line would take a tenth of the time.
      Object.assign(record as Omit<LogRecord, 'hostId'>, { hostId: id });
    }
    return records as readonly LogRecord[] as readonly Event[];
  }

  async append(
    { outcome, examples }: ReadLines,
    events: readonly Event[],
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
