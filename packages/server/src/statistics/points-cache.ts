/**
 * Points of timelines as numbers: a cached prefix and a counted tail. A dashboard queries a range that ends now, so nearly
 * all points are those of its last query, unless late events change them.
 */
import { BoundedCache, cacheShare } from '../cache.ts';
import { CACHE_BYTES, type Selection, type Store } from '../store/store.ts';
import type { Zone } from '../zone.ts';
import { DAY_MS, gridEdges, intervalOf } from './grid.ts';
import type { Statistics } from './overview.ts';
import { countPoints, type Rows, type TimelineQuery } from './timeline.ts';

/** The memory of the objects around the numbers of an entry. */
const ENTRY_BYTES = 1_024;
/** Fewer points are counted faster than cached ones are checked. */
const POINTS_MIN = 120;
/**
 * The newest sixth of a range changes with every event. What is before it has a version of its own, which lasts until
 * late events arrive: versions of 24 hours are made of 2 hours each, those of 30 days of 4 days each (embedded store).
 */
const TAIL_SHARE = 1 / 6;

export type GridQuery = TimelineQuery & { byDay?: boolean };

/** Point i is between `edges[i]` and `edges[i + 1]`. */
export interface Points {
  edges: readonly number[];
  /** By row. Empty if there are no points. */
  counts: readonly Float64Array[];
}

/** A part of the cached points that begins with them. */
interface Prefix {
  /** The end of its last point. */
  end: number;
  /** The version of the counts from `Entry.from` to `end`. Read before them, so that it is never newer than they are. */
  version: string | null;
}

interface Entry {
  /** The start of the range: before `first` if that cut its first point. */
  from: number;
  /** The start of the first cached point. */
  first: number;
  /** Whole points without the last one, by row. */
  counts: readonly Float64Array[];
  /** The longest first. */
  prefixes: readonly Prefix[];
}

/** A query with its grid. */
interface Grid extends Selection {
  edges: readonly number[];
  from: number;
  /** The start of the first whole point, and its index: 1 if the range cuts the point before it. */
  first: number;
  firstIndex: number;
  /** The start of the last point, which is never cached: the range usually cuts it. */
  last: number;
  zone: Zone;
  intervalMs: number;
}

export function gridOf({ from, to, zone, byDay = false }: GridQuery) {
  const intervalMs = byDay ? DAY_MS : intervalOf(to - from);
  return { intervalMs, edges: gridEdges(from, to, zone, intervalMs) };
}

/** Attacks by category in each point. Not cached. */
export async function attackPoints(statistics: Statistics, query: GridQuery): Promise<Points> {
  const { project, hosts } = query;
  const { edges } = gridOf(query);
  if (edges.length === 0) return { edges, counts: [] };
  return { edges, counts: await statistics.count({ project, hosts, edges, rows: 'categories' }) };
}

export class PointsCache {
  readonly #store: Store;
  readonly #isOn: boolean;
  /** By default, about 500 timelines of a day by minute. */
  readonly #entries: BoundedCache<string, Entry>;

  constructor(store: Store, cacheBytes = CACHE_BYTES) {
    const weightMax = cacheShare('points', cacheBytes);
    this.#store = store;
    this.#isOn = store.hasFastVersions === true && weightMax > 0;
    this.#entries = new BoundedCache({
      name: 'points',
      entriesMax: Math.ceil(weightMax / ENTRY_BYTES),
      weightMax,
      weight: ({ counts }, view) =>
        ENTRY_BYTES + view.length + counts.reduce((sum, { byteLength }) => sum + byteLength, 0),
    });
  }

  async count(rows: Rows, query: GridQuery): Promise<Points> {
    const { project, hosts, from, to, zone } = query;
    const { intervalMs, edges } = gridOf(query);
    if (edges.length === 0) return { edges, counts: [] };
    if (edges.length <= POINTS_MIN || !this.#isOn)
      return { edges, counts: await countPoints(this.#store, rows, { project, hosts, edges }) };
    const isBoundary = gridEdges(from - 1, from + 1, zone, intervalMs).length === 3;
    const firstIndex = isBoundary ? 0 : 1;
    const first = edges[firstIndex] ?? to;
    const last = edges.at(-2) ?? to;
    const grid = { project, hosts, edges, from, first, firstIndex, last, zone, intervalMs };
    // JSON distinguishes "all hosts" from a host whose ID is `undefined`.
    const view = `${rows} ${intervalMs} ${zone.name} ${project} ${JSON.stringify(hosts ?? null)}`;
    const counts = (await this.#extend(view, rows, grid)) ?? (await this.#countAll(view, rows, grid));
    return { edges, counts };
  }

  /**
   * Counts what the longest prefix that has not changed lacks. Undefined if there is none, or if it changes meanwhile: then
   * the response could have only a part of a batch. The tail is counted by one query, in one snapshot; if the version
   * of everything before it is the same before and after, all of it is of that snapshot.
   */
  async #extend(view: string, rows: Rows, grid: Grid): Promise<Float64Array[] | undefined> {
    const known = this.#entries.get(view);
    if (known === undefined || known.from > grid.from) return undefined;
    const unchanged = await this.#unchangedPrefix(known, grid);
    if (unchanged === undefined) return undefined;
    const { project, hosts, edges, firstIndex, zone, intervalMs } = grid;
    const end = Math.min(unchanged.end, grid.last);
    const prefixes = end < grid.last ? await this.#prefixesOf(grid) : undefined;
    const tailIndex = edges.lastIndexOf(end);
    const cut =
      firstIndex === 0
        ? []
        : await countPoints(this.#store, rows, { project, hosts, edges: edges.slice(0, 2) });
    const tail = await countPoints(this.#store, rows, { project, hosts, edges: edges.slice(tailIndex) });
    if (!(await this.#isUnchanged(known, unchanged, project))) return undefined;
    const offset = Math.max(0, gridEdges(known.first, grid.first, zone, intervalMs).length - 1);
    const counts = tail.map((ofTail, row) => {
      const all = new Float64Array(edges.length - 1);
      all.set(cut[row] ?? []);
      const cached = known.counts[row] ?? new Float64Array(0);
      all.set(cached.subarray(offset, offset + tailIndex - firstIndex), firstIndex);
      all.set(ofTail, tailIndex);
      return all;
    });
    if (prefixes) this.#keep(view, grid, counts, prefixes);
    return counts;
  }

  async #countAll(view: string, rows: Rows, grid: Grid): Promise<readonly Float64Array[]> {
    const { project, hosts, edges } = grid;
    const prefixes = await this.#prefixesOf(grid);
    const counts = await countPoints(this.#store, rows, { project, hosts, edges });
    this.#keep(view, grid, counts, prefixes);
    return counts;
  }

  /** The longest prefix that has not changed, if the range has points of it. */
  async #unchangedPrefix(known: Entry, { project, first }: Grid): Promise<Prefix | undefined> {
    for (const prefix of known.prefixes) {
      if (prefix.end > first && (await this.#isUnchanged(known, prefix, project))) return prefix;
    }
    return undefined;
  }

  async #isUnchanged({ from }: Entry, { end, version }: Prefix, project: string): Promise<boolean> {
    return version === (await this.#store.version({ project, from, to: end }));
  }

  async #prefixesOf({ project, edges, from, last }: Grid): Promise<Prefix[]> {
    const quiet = edges[Math.floor((1 - TAIL_SHARE) * edges.length)] ?? last;
    const versionTo = (to: number) => this.#store.version({ project, from, to });
    return Promise.all([last, quiet].map(async (end) => ({ end, version: await versionTo(end) })));
  }

  #keep(
    view: string,
    { from, first, firstIndex }: Grid,
    counts: readonly Float64Array[],
    prefixes: readonly Prefix[],
  ): void {
    // Copies: the rows of a query may be parts of one larger buffer, which would stay in memory.
    const whole = counts.map((ofRow) => ofRow.slice(firstIndex, -1));
    if (prefixes.every(({ version }) => version !== null))
      this.#entries.set(view, { from, first, counts: whole, prefixes });
  }
}
