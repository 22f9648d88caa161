/** Plots for a terminal: the timeline as two panels of columns, or a row for each category; the attack types as bars. */
import {
  ATTACK_TYPES,
  type AttackType,
  type AttackTypes,
  type BoundedCount,
  type Point,
  type Timeline,
  type TopAttacks,
} from '@wafstat/client';
import { printable } from '../../printable.ts';
import { alignColumns, type Io } from '../command.ts';
import { count, dateTime, durationText, percentage, tickLabel } from './format.ts';

export interface Terminal {
  columns: number;
  rows: number;
  color: boolean;
}

export function terminalOf({ stdout, env }: Pick<Io, 'stdout' | 'env'>): Terminal {
  return {
    columns: stdout.columns || 80,
    rows: stdout.rows || 24,
    // See no-color.org.
    color: stdout.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb',
  };
}

/** Milliseconds since the epoch; `to` is exclusive. */
export interface QueryRange {
  from: number;
  to: number;
}

export interface Timezone {
  text: string;
  offsetMs: number;
}

const SERIES = ['requests', 'attacks'] as const;
type Series = (typeof SERIES)[number];

/** The title, a heading and an axis for each panel, the line between them, the times, and the next prompt. */
const ROWS_BESIDE_BARS = 8;
const ROWS_MIN = 3;
const COLUMNS_MIN = 20;
/** The axis on the left, and one free cell on the right. */
const MARGIN_CELLS = 2;

/** Requests above, attacks below on a scale of their own, and the times under both. */
export function plotTimeline(
  timeline: Timeline,
  range: QueryRange,
  { offsetMs, text }: Timezone,
  terminal: Terminal,
): string[] {
  const title = titleOf(range, { offsetMs, text });
  if (timeline.requests.length === 0) return [`${title}: an empty range`];
  const layout = layOut(timeline, range.from, offsetMs, terminal);
  const { columns, spanMs } = layout.resampled;
  const panels = SERIES.map((series) => {
    const [top = '', ...rest] = drawPanel(series, layout);
    const heading = headingOf(series, columns, offsetMs, terminal.columns - layout.labelWidth - 2);
    const bars = rest.map((line) => line.replace(/[▁-█]+/g, (run) => paint(run, series, terminal)));
    return [`${top} ${paint(heading, series, terminal)}`, ...bars];
  });
  const [requests = [], attacks = []] = panels;
  return [
    paint(`${title}, ${durationText(spanMs)} per column`, 'bold', terminal),
    ...requests,
    '',
    ...attacks,
    timeLabels(layout.ticks, layout.labelWidth),
  ];
}

export function titleOf(range: QueryRange, { offsetMs, text }: Timezone): string {
  const [from, to] = [range.from, range.to].map((time) => dateTime(time, offsetMs, 'minutes'));
  return `${from} to ${to} (${text})`;
}

/** Attacks over time of each category. The points of all categories have the same times. */
export type CategoryTimeline = readonly { key: AttackType; timeline: readonly Point[] }[];

/** A row for each category, the most frequent first. Each has its own scale, so that rare attacks show when they were. */
export function plotCategories(
  categories: CategoryTimeline,
  range: QueryRange,
  timezone: Timezone,
  terminal: Terminal,
): string[] {
  const title = titleOf(range, timezone);
  const points = categories[0]?.timeline ?? [];
  if (points.length === 0) return [`${title}: an empty range`];
  const rows = categories
    .map(({ key, timeline }) => ({ key, timeline, total: timeline.reduce((sum, { num }) => sum + num, 0) }))
    .toSorted((a, b) => b.total - a.total);
  const labelsOf = (peaks: readonly number[]) => {
    const cells = rows.map(({ key, total }, i) => [key, count(total), count(peaks[i] ?? 0)]);
    return alignColumns([['category', 'attacks', 'peak'], ...cells], 'right');
  };
  // The peaks follow from the width of the plot. None is higher than the total of its row.
  const labelWidth = labelsOf(rows.map(({ total }) => total))[0]?.length ?? 0;
  const width = Math.max(COLUMNS_MIN, terminal.columns - labelWidth - MARGIN_CELLS - 1);
  const resampled = resample({ requests: [...points], attacks: [] }, range.from, timezone.offsetMs, width);
  const { columns, spanMs } = resampled;
  const counts = rows.map(({ timeline }) =>
    columns.map(({ start, end }) =>
      timeline.reduce((sum, { time, num }) => (start < time && time <= end ? sum + num : sum), 0),
    ),
  );
  const peaks = counts.map((row) => Math.max(...row));
  const [header = '', ...labels] = labelsOf(peaks);
  const cellsPerColumn = Math.floor(width / columns.length);
  const ticks = timeTicks(resampled, cellsPerColumn, timezone.offsetMs);
  const lines = counts.map((row, i) => {
    const heights = row.map((num) => (num === 0 ? 0 : eighths(num / (peaks[i] ?? 1))));
    const bars = heights
      .map((height) => EIGHTHS_UP[height]?.repeat(cellsPerColumn))
      .join('')
      .trimEnd();
    return `${labels[i]} │${bars.replace(/[▁-█]+/g, (run) => paint(run, 'attacks', terminal))}`;
  });
  const parts = [
    counted(
      rows.reduce((sum, { total }) => sum + total, 0),
      'attacks',
    ),
    'each row on its own scale',
  ];
  return [
    paint(`${title}, ${durationText(spanMs)} per column`, 'bold', terminal),
    `${header} │ ${joinFitting(parts, width)}`,
    ...lines,
    `${' '.repeat(header.length + 1)}${timeAxis(columns.length * cellsPerColumn, ticks)}`,
    timeLabels(ticks, header.length + 1),
  ];
}

/** All thirteen, the most frequent first. */
export function plotTypes(types: AttackTypes, { from, to }: QueryRange, terminal: Terminal): string[] {
  const total = ATTACK_TYPES.reduce((sum, type) => sum + types[type], 0);
  const sorted = ATTACK_TYPES.toSorted((a, b) => types[b] - types[a]);
  const rows = sorted.map((type) => [type, count(types[type]), percentage(types[type], total)]);
  const labels = alignColumns(rows, 'right');
  const largest = Math.max(...ATTACK_TYPES.map((type) => types[type]));
  const title = `${dateTime(from, 0, 'minutes')} to ${dateTime(to, 0, 'minutes')} (+00:00), ${counted(total, 'attacks')}`;
  const lines = sorted.map((type, i) => {
    const label = labels[i] ?? '';
    const bar = horizontalBar(types[type], largest, Math.max(10, terminal.columns - label.length - 3));
    return bar === '' ? label : `${label}  ${paint(bar, 'attacks', terminal)}`;
  });
  return [paint(title, 'bold', terminal), ...lines];
}

/** A row for each item. Names come from attackers, so they are escaped, and cut to half of the width. */
export function plotTop(
  names: readonly string[],
  { items, attacks }: TopAttacks<BoundedCount>,
  title: string,
  terminal: Terminal,
): string[] {
  const nameMax = Math.max(COLUMNS_MIN, Math.floor(terminal.columns / 2));
  const short = (name: string) => (name.length <= nameMax ? name : `${name.slice(0, nameMax - 1)}…`);
  const rows = items.map(({ num, error }, i) => [
    short(printable(names[i] ?? '')),
    count(num),
    error === 0 ? '' : `+${count(error)}`,
    percentage(num, attacks),
  ]);
  const isExact = items.every(({ error }) => error === 0);
  const labels = alignColumns(isExact ? rows.map((row) => row.toSpliced(2, 1)) : rows, 'right');
  const largest = Math.max(0, ...items.map(({ num }) => num));
  const lines = items.map(({ num }, i) => {
    const label = labels[i] ?? '';
    const bar = horizontalBar(num, largest, Math.max(10, terminal.columns - label.length - 3));
    return `${label}  ${paint(bar, 'attacks', terminal)}`;
  });
  return [paint(printable(title), 'bold', terminal), ...lines];
}

const COLOR_CODES = { bold: 1, requests: 36, attacks: 31 } as const;

function paint(text: string, style: keyof typeof COLOR_CODES, { color }: Terminal): string {
  return color ? `\u001b[${COLOR_CODES[style]}m${text}\u001b[0m` : text;
}

interface Layout {
  resampled: Columns;
  scales: Readonly<Record<Series, Scale>>;
  rows: number;
  labelWidth: number;
  cellsPerColumn: number;
  ticks: TimeTick[];
}

/** Narrow labels leave room for more columns, whose smaller values have narrower labels: takes the first fit. */
function layOut(timeline: Timeline, from: number, offsetMs: number, terminal: Terminal): Layout {
  const rows = Math.max(ROWS_MIN, Math.floor((terminal.rows - ROWS_BESIDE_BARS) / SERIES.length));
  for (let labelWidth = 1; ; labelWidth++) {
    const width = Math.max(COLUMNS_MIN, terminal.columns - labelWidth - MARGIN_CELLS);
    const resampled = resample(timeline, from, offsetMs, width);
    const scale = (series: Series) =>
      scaleOf(Math.max(...resampled.columns.map((column) => column[series])), rows);
    const scales = { requests: scale('requests'), attacks: scale('attacks') };
    const labels = SERIES.flatMap((series) =>
      scales[series].ticks.map((tick) => scaleLabel(tick, scales[series])),
    );
    if (labels.some((label) => label.length > labelWidth)) continue;
    const cellsPerColumn = Math.floor(width / resampled.columns.length);
    const ticks = timeTicks(resampled, cellsPerColumn, offsetMs);
    return { resampled, scales, rows, labelWidth, cellsPerColumn, ticks };
  }
}

const EIGHTHS_UP = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'] as const;
const EIGHTHS_RIGHT = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉'] as const;

/** Values between two axes. The first line has the top of the scale and is free beside it, for a heading. */
function drawPanel(series: Series, layout: Layout): string[] {
  const { resampled, scales, rows, labelWidth, cellsPerColumn, ticks } = layout;
  const { [series]: scale } = scales;
  // A label is in the row whose lower edge its value is.
  const labels = new Map(
    scale.ticks.map((tick) => [Math.round((tick / scale.top) * rows), scaleLabel(tick, scale)]),
  );
  const axis = (row: number) =>
    `${(labels.get(row) ?? '').padStart(labelWidth)}${labels.has(row) ? '┤' : '│'}`;
  const heights = resampled.columns.map((column) => eighths((column[series] / scale.top) * rows));
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
function counted(n: number, series: Series): string {
  return `${count(n)} ${n === 1 ? series.slice(0, -1) : series}`;
}

function headingOf(series: Series, columns: readonly Column[], offsetMs: number, cells: number): string {
  const total = (name: Series) => columns.reduce((sum, column) => sum + column[name], 0);
  const peak = columns.reduce((highest, column) => (column[series] > highest[series] ? column : highest));
  const parts = [counted(total(series), series)];
  if (series === 'attacks' && total('requests') > 0) {
    parts.push(`${percentage(total('attacks'), total('requests'))} of the requests`);
  }
  if (peak[series] > 0) {
    // The end of the column, like the time of a point in the table, CSV and JSON.
    const precision = peak.end % MINUTE_MS === 0 ? 'minutes' : 'seconds';
    parts.push(`peak ${count(peak[series])} until ${dateTime(peak.end, offsetMs, precision)}`);
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
  requests: number;
  attacks: number;
}

interface Columns {
  columns: Column[];
  /** Time span of a column; the range may cut the first and the last one. */
  spanMs: number;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** Spans whose multiples are round times. */
const SPANS_MS: readonly number[] = [
  ...[1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30].map((n) => n * MINUTE_MS),
  ...[1, 2, 3, 4, 6, 8, 12].map((n) => n * HOUR_MS),
  ...[1, 2, 3, 4, 5, 7, 10, 14, 21, 28].map((n) => n * DAY_MS),
];

/** Every point is in exactly one column, so the sums stay the same. */
export function resample(timeline: Timeline, from: number, offsetMs: number, columnsMax: number): Columns {
  const points = timeline.requests.map(({ time, num }, i) => ({
    start: timeline.requests[i - 1]?.time ?? from,
    end: time,
    requests: num,
    attacks: timeline.attacks[i]?.num ?? 0,
  }));
  const intervalMs = points.reduce((longest, { start, end }) => Math.max(longest, end - start), 0);
  if (points.length <= columnsMax) return { columns: points, spanMs: intervalMs };
  const spanMs = spanOf(points, intervalMs, offsetMs, columnsMax);
  const columns: Column[] = [];
  for (const point of points) {
    const last = columns.at(-1);
    if (last && columnNumber(last.start, spanMs, offsetMs) === columnNumber(point.start, spanMs, offsetMs)) {
      last.end = point.end;
      last.requests += point.requests;
      last.attacks += point.attacks;
    } else {
      columns.push({ ...point });
    }
  }
  return { columns, spanMs };
}

/** The shortest span that fits and that no point straddles. */
function spanOf(points: readonly Column[], intervalMs: number, offsetMs: number, columnsMax: number): number {
  const first = points[0]?.start ?? 0;
  const last = points.at(-1)?.start ?? 0;
  const fits = (spanMs: number) =>
    columnNumber(last, spanMs, offsetMs) - columnNumber(first, spanMs, offsetMs) < columnsMax;
  const round = SPANS_MS.find((spanMs) => spanMs % intervalMs === 0 && fits(spanMs));
  // Twice the even share leaves room for the two columns that the range cuts.
  return round ?? intervalMs * Math.ceil((2 * points.length) / columnsMax);
}

/** Counted from the first local midnight of 1970. */
function columnNumber(time: number, spanMs: number, offsetMs: number): number {
  return Math.floor((time + offsetMs) / spanMs);
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
export function timeTicks(
  { columns, spanMs }: Columns,
  cellsPerColumn: number,
  offsetMs: number,
): TimeTick[] {
  const hasRoom = (step: number) => (step / spanMs) * cellsPerColumn >= LABEL_CELLS + GAP_CELLS;
  const step = TICK_STEPS_MS.find((candidate) => candidate % spanMs === 0 && hasRoom(candidate));
  if (step === undefined) return [];
  const cells = columns.length * cellsPerColumn;
  return columns.flatMap(({ start }, i) => {
    const cell = i * cellsPerColumn;
    // A label is centred under its tick and must stay inside the plot.
    const fits = cell + LABEL_CELLS_LEFT < cells;
    return fits && (start + offsetMs) % step === 0 ? [{ cell, label: tickLabel(start, offsetMs) }] : [];
  });
}

/** The line below the time axis, whose origin is at `originCell`. */
export function timeLabels(ticks: readonly TimeTick[], originCell: number): string {
  return ticks.reduce(
    (line, { cell, label }) => `${line.padEnd(originCell + 1 + cell - LABEL_CELLS_LEFT)}${label}`,
    '',
  );
}
