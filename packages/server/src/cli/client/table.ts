import { count } from './numbers.ts';

export type CountRow = readonly [name: string, ...counts: number[]];

/** Names on the left, counts on the right, and their sums at the end. */
export function table(header: readonly string[], rows: readonly CountRow[]): string[] {
  const sums = header.slice(1).map((_, i) => rows.reduce((sum, [, ...counts]) => sum + (counts[i] ?? 0), 0));
  const totals: CountRow = ['total', ...sums];
  const cells = [header, ...[...rows, totals].map(([name, ...counts]) => [name, ...counts.map(count)])];
  const widths = header.map((_, i) => cells.reduce((width, row) => Math.max(width, row[i]?.length ?? 0), 0));
  return cells.map((row) =>
    row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join('  '),
  );
}
