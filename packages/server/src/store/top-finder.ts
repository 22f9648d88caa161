/**
 * Queries of top lists, for every store. Live traffic changes only the last hours of a range, so all others are merged
 * once, into a base, and a query merges the rest with it. Hours are merged from the newest one backwards, until there are
 * too many bytes: then the list covers a shorter range.
 */
import { createHash } from 'node:crypto';
import { BoundedCache, cacheShare } from '../cache.ts';
import { PAGE_CODES } from '../event.ts';
import { Semaphore } from '../fair-queue.ts';
import { KeyHash } from './hyperloglog.ts';
import { Slices } from './slices.ts';
import {
  CACHE_BYTES,
  HOUR_MS,
  QueryTooLarge,
  storedCategory,
  type TimeRange,
  type TopList,
  type TopQuery,
  wholeHours,
} from './store.ts';
import { TopMerge } from './top-lists.ts';
import type { SelectedSummary } from './top-records.ts';

/** What a query reads from the store, all from one moment. */
export interface TopSnapshot<State> {
  covered: TimeRange;
  /** The hours that may have records. */
  first: number;
  end: number;
  /** The state of the records of these hours; `known` itself if nothing has changed. */
  state(from: number, to: number, known: State | undefined): State | Promise<State>;
  /** The records of these hours, the newest hour first, then in an order that does not change. */
  records(from: number, to: number): AsyncIterable<MergedRecord> | Iterable<MergedRecord>;
}

interface MergedRecord {
  hour: number;
  /** The length of the whole record; 0 if there is none, or none that the query needs. */
  bytes: number;
  summaries: readonly SelectedSummary[];
}

interface Merged {
  merge: TopMerge;
  /** The first hour in it. */
  from: number;
}

const BASES_MAX = 1_000;
/** At most this many hours follow the base, which moves when they are complete. LMDB has change counters for as many hours. */
const TAIL_HOURS = 2;
/** A few seconds of work, as for many hosts during a flood. A flood of 256-byte URLs has 210 MB a month in a project. */
const QUERY_BYTES_MAX = 256 * 1_024 * 1_024;
/** Each merge holds a snapshot: in PostgreSQL, one of ten connections. */
const MERGES_MAX = 2;

export class TopFinder<State extends {}> {
  readonly #inSnapshot: <T>(
    query: TopQuery,
    action: (snapshot: TopSnapshot<State>) => Promise<T>,
  ) => Promise<T>;
  readonly #bytesMax: number;
  readonly #bases: BoundedCache<string, Merged & { state: State }>;
  /** By query without its limit. */
  readonly #running = new Map<string, Promise<unknown>>();
  readonly #merges = new Semaphore(MERGES_MAX);

  constructor(
    inSnapshot: <T>(query: TopQuery, action: (snapshot: TopSnapshot<State>) => Promise<T>) => Promise<T>,
    bytesMax = QUERY_BYTES_MAX,
    cacheBytes = CACHE_BYTES,
  ) {
    this.#inSnapshot = inSnapshot;
    this.#bytesMax = bytesMax;
    this.#bases = new BoundedCache({
      name: 'top_lists',
      entriesMax: BASES_MAX,
      weightMax: cacheShare('top_lists', cacheBytes),
      weight: ({ merge }, name) => merge.bytes + name.length,
    });
  }

  async find(query: TopQuery): Promise<TopList> {
    const { from, to } = wholeHours(query);
    const name = nameOf(query);
    const key = `${name} ${from} ${to}`;
    for (;;) {
      const list = await this.#inSnapshot(query, (snapshot) => this.#list(snapshot, query, name, false));
      if (list !== null) return list;
      // Waits without a snapshot, then looks again.
      const running = this.#running.get(key);
      if (running !== undefined) await running;
      else return (await this.#mergeBase(query, name, key)) as TopList;
    }
  }

  /** Merges a new base. Only one merge of the same base runs at a time, and few in total. */
  async #mergeBase(query: TopQuery, name: string, key: string): Promise<TopList | null> {
    const merge = this.#merges.acquire(query.project, 1).then(async (release) => {
      try {
        return await this.#inSnapshot(query, (snapshot) => this.#list(snapshot, query, name, true));
      } finally {
        release();
      }
    });
    this.#running.set(key, merge);
    try {
      return await merge;
    } finally {
      this.#running.delete(key);
    }
  }

  /** Null if there is no base and it may not be merged. */
  async #list(
    snapshot: TopSnapshot<State>,
    query: TopQuery,
    name: string,
    mayMerge: boolean,
  ): Promise<TopList | null> {
    const { covered, first, end } = snapshot;
    const split = Math.max(first, Math.floor((end - 1) / TAIL_HOURS) * TAIL_HOURS);
    const slices = new Slices();
    const merge = (from: number, to: number) => this.#mergeHours(snapshot, query, slices, from, to);
    const key = `${name} ${first} ${split}`;
    let base = await this.#currentBase(snapshot, key, first, split);
    if (base === null && first < split && !mayMerge) return null;
    const tail = await merge(split, end);
    if (tail.from === end && split < end) throw new QueryTooLarge('merge top lists');
    if (tail.from > split) base = await merge(split, split);
    else if (base === null) {
      base = await merge(first, split);
      if (first < split) {
        this.#bases.set(key, { ...base, state: await snapshot.state(first, split, undefined) });
      }
    }
    const list = await slices.run(base.merge.list(tail.merge, query.list, query.limit));
    const from = tail.from > split ? tail.from : base.from;
    return from > first
      ? { ...covered, from: from * HOUR_MS, shortened: true, ...list }
      : { ...covered, ...list };
  }

  async #currentBase(
    snapshot: TopSnapshot<State>,
    key: string,
    first: number,
    split: number,
  ): Promise<Merged | null> {
    const base = first < split ? this.#bases.get(key) : undefined;
    if (base === undefined) return null;
    return (await snapshot.state(first, split, base.state)) === base.state ? base : null;
  }

  /** Stops at the hour in which the limit is reached. An hour that exceeds it by itself is left out. */
  async #mergeHours(
    snapshot: TopSnapshot<State>,
    query: TopQuery,
    slices: Slices,
    from: number,
    to: number,
  ): Promise<Merged> {
    const { project, categories, codes, list } = query;
    const numbers =
      list === 'pages' ? codes?.map((code) => PAGE_CODES.indexOf(code)) : categories?.map(storedCategory);
    const merge = new TopMerge(new KeyHash(project), numbers ?? null);
    let [hour, bytes, before] = [to, 0, 0];
    if (from >= to) return { merge, from };
    for await (const record of snapshot.records(from, to)) {
      if (record.bytes === 0) continue;
      if (record.hour !== hour) {
        if (bytes >= this.#bytesMax) return { merge, from: hour };
        ({ hour } = record);
        before = bytes;
      }
      bytes += costOf(record);
      if (bytes - before > this.#bytesMax) return this.#mergeHours(snapshot, query, slices, hour + 1, to);
      await slices.run(addRecord(merge, record));
    }
    return { merge, from };
  }
}

function* addRecord(merge: TopMerge, { summaries }: MergedRecord): Generator<void, void> {
  for (const { summary, prefix } of summaries) yield* merge.add(summary, prefix);
  yield;
}

/** Reading a record costs at most half as much as merging it. */
function costOf({ bytes, summaries }: MergedRecord): number {
  const mergedBytes = summaries.reduce((sum, { summary }) => sum + summary.length, 0);
  return Math.max(mergedBytes, bytes / 2);
}

/** A query without its range and limit. */
function nameOf({ project, hosts, list, categories, codes }: TopQuery): string {
  const parts = [
    project,
    hosts && [...new Set(hosts)].sort(),
    list,
    categories?.toSorted(),
    codes?.toSorted(),
  ];
  return createHash('sha256').update(JSON.stringify(parts)).digest('base64');
}
