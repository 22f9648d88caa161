/** Draws the timeline. Attacks get their own scale if they would be invisible beside the requests. */
import uPlot from 'uplot';
import { fill, h } from '../dom.ts';
import { axisCount, formatCount, formatRange } from '../format.ts';
import { type Points, tickLabel, timeTicks, total } from '../points.ts';
import { colour, remPx } from '../theme.ts';
import { SERIES, SERIES_TITLES, type SeriesName } from '../view.ts';

export interface Drawing {
  points: Points;
  hidden: readonly SeriesName[];
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
  let drawing: Drawing = { points: { edges: [], requests: [], attacks: [] }, hidden: [], offsetMs: 0 };
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
    const last = drawing.points.requests.length - 1;
    const at = plot.cursor.idx ?? (step > 0 ? -1 : last + 1);
    const next = Math.min(last, Math.max(0, at + step));
    const { edges } = drawing.points;
    const middle = ((edges[next] ?? 0) + (edges[next + 1] ?? 0)) / 2;
    plot.setCursor({ left: plot.valToPos(middle, 'x'), top: 20 });
  });
  element.addEventListener('blur', () => plot?.setCursor({ left: -10, top: -10 }));

  function draw(next: Drawing): void {
    drawing = next;
    const data = plotData(next.points);
    const wanted = JSON.stringify([scalesOf(next).two, next.hidden, colour('attack')]);
    element.setAttribute('aria-label', summary(next.points));
    if (plot !== null && built === wanted) {
      plot.setData(data);
      return;
    }
    plot?.destroy();
    built = wanted;
    plot = new uPlot(options(), data, element);
    plot.over.append(band, tooltip);
  }

  function options(): uPlot.Options {
    const axisColour = colour('muted');
    const grid = { stroke: colour('line'), width: 1 };
    const rem = remPx();
    const font = `${rem * 0.86}px system-ui, sans-serif`;
    const { two } = scalesOf(drawing);
    const shown = (name: SeriesName) => !drawing.hidden.includes(name);
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
        x: { time: false, range: () => [drawing.points.edges[0] ?? 0, drawing.points.edges.at(-1) ?? 1] },
        requests: { range: () => [0, scalesOf(drawing).requests] },
        attacks: { range: () => [0, scalesOf(drawing).attacks] },
      },
      series: [
        {},
        series('requests', colour('accent'), colour('accent-fill'), shown('requests')),
        series('attacks', colour('attack'), colour('attack-fill'), shown('attacks')),
      ],
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
        { ...counts, scale: shown('requests') ? 'requests' : 'attacks', grid },
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
    const { edges } = drawing.points;
    const after = edges.findIndex((edge) => edge > time);
    return Math.max(0, (after === -1 ? edges.length - 1 : after) - 1);
  }

  function point(u: uPlot): void {
    const { idx, left = -1 } = u.cursor;
    const off = idx === null || idx === undefined || left < 0;
    tooltip.hidden = off;
    band.hidden = off;
    if (off) return;
    const { points, hidden, offsetMs } = drawing;
    const [from = 0, to = 0] = points.edges.slice(idx, idx + 2);
    const start = u.valToPos(from, 'x');
    band.style.left = `${start}px`;
    band.style.width = `${Math.max(1, u.valToPos(to, 'x') - start)}px`;
    fill(
      tooltip,
      h('strong', {}, formatRange(from, to, offsetMs)),
      ...SERIES.filter((name) => !hidden.includes(name)).map((name) => {
        const count = h('b', {}, formatCount(points[name][idx] ?? 0));
        return h('span', { class: `key ${name}` }, SERIES_TITLES[name], count);
      }),
    );
    const width = u.over.clientWidth;
    const middle = start + (u.valToPos(to, 'x') - start) / 2;
    const right = middle < width / 2;
    tooltip.style.left = right ? `${middle + 14}px` : 'auto';
    tooltip.style.right = right ? 'auto' : `${width - middle + 14}px`;
  }

  /** Zooms to whole points. */
  function select(u: uPlot): void {
    const { left, width } = u.select;
    if (width < 4) return;
    const { edges } = drawing.points;
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

/** Stepped, because a count is constant within its point. */
function series(scale: string, stroke: string, fillColour: string, show: boolean): uPlot.Series {
  const paths = uPlot.paths.stepped?.({ align: 1 });
  return {
    scale,
    stroke,
    fill: fillColour,
    width: 1.25,
    points: { show: false },
    show,
    ...(paths ? { paths } : {}),
  };
}

function summary({ requests, attacks }: Points): string {
  const [requestCount, attackCount] = [requests, attacks].map((counts) => formatCount(total(counts)));
  return `Timeline: ${requestCount} requests, ${attackCount} attacks. Use the arrow keys to read the points, or open the table.`;
}

/** The ratio from which attacks would be invisible on the scale of the requests. */
const TWO_SCALES_FROM = 4;
/** On their own scale, attacks stay in the lower half, below the requests. */
const HEADROOM = 1.9;

/** Repeats the last value, because its step ends at the last edge. */
function plotData({ edges, requests, attacks }: Points): uPlot.AlignedData {
  return [edges, [...requests, requests.at(-1) ?? 0], [...attacks, attacks.at(-1) ?? 0]];
}

function scalesOf({ points, hidden }: Drawing) {
  const most = (counts: readonly number[]) => counts.reduce((max, n) => Math.max(max, n), 0);
  const requests = hidden.includes('requests') ? 0 : most(points.requests);
  const attacks = hidden.includes('attacks') ? 0 : most(points.attacks);
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
