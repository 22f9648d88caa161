import { describe, expect, test } from 'vitest';
import { Random } from '../../../../test/random.ts';
import { BASELINE_POINTS, findBursts, History } from './bursts.ts';

const DAY = 288;
const DAYS = 90;
const PLANTED = 100;

interface Traffic {
  /** Attacks in 5 minutes of a usual weekday, at noon and at night. */
  noon: number;
  night: number;
  /** How much more or less a weekend has. */
  weekend: number;
  /** The relative deviation beyond that of chance. */
  noise: number;
}

/** From midnight on a Monday. */
function generate({ noon, night, weekend, noise }: Traffic, random: Random): Float64Array {
  return Float64Array.from({ length: DAYS * DAY }, (_, i) => {
    const weekday = Math.floor(i / DAY) % 7;
    const day = (1 - Math.cos((2 * Math.PI * i) / DAY)) / 2;
    const usual = (night + (noon - night) * day) * (weekday >= 5 ? weekend : 1);
    return poisson(usual * Math.max(0, 1 + noise * normal(random)), random);
  });
}

/** The sum of twelve uniform numbers is close to a normal distribution. */
function normal(random: Random): number {
  let sum = -6;
  for (let n = 0; n < 12; n++) sum += random.next();
  return sum;
}

function poisson(mean: number, random: Random): number {
  if (mean > 50) return Math.max(0, Math.round(mean + Math.sqrt(mean) * normal(random)));
  let product = random.next();
  let n = 0;
  for (const limit = Math.exp(-mean); product > limit; n++) product *= random.next();
  return n;
}

/** Adds bursts of 10 to 40 minutes: 3 to 15 times the usual, and enough to be noticed. */
function plant(counts: Float64Array, random: Random): { first: number; end: number }[] {
  const slot = Math.floor((counts.length - DAY) / PLANTED);
  return Array.from({ length: PLANTED }, (_, n) => {
    const length = random.integer(2, 8);
    const first = DAY + n * slot + random.integer(0, slot - 2 * length);
    const times = 3 + 12 * random.next();
    for (let i = first; i < first + length; i++) counts[i] = Math.max(250, times) + (counts[i] ?? 0) * times;
    return { first, end: first + length };
  });
}

const TRAFFIC: readonly (readonly [string, Traffic])[] = [
  ['a quiet host', { noon: 3, night: 0.5, weekend: 1, noise: 0 }],
  ['a busy host without a rhythm', { noon: 300, night: 300, weekend: 1, noise: 0.05 }],
  ['quiet nights and weekends', { noon: 400, night: 40, weekend: 0.4, noise: 0.1 }],
  ['busy weekends', { noon: 250, night: 50, weekend: 2, noise: 0.1 }],
  ['a large project', { noon: 20_000, night: 4_000, weekend: 0.6, noise: 0.1 }],
];

describe.each(TRAFFIC)('%s', (_name, traffic) => {
  test('90 days with 100 planted bursts: at least 95 are found, at most one false per month', () => {
    const random = new Random(17);
    const counts = generate(traffic, random);
    const planted = plant(counts, random);
    const found = findBursts({ counts, historyStart: 0 });
    const overlaps = (a: { first: number; end: number }, b: { first: number; end: number }) =>
      a.first < b.end && b.first < a.end;
    const missed = planted.filter((burst) => !found.some((one) => overlaps(one, burst)));
    const falseOnes = found.filter((one) => !planted.some((burst) => overlaps(one, burst)));
    expect(missed.length).toBeLessThanOrEqual(5);
    expect(falseOnes.length).toBeLessThanOrEqual(3);
    const exact = planted.filter(({ first }) => found.some((one) => one.first === first));
    expect(exact.length).toBeGreaterThanOrEqual(90);
  });

  test('90 days without bursts: at most one false per month', () => {
    const counts = generate(traffic, new Random(18));
    expect(findBursts({ counts, historyStart: 0 }).length).toBeLessThanOrEqual(3);
  });
});

/** `days` of 40 attacks in 5 minutes, then these counts. With 8 days, the hours of all 7 days before are known. */
function after(days: number, ...last: number[]) {
  const usual = Array.from({ length: days * DAY }, () => 40);
  return { counts: [...usual, ...last], historyStart: 0 };
}

test('a burst opens above 200 attacks, and ends at the mean plus one deviation', () => {
  const start = 8 * DAY;
  expect(new History(after(8)).baselineAt(start)).toEqual({ mean: 40, deviation: 8 });
  expect(findBursts(after(8, 200, 40))).toEqual([]);
  expect(findBursts(after(8, 201, 49, 48, 49))).toEqual([
    { first: start, end: start + 2, isOpen: false, usual: 80 },
  ]);
  expect(findBursts(after(8, 40, 500, 49))).toEqual([
    { first: start + 1, end: start + 3, isOpen: true, usual: 80 },
  ]);
});

test('the sensitivity is the least z-score of a burst', () => {
  const series = after(8, 250);
  expect(findBursts({ ...series, sensitivity: 26 })).toHaveLength(1);
  expect(findBursts({ ...series, sensitivity: 26.25 })).toEqual([]);
});

test('a point that has not ended opens a burst, but ends none', () => {
  const open = { ...after(8, 300), lastShare: 0.25 };
  expect(findBursts(open)).toEqual([{ first: 8 * DAY, end: 8 * DAY + 1, isOpen: true, usual: 10 }]);
  const next = { ...after(8, 300, 1), lastShare: 0.25 };
  expect(findBursts(next)).toEqual([{ first: 8 * DAY, end: 8 * DAY + 2, isOpen: true, usual: 50 }]);
  expect(findBursts({ ...next, lastShare: 1 })).toMatchObject([{ end: 8 * DAY + 1, isOpen: false }]);
});

test('bursts need six hours of history', () => {
  const series = after(1, 900);
  expect(findBursts({ ...series, historyStart: DAY - 71 })).toEqual([]);
  expect(findBursts({ ...series, historyStart: DAY - 72 })).toHaveLength(1);
});

test('a burst does not hide another one at the same time of the next days', () => {
  const counts = Array.from({ length: 14 * DAY }, () => 40);
  const days = [8, 9, 11];
  for (const day of days) counts.fill(900, day * DAY + 100, day * DAY + 106);
  expect(findBursts({ counts, historyStart: 0 }).map(({ first }) => first)).toEqual(
    days.map((day) => day * DAY + 100),
  );
});

test('a part of a series has the same bursts as the whole', () => {
  const random = new Random(19);
  const counts = generate({ noon: 200, night: 20, weekend: 0.5, noise: 0.1 }, random);
  plant(counts, random);
  const whole = findBursts({ counts, historyStart: 0 });
  for (const from of [20 * DAY, 45 * DAY + 17, 80 * DAY]) {
    const part = counts.slice(from - DAY - BASELINE_POINTS);
    const offset = counts.length - part.length;
    const found = findBursts({ counts: part, historyStart: 0 }, BASELINE_POINTS).map((burst) => ({
      ...burst,
      first: burst.first + offset,
      end: burst.end + offset,
    }));
    expect(found.filter(({ first }) => first >= from)).toEqual(whole.filter(({ first }) => first >= from));
  }
});
