import { stripVTControlCharacters } from 'node:util';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { gridEdges } from '../../statistics/timeline.ts';
import { plotTimeline } from './timeline-plot.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const UTC = { text: '+00:00', offsetMs: 0 };
const NOON = Date.UTC(2026, 6, 1, 12);

function timelineOf(
  from: number,
  to: number,
  requests: (i: number) => number,
  attacks: (i: number) => number,
) {
  const times = gridEdges(from, to, 0).slice(1);
  return {
    requests: times.map((time, i) => ({ time, num: requests(i) })),
    attacks: times.map((time, i) => ({ time, num: attacks(i) })),
  };
}

const terminal = (columns: number, rows: number, colour = false) => ({ columns, rows, colour });

describe('the plot of a timeline', () => {
  test('has a panel for each series, and the times below', () => {
    const range = { from: NOON, to: NOON + HOUR_MS };
    const timeline = timelineOf(
      range.from,
      range.to,
      (i) => 100 * (i % 30),
      (i) => (i === 40 ? 3 : 0),
    );
    expect(
      plotTimeline(timeline, range, { text: '+08:00', offsetMs: 8 * HOUR_MS }, terminal(80, 16)),
    ).toEqual([
      '2026-07-01 20:00 to 2026-07-01 21:00 (+08:00), 1 minute per column',
      '3,000┤ 87,000 requests · peak 2,900 at 2026-07-01 20:29',
      '     │                       ▁▂▃▄▅▆▇                       ▁▂▃▄▅▆▇',
      '1,500┤                ▁▂▃▄▅▆▇███████                ▁▂▃▄▅▆▇███████',
      '     │        ▁▂▃▄▅▆▇███████████████        ▁▂▃▄▅▆▇███████████████',
      '    0┤ ▁▂▃▄▅▆▇██████████████████████ ▁▂▃▄▅▆▇██████████████████████',
      '     └┬─────────┬─────────┬─────────┬─────────┬─────────┬──────────',
      '',
      '    4┤ 3 attacks · 0.0034% of the requests · peak 3 at 2026-07-01 20:40',
      '     │',
      '    2┤                                        █',
      '     │                                        █',
      '    0┤                                        █',
      '     └┬─────────┬─────────┬─────────┬─────────┬─────────┬──────────',
      '    20:00     20:10     20:20     20:30     20:40     20:50',
    ]);
  });

  test('fits the terminal, whatever its size and the numbers', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 400 * DAY_MS }),
        fc.integer({ min: 40, max: 250 }),
        fc.integer({ min: 15, max: 80 }),
        fc.integer({ min: 0, max: 10_000_000 }),
        fc.boolean(),
        (length_ms, columns, rows, largest, colour) => {
          const range = { from: NOON, to: NOON + length_ms };
          const timeline = timelineOf(
            range.from,
            range.to,
            (i) => (i * 7_919) % (largest + 1),
            (i) => i % 3,
          );
          const lines = plotTimeline(timeline, range, UTC, terminal(columns, rows, colour));
          expect(lines.length).toBeLessThan(rows);
          // The title is the one line that may be longer than a very narrow terminal.
          for (const line of lines.slice(1))
            expect(stripVTControlCharacters(line).length).toBeLessThanOrEqual(columns);
        },
      ),
      { numRuns: 100 },
    );
  });

  test('shows attacks on a scale of their own: one in a hundred requests fills its panel too', () => {
    const range = { from: NOON, to: NOON + DAY_MS };
    const timeline = timelineOf(
      range.from,
      range.to,
      () => 1_000,
      () => 10,
    );
    const lines = plotTimeline(timeline, range, UTC, terminal(80, 24));
    const full = (rows: readonly string[]) => rows.filter((line) => line.includes('█'.repeat(70))).length;
    const between = lines.indexOf('');
    expect(full(lines.slice(between))).toBe(full(lines.slice(0, between)));
    expect(lines[between + 1]).toContain('14,400 attacks · 1.0% of the requests');
  });

  test('one attack among millions of requests can be seen', () => {
    const range = { from: NOON, to: NOON + DAY_MS };
    const timeline = timelineOf(
      range.from,
      range.to,
      () => 1e6,
      (i) => (i === 700 ? 1 : i === 0 ? 5_000 : 0),
    );
    expect(plotTimeline(timeline, range, UTC, terminal(80, 24)).join('\n')).toContain('▁');
  });

  test('says how much time a column spans, and when the range is empty', () => {
    const week = { from: NOON, to: NOON + 7 * DAY_MS };
    const [title] = plotTimeline(
      timelineOf(
        week.from,
        week.to,
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

  test('is coloured only where that is allowed', () => {
    const range = { from: NOON, to: NOON + HOUR_MS };
    const timeline = timelineOf(
      range.from,
      range.to,
      () => 1,
      () => 1,
    );
    const plain = plotTimeline(timeline, range, UTC, terminal(80, 24, false));
    const coloured = plotTimeline(timeline, range, UTC, terminal(80, 24, true));
    expect(plain.join('')).not.toContain('\u001b');
    expect(coloured.join('')).toContain('\u001b[31m');
    expect(coloured.map(stripVTControlCharacters)).toEqual(plain);
  });
});
