/**
 * Timelines of ranges that move. A dashboard queries a range that ends now: nearly all points are those of its last query,
 * unless late events change them. So the text of points is kept in blocks, each with the version of its counts. A
 * response is assembled from blocks; only those that changed and the two points that the range cuts are counted.
 */
import { BoundedCache } from '../../cache.ts';
import { DAY_MS, gridEdges, intervalOf, type TimelineQuery } from '../../statistics/timeline.ts';
import { QueryTooLarge, type Store } from '../../store/store.ts';
import { type Joined, JoinedPart, type Part, SharedParts } from '../shared-parts.ts';
import { BLOCK_POINTS, type BlockText, blockText, ZeroTexts } from './block-text.ts';
import { seriesJson, TIME_MAX, TIME_MIN } from './timeline-json.ts';
import {
  type CountedRuns,
  contains,
  countRuns,
  type GridRange,
  numbersOf,
  type Points,
  type TimelineSeries,
  timeOf,
} from './timeline-runs.ts';

/** About 130 timelines of a day by minute. */
const BLOCK_BYTES_MAX = 16_777_216;
/** About 40 timelines of a day by minute. */
const LATEST_BYTES_MAX = 8_388_608;
/** The memory of the objects around the bytes of a block. */
const BLOCK_OVERHEAD_BYTES = 1_024;
/** The most memory that one series of a block usually takes. */
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

type GridQuery = TimelineQuery & { byDay?: boolean };

interface Block {
  id: number;
  version: string;
  /** The change counter of the store when the version was last checked. */
  changes: number;
  /** Monotonic milliseconds. */
  usedAt: number;
  /** The points that it has: all, or those that the range needed when they were counted. */
  points: Points;
  text: BlockText;
}

interface ViewRange extends GridRange {
  view: number;
}

/** A block of a range. */
interface Slot {
  key: number;
  /** The first point of the block. */
  start: number;
  /** The points that the range needs. */
  needed: Points;
  known: Block | undefined;
  /** The current version. */
  version: string;
  /** The points to count. Undefined if those that are known are current. */
  counted: Points | undefined;
}

/** The latest range of a view. */
interface LatestRange {
  /** As in `GridRange`. */
  first: number;
  end: number;
  /** The change counter of the store when the points were counted. */
  changes: number;
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
    weight: ({ text }) => BLOCK_OVERHEAD_BYTES + text.memoryBytes,
  });
  readonly #zeros = new ZeroTexts();
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
   * Undefined if the range is short, if the view is new, if its blocks do not fit into the cache, or if something changes while
   * points are counted, unless all of them are still of one snapshot.
   */
  async #fromBlocks(timeline: TimelineSeries, query: GridQuery): Promise<SharedParts | undefined> {
    const { project, hosts, from, to, offsetMs, byDay = false } = query;
    const intervalMs = byDay ? DAY_MS : intervalOf(to - from);
    if (this.#store.versions === undefined || this.#store.changes === undefined) return undefined;
    if (to - from < BLOCK_POINTS * intervalMs) return undefined;
    const view = this.#viewIfRepeated(`${timeline.name} ${intervalMs} ${offsetMs} ${project}`, hosts);
    if (view === undefined) return undefined;
    const first = Math.ceil((from + offsetMs) / intervalMs);
    const end = Math.ceil((to + offsetMs) / intervalMs) - 1;
    const range: ViewRange = { view, project, hosts, from, to, intervalMs, offsetMs, first, end };
    const changes = this.#store.changes();
    const now = this.#now();
    const latest = this.#latest.get(view);
    const isCurrent =
      latest?.first === first &&
      latest.end === end &&
      latest.changes === changes &&
      now - latest.checkedAt < CHECKED_MS;
    if (!isCurrent) return this.#fromCheckedBlocks(timeline, range, latest, changes, now);
    const cuts = await countRuns(timeline, range, []);
    const changesNow = this.#store.changes();
    if (changesNow !== changes) return this.#fromCheckedBlocks(timeline, range, latest, changesNow, now);
    if (latest.joined === undefined)
      joinOlder(
        latest,
        timeline.heads.map(() => ({})),
      );
    return assemble(timeline, range, latest.points, cuts);
  }

  /** Looks at each block, and counts those that have changed. */
  async #fromCheckedBlocks(
    timeline: TimelineSeries,
    range: ViewRange,
    before: LatestRange | undefined,
    changes: number,
    now: number,
  ): Promise<SharedParts | undefined> {
    const slots = this.#slotsOf(range);
    if (!hasWritableTimes(range, slots)) return undefined;
    // Usually many queries come between two changes, and comparing one number shows that no block has changed.
    const isCurrent = slots.every(({ known }) => known?.changes === changes);
    const points = pointsToCount(slots, isCurrent ? undefined : await this.#versionsOf(range, slots));
    if (this.#refuses(timeline, slots, now)) return undefined;
    const counted = await countRuns(timeline, range, points).catch((error) => {
      // The range alone may be small enough.
      if (error instanceof QueryTooLarge && !points.every((one) => contains(range, one))) return undefined;
      throw error;
    });
    if (counted === undefined) return undefined;
    if (this.#store.changes?.() !== changes && (await this.#isTorn(range, slots, counted))) return undefined;
    const latest = this.#keepBlocks(range, slots, counted, changes, now);
    if (before?.joined && before.first === range.first && isEqual(before.older, latest.older))
      joinOlder(latest, before.joined);
    this.#latest.set(range.view, latest);
    return assemble(timeline, range, latest.points, counted);
  }

  #slotsOf({ view, first, end }: ViewRange): Slot[] {
    const slots: Slot[] = [];
    for (let number = Math.floor(first / BLOCK_POINTS); number * BLOCK_POINTS < end; number++) {
      const start = number * BLOCK_POINTS;
      const key = view * BLOCKS_PER_VIEW + number;
      const needed = { first: Math.max(start, first), end: Math.min(start + BLOCK_POINTS, end) };
      slots.push({ key, start, needed, known: this.#blocks.get(key), version: '', counted: undefined });
    }
    return slots;
  }

  async #versionsOf(range: ViewRange, slots: readonly Slot[]): Promise<string[]> {
    const edges = blockEdges(range, slots);
    return (await this.#store.versions?.({ project: range.project, edges })) ?? [];
  }

  /**
   * Whether the response may have only a part of a change that was made meanwhile. What one query counted is of one snapshot.
   * If the other blocks have not changed, the whole response is of that snapshot.
   */
  async #isTorn(range: ViewRange, slots: readonly Slot[], { isOneSnapshot }: CountedRuns): Promise<boolean> {
    if (!isOneSnapshot) return true;
    const versions = await this.#versionsOf(range, slots);
    return slots.some(({ version, counted }, i) => counted === undefined && version !== versions[i]);
  }

  /** Keeps the blocks that were counted. Returns the range, made of these and of those that were known. */
  #keepBlocks(
    range: ViewRange,
    slots: readonly Slot[],
    counted: CountedRuns,
    changes: number,
    now: number,
  ): LatestRange {
    const ids: number[] = [];
    const points: (readonly Part[])[] = [];
    for (const slot of slots) {
      const block = slot.counted ? this.#create(range, slot, slot.counted, counted) : slot.known;
      if (block === undefined) throw new Error('a block is neither known nor counted');
      block.changes = changes;
      block.usedAt = now;
      ids.push(block.id);
      points.push(block.text.parts(slot.needed.first - slot.start, slot.needed.end - slot.start));
    }
    const { first, end } = range;
    return { first, end, changes, checkedAt: now, points, older: ids.slice(0, -1), joined: undefined };
  }

  #create(range: ViewRange, { key, start, version }: Slot, points: Points, counted: CountedRuns): Block {
    const { first, end } = points;
    const ends = Array.from({ length: end - first }, (_, i) => timeOf(range, first + i + 1));
    const zeros = this.#zeros.of(timeOf(range, start), range.intervalMs);
    const text = blockText(first - start, ends, numbersOf(counted, points), zeros);
    const block: Block = { id: ++this.#lastBlock, version, changes: 0, usedAt: 0, points, text };
    this.#blocks.set(key, block);
    return block;
  }

  /**
   * Whether the range gets no blocks, because new ones would evict some that are in use. If there are more views than fit, each
   * would evict the others, and no block would ever be reused: creating them takes three times as long as the plain response.
   * Some are created anyway, so that views that are queried often replace others.
   */
  #refuses({ heads }: TimelineSeries, slots: readonly Slot[], now: number): boolean {
    let missing = 0;
    for (const { known } of slots) if (known === undefined) missing++;
    const oldest = this.#blocks.evictedBy(missing * heads.length * SERIES_BYTES);
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

/** The times at which the blocks begin, and the end of the last one. */
function blockEdges(range: GridRange, slots: readonly Slot[]): number[] {
  const edges = slots.map(({ start }) => timeOf(range, start));
  edges.push(timeOf(range, (slots.at(-1)?.start ?? 0) + BLOCK_POINTS));
  return edges;
}

function hasWritableTimes(range: GridRange, slots: readonly Slot[]): boolean {
  const [start = 0, end = 0] = [slots[0]?.start, slots.at(-1)?.start];
  return timeOf(range, start) >= TIME_MIN && timeOf(range, end + BLOCK_POINTS) <= TIME_MAX;
}

/** The points to count, by block. `versions`: those of the blocks now; undefined if none has changed. */
function pointsToCount(slots: readonly Slot[], versions: readonly string[] | undefined): Points[] {
  const points: Points[] = [];
  for (let i = 0; i < slots.length; i++) {
    const slot = slots[i] as Slot;
    const { start, needed, known } = slot;
    slot.version = (versions ? versions[i] : known?.version) ?? '';
    if (known?.version !== slot.version) slot.counted = needed;
    // Ranges of this view need different points of the block, so it gets all.
    else if (!contains(known.points, needed)) slot.counted = { first: start, end: start + BLOCK_POINTS };
    if (slot.counted) points.push(slot.counted);
  }
  return points;
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

/** Puts a response together: the points between those that the range cuts. */
function assemble(
  { heads, tail }: TimelineSeries,
  range: GridRange,
  points: readonly (readonly Part[])[],
  { firstCut, lastCut }: CountedRuns,
): SharedParts {
  const firstEnd = timeOf(range, range.first);
  const parts: (Part | string)[] = [];
  let before = '';
  for (let series = 0; series < heads.length; series++) {
    const first = firstCut ? `${pointText(firstEnd, firstCut[series])},` : '';
    parts.push(before + heads[series] + first);
    for (const list of points) parts.push(list[series] ?? '');
    before = pointText(range.to, lastCut[series]);
  }
  parts.push(before + tail);
  return new SharedParts(parts);
}

function pointText(time: number, num = 0): string {
  return `{"time":${time},"num":${num}}`;
}
