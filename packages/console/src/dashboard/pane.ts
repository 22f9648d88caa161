/** Draws one pane of the chart on a canvas: an area, a stack or lines, and the previous period as a dashed line. */
import uPlot from 'uplot';
import { axisCount, formatBytes, formatCount } from '../format.ts';
import { countTicks, tickLabels, timeTicks } from '../points.ts';
import { colour, remPx } from '../theme.ts';
import type { Zone } from '../zone.ts';

export interface Layer {
  key: string;
  title: string;
  /** One per point. */
  counts: readonly number[];
  /** The variable of the style sheet. */
  colour: string;
}

export interface Pane {
  name: 'requests' | 'attacks' | 'responses' | 'errors' | 'bytes';
  title: string;
  kind: 'area' | 'stack' | 'lines';
  /** Of the counts. Default: none. */
  unit?: 'bytes';
  /** A stack begins with the lowest. */
  layers: readonly Layer[];
  /** The previous period. Null: there is no earlier data. */
  ghost: readonly number[] | null;
}

interface PaneSize {
  width: number;
  height: number;
  /** Space for the labels of the vertical axis: equal in all panes, so that their times are aligned. */
  axisWidth: number;
  hasTimeAxis: boolean;
  /** Points before it have no data, and are not drawn. */
  firstPoint: number;
}

/** Space on the right, for half of the last tick label, such as `16 Nov`. */
export function paddingRight(): number {
  return Math.round(remPx() * 1.5);
}

/** Above the plot, so that the title of the pane covers no values. */
const TITLE_HEIGHT_REM = 1.3;

const TICK_WIDTH_REM = 6.5;

export function drawPane(
  target: HTMLElement,
  pane: Pane,
  edges: readonly number[],
  zone: Zone,
  size: PaneSize,
): uPlot {
  const rem = remPx();
  // uPlot reads whole pixels only.
  const font = `${Math.round(rem * 0.8)}px system-ui, sans-serif`;
  const stroke = colour('muted');
  const ticks = countTicks(maximum(pane));
  return new uPlot(
    {
      width: size.width,
      height: size.height,
      padding: [Math.round(rem * TITLE_HEIGHT_REM), paddingRight(), size.hasTimeAxis ? 0 : 6, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: {
        x: { time: false, range: () => [edges[0] ?? 0, edges.at(-1) ?? 1] },
        y: { range: () => [0, ticks.at(-1) ?? 1] },
      },
      series: [{}, ...seriesOf(pane)],
      axes: [
        {
          show: size.hasTimeAxis,
          font,
          stroke,
          size: rem * 2.9,
          gap: 4,
          lineGap: 1.25,
          grid: { show: false },
          ticks: { stroke: colour('line'), size: 5 },
          splits: (u, _, min, max) => timeTicks(min, max, zone, u.width / (TICK_WIDTH_REM * rem)),
          values: (_, splits) => tickLabels(splits, zone),
        },
        {
          font,
          stroke,
          splits: () => ticks,
          size: size.axisWidth,
          grid: { stroke: colour('line'), width: 1 },
          ticks: { show: false },
          values: (_, splits) => splits.map((n) => axisText(pane, n)),
        },
      ],
    },
    plotData(pane, edges, size.firstPoint),
    target,
  );
}

export function axisText({ unit }: Pane, n: number): string {
  return unit === 'bytes' ? formatBytes(n) : axisCount(n);
}

export function countText({ unit }: Pane, n: number): string {
  return unit === 'bytes' ? formatBytes(n) : formatCount(n);
}

/** The largest value that is drawn. */
export function maximum(pane: Pane): number {
  const top =
    pane.kind === 'stack'
      ? [stackHeights(pane.layers).at(-1) ?? []]
      : pane.layers.map(({ counts }) => counts);
  return [...top, pane.ghost ?? []].flat().reduce((max, n) => Math.max(max, n), 0);
}

function plotData({ kind, layers, ghost }: Pane, edges: readonly number[], first: number): uPlot.AlignedData {
  // Layers of a stack are drawn from top to bottom, each over the one above it.
  const heights = kind === 'stack' ? stackHeights(layers).toReversed() : layers.map(({ counts }) => counts);
  const all = ghost === null ? heights : [...heights, ghost];
  // Repeats the last value, because its step ends at the last edge.
  const drawn = (counts: readonly number[]) =>
    [...counts, counts.at(-1) ?? 0].map((n, i) => (i < first ? null : n));
  return [[...edges], ...all.map(drawn)];
}

/** The upper boundary of each layer. */
export function stackHeights(layers: readonly Layer[]): (readonly number[])[] {
  const heights: (readonly number[])[] = [];
  for (const { counts } of layers) {
    const below = heights.at(-1) ?? [];
    heights.push(counts.map((n, i) => n + (below[i] ?? 0)));
  }
  return heights;
}

function seriesOf({ kind, layers, ghost }: Pane): uPlot.Series[] {
  // Stepped, because a count is constant within its point.
  const paths = uPlot.paths.stepped?.({ align: 1 });
  const common = { points: { show: false }, ...(paths ? { paths } : {}) };
  const styles = {
    area: (name: string) => ({ stroke: colour(name), fill: colour(`${name}-fill`), width: 1.25 }),
    stack: (name: string) => ({ fill: colour(name), width: 0 }),
    lines: (name: string) => ({ stroke: colour(name), width: 1.5 }),
  };
  const drawn = kind === 'stack' ? layers.toReversed() : layers;
  const series = drawn.map((layer) => ({ ...common, ...styles[kind](layer.colour) }));
  const dashed = { ...common, stroke: colour('ghost'), width: 1.25, dash: [4, 3] };
  return ghost === null ? series : [...series, dashed];
}
