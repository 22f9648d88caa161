import { stripVTControlCharacters } from 'node:util';
import { ATTACK_TYPES, type AttackType, type AttackTypes, type Timeline } from '@wafstat/client';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { scaled } from '../../../../../test/random.ts';
import { gridEdges } from '../../statistics/grid.ts';
import { OffsetZone, UTC, type Zone, zoneOf } from '../../zone.ts';
import {
  plotCounts,
  plotKeys,
  plotTimeline,
  pointsOf,
  resample,
  scaleLabel,
  scaleOf,
  timeLabels,
  timeTicks,
} from './plot.ts';

const NOUNS = { key: 'category', counted: 'attacks' };
const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

const NOON = Date.UTC(2026, 6, 1, 12);

/** A response of the service, with a number for each point. */
function timelineOf(
  from: number,
  to: number,
  zone: Zone,
  requests: (i: number) => number,
  attacks: (i: number) => number,
) {
  const times = gridEdges(from, to, zone).slice(1);
  return {
    requests: times.map((time, i) => ({ time, num: requests(i) })),
    attacks: times.map((time, i) => ({ time, num: attacks(i) })),
  };
}

const terminal = (columns: number, rows: number, color = false) => ({ columns, rows, color });

describe('the plot of a timeline', () => {
  test('has a panel for each series and the times below', () => {
    const range = { from: NOON, to: NOON + HOUR_MS };
    const timeline = timelineOf(
      range.from,
      range.to,
      UTC,
      (i) => 100 * (i % 30),
      (i) => (i === 40 ? 3 : 0),
    );
    expect(plotTimeline(timeline, range, zoneOf('+08:00'), terminal(80, 16))).toEqual([
      '2026-07-01 20:00 to 2026-07-01 21:00 (+08:00), 1 minute per column',
      '3,000┤ 87,000 requests · peak 2,900 until 2026-07-01 20:30',
      '     │                       ▁▂▃▄▅▆▇                       ▁▂▃▄▅▆▇',
      '1,500┤                ▁▂▃▄▅▆▇███████                ▁▂▃▄▅▆▇███████',
      '     │        ▁▂▃▄▅▆▇███████████████        ▁▂▃▄▅▆▇███████████████',
      '    0┤ ▁▂▃▄▅▆▇██████████████████████ ▁▂▃▄▅▆▇██████████████████████',
      '     └┬─────────┬─────────┬─────────┬─────────┬─────────┬──────────',
      '',
      '    4┤ 3 attacks · 0.0034% of the requests · peak 3 until 2026-07-01 20:41',
      '     │',
      '    2┤                                        █',
      '     │                                        █',
      '    0┤                                        █',
      '     └┬─────────┬─────────┬─────────┬─────────┬─────────┬──────────',
      '    20:00     20:10     20:20     20:30     20:40     20:50',
    ]);
  });

  test('one attack is singular', () => {
    const range = { from: NOON, to: NOON + HOUR_MS };
    const timeline = timelineOf(
      range.from,
      range.to,
      UTC,
      () => 1,
      (i) => (i === 40 ? 1 : 0),
    );
    const lines = plotTimeline(timeline, range, UTC, terminal(80, 16));
    expect(lines.join('\n')).toContain('┤ 1 attack · ');
  });

  test('fits a terminal of any size', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 400 * DAY_MS }),
        fc.integer({ min: 40, max: 250 }),
        fc.integer({ min: 15, max: 80 }),
        fc.integer({ min: 0, max: 10_000_000 }),
        fc.boolean(),
        (lengthMs, columns, rows, largest, color) => {
          const range = { from: NOON, to: NOON + lengthMs };
          const timeline = timelineOf(
            range.from,
            range.to,
            UTC,
            (i) => (i * 7_919) % (largest + 1),
            (i) => i % 3,
          );
          const lines = plotTimeline(timeline, range, UTC, terminal(columns, rows, color));
          expect(lines.length).toBeLessThan(rows);
          // Only the title may be longer than a very narrow terminal.
          for (const line of lines.slice(1))
            expect(stripVTControlCharacters(line).length).toBeLessThanOrEqual(columns);
        },
      ),
      { numRuns: scaled(100) },
    );
  });

  test('shows attacks on a scale of their own', () => {
    const range = { from: NOON, to: NOON + DAY_MS };
    const timeline = timelineOf(
      range.from,
      range.to,
      UTC,
      () => 1_000,
      () => 10,
    );
    const lines = plotTimeline(timeline, range, UTC, terminal(80, 24));
    const full = (rows: readonly string[]) => rows.filter((line) => line.includes('█'.repeat(70))).length;
    const between = lines.indexOf('');
    expect(full(lines.slice(between))).toBe(full(lines.slice(0, between)));
    expect(lines[between + 1]).toContain('14,400 attacks · 1.0% of the requests');
  });

  test('shows one attack among millions of requests', () => {
    const range = { from: NOON, to: NOON + DAY_MS };
    const timeline = timelineOf(
      range.from,
      range.to,
      UTC,
      () => 1e6,
      (i) => (i === 700 ? 1 : i === 0 ? 5_000 : 0),
    );
    expect(plotTimeline(timeline, range, UTC, terminal(80, 24)).join('\n')).toContain('▁');
  });

  test('shows the time span of a column, and an empty range', () => {
    const week = { from: NOON, to: NOON + 7 * DAY_MS };
    const [title] = plotTimeline(
      timelineOf(
        week.from,
        week.to,
        UTC,
        () => 1,
        () => 0,
      ),
      week,
      UTC,
      terminal(80, 24),
    );
    expect(title).toBe('2026-07-01 12:00 to 2026-07-08 12:00 (+00:00), 3 hours per column');
    expect(plotTimeline({ requests: [], attacks: [] }, { from: 0, to: 0 }, UTC, terminal(80, 24))).toEqual([
      '1970-01-01 00:00 to 1970-01-01 00:00 (+00:00): an empty range',
    ]);
  });

  test('has colors only if the terminal allows them', () => {
    const range = { from: NOON, to: NOON + HOUR_MS };
    const timeline = timelineOf(
      range.from,
      range.to,
      UTC,
      () => 1,
      () => 1,
    );
    const plain = plotTimeline(timeline, range, UTC, terminal(80, 24, false));
    const colored = plotTimeline(timeline, range, UTC, terminal(80, 24, true));
    expect(plain.join('')).not.toContain('\u001b');
    expect(colored.join('')).toContain('\u001b[31m');
    expect(colored.map(stripVTControlCharacters)).toEqual(plain);
  });
});

/** A response of the service by category: `num` for each category and point. */
function categoriesOf(from: number, to: number, zone: Zone, num: (type: AttackType, i: number) => number) {
  const times = gridEdges(from, to, zone).slice(1);
  return ATTACK_TYPES.map((key) => ({ key, timeline: times.map((time, i) => ({ time, num: num(key, i) })) }));
}

describe('the plot of a timeline by category', () => {
  const range = { from: NOON, to: NOON + 30 * MINUTE_MS };

  test('has a row for each category, the most frequent first, with its total, its peak and its own scale', () => {
    const nums: Partial<Record<AttackType, (i: number) => number>> = {
      sqli: (i) => 100 * i,
      xss: (i) => (i === 10 ? 2 : i === 20 ? 1 : 0),
      robot: () => 7,
    };
    const categories = categoriesOf(range.from, range.to, UTC, (type, i) => nums[type]?.(i) ?? 0);
    const lines = plotKeys(categories, NOUNS, range, zoneOf('+08:00'), terminal(64, 24));
    expect(lines.slice(0, 6)).toEqual([
      '2026-07-01 20:00 to 2026-07-01 20:30 (+08:00), 1 minute per column',
      'category      attacks   peak │ 43,713 attacks',
      'sqli           43,500  2,900 │ ▁▁▁▁▁▂▂▂▂▃▃▃▄▄▄▄▅▅▅▆▆▆▆▇▇▇▇██',
      'robot             210      7 │██████████████████████████████',
      'xss                 3      2 │          █         ▄',
      'cmdi                0      0 │',
    ]);
    expect(lines).toHaveLength(17);
    expect(lines.slice(-2)).toEqual([
      '                             └┬─────────┬─────────┬──────────',
      '                            20:00     20:10     20:20',
    ]);
  });

  test('fits the terminal, and every attack is in one column', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 400 * DAY_MS }),
        fc.integer({ min: 80, max: 250 }),
        fc.integer({ min: 0, max: 1_000_000 }),
        fc.boolean(),
        (lengthMs, columns, largest, color) => {
          const range = { from: NOON, to: NOON + lengthMs };
          const categories = categoriesOf(range.from, range.to, UTC, (type, i) =>
            type === 'cc' ? 1 : (i * 7_919 * type.length) % (largest + 1),
          );
          const lines = plotKeys(categories, NOUNS, range, UTC, terminal(columns, 24, color));
          const plain = lines.map(stripVTControlCharacters);
          for (const line of plain.slice(1)) expect(line.length).toBeLessThanOrEqual(columns);
          const rows = plain.slice(2, -2);
          for (const { key, timeline } of categories) {
            const row = rows.find((line) => line.startsWith(`${key} `));
            const [, total = '', peak = ''] = row?.split(/ +/) ?? [];
            const number = (text: string) => Number(text.replaceAll(',', ''));
            expect(number(total)).toBe(sum(timeline.map(({ num }) => num)));
            expect(number(peak)).toBeLessThanOrEqual(number(total));
            // The column of the peak is full, and only columns without attacks are blank.
            expect(row?.includes('█')).toBe(number(total) > 0);
          }
        },
      ),
      { numRuns: scaled(100) },
    );
  });

  test('has colors only if the terminal allows them, and says if the range is empty', () => {
    const categories = categoriesOf(range.from, range.to, UTC, () => 1);
    const plain = plotKeys(categories, NOUNS, range, UTC, terminal(80, 24));
    const colored = plotKeys(categories, NOUNS, range, UTC, terminal(80, 24, true));
    expect(plain.join('')).not.toContain('\u001b');
    expect(colored.join('')).toContain('\u001b[31m█');
    expect(colored.map(stripVTControlCharacters)).toEqual(plain);
    expect(
      plotKeys(
        categoriesOf(0, 0, UTC, () => 1),
        NOUNS,
        { from: 0, to: 0 },
        UTC,
        terminal(80, 24),
      ),
    ).toEqual(['1970-01-01 00:00 to 1970-01-01 00:00 (+00:00): an empty range']);
  });
});

const DAY = { from: Date.UTC(2026, 6, 1), to: Date.UTC(2026, 6, 2) };
const NARROW = { columns: 50, rows: 24, color: false };

function plotTypes(counts: Partial<AttackTypes>, terminal: Parameters<typeof plotCounts>[4]): string[] {
  const all = ATTACK_TYPES.map((type) => [type, counts[type] ?? 0] as const);
  return plotCounts(all, 'attacks', DAY, UTC, terminal);
}

describe('the plot of attack types', () => {
  test('has all thirteen, the most frequent first, with counts and percentages', () => {
    const lines = plotTypes({ sqli: 1_500, robot: 2_998, rfi: 2 }, NARROW);
    expect(lines).toHaveLength(14);
    expect(lines.slice(0, 5)).toEqual([
      '2026-07-01 00:00 to 2026-07-02 00:00 (+00:00), 4,500 attacks',
      'robot         2,998   66.6%  ████████████████████',
      'sqli          1,500   33.3%  ██████████',
      'rfi               2  0.044%  ▏',
      'xss               0    0.0%',
    ]);
  });

  test('without attacks has no bars', () => {
    expect(plotTypes({}, NARROW).join('\n')).not.toMatch(/[█-▏]/);
  });

  test('fits the terminal, and has colors only if the terminal allows them', () => {
    for (const columns of [40, 80, 200]) {
      const lines = plotTypes({ xss: 7 }, { ...NARROW, columns });
      for (const line of lines.slice(1)) expect(line.length).toBeLessThan(columns);
      expect(lines.join('')).not.toContain('\u001b');
    }
    expect(plotTypes({ xss: 7 }, { ...NARROW, color: true })[1]).toContain('\u001b[31m█');
  });

  test('requests have another color than attacks, as in a timeline', () => {
    const [, line] = plotCounts([['200', 7]], 'requests', DAY, UTC, { ...NARROW, color: true });
    expect(line).toContain('\u001b[36m█');
  });
});

/** Repeats the numbers over the points of a range. */
function repeated(from: number, to: number, zone: Zone, nums: readonly number[]) {
  const at = (i: number) => nums[i % nums.length] ?? 0;
  return timelineOf(from, to, zone, at, (i) => at(i + 1));
}

function seriesOf({ requests, attacks }: Timeline, from: number, zone: Zone) {
  return pointsOf([requests, attacks], from, zone);
}

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);

describe('columns of a timeline', () => {
  test('count everything once, in order and without gaps, for any range and width', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 2 ** 41 }),
        fc.oneof(
          fc.integer({ min: 1, max: 2 * DAY_MS }),
          fc.integer({ min: 1, max: 60 * DAY_MS }),
          fc.integer({ min: 1, max: 3_653 * DAY_MS }),
        ),
        fc.integer({ min: -48, max: 56 }).map((quarters) => new OffsetZone(quarters * 15)),
        fc.integer({ min: 20, max: 300 }),
        fc.array(fc.nat(), { minLength: 1, maxLength: 7 }),
        (from, lengthMs, zone, columnsMax, nums) => {
          const to = from + lengthMs;
          const timeline = repeated(from, to, zone, nums);
          const { columns, spanMs } = resample(seriesOf(timeline, from, zone), columnsMax);
          expect(sum(columns.map(({ counts }) => counts[0] ?? 0))).toBe(
            sum(timeline.requests.map(({ num }) => num)),
          );
          expect(sum(columns.map(({ counts }) => counts[1] ?? 0))).toBe(
            sum(timeline.attacks.map(({ num }) => num)),
          );
          expect(columns.length).toBeLessThanOrEqual(columnsMax);
          expect(columns.map(({ start }) => start)).toEqual([
            from,
            ...columns.slice(0, -1).map(({ end }) => end),
          ]);
          expect(columns.at(-1)?.end).toBe(to);
          for (const { start, end } of columns) {
            expect(end).toBeGreaterThan(start);
            expect(end - start).toBeLessThanOrEqual(spanMs);
          }
        },
      ),
      { numRuns: scaled(300) },
    );
  });

  test('a range with no more points than columns stays unchanged', () => {
    const timeline = repeated(0, 10 * MINUTE_MS, UTC, [1, 2, 3]);
    const { columns, spanMs } = resample(seriesOf(timeline, 0, UTC), 10);
    expect(columns.map(({ counts }) => counts[0])).toEqual(timeline.requests.map(({ num }) => num));
    expect(spanMs).toBe(MINUTE_MS);
  });

  test('begin at round local times', () => {
    const zone = zoneOf('+05:45');
    const from = Date.UTC(2026, 6, 1, 10, 7);
    const points = seriesOf(repeated(from, from + DAY_MS, zone, [1]), from, zone);
    const { columns, spanMs } = resample(points, 60);
    expect(spanMs).toBe(30 * MINUTE_MS);
    expect(columns[0]).toMatchObject({ start: from, end: Date.UTC(2026, 6, 1, 10, 15), counts: [8, 8] });
    for (const { start } of columns.slice(1)) expect((start + 5.75 * HOUR_MS) % spanMs).toBe(0);
  });

  test('fit and count everything once across changes of the clock', () => {
    fc.assert(
      fc.property(
        fc.constantFrom('Europe/Berlin', 'America/Santiago', 'Australia/Lord_Howe'),
        fc.constantFrom('2026-03-29', '2026-04-05', '2026-09-06', '2026-10-25'),
        fc.integer({ min: 1, max: 90 * 24 }),
        fc.integer({ min: 20, max: 250 }),
        (name, day, hours, columnsMax) => {
          const zone = zoneOf(name);
          const from = Date.parse(day) - (hours * HOUR_MS) / 2;
          const to = from + hours * HOUR_MS;
          const timeline = repeated(from, to, zone, [3, 1, 4, 1, 5]);
          const { columns } = resample(seriesOf(timeline, from, zone), columnsMax);
          expect(columns.length).toBeLessThanOrEqual(columnsMax);
          expect(sum(columns.map(({ counts }) => counts[0] ?? 0))).toBe(
            sum(timeline.requests.map(({ num }) => num)),
          );
          const lines = plotTimeline(timeline, { from, to }, zone, terminal(columnsMax + 20, 24));
          for (const line of lines.slice(1)) expect(line.length).toBeLessThanOrEqual(columnsMax + 20);
        },
      ),
      { numRuns: scaled(100) },
    );
  });

  test('show the hour that the clock shows twice as two columns, and days of 25 hours as one', () => {
    const zone = zoneOf('Europe/Berlin');
    const from = Date.parse('2026-10-25T00:00:00+02:00');
    const hoursOf = (to: number, columnsMax: number) => {
      const { columns } = resample(seriesOf(repeated(from, to, zone, [1]), from, zone), columnsMax);
      return columns.map(({ start, end }) => (end - start) / HOUR_MS);
    };
    expect(hoursOf(from + 6 * HOUR_MS, 20)).toEqual(Array(18).fill(1 / 3));
    expect(hoursOf(from + 6 * HOUR_MS, 6)).toEqual(Array(6).fill(1));
    expect(hoursOf(from + (25 + 24 * 39) * HOUR_MS, 20)[0]).toBe(73);
  });

  test('an empty range has no columns', () => {
    expect(resample([], 10).columns).toEqual([]);
  });
});

describe('the scale of counts', () => {
  test('has whole numbers at even distances, from 0 to a number that no value exceeds', () => {
    fc.assert(
      fc.property(fc.maxSafeNat(), fc.integer({ min: 3, max: 100 }), (largest, rows) => {
        const { top, ticks } = scaleOf(largest, rows);
        expect(top).toBeGreaterThanOrEqual(Math.max(1, largest));
        expect(ticks[0]).toBe(0);
        expect(ticks.at(-1)).toBe(top);
        expect(ticks.every(Number.isInteger)).toBe(true);
        expect(ticks.length).toBeLessThanOrEqual(7);
      }),
    );
  });

  test.each([
    [0, 8, [0, 1]],
    [1, 8, [0, 1]],
    [7, 8, [0, 2, 4, 6, 8]],
    [958, 8, [0, 250, 500, 750, 1_000]],
    [3_239, 20, [0, 600, 1_200, 1_800, 2_400, 3_000, 3_600]],
  ])('for values up to %i in %i rows', (largest, rows, ticks) => {
    expect(scaleOf(largest, rows).ticks).toEqual(ticks);
  });

  test('has labels of one style', () => {
    const label = (value: number, top: number) => scaleLabel(value, { top });
    expect([label(0, 80_000), label(80_000, 80_000)]).toEqual(['0', '80,000']);
    expect([label(0, 200_000), label(50_000, 200_000), label(2_500_000, 1e7)]).toEqual(['0', '50K', '2.5M']);
  });
});

describe('the ticks of time', () => {
  const columns = (from: number, count: number, spanMs: number, offsetMs = 0) => ({
    columns: Array.from({ length: count }, (_, i) => ({
      start: from + i * spanMs,
      end: from + (i + 1) * spanMs,
      local: from + i * spanMs + offsetMs,
      counts: [0, 0],
    })),
    spanMs,
  });

  test('are at round local times, with the date at midnight', () => {
    const from = Date.UTC(2026, 6, 1, 11, 15);
    expect(timeTicks(columns(from, 24, HOUR_MS, 5.75 * HOUR_MS), 2)).toEqual([
      { cell: 6, label: '20:00' },
      { cell: 14, label: '07-02' },
      { cell: 22, label: '04:00' },
      { cell: 30, label: '08:00' },
      { cell: 38, label: '12:00' },
    ]);
  });

  test('have centred labels', () => {
    const ticks = [
      { cell: 0, label: '18:00' },
      { cell: 12, label: '07-02' },
    ];
    expect(timeLabels(ticks, 3)).toBe('  18:00       07-02');
  });

  test('keep labels apart and inside the plot', () => {
    fc.assert(
      fc.property(
        fc.nat({ max: 1e6 }),
        fc.integer({ min: 1, max: 300 }),
        fc.constantFrom(1 / 60, 1 / 3, 1, 8, 24, 168),
        fc.integer({ min: 1, max: 9 }),
        (hour, count, spanHours, cellsPerColumn) => {
          const spanMs = spanHours * HOUR_MS;
          const ticks = timeTicks(columns(hour * HOUR_MS, count, spanMs), cellsPerColumn);
          for (const [i, { cell }] of ticks.entries()) {
            expect(cell + 3).toBeLessThanOrEqual(count * cellsPerColumn);
            if (i > 0) expect(cell - (ticks[i - 1]?.cell ?? 0)).toBeGreaterThanOrEqual(8);
          }
        },
      ),
    );
  });
});
