/**
 * Timelines of ranges that move. A dashboard queries a range that ends now: nearly all points are those of its last query,
 * unless late events change them. So the text of points is kept in blocks, each with the version of its counts. A
 * response is assembled from blocks; only those that changed and the two points that the range cuts are counted.
 */
import { BoundedCache } from '../../cache.ts';
import { DAY_MS, gridEdges, intervalOf, type TimelineQuery } from '../../statistics/timeline.ts';
import type { Selection, Store } from '../../store/store.ts';
import { BytesPart, type Joined, JoinedPart, type Part, SharedParts } from '../shared-parts.ts';
import { type PointsText, pointsText, seriesJson, TIME_MAX, TIME_MIN } from './timeline-json.ts';

/**
 * Four hours of minutes, or ten days of hours. With more points, counting those of the newest block takes longer after each
 * change; with fewer, sending a day by minute takes longer: 38 us in 15 parts, 44 us in 28.
 */
const BLOCK_POINTS = 240;
/** About 100 timelines of a day by minute. */
const BLOCK_BYTES_MAX = 16_777_216;
/** About 40 timelines of a day by minute. */
const LATEST_BYTES_MAX = 8_388_608;
/** The memory of the objects around the bytes of a block. */
const BLOCK_OVERHEAD_BYTES = 1_024;
/** The approximate memory of one series of a block. */
const SERIES_BYTES = 10_240;
/** A block counts as in use for this long after a query. Dashboards refresh more often. */
const IN_USE_MS = 10_000;
/** How long the latest range of a view is used without looking up its blocks, which must stay in use. */
const CHECKED_MS = IN_USE_MS / 2;
/** One in so many queries whose blocks do not fit replaces others. */
const CREATED_OF_REFUSED = 16;

/** Limits the names of all views together. The name of a view of a thousand hosts has 33,000 characters. */
const VIEW_CHARACTERS_MAX = 4_194_304;
/** More than the number of blocks of minutes up to TIME_MAX. */
const BLOCKS_PER_VIEW = 2 ** 21;

/** The series of a call, and the text around their points. */
export interface TimelineSeries {
  name: string;
  /** The text before each series. */
  heads: readonly string[];
  tail: string;
  /** The counts of each series between neighbouring edges. */
  count(query: Selection & { edges: readonly number[] }): Promise<readonly Float64Array[]>;
}

type GridQuery = TimelineQuery & { byDay?: boolean };

interface Block {
  id: number;
  version: string;
  /** The change counter of the store when the version was last checked. */
  changes: number | undefined;
  /** Monotonic milliseconds. */
  usedAt: number;
  text: PointsText;
  /** All points of each series. */
  whole: Part[];
  /** The points of each series that the latest range contained, if not all. */
  cut: { from: number; to: number; parts: Part[] } | undefined;
}

interface GridRange {
  view: number;
  intervalMs: number;
  /** The whole points before the last point of the range: times on the local clock, in intervals. */
  first: number;
  end: number;
  /** The start of the range, the start and end of its whole points, and the end of the range. */
  bounds: readonly [from: number, wholeFrom: number, wholeTo: number, to: number];
}

/** The latest range of a view. */
interface LatestRange {
  /** As in GridRange. */
  first: number;
  end: number;
  /** The change counter of the store when the points were counted. */
  changes: number | undefined;
  /** When the blocks were looked up, in monotonic milliseconds. */
  checkedAt: number;
  /** In the order of time: lists of one part per series. */
  points: readonly (readonly Part[])[];
  /** The IDs of all blocks but the newest, which changes with every event. */
  older: readonly number[];
  /** The points of these blocks, of each series. Undefined unless the range was queried again before anything changed. */
  joined: readonly Joined[] | undefined;
}

export class TimelineBlocks {
  readonly #store: Store;
  /** Numbers of views: which call, hosts and grid. Never reused, because blocks of an evicted view may still be cached. */
  readonly #views = new BoundedCache<string, number>({
    name: 'timeline_views',
    entriesMax: VIEW_CHARACTERS_MAX / 64,
    weightMax: VIEW_CHARACTERS_MAX,
    weight: (_, name) => name.length,
  });
  /** The view that an array of hosts was last used for: finding it by the names of ten hosts takes 3 us. */
  readonly #latestViews = new WeakMap<readonly string[], { grid: string; view: number }>();
  readonly #blocks = new BoundedCache<number, Block>({
    name: 'timeline_blocks',
    entriesMax: BLOCK_BYTES_MAX / BLOCK_OVERHEAD_BYTES,
    weightMax: BLOCK_BYTES_MAX,
    // The compressed text of all points and that of the latest cut take up to a fifth each.
    weight: ({ text: { bytes, starts } }) => BLOCK_OVERHEAD_BYTES + bytes.length * 1.4 + starts.byteLength,
  });
  /**
   * By view. A view that is queried several times between two changes needs only this: a live day by minute takes 126 instead
   * of 141 us, joining included. The points are mostly those of the cached blocks, but may outlive them.
   */
  readonly #latest = new BoundedCache<number, LatestRange>({
    name: 'timeline_ranges',
    entriesMax: LATEST_BYTES_MAX / BLOCK_OVERHEAD_BYTES,
    weightMax: LATEST_BYTES_MAX,
    // The text of the blocks and the joined text, and a fifth of each compressed.
    weight: ({ points }) => BLOCK_OVERHEAD_BYTES + bytesOf(points) * 2.4,
  });
  readonly #now: () => number;
  #lastView = 0;
  #lastBlock = 0;
  /** How often blocks did not fit. */
  #refused = 0;

  /** `now`: monotonic milliseconds. */
  constructor(store: Store, now = () => performance.now()) {
    this.#store = store;
    this.#now = now;
  }

  async json(timeline: TimelineSeries, query: GridQuery): Promise<Buffer | SharedParts> {
    return (await this.#fromBlocks(timeline, query)) ?? (await plainJson(timeline, query));
  }

  /**
   * Undefined if the range is short, if the view is new, if its blocks do not fit into the cache, or if cached points change
   * while others are counted.
   */
  async #fromBlocks(timeline: TimelineSeries, query: GridQuery): Promise<SharedParts | undefined> {
    const { project, hosts, from, to, offsetMs, byDay = false } = query;
    const intervalMs = byDay ? DAY_MS : intervalOf(to - from);
    if (this.#store.versions === undefined || to - from < BLOCK_POINTS * intervalMs) return undefined;
    const view = this.#viewIfRepeated(`${timeline.name} ${intervalMs} ${offsetMs} ${project}`, hosts);
    if (view === undefined) return undefined;
    const first = Math.ceil((from + offsetMs) / intervalMs);
    const end = Math.ceil((to + offsetMs) / intervalMs) - 1;
    const range: GridRange = {
      view,
      intervalMs,
      first,
      end,
      bounds: [from, first * intervalMs - offsetMs, end * intervalMs - offsetMs, to],
    };
    const changes = this.#store.changes?.();
    const now = this.#now();
    const latest = this.#latest.get(view);
    const isCurrent =
      changes !== undefined &&
      latest?.first === first &&
      latest.end === end &&
      latest.changes === changes &&
      now - latest.checkedAt < CHECKED_MS;
    if (!isCurrent) return this.#fromCheckedBlocks(timeline, query, range, latest, changes, now);
    const edges = mergeEdges(range.bounds, [], intervalMs);
    const counts = await timeline.count({ project, hosts, edges });
    const changesNow = this.#store.changes?.();
    if (changesNow !== changes)
      return this.#fromCheckedBlocks(timeline, query, range, latest, changesNow, now);
    if (latest.joined === undefined)
      joinOlder(
        latest,
        timeline.heads.map(() => ({})),
      );
    return assemble(timeline, latest.points, range.bounds, edges, counts);
  }

  /** Looks at each block, and counts those that have changed. */
  async #fromCheckedBlocks(
    timeline: TimelineSeries,
    { project, hosts, offsetMs }: GridQuery,
    { view, intervalMs, first, end, bounds }: GridRange,
    before: LatestRange | undefined,
    changes: number | undefined,
    now: number,
  ): Promise<SharedParts | undefined> {
    // Only for the type: `#fromBlocks` has checked it.
    if (this.#store.versions === undefined) return undefined;
    const blockMs = BLOCK_POINTS * intervalMs;
    const firstBlock = Math.floor(first / BLOCK_POINTS);
    const endBlock = Math.ceil(end / BLOCK_POINTS);
    const edges: number[] = [];
    for (let block = firstBlock; block <= endBlock; block++) edges.push(block * blockMs - offsetMs);
    if ((edges[0] ?? 0) < TIME_MIN || (edges.at(-1) ?? 0) > TIME_MAX) return undefined;

    const keyOf = (i: number) => view * BLOCKS_PER_VIEW + firstBlock + i;
    const known = edges.slice(1).map((_, i) => this.#blocks.get(keyOf(i)));
    // Usually many queries come between two changes, and comparing one number shows that no block has changed.
    const isCurrent = changes !== undefined && known.every((block) => block?.changes === changes);
    const versions = isCurrent
      ? known.map((block) => block?.version)
      : await this.#store.versions({ project, edges });
    const cached = known.map((block, i) => (block?.version === versions[i] ? block : undefined));
    for (const block of cached) {
      if (block === undefined) continue;
      block.changes = changes;
      block.usedAt = now;
    }
    const stale = edges.slice(0, -1).filter((_, i) => cached[i] === undefined);
    const missing = known.filter((block) => block === undefined).length;
    if (missing > 0 && this.#isInUse(missing * timeline.heads.length * SERIES_BYTES, now)) return undefined;
    const finer = mergeEdges(bounds, stale, intervalMs);
    const counts = await timeline.count({ project, hosts, edges: finer });
    if (changes === undefined || this.#store.changes?.() !== changes) {
      const versionsNow = await this.#store.versions({ project, edges });
      // Otherwise a batch could be in some points of the response and missing from others.
      if (cached.some((block, i) => block !== undefined && versions[i] !== versionsNow[i])) return undefined;
    }

    const blocks = cached.map((block, i) => {
      if (block !== undefined) return block;
      const start = edges[i] ?? 0;
      const ends = gridEdges(start, start + blockMs, offsetMs, intervalMs).slice(1);
      const series = counts.map((finerCounts) => sumPoints(finer, finerCounts, start, ends));
      const text = pointsText(ends, series);
      const whole = partsOf(text, 0, BLOCK_POINTS);
      const version = versions[i] ?? '';
      const id = ++this.#lastBlock;
      const added: Block = { id, version, changes, usedAt: now, text, whole, cut: undefined };
      this.#blocks.set(keyOf(i), added);
      return added;
    });
    const points = blocks.map((block, i) => {
      const from = i === 0 ? first - firstBlock * BLOCK_POINTS : 0;
      const to = i === blocks.length - 1 ? end - (endBlock - 1) * BLOCK_POINTS : BLOCK_POINTS;
      return cutBlock(block, from, to);
    });
    const older = blocks.slice(0, -1).map(({ id }) => id);
    const latest: LatestRange = { first, end, changes, checkedAt: now, points, older, joined: undefined };
    if (before?.joined && before.first === first && isEqual(before.older, older))
      joinOlder(latest, before.joined);
    this.#latest.set(view, latest);
    return assemble(timeline, latest.points, bounds, finer, counts);
  }

  /**
   * Whether new blocks would evict some that are in use. If there are more views than fit, each would evict the others, and
   * no block would ever be reused: creating them takes three times as long as the plain response. Some are created anyway, so
   * that views that are queried often replace others.
   */
  #isInUse(bytes: number, now: number): boolean {
    const oldest = this.#blocks.evictedBy(bytes);
    if (oldest === undefined || now - oldest.usedAt >= IN_USE_MS) return false;
    return ++this.#refused % CREATED_OF_REFUSED !== 0;
  }

  /** Undefined the first time: blocks of a view that is queried only once are not worth keeping. */
  #viewIfRepeated(grid: string, hosts: readonly string[] | undefined): number | undefined {
    const latest = hosts && this.#latestViews.get(hosts);
    if (latest?.grid === grid) return latest.view;
    // JSON distinguishes "all hosts" from a host whose ID is `undefined`.
    const name = `${grid} ${JSON.stringify(hosts ?? null)}`;
    const view = this.#views.get(name);
    if (view === undefined) this.#views.set(name, ++this.#lastView);
    else if (hosts) this.#latestViews.set(hosts, { grid, view });
    return view;
  }
}

/** Counts all points; also the oracle in tests. */
export async function plainJson(
  { heads, tail, count }: TimelineSeries,
  { project, hosts, from, to, offsetMs, byDay = false }: GridQuery,
): Promise<Buffer> {
  const edges = gridEdges(from, to, offsetMs, byDay ? DAY_MS : intervalOf(to - from));
  const counts = edges.length === 0 ? [] : await count({ project, hosts, edges });
  const series = heads.map((head, i) => ({ head, counts: counts[i] ?? new Float64Array(0) }));
  return seriesJson(edges.slice(1), series, tail);
}

/** The edges of all points of the stale blocks, and the bounds in between. */
function mergeEdges(bounds: readonly number[], staleStarts: readonly number[], intervalMs: number): number[] {
  const edges: number[] = [];
  const add = (edge: number) => {
    if (edges.at(-1) !== edge) edges.push(edge);
  };
  let next = 0;
  const addBoundsUntil = (time: number) => {
    for (; next < bounds.length && (bounds[next] ?? 0) <= time; next++) add(bounds[next] ?? 0);
  };
  for (const start of staleStarts) {
    for (let point = 0; point <= BLOCK_POINTS; point++) {
      const edge = start + point * intervalMs;
      addBoundsUntil(edge);
      add(edge);
    }
  }
  addBoundsUntil(Number.POSITIVE_INFINITY);
  return edges;
}

/** Sums the counts between finer edges for points from `start` to each of `ends`. */
function sumPoints(
  edges: readonly number[],
  counts: Float64Array,
  start: number,
  ends: readonly number[],
): Float64Array {
  const first = edges.indexOf(start);
  // The edges are exactly those of the points, so there is nothing to add up.
  if (edges[first + ends.length] === ends[ends.length - 1])
    return counts.subarray(first, first + ends.length);
  const sums = new Float64Array(ends.length);
  let i = first;
  for (const [point, end] of ends.entries()) {
    let sum = 0;
    for (; (edges[i] ?? end) < end; i++) sum += counts[i] ?? 0;
    sums[point] = sum;
  }
  return sums;
}

/** The points of each series from `from` to before `to`, as one part. */
function partsOf({ bytes, starts }: PointsText, from: number, to: number): Part[] {
  const parts: Part[] = [];
  for (let series = 0; series < starts.length; series += BLOCK_POINTS + 1) {
    parts.push(new BytesPart(bytes.subarray(starts[series + from], starts[series + to])));
  }
  return parts;
}

function cutBlock(block: Block, from: number, to: number): Part[] {
  if (from === 0 && to === BLOCK_POINTS) return block.whole;
  if (block.cut?.from !== from || block.cut.to !== to)
    block.cut = { from, to, parts: partsOf(block.text, from, to) };
  return block.cut.parts;
}

function isEqual(some: readonly number[], others: readonly number[]): boolean {
  return some.length === others.length && some.every((number, i) => number === others[i]);
}

function bytesOf(points: readonly (readonly Part[])[]): number {
  return points.reduce((sum, parts) => sum + parts.reduce((all, { length }) => all + length, 0), 0);
}

/** Joins all blocks but the newest. `joined`: one for each series, empty or of an earlier range with the same blocks. */
function joinOlder(latest: LatestRange, joined: readonly Joined[]): void {
  const older = latest.points.slice(0, -1);
  latest.joined = joined;
  if (older.length < 2) return;
  const parts = joined.map((whole, series) => {
    const ofSeries = older.flatMap((list) => list[series] ?? []);
    return new JoinedPart(ofSeries, whole);
  });
  latest.points = [parts, ...latest.points.slice(-1)];
}

/** Puts a response together. The first and last point, which the range cuts, are summed up from `counts` between `edges`. */
function assemble(
  { heads, tail }: TimelineSeries,
  points: readonly (readonly Part[])[],
  [from, wholeFrom, wholeTo, to]: GridRange['bounds'],
  edges: readonly number[],
  counts: readonly Float64Array[],
): SharedParts {
  const parts: (Part | string)[] = [];
  let before = '';
  for (let series = 0; series < heads.length; series++) {
    const ofSeries = counts[series] ?? new Float64Array(0);
    const cut = from === wholeFrom ? '' : `${pointText(edges, ofSeries, from, wholeFrom)},`;
    parts.push(before + heads[series] + cut);
    for (const list of points) parts.push(list[series] ?? '');
    before = pointText(edges, ofSeries, wholeTo, to);
  }
  parts.push(before + tail);
  return new SharedParts(parts);
}

function pointText(edges: readonly number[], counts: Float64Array, from: number, to: number): string {
  let num = 0;
  for (let i = edges.indexOf(from); (edges[i] ?? to) < to; i++) num += counts[i] ?? 0;
  return `{"time":${to},"num":${num}}`;
}
