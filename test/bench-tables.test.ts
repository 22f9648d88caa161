/** The tables of the benchmark, from measurements in which candidates answer nothing. */
import { expect, test } from 'vitest';
import { goalRows } from '../bench/rows.mjs';
import { markdownTable, textTable } from '../bench/table.mjs';

/** Measurements in which only one live view was measured. */
function rowsOf(speeds: Record<string, number[]>) {
  const nothing = { speed: {}, calls: {}, latency: {}, growth: {}, startUp: {} };
  const others = {
    workers: { by: 'rate', ratios: [2] },
    ingesting: { idle: [1], ingesting: [1], events_per_s: [1] },
  };
  return goalRows({ ...nothing, ...others, memory_mb: 1, live: { speed: { dashboard: speeds } } }).slice(
    0,
    2,
  );
}

const OURS = { limit: [200, 200, 200], wafstat: [100, 110, 120] };

test('a ratio is that to the best peer, of the rounds in which it answered', () => {
  const peers = { sqlite: [0, 0, 0], duckdb: [1, 1, 1], postgres: [0, 10, 10] };
  expect(
    markdownTable(rowsOf({ ...OURS, ...peers }))
      .split('\n')
      .slice(2),
  ).toEqual([
    '| dashboard: wafstat / limit | 0.55 | 0.50 to 0.60 | >= 0.5 | yes |',
    '| dashboard: wafstat / postgres | 11.5 | 11.0 to 12.0 | >= 10 | yes |',
  ]);
});

test('if no peer answers, the row says so instead of a ratio', () => {
  const peers = { sqlite: [0, 0, 0], duckdb: [0, 0, 0], postgres: [0, 0, 0] };
  const rows = rowsOf({ ...OURS, ...peers });
  expect(markdownTable(rows)).toContain('| dashboard: wafstat / best peer | peers failed |  |  |  |');
  expect(`${markdownTable(rows)}${textTable(rows)}`).not.toMatch(/Infinity|NaN/);
});
