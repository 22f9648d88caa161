/** Draws the timeline: requests and attacks, or a stack of categories. */
import type { AttackType } from '@wafstat/client';
import uPlot from 'uplot';
import { fill, h } from '../dom.ts';
import { axisCount, formatCount, formatRange } from '../format.ts';
import { tickLabel, timeTicks, total } from '../points.ts';
import { colour, remPx } from '../theme.ts';
import type { SeriesName } from '../view.ts';

export interface DrawnSeries {
  name: SeriesName | AttackType;
  title: string;
  counts: readonly number[];
  /** The variable of the style sheet. */
  colour: string;
}

export interface Drawing {
  /** One more than there are points: point i is from `edges[i]` to `edges[i + 1]`. */
  edges: number[];
  /** A stack begins with the lowest. */
  series: readonly DrawnSeries[];
  isStack: boolean;
  offsetMs: number;
}

export interface TimelineChart {
  element: HTMLElement;
  draw(drawing: Drawing): void;
  /** Draws again with the current colours. */
  recolour(): void;
  canvas(): HTMLCanvasElement | null;
  /** A selection is being dragged, so the chart must not change. */
  isBusy(): boolean;
  destroy(): void;
}

const TICK_WIDTH_REM = 6;

export function timelineChart(zoom: (from: number, to: number) => void): TimelineChart {
  const tooltip = h('div', { class: 'tooltip', role: 'status', hidden: true });
  const band = h('div', { class: 'band', hidden: true });
  const element = h('div', { class: 'chart', tabindex: 0, role: 'img' });
  let plot: uPlot | null = null;
  let built = '';
  let drawing: Drawing = { edges: [], series: [], isStack: false, offsetMs: 0 };
  let pressed = false;

  element.addEventListener('pointerdown', () => {
    pressed = true;
  });
  const released = () => {
    pressed = false;
  };
  addEventListener('pointerup', released);
  const observer = new ResizeObserver(() => {
    if (plot) plot.setSize({ width: element.clientWidth, height: element.clientHeight });
  });
  observer.observe(element);
  element.addEventListener('keydown', (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined || plot === null) return;
    event.preventDefault();
    const { edges } = drawing;
    const last = edges.length - 2;
    const at = plot.cursor.idx ?? (step > 0 ? -1 : last + 1);
    const next = Math.min(last, Math.max(0, at + step));
    const middle = ((edges[next] ?? 0) + (edges[next + 1] ?? 0)) / 2;
    plot.setCursor({ left: plot.valToPos(middle, 'x'), top: 20 });
  });
  element.addEventListener('blur', () => plot?.setCursor({ left: -10, top: -10 }));

  function draw(next: Drawing): void {
    drawing = next;
    const data = plotData(next);
    const names = next.series.map(({ name }) => name);
    const wanted = JSON.stringify([scalesOf(next).two, next.isStack, names, colour('attack')]);
    element.setAttribute('aria-label', summary(next));
    if (plot !== null && built === wanted) {
      plot.setData(data);
      return;
    }
    plot?.destroy();
    built = wanted;
    plot = new uPlot(options(), data, element);
    plot.over.append(band, tooltip);
    // They belong to a point of the previous plot.
    band.hidden = true;
    tooltip.hidden = true;
  }

  function options(): uPlot.Options {
    const axisColour = colour('muted');
    const grid = { stroke: colour('line'), width: 1 };
    const rem = remPx();
    const font = `${rem * 0.86}px system-ui, sans-serif`;
    const { two } = scalesOf(drawing);
    const hasRequests = drawing.series.some(({ name }) => name === 'requests');
    const counts = {
      font,
      stroke: axisColour,
      incrs: WHOLE_STEPS,
      space: rem * 3.2,
      size: axisWidth,
      ticks: { show: false },
      values: (_: uPlot, splits: number[]) => splits.map(axisCount),
    };
    return {
      width: element.clientWidth,
      height: element.clientHeight,
      padding: [12, two ? 0 : 12, 0, 0],
      legend: { show: false },
      cursor: {
        x: false,
        y: false,
        points: { show: false },
        drag: { x: true, y: false, setScale: false },
        dataIdx: (_, __, ___, time) => pointAt(time),
      },
      scales: {
        x: { time: false, range: () => [drawing.edges[0] ?? 0, drawing.edges.at(-1) ?? 1] },
        requests: { range: () => [0, scalesOf(drawing).requests] },
        attacks: { range: () => [0, scalesOf(drawing).attacks] },
      },
      series: [{}, ...drawOrder(drawing).map((one) => plotSeries(one, drawing.isStack))],
      axes: [
        {
          font,
          stroke: axisColour,
          size: rem * 2.2,
          gap: 4,
          grid: { show: false },
          ticks: { stroke: colour('line'), size: 5 },
          splits: (u, _, min, max) => timeTicks(min, max, drawing.offsetMs, u.width / (TICK_WIDTH_REM * rem)),
          values: (_, splits) => splits.map((tick) => tickLabel(tick, drawing.offsetMs)),
        },
        { ...counts, scale: hasRequests ? 'requests' : 'attacks', grid },
        ...(two
          ? [
              {
                ...counts,
                scale: 'attacks',
                side: 1 as const,
                stroke: colour('attack'),
                grid: { show: false },
              },
            ]
          : []),
      ],
      hooks: { setCursor: [point], setSelect: [select] },
    };
  }

  function pointAt(time: number): number {
    const { edges } = drawing;
    const after = edges.findIndex((edge) => edge > time);
    return Math.max(0, (after === -1 ? edges.length - 1 : after) - 1);
  }

  function point(u: uPlot): void {
    const { idx, left = -1 } = u.cursor;
    const off = idx === null || idx === undefined || left < 0;
    tooltip.hidden = off;
    band.hidden = off;
    if (off) return;
    const { edges, offsetMs } = drawing;
    const [from = 0, to = 0] = edges.slice(idx, idx + 2);
    const [start, end] = [u.valToPos(from, 'x'), u.valToPos(to, 'x')];
    band.style.left = `${start}px`;
    band.style.width = `${Math.max(1, end - start)}px`;
    fill(tooltip, h('strong', {}, formatRange(from, to, offsetMs)), ...tooltipRows(drawing, idx));
    const middle = (start + end) / 2;
    const width = u.over.clientWidth;
    const beside = middle < width / 2 ? middle + 14 : middle - 14 - tooltip.offsetWidth;
    tooltip.style.left = `${Math.max(0, Math.min(beside, width - tooltip.offsetWidth))}px`;
  }

  /** Zooms to whole points. */
  function select(u: uPlot): void {
    const { left, width } = u.select;
    if (width < 4) return;
    const { edges } = drawing;
    const from = edges[pointAt(u.posToVal(left, 'x'))];
    const to = edges[pointAt(u.posToVal(left + width, 'x')) + 1];
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (from !== undefined && to !== undefined && from < to) zoom(from, to);
  }

  return {
    element,
    draw,
    recolour: () => draw(drawing),
    canvas: () => element.querySelector('canvas'),
    isBusy: () => pressed,
    destroy() {
      removeEventListener('pointerup', released);
      observer.disconnect();
      plot?.destroy();
      plot = null;
    },
  };
}

/** Layers of a stack are drawn from top to bottom, each over the one above it. */
function drawOrder({ series, isStack }: Drawing): readonly DrawnSeries[] {
  return isStack ? series.toReversed() : series;
}

/** Stepped, because a count is constant within its point. */
function plotSeries({ name, colour: colourName }: DrawnSeries, isLayer: boolean): uPlot.Series {
  const paths = uPlot.paths.stepped?.({ align: 1 });
  return {
    scale: name === 'requests' ? 'requests' : 'attacks',
    ...(isLayer ? {} : { stroke: colour(colourName) }),
    fill: colour(isLayer ? colourName : `${colourName}-fill`),
    width: isLayer ? 0 : 1.25,
    points: { show: false },
    ...(paths ? { paths } : {}),
  };
}

/** More rows would not fit into a low chart. */
const TOOLTIP_ROWS_MAX = 6;

/** A stack shows the largest counts of the point, and their sum. */
function tooltipRows({ series, isStack }: Drawing, index: number): HTMLElement[] {
  const row = (title: string, count: number, colourName: string | null, className = 'key') => {
    const element = h('span', { class: className }, title, h('b', {}, formatCount(count)));
    if (colourName !== null) element.style.setProperty('--key', `var(--${colourName})`);
    return element;
  };
  const all = series.map((one) => ({ ...one, count: one.counts[index] ?? 0 }));
  if (!isStack) return all.map(({ title, count, colour, name }) => row(title, count, colour, `key ${name}`));
  const some = all.filter(({ count }) => count > 0).toSorted((a, b) => b.count - a.count);
  const [listed, rest] =
    some.length > TOOLTIP_ROWS_MAX
      ? [some.slice(0, TOOLTIP_ROWS_MAX - 1), some.slice(TOOLTIP_ROWS_MAX - 1)]
      : [some, []];
  const sum = (counted: readonly { count: number }[]) => total(counted.map(({ count }) => count));
  return [
    ...listed.map(({ title, count, colour, name }) => row(title, count, colour, `key ${name}`)),
    ...(rest.length > 0 ? [row(`${rest.length} more categories`, sum(rest), 'edge')] : []),
    ...(series.length === 1 ? [] : [row('All attacks', sum(all), null, 'key sum')]),
  ];
}

function summary({ series, isStack }: Drawing): string {
  const counts = series.map(({ title, counts }) => `${title} ${formatCount(total(counts))}`);
  const what = isStack ? 'Attacks by category' : 'Timeline';
  return `${what}: ${counts.join(', ') || 'none'}. Use the arrow keys to read the points, or open the table.`;
}

/** The ratio from which attacks would be invisible on the scale of the requests. */
const TWO_SCALES_FROM = 4;
/** On their own scale, attacks stay in the lower half, below the requests. */
const HEADROOM = 1.9;

function plotData(drawing: Drawing): uPlot.AlignedData {
  const { edges, isStack } = drawing;
  const heights = isStack ? stackHeights(drawing).toReversed() : drawing.series.map(({ counts }) => counts);
  // Repeats the last value, because its step ends at the last edge.
  return [edges, ...heights.map((counts) => [...counts, counts.at(-1) ?? 0])];
}

/** The upper boundary of each layer. */
function stackHeights({ series }: Drawing): (readonly number[])[] {
  const heights: (readonly number[])[] = [];
  for (const { counts } of series) {
    const below = heights.at(-1) ?? [];
    heights.push(counts.map((n, i) => n + (below[i] ?? 0)));
  }
  return heights;
}

/** Attacks get their own scale if they would be invisible beside the requests. */
function scalesOf(drawing: Drawing) {
  const most = (counts: readonly number[] = []) => counts.reduce((max, n) => Math.max(max, n), 0);
  const countsOf = (isRequests: boolean) =>
    drawing.series.find(({ name }) => (name === 'requests') === isRequests)?.counts;
  const requests = most(countsOf(true));
  const attacks = most(drawing.isStack ? stackHeights(drawing).at(-1) : countsOf(false));
  const two = requests > 0 && attacks > 0 && requests / attacks >= TWO_SCALES_FROM;
  const both = Math.max(requests, attacks, 1) * 1.08;
  return { two, requests: both, attacks: two ? Math.max(attacks * HEADROOM, 2) : both };
}

/** Counts are integers. */
const WHOLE_STEPS = Array.from({ length: 15 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();

function axisWidth(u: uPlot, values: string[] | null): number {
  const letter = Number.parseFloat(getComputedStyle(u.root).fontSize) * 0.5;
  return 18 + Math.max(2, ...(values ?? []).map((text) => text.length)) * letter;
}
