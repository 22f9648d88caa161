import { expect, test } from 'vitest';
import { table } from './table.ts';

test('a table has its names on the left, its counts on the right, and ends in sums', () => {
  expect(
    table(
      ['until (+00:00)', 'requests', 'attacks'],
      [
        ['2026-07-01 12:00:00', 1_234_567, 0],
        ['2026-07-01 12:01:00', 12, 1],
      ],
    ),
  ).toEqual([
    'until (+00:00)        requests  attacks',
    '2026-07-01 12:00:00  1,234,567        0',
    '2026-07-01 12:01:00         12        1',
    'total                1,234,579        1',
  ]);
});

test('a table without rows adds up to nothing', () => {
  expect(table(['category', 'count'], [])).toEqual(['category  count', 'total         0']);
});
