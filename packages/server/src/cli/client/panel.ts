/** One series over time: columns of block characters between two axes. */
import { type Point, plot } from 'simple-ascii-chart';
import { type Scale, scaleLabel, type TimeTick } from './axes.ts';

export interface Panel {
  /** One value for each cell from left to right. */
  values: readonly number[];
  scale: Scale;
  rows: number;
  /** The same for panels that stand one above the other. */
  labelWidth: number;
  ticks: readonly TimeTick[];
}

/** Cells beside the values: the axis, and one that the library leaves free on the right. */
export const PANEL_MARGIN_CELLS = 2;

const EIGHTHS = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'] as const;

/** The first line has the upper end of the scale and is free beside it, for a heading. */
export function drawPanel({ values, scale, rows, labelWidth, ticks }: Panel): string[] {
  const drawn = plot(
    values.map((value, cell): Point => [cell, value]),
    {
      width: values.length,
      // A label stands in the row that its value is the lower edge of, so the upper end needs one more.
      height: rows + 1,
      yRange: [0, scale.top],
      customYAxisTicks: scale.ticks,
      customXAxisTicks: ticks.map(({ cell }) => cell),
      // Times are written below by whoever stacks the panels; here they would widen the margin.
      formatter: (value, { axis }) => (axis === 'y' ? scaleLabel(value, scale).padStart(labelWidth) : ''),
      symbols: { axis: { e: '─' } },
      lineFormatter: ({ plotX, y }) =>
        blocks((y / scale.top) * rows, rows).map((symbol, row) => ({ x: plotX, y: rows + 1 - row, symbol })),
    },
  );
  // The library begins with an empty line and the point of the axis, and cuts off a margin that all lines have.
  const lines = drawn.split('\n').slice(2, -1);
  const margin = ' '.repeat(
    Math.max(0, labelWidth + values.length + PANEL_MARGIN_CELLS - (lines[0]?.length ?? 0)),
  );
  return lines.map((line) => `${margin}${line}`.trimEnd());
}

/** From the bottom up, in steps of an eighth of a row. What is not zero can be seen. */
function blocks(height: number, rows: number): string[] {
  const eighths = height === 0 ? 0 : Math.max(1, Math.round(height * 8));
  return Array.from(
    { length: rows },
    (_, row) => EIGHTHS[Math.min(8, Math.max(0, eighths - row * 8))] ?? ' ',
  );
}
