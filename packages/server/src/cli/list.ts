import { type Io, printLine } from './command.ts';

/** One JSON document, or aligned columns. */
export function printList<T>(
  io: Io,
  json: boolean | undefined,
  records: readonly T[],
  columns: (record: T) => string[],
): 0 {
  if (json) {
    printLine(io.stdout, JSON.stringify(records));
    return 0;
  }
  const rows = records.map(columns);
  const widths =
    rows[0]?.map((_, i) => rows.reduce((most, row) => Math.max(most, row[i]?.length ?? 0), 0)) ?? [];
  for (const row of rows)
    printLine(
      io.stdout,
      row
        .map((cell, i) => cell.padEnd(widths[i] ?? 0))
        .join('  ')
        .trimEnd(),
    );
  return 0;
}
