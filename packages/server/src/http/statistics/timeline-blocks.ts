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
/** The memory of the objects around the bytes of a block. */
const BLOCK_OVERHEAD_BYTES = 1_024;
/** The approximate memory of one series of a block. */
const SERIES_BYTES = 10_240;
/** A block counts as in use for this long after a query. Dashboards refresh more often. */
const IN_USE_MS = 10_000;
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
  /** No other block has it. */
  number: number;
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
  /** The latest range that began in this block. */
  run: Run | undefined;
}

/** The points of a range in all its blocks but the newest, which changes with every event. */
interface Run {
  firstPoint: number;
  /** The numbers of the blocks. Holding the blocks would keep them in memory when the cache has evicted them. */
  blocks: readonly number[];
  /** Of each series, from the second time on. This saves 10% of a compressed day by minute. */
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
    weight: ({ text: { bytes, starts }, run }) =>
      BLOCK_OVERHEAD_BYTES +
      bytes.length * (1.4 + (run?.joined ? 1.2 * run.blocks.length : 0)) +
      starts.byteLength,
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
    const blockMs = BLOCK_POINTS * intervalMs;
    if (this.#store.versions === undefined || to - from < blockMs) return undefined;
    const view = this.#viewIfRepeated(`${timeline.name} ${intervalMs} ${offsetMs} ${project}`, hosts);
    // Times on the local clock, in intervals: the whole points of the range before its last point, and their blocks.
    const first = Math.ceil((from + offsetMs) / intervalMs);
    const end = Math.ceil((to + offsetMs) / intervalMs) - 1;
    const firstBlock = Math.floor(first / BLOCK_POINTS);
    const endBlock = Math.ceil(end / BLOCK_POINTS);
    const edges: number[] = [];
    for (let block = firstBlock; block <= endBlock; block++) edges.push(block * blockMs - offsetMs);
    if (view === undefined || (edges[0] ?? 0) < TIME_MIN || (edges.at(-1) ?? 0) > TIME_MAX) return undefined;

    const changes = this.#store.changes?.();
    const keyOf = (i: number) => view * BLOCKS_PER_VIEW + firstBlock + i;
    const known = edges.slice(1).map((_, i) => this.#blocks.get(keyOf(i)));
    // Usually many queries come between two changes, and comparing one number shows that no block has changed.
    const isCurrent = changes !== undefined && known.every((block) => block?.changes === changes);
    const versions = isCurrent
      ? known.map((block) => block?.version)
      : await this.#store.versions({ project, edges });
    const cached = known.map((block, i) => (block?.version === versions[i] ? block : undefined));
    const now = this.#now();
    for (const block of cached) {
      if (block === undefined) continue;
      block.changes = changes;
      block.usedAt = now;
    }
    const [wholeFrom, wholeTo] = [first * intervalMs - offsetMs, end * intervalMs - offsetMs];
    const stale = edges.slice(0, -1).filter((_, i) => cached[i] === undefined);
    const missing = known.filter((block) => block === undefined).length;
    if (missing > 0 && this.#isInUse(missing * timeline.heads.length * SERIES_BYTES, now)) return undefined;
    const finer = mergeEdges([from, wholeFrom, wholeTo, to], stale, intervalMs);
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
      const added: Block = {
        number: ++this.#lastBlock,
        version: versions[i] ?? '',
        changes,
        usedAt: now,
        text,
        whole: partsOf(text, 0, BLOCK_POINTS),
        cut: undefined,
        run: undefined,
      };
      this.#blocks.set(keyOf(i), added);
      return added;
    });
    const cut = (start: number, end: number) =>
      counts.map((finerCounts) => {
        const [num = 0] = sumPoints(finer, finerCounts, start, [end]);
        return start === end ? '' : `{"time":${end},"num":${num}}`;
      });
    const firstPoint = first - firstBlock * BLOCK_POINTS;
    const endPoint = end - (endBlock - 1) * BLOCK_POINTS;
    const newest = blocks.pop();
    const points = this.#join(keyOf(0), blocks, firstPoint);
    if (newest) points.push(cutBlock(newest, points.length === 0 ? firstPoint : 0, endPoint));
    return assemble(timeline, cut(from, wholeFrom), points, cut(wholeTo, to));
  }

  /** The points of all blocks but the newest: lists of one part per series. */
  #join(firstKey: number, blocks: readonly Block[], firstPoint: number): (readonly Part[])[] {
    const [first] = blocks;
    if (first === undefined) return [];
    const parts = blocks.map((block) => cutBlock(block, block === first ? firstPoint : 0, BLOCK_POINTS));
    const { run } = first;
    if (run?.firstPoint !== firstPoint || !areBlocks(run.blocks, blocks)) {
      first.run = { firstPoint, blocks: blocks.map(({ number }) => number), joined: undefined };
      return parts;
    }
    if (run.joined === undefined) {
      run.joined = first.whole.map(() => ({}));
      // Again, because it is heavier now.
      this.#blocks.set(firstKey, first);
    }
    return [
      run.joined.map((joined, series) => {
        const ofSeries = parts.map((list) => list[series] as Part);
        return new JoinedPart(ofSeries, joined);
      }),
    ];
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

/** The edges of all points of the stale blocks, and the cuts in between. */
function mergeEdges(cuts: readonly number[], staleStarts: readonly number[], intervalMs: number): number[] {
  const edges: number[] = [];
  let nextCut = 0;
  const addCutsBefore = (time: number) => {
    for (; nextCut < cuts.length && (cuts[nextCut] ?? 0) <= time; nextCut++) add(cuts[nextCut] ?? 0);
  };
  const add = (edge: number) => {
    if (edges[edges.length - 1] !== edge) edges.push(edge);
  };
  for (const start of staleStarts) {
    for (let point = 0; point <= BLOCK_POINTS; point++) {
      const edge = start + point * intervalMs;
      if ((cuts[nextCut] ?? Number.POSITIVE_INFINITY) <= edge) addCutsBefore(edge);
      add(edge);
    }
  }
  addCutsBefore(Number.POSITIVE_INFINITY);
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

function areBlocks(numbers: readonly number[], blocks: readonly Block[]): boolean {
  return numbers.length === blocks.length && blocks.every(({ number }, i) => number === numbers[i]);
}

/** `points`: in the order of time, lists of one part per series. */
function assemble(
  { heads, tail }: TimelineSeries,
  cutsBefore: readonly string[],
  points: readonly (readonly Part[])[],
  cutsAfter: readonly string[],
): SharedParts {
  const parts: (Part | string)[] = [];
  let before = '';
  for (const [series, head] of heads.entries()) {
    const cutBefore = cutsBefore[series] ?? '';
    parts.push(before + head + (cutBefore && `${cutBefore},`));
    for (const list of points) parts.push(list[series] ?? '');
    before = cutsAfter[series] ?? '';
  }
  parts.push(before + tail);
  return new SharedParts(parts);
}
