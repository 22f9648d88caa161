/** Numbers, times, tables and CSV as text. */
import { csv } from '../../csv.ts';
import { printable } from '../../printable.ts';
import { OffsetZone, type Zone } from '../../zone.ts';
import { alignColumns } from '../command.ts';

const WHOLE = new Intl.NumberFormat('en');
const PERCENT = new Intl.NumberFormat('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const SMALL_PERCENT = new Intl.NumberFormat('en', { maximumSignificantDigits: 2 });

/** `1,234,567`. */
export function count(value: number): string {
  return WHOLE.format(value);
}

/** `12.3%`. Small percentages have two digits, so that only zero is shown as zero. */
export function percentage(part: number, whole: number): string {
  const percent = whole === 0 ? 0 : (part / whole) * 100;
  return `${percent > 0 && percent < 0.1 ? SMALL_PERCENT.format(percent) : PERCENT.format(percent)}%`;
}

/** What a clock in the zone shows, as if it were UTC. */
export function localTime(time: number, zone: Zone): number {
  return time + zone.offsetAt(time);
}

/** `2026-07-01 12:00`, or with seconds. */
export function dateTime(time: number, zone: Zone, precision: 'minutes' | 'seconds'): string {
  return new Date(localTime(time, zone))
    .toISOString()
    .slice(0, precision === 'minutes' ? 16 : 19)
    .replace('T', ' ');
}

/** `2026-07-01T12:00:00.000+08:00`. */
export function isoTime(time: number, zone: Zone): string {
  const offsetMs = zone.offsetAt(time);
  const text = new Date(time + offsetMs).toISOString();
  return offsetMs === 0 ? text : text.replace('Z', new OffsetZone(offsetMs / 60_000).name);
}

/** `12:00`, or the date, `07-01`, at midnight. `local` is a local time as if it were UTC. */
export function tickLabel(local: number): string {
  const text = new Date(local).toISOString();
  return text.slice(11, 16) === '00:00' ? text.slice(5, 10) : text.slice(11, 16);
}

const UNITS = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
  ['second', 1_000],
] as const;

/** `20 minutes`, `1 hour 30 minutes`: the two largest units. */
export function durationText(ms: number): string {
  let rest = ms;
  const parts: string[] = [];
  for (const [name, unitMs] of UNITS) {
    const n = Math.floor(rest / unitMs);
    rest -= n * unitMs;
    if (n > 0) parts.push(`${n} ${name}${n === 1 ? '' : 's'}`);
  }
  return parts.length === 0 ? `${ms} ms` : parts.slice(0, 2).join(' ');
}

/** Names on the left, counts on the right, and a row of sums. */
export function table(
  header: readonly string[],
  rows: readonly (readonly [name: string, ...counts: number[]])[],
): string[] {
  const sums = header.slice(1).map((_, i) => rows.reduce((sum, [, ...counts]) => sum + (counts[i] ?? 0), 0));
  const body = [...rows, ['total', ...sums] as const];
  return alignColumns([header, ...body.map(([name, ...counts]) => [name, ...counts.map(count)])], 'right');
}

/** CSV with control characters made visible, even in what should be a number: the service may be hostile. */
export function printableCsv(
  header: readonly string[],
  rows: readonly (readonly (string | number)[])[],
): string {
  const cell = (value: string | number) => (typeof value === 'number' ? value : printable(String(value)));
  return csv(
    header,
    rows.map((row) => row.map(cell)),
  );
}
