/**
 * Bursts of attacks in a series of 5-minute counts. A burst opens with a count that is far above the same hours of the last
 * 7 days, and closes when the count is usual again. What is usual depends on nothing but the counts of these 7 days, so a
 * part of a long series can be evaluated without the rest.
 */

export const POINT_MS = 300_000;
const DAY_POINTS = 288;
const BASELINE_DAYS = 7;
/** The usual count of a point is that of the hour around it: the points from half an hour before until half an hour after. */
const HALF_HOUR_POINTS = 6;
/** Six hours. Fewer points say too little about what is usual. */
const HISTORY_POINTS = 72;

/** How many points before a point decide what is usual. */
export const BASELINE_POINTS = BASELINE_DAYS * DAY_POINTS + HALF_HOUR_POINTS;

/** A burst has a point with more attacks than this. Fewer need no attention, however unusual they are. */
export const COUNT_MIN = 200;
/** The z-score from which on a count is a burst. */
export const SENSITIVITY = 3.5;
/** The deviation is at least this share of the mean. With less, chance alone makes bursts: a month has 8,640 points. */
const DEVIATION_SHARE_MIN = 0.2;
/** The same in the first week, in which the first busy weekend must not be a burst. */
const DEVIATION_SHARE_MIN_YOUNG = 0.5;
/**
 * An earlier burst must not hide the next one: counts are left out of the baseline if they are this many times the median of the
 * three hours around them. A busy weekend is not left out.
 */
const PEAK_RATIO = 2;
const PEAK_POINTS = 18;

export interface Series {
  /** Attacks of each point, in order and without gaps. */
  counts: ArrayLike<number>;
  /** The index of the first point with data: zeros before it are not usual, but unknown. */
  historyStart: number;
  /** How much of the last point has passed, from 0 to 1. A point that has not ended can open a burst, but close none. */
  lastShare?: number;
  sensitivity?: number;
}

/** A burst has the points from `first` until just before `end`. */
export interface BurstPoints {
  first: number;
  end: number;
  /** The burst has not closed yet. */
  isOpen: boolean;
  /** How many attacks these points usually have. */
  usual: number;
}

export interface Baseline {
  mean: number;
  deviation: number;
}

/** The edges of 5-minute points, of which the last may be shorter. */
export function pointEdges(from: number, to: number): number[] {
  const edges: number[] = [];
  for (let edge = Math.max(0, from); edge < to; edge += POINT_MS) edges.push(edge);
  return [...edges, to];
}

/** The first point with data. */
export function historyStart(attacks: Float64Array, requests: Float64Array): number {
  const first = attacks.findIndex((count, i) => count > 0 || (requests[i] ?? 0) > 0);
  return first === -1 ? attacks.length : first;
}

/** The bursts that open at the point `from` or later. */
export function findBursts(series: Series, from = 0): BurstPoints[] {
  const { counts, lastShare = 1, sensitivity = SENSITIVITY } = series;
  const history = new History(series);
  const bursts: BurstPoints[] = [];
  let open: BurstPoints | undefined;
  for (let i = from; i < counts.length; i++) {
    const count = counts[i] ?? 0;
    if (open === undefined && count <= COUNT_MIN) continue;
    const baseline = history.baselineAt(i);
    if (baseline === undefined) continue;
    const { mean, deviation } = baseline;
    const share = i === counts.length - 1 ? lastShare : 1;
    if (open === undefined) {
      if (count - mean <= sensitivity * deviation) continue;
      open = { first: i, end: i, isOpen: true, usual: 0 };
      bursts.push(open);
    } else if (share === 1 && count <= mean + deviation) {
      open.isOpen = false;
      open = undefined;
      continue;
    }
    open.end = i + 1;
    open.usual += mean * share;
  }
  return bursts;
}

/** What is usual in a series. */
export class History {
  readonly #series: Series;
  /** By point: whether it is left out of baselines. */
  readonly #peaks = new Map<number, boolean>();

  constructor(series: Series) {
    this.#series = series;
  }

  /**
   * The mean and the deviation of the same hours of the last 7 days. In the first days of a series, the last 6 hours count,
   * too. Undefined if there are less than 6 hours of counts.
   */
  baselineAt(point: number): Baseline | undefined {
    const { counts, historyStart } = this.#series;
    const sample: number[] = [];
    let points = 0;
    const addPoints = (from: number, end: number) => {
      for (let i = Math.max(from, historyStart); i < end; i++) {
        points++;
        if (!this.#isPeak(i)) sample.push(counts[i] ?? 0);
      }
    };
    for (let day = 1; day <= BASELINE_DAYS; day++) {
      const middle = point - day * DAY_POINTS;
      addPoints(middle - HALF_HOUR_POINTS, middle + HALF_HOUR_POINTS);
    }
    const isYoung = points < BASELINE_DAYS * 2 * HALF_HOUR_POINTS;
    if (points < HISTORY_POINTS) addPoints(point - HISTORY_POINTS, point);
    if (points < HISTORY_POINTS) return undefined;
    return baselineOf(sample, isYoung ? DEVIATION_SHARE_MIN_YOUNG : DEVIATION_SHARE_MIN);
  }

  #isPeak(point: number): boolean {
    const { counts } = this.#series;
    const count = counts[point] ?? 0;
    if (count <= COUNT_MIN) return false;
    const known = this.#peaks.get(point);
    if (known !== undefined) return known;
    const around: number[] = [];
    for (let i = Math.max(0, point - PEAK_POINTS); i <= point + PEAK_POINTS && i < counts.length; i++)
      around.push(counts[i] ?? 0);
    const median = around.sort((a, b) => a - b)[Math.floor(around.length / 2)] ?? 0;
    const isPeak = count > PEAK_RATIO * median;
    this.#peaks.set(point, isPeak);
    return isPeak;
  }
}

function baselineOf(sample: readonly number[], shareMin: number): Baseline {
  const sum = sample.reduce((total, count) => total + count, 0);
  const mean = sample.length === 0 ? 0 : sum / sample.length;
  const squares = sample.reduce((total, count) => total + (count - mean) ** 2, 0);
  const deviation = sample.length === 0 ? 0 : Math.sqrt(squares / sample.length);
  // The deviation of chance is the root of the mean.
  return { mean, deviation: Math.max(deviation, shareMin * mean, Math.sqrt(mean), 1) };
}
