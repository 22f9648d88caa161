/** The timeline as a picture: requests above, attacks below on a scale of their own, the same times under both. */
import type { Timeline } from '@wafstat/client';
import type { Timezone } from '../../config.ts';
import { type Scale, scaleLabel, scaleOf, type TimeTick, timeLabels, timeTicks } from './axes.ts';
import { type Column, type Columns, columnsOf } from './columns.ts';
import { dateTime, lengthOfTime } from './local-time.ts';
import { count, share } from './numbers.ts';
import { drawPanel, PANEL_MARGIN_CELLS } from './panel.ts';
import type { Range } from './range.ts';
import { paint, type Terminal } from './terminal.ts';

const SERIES = ['requests', 'attacks'] as const;
type Series = (typeof SERIES)[number];

/** The title, a heading and an axis for each panel, the line between them, the times, and the next prompt. */
const ROWS_BESIDE_BARS = 8;
const ROWS_MIN = 3;
const CELLS_MIN = 20;

export function plotTimeline(
  timeline: Timeline,
  range: Range,
  timezone: Timezone,
  terminal: Terminal,
): string[] {
  const { offsetMs, text } = timezone;
  const [from, to] = [range.from, range.to].map((time) => dateTime(time, offsetMs, 'minutes'));
  const title = `${from} to ${to} (${text})`;
  if (timeline.requests.length === 0) return [`${title}: an empty range`];
  const layout = layOut(timeline, range.from, offsetMs, terminal);
  const { columns, spanMs } = layout.resampled;
  const panels = SERIES.map((series) => {
    const [top = '', ...rest] = drawSeries(series, layout);
    const heading = headingOf(series, columns, offsetMs, terminal.columns - layout.labelWidth - 2);
    const bars = rest.map((line) => line.replace(/[▁-█]+/g, (run) => paint(run, series, terminal)));
    return [`${top} ${paint(heading, series, terminal)}`, ...bars];
  });
  const [requests = [], attacks = []] = panels;
  return [
    paint(`${title}, ${lengthOfTime(spanMs)} per column`, 'bold', terminal),
    ...requests,
    '',
    ...attacks,
    timeLabels(layout.ticks, layout.labelWidth),
  ];
}

interface Layout {
  resampled: Columns;
  scales: Readonly<Record<Series, Scale>>;
  rows: number;
  labelWidth: number;
  cellsPerColumn: number;
  ticks: TimeTick[];
}

/** Narrow labels leave room for more columns, whose lower values make narrower labels: the first that agrees wins. */
function layOut(timeline: Timeline, from: number, offsetMs: number, terminal: Terminal): Layout {
  const rows = Math.max(ROWS_MIN, Math.floor((terminal.rows - ROWS_BESIDE_BARS) / SERIES.length));
  for (let labelWidth = 1; ; labelWidth++) {
    const room = Math.max(CELLS_MIN, terminal.columns - labelWidth - PANEL_MARGIN_CELLS);
    const resampled = columnsOf(timeline, from, offsetMs, room);
    const scale = (series: Series) =>
      scaleOf(Math.max(...resampled.columns.map((column) => column[series])), rows);
    const scales = { requests: scale('requests'), attacks: scale('attacks') };
    const labels = SERIES.flatMap((series) =>
      scales[series].ticks.map((tick) => scaleLabel(tick, scales[series])),
    );
    if (labels.some((label) => label.length > labelWidth)) continue;
    const cellsPerColumn = Math.floor(room / resampled.columns.length);
    const ticks = timeTicks(resampled, cellsPerColumn, offsetMs);
    return { resampled, scales, rows, labelWidth, cellsPerColumn, ticks };
  }
}

function drawSeries(series: Series, layout: Layout): string[] {
  const { resampled, scales, rows, labelWidth, cellsPerColumn, ticks } = layout;
  return drawPanel({
    values: resampled.columns.flatMap((column) => Array<number>(cellsPerColumn).fill(column[series])),
    scale: scales[series],
    rows,
    labelWidth,
    ticks,
  });
}

/** As much as fits, the most important first. */
function headingOf(series: Series, columns: readonly Column[], offsetMs: number, cells: number): string {
  const total = (of: Series) => columns.reduce((sum, column) => sum + column[of], 0);
  const peak = columns.reduce((highest, column) => (column[series] > highest[series] ? column : highest));
  const parts = [`${count(total(series))} ${series}`];
  if (series === 'attacks' && total('requests') > 0) {
    parts.push(`${share(total('attacks'), total('requests'))} of the requests`);
  }
  if (peak[series] > 0) {
    parts.push(`peak ${count(peak[series])} at ${dateTime(peak.start, offsetMs, 'minutes')}`);
  }
  return parts.reduce((heading, part) =>
    heading.length + part.length + 3 <= cells ? `${heading} · ${part}` : heading,
  );
}
