/** Plots for a terminal: timelines as columns, with two panels or a row for each category; counts as bars. */
import type { BoundedCount, Point, Timeline, TopAttacks } from '@wafstat/client';
import { printable } from '../../printable.ts';
import { DAY_MS, intervalOf } from '../../statistics/grid.ts';
import type { Zone } from '../../zone.ts';
import { alignColumns, hasColors, type Io, type Style, styled } from '../command.ts';
import { count, dateTime, durationText, localTime, percentage, tickLabel } from './format.ts';

export interface Terminal {
  columns: number;
  rows: number;
  color: boolean;
}

export function terminalOf({ stdout, env }: Pick<Io, 'stdout' | 'env'>): Terminal {
  return { columns: stdout.columns || 80, rows: stdout.rows || 24, color: hasColors(stdout, { env }) };
}

/** Milliseconds since the epoch; `to` is exclusive. */
export interface QueryRange {
  from: number;
  to: number;
}

/** The panels of a timeline. */
const SERIES = ['requests', 'attacks'] as const;
const STYLES = ['cyan', 'red'] as const;
const styleOf = (what: string) => (what === 'requests' ? STYLES[0] : STYLES[1]);

/** A heading and an axis for each panel, the line between them, the times, and the next prompt. */
const ROWS_BESIDE_BARS = 7;
/** The length of `, 30 minutes per column` in the title. */
const SPAN_CELLS = 23;
const ROWS_MIN = 3;
const COLUMNS_MIN = 20;
/** The axis on the left, and one free cell on the right. */
const MARGIN_CELLS = 2;

/** Requests above, attacks below on a scale of their own, and the times under both. */
export function plotTimeline(
  { requests, attacks }: Timeline,
  range: QueryRange,
  zone: Zone,
  terminal: Terminal,
): string[] {
  const points = pointsOf([requests, attacks], range.from, zone);
  if (points.length === 0) return [`${titleOf(range, zone)}: an empty range`];
  const titleRows = Math.ceil((titleOf(range, zone).length + SPAN_CELLS) / terminal.columns);
  const layout = layOut(points, { ...terminal, rows: terminal.rows - titleRows });
  const panels = STYLES.map((style, i) => {
    const [top = '', ...rest] = drawPanel(i, layout);
    const heading = headingOf(i, layout.columns, zone, terminal.columns - layout.labelWidth - 2);
    return [
      `${top} ${styled(heading, style, terminal.color)}`,
      ...rest.map((line) => paintBars(line, style, terminal)),
    ];
  });
  return [
    columnsTitle(range, zone, layout, terminal),
    ...(panels[0] ?? []),
    '',
    ...(panels[1] ?? []),
    timeLabels(layout.ticks, layout.labelWidth),
  ];
}

export function titleOf({ from, to }: QueryRange, zone: Zone): string {
  return `${dateTime(from, zone, 'minutes')} to ${dateTime(to, zone, 'minutes')} (${zone.name})`;
}

function columnsTitle(range: QueryRange, zone: Zone, { spanMs }: Columns, { color }: Terminal): string {
  return styled(`${titleOf(range, zone)}, ${durationText(spanMs)} per column`, 'bold', color);
}

/** Counts over time, by key. The points of all keys have the same times. */
export type KeyedTimelines = readonly { key: string; timeline: readonly Point[] }[];

/** What the keys are, and what is counted. */
export interface Nouns {
  key: string;
  counted: string;
}

/** A row for each key, the most frequent first. Each has its own scale, so that rare ones show when they were. */
export function plotKeys(
  series: KeyedTimelines,
  nouns: Nouns,
  range: QueryRange,
  zone: Zone,
  terminal: Terminal,
): string[] {
  const rows = series
    .map(({ key, timeline }) => ({ key, timeline, total: sum(timeline.map(({ num }) => num)) }))
    .toSorted((a, b) => b.total - a.total);
  const points = pointsOf(
    rows.map(({ timeline }) => timeline),
    range.from,
    zone,
  );
  if (points.length === 0) return [`${titleOf(range, zone)}: an empty range`];
  const labelsOf = (peaks: readonly number[]) => {
    const cells = rows.map(({ key, total }, i) => [key, count(total), count(peaks[i] ?? 0)]);
    return alignColumns([[nouns.key, nouns.counted, 'peak'], ...cells], 'right');
  };
  // The peaks follow from the width of the plot. None is higher than the total of its row.
  const labelWidth = labelsOf(rows.map(({ total }) => total))[0]?.length ?? 0;
  const width = Math.max(COLUMNS_MIN, terminal.columns - labelWidth - MARGIN_CELLS - 1);
  const resampled = resample(points, width);
  const { columns } = resampled;
  const peaks = rows.map((_, i) => Math.max(...columns.map(({ counts }) => counts[i] ?? 0)));
  const [header = '', ...labels] = labelsOf(peaks);
  const cellsPerColumn = Math.floor(width / columns.length);
  const ticks = timeTicks(resampled, cellsPerColumn);
  const lines = rows.map((_, i) => {
    const shares = columns.map(({ counts: { [i]: num = 0 } }) => (num === 0 ? 0 : num / (peaks[i] ?? 1)));
    const bars = shares.map((share) => EIGHTHS_UP[eighths(share)]?.repeat(cellsPerColumn)).join('');
    return paintBars(`${labels[i]} │${bars.trimEnd()}`, styleOf(nouns.counted), terminal);
  });
  const total = counted(sum(rows.map((row) => row.total)), nouns.counted);
  return [
    columnsTitle(range, zone, resampled, terminal),
    `${header} │ ${joinFitting([total, 'each row on its own scale'], width)}`,
    ...lines,
    `${' '.repeat(header.length + 1)}${timeAxis(columns.length * cellsPerColumn, ticks)}`,
    timeLabels(ticks, header.length + 1),
  ];
}

/** A bar for each key, the most frequent first. */
export function plotCounts(
  counts: readonly (readonly [key: string, num: number])[],
  what: string,
  range: QueryRange,
  zone: Zone,
  terminal: Terminal,
): string[] {
  const total = sum(counts.map(([, num]) => num));
  const sorted = counts.toSorted(([, a], [, b]) => b - a);
  const rows = sorted.map(([key, num]) => [key, count(num), percentage(num, total)]);
  return [
    styled(`${titleOf(range, zone)}, ${counted(total, what)}`, 'bold', terminal.color),
    ...plotBars(
      rows,
      sorted.map(([, num]) => num),
      what,
      terminal,
    ),
  ];
}

/** A row for each item. Names come from attackers, so they are escaped, and cut to half of the width. */
export function plotTop(
  names: readonly string[],
  { items, attacks }: TopAttacks<BoundedCount>,
  title: string,
  what: string,
  terminal: Terminal,
): string[] {
  const nameMax = Math.max(COLUMNS_MIN, Math.floor(terminal.columns / 2));
  const short = (name: string) => (name.length <= nameMax ? name : `${name.slice(0, nameMax - 1)}…`);
  const isExact = items.every(({ error }) => error === 0);
  const rows = items.map(({ num, error }, i) => [
    short(printable(names[i] ?? '')),
    count(num),
    ...(isExact ? [] : [error === 0 ? '' : `+${count(error)}`]),
    percentage(num, attacks),
  ]);
  return [
    styled(printable(title), 'bold', terminal.color),
    ...plotBars(
      rows,
      items.map(({ num }) => num),
      what,
      terminal,
    ),
  ];
}

/** Labels with a bar for each value. The largest fills the line. */
function plotBars(
  rows: readonly string[][],
  values: readonly number[],
  what: string,
  terminal: Terminal,
): string[] {
  const largest = Math.max(0, ...values);
  return alignColumns(rows, 'right').map((label, i) => {
    const bar = horizontalBar(values[i] ?? 0, largest, Math.max(10, terminal.columns - label.length - 3));
    return bar === '' ? label : paintBars(`${label}  ${bar}`, styleOf(what), terminal);
  });
}

function paintBars(line: string, style: Style, { color }: Terminal): string {
  return line.replace(/[▁-▏]+/g, (run) => styled(run, style, color));
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

interface Layout extends Columns {
  scales: readonly Scale[];
  rows: number;
  labelWidth: number;
  cellsPerColumn: number;
  ticks: TimeTick[];
}

/** Narrow labels leave room for more columns, whose smaller values have narrower labels: takes the first fit. */
function layOut(points: Column[], terminal: Terminal): Layout {
  const rows = Math.max(ROWS_MIN, Math.floor((terminal.rows - ROWS_BESIDE_BARS) / SERIES.length));
  for (let labelWidth = 1; ; labelWidth++) {
    const width = Math.max(COLUMNS_MIN, terminal.columns - labelWidth - MARGIN_CELLS);
    const resampled = resample(points, width);
    const { columns } = resampled;
    const scales = SERIES.map((_, i) =>
      scaleOf(Math.max(...columns.map(({ counts }) => counts[i] ?? 0)), rows),
    );
    const labels = scales.flatMap((scale) => scale.ticks.map((tick) => scaleLabel(tick, scale)));
    if (labels.some((label) => label.length > labelWidth)) continue;
    const cellsPerColumn = Math.floor(width / columns.length);
    const ticks = timeTicks(resampled, cellsPerColumn);
    return { ...resampled, scales, rows, labelWidth, cellsPerColumn, ticks };
  }
}

const EIGHTHS_UP = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'] as const;
const EIGHTHS_RIGHT = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉'] as const;

/** Values between two axes. The first line has the top of the scale and is free beside it, for a heading. */
function drawPanel(series: number, layout: Layout): string[] {
  const { columns, rows, labelWidth, cellsPerColumn, ticks } = layout;
  const scale = layout.scales[series] ?? { top: 1, ticks: [] };
  // A label is in the row whose lower edge its value is.
  const labels = new Map(
    scale.ticks.map((tick) => [Math.round((tick / scale.top) * rows), scaleLabel(tick, scale)]),
  );
  const axis = (row: number) =>
    `${(labels.get(row) ?? '').padStart(labelWidth)}${labels.has(row) ? '┤' : '│'}`;
  const heights = columns.map(({ counts }) => eighths(((counts[series] ?? 0) / scale.top) * rows));
  const bars = Array.from({ length: rows }, (_, i) => rows - 1 - i).map((row) => {
    const cells = heights.map((height) => EIGHTHS_UP[Math.min(8, Math.max(0, height - row * 8))] ?? ' ');
    return `${axis(row)}${cells.map((cell) => cell.repeat(cellsPerColumn)).join('')}`.trimEnd();
  });
  return [
    axis(rows),
    ...bars,
    `${' '.repeat(labelWidth)}${timeAxis(heights.length * cellsPerColumn, ticks)}`,
  ];
}

function timeAxis(cells: number, ticks: readonly TimeTick[]): string {
  const line = Array<string>(cells + 1).fill('─');
  for (const { cell } of ticks) line[cell] = '┬';
  return `└${line.join('')}`;
}

function horizontalBar(value: number, largest: number, width: number): string {
  if (value === 0) return '';
  const length = eighths((value / largest) * width);
  return `${'█'.repeat(Math.floor(length / 8))}${EIGHTHS_RIGHT[length % 8]}`;
}

/** A length of cells in eighths of a cell. Only zero is invisible. */
function eighths(cells: number): number {
  return cells === 0 ? 0 : Math.max(1, Math.round(cells * 8));
}

/** `1 attack`, `2,000 attacks`. */
function counted(n: number, name: string): string {
  return `${count(n)} ${n === 1 ? name.slice(0, -1) : name}`;
}

function headingOf(series: number, columns: readonly Column[], zone: Zone, cells: number): string {
  const countOf = ({ counts }: Column) => counts[series] ?? 0;
  const [requests = 0, attacks = 0] = SERIES.map((_, i) => sum(columns.map(({ counts }) => counts[i] ?? 0)));
  const peak = columns.reduce((highest, column) => (countOf(column) > countOf(highest) ? column : highest));
  const parts = [counted(series === 0 ? requests : attacks, SERIES[series] ?? '')];
  if (series === 1 && requests > 0) parts.push(`${percentage(attacks, requests)} of the requests`);
  if (countOf(peak) > 0) {
    // The end of the column, like the time of a point in the table, CSV and JSON.
    const precision = peak.end % MINUTE_MS === 0 ? 'minutes' : 'seconds';
    parts.push(`peak ${count(countOf(peak))} until ${dateTime(peak.end, zone, precision)}`);
  }
  return joinFitting(parts, cells);
}

/** Joins as many parts as fit, the most important first. */
function joinFitting(parts: readonly string[], cells: number): string {
  return parts.reduce((heading, part) =>
    heading.length + part.length + 3 <= cells ? `${heading} · ${part}` : heading,
  );
}

/** A column covers the time from `start` to `end`, which is exclusive. */
interface Column {
  start: number;
  end: number;
  /** What the clock shows at the start, as if it were UTC. */
  local: number;
  /** The count of each series. */
  counts: number[];
}

interface Columns {
  columns: Column[];
  /** Time span of a column. The range may cut the first and the last one, a change of the clock any. */
  spanMs: number;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** Spans whose multiples are round times. */
const SPANS_MS: readonly number[] = [
  ...[1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30].map((n) => n * MINUTE_MS),
  ...[1, 2, 3, 4, 6, 8, 12].map((n) => n * HOUR_MS),
  ...[1, 2, 3, 4, 5, 7, 10, 14, 21, 28].map((n) => n * DAY_MS),
];

/** A column for each point. All series have the same times. */
export function pointsOf(series: readonly (readonly Point[])[], from: number, zone: Zone): Column[] {
  const [first = []] = series;
  return first.map(({ time }, i) => {
    const start = first[i - 1]?.time ?? from;
    const counts = series.map((points) => points[i]?.num ?? 0);
    return { start, end: time, local: localTime(start, zone), counts };
  });
}

/** The columns of the shortest round span that fits. Every point is in exactly one column, so the sums stay the same. */
export function resample(points: Column[], columnsMax: number): Columns {
  const longestMs = points.reduce((longest, { start, end }) => Math.max(longest, end - start), 0);
  // A day on which the clock is set back is longer than the interval.
  const intervalMs = Math.min(longestMs, intervalOf((points.at(-1)?.end ?? 0) - (points[0]?.start ?? 0)));
  if (points.length <= columnsMax) return { columns: points, spanMs: intervalMs };
  // Twice the even share leaves room for the two columns that the range cuts.
  const longEnoughMs = intervalMs * Math.ceil((2 * points.length) / columnsMax);
  const spans = SPANS_MS.filter((span) => span % intervalMs === 0);
  const spanMs = spans.find((span) => columnsOf(points, span).length <= columnsMax) ?? longEnoughMs;
  return { columns: columnsOf(points, spanMs), spanMs };
}

function columnsOf(points: readonly Column[], spanMs: number): Column[] {
  const columns: Column[] = [];
  for (const point of points) {
    const last = columns.at(-1);
    const isSame = last && Math.floor(last.local / spanMs) === Math.floor(point.local / spanMs);
    // The hours that a clock shows twice are columns of their own; a day is one.
    if (isSame && (spanMs >= DAY_MS || point.local - last.local >= point.start - last.start)) {
      last.end = point.end;
      last.counts = last.counts.map((n, i) => n + (point.counts[i] ?? 0));
    } else {
      columns.push({ ...point });
    }
  }
  return columns;
}

interface Scale {
  /** The value at the upper end, at least 1. */
  top: number;
  ticks: number[];
}

const SCALE_STEPS = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];
const SCALE_TICKS_MAX = 6;

/** A scale from 0 to a round number that no value exceeds, with at least two rows per tick. */
export function scaleOf(largest: number, rows: number): Scale {
  const wanted = Math.max(1, largest) / Math.min(SCALE_TICKS_MAX, Math.max(1, Math.floor(rows / 2)));
  const power = 10 ** Math.max(0, Math.floor(Math.log10(wanted)));
  const step =
    SCALE_STEPS.map((n) => n * power).find((n) => n >= wanted && Number.isInteger(n)) ?? 10 * power;
  const steps = Math.max(1, Math.ceil(largest / step));
  return { top: steps * step, ticks: Array.from({ length: steps + 1 }, (_, i) => i * step) };
}

const COMPACT = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 2 });

/** `12,000`, but `50K` and `1.5M` on a long scale, so that labels stay narrow. */
export function scaleLabel(value: number, { top }: Pick<Scale, 'top'>): string {
  return top < 100_000 ? count(value) : COMPACT.format(value);
}

interface TimeTick {
  /** The offset from the left. */
  cell: number;
  label: string;
}

const TICK_STEPS_MS = [
  ...[1, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720].map((minutes) => minutes * MINUTE_MS),
  ...[1, 2, 4, 7, 14, 28, 56, 91, 182, 364, 728, 1_820].map((days) => days * DAY_MS),
];
/** The length of `12:00` and `07-01`. */
const LABEL_CELLS = 5;
const LABEL_CELLS_LEFT = Math.floor(LABEL_CELLS / 2);
const GAP_CELLS = 3;

/** Ticks at the left edge of columns that begin at a round local time. */
export function timeTicks({ columns, spanMs }: Columns, cellsPerColumn: number): TimeTick[] {
  const hasRoom = (cells: number) => cells >= LABEL_CELLS + GAP_CELLS;
  const step = TICK_STEPS_MS.find(
    (candidate) => candidate % spanMs === 0 && hasRoom((candidate / spanMs) * cellsPerColumn),
  );
  const ticks: TimeTick[] = [];
  for (const [i, { local }] of columns.entries()) {
    const cell = i * cellsPerColumn;
    // A label is centred under its tick and must stay inside the plot. A clock that is set back shows a time twice.
    const fits = cell + LABEL_CELLS_LEFT < columns.length * cellsPerColumn;
    const isApart = hasRoom(cell - (ticks.at(-1)?.cell ?? Number.NEGATIVE_INFINITY));
    if (step && local % step === 0 && fits && isApart) ticks.push({ cell, label: tickLabel(local) });
  }
  return ticks;
}

/** The line below the time axis, whose origin is at `originCell`. */
export function timeLabels(ticks: readonly TimeTick[], originCell: number): string {
  return ticks.reduce(
    (line, { cell, label }) => `${line.padEnd(originCell + 1 + cell - LABEL_CELLS_LEFT)}${label}`,
    '',
  );
}
