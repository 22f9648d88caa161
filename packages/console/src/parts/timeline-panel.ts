/** The timeline: chart, series switches, table, CSV, PNG and curl. */
import type { Timeline } from '@wafstat/client';
import type { App } from '../app.ts';
import { fill, h } from '../dom.ts';
import { csv, download, timelineCurl, timelinePng } from '../export.ts';
import { duration, formatCount, formatRange, formatTime } from '../format.ts';
import { drawnPoints, type Points, total } from '../points.ts';
import { onTheme } from '../theme.ts';
import type { TimeRange } from '../time-range.ts';
import { SERIES, type SeriesName } from '../view.ts';
import { command } from './copy.ts';
import { panel } from './panel.ts';
import { table } from './table.ts';
import { timelineChart } from './timeline-chart.ts';

const NAMES: Readonly<Record<SeriesName, string>> = { requests: 'Requests', attacks: 'Attacks' };
/** Narrower steps cannot be told apart. */
const POINT_WIDTH_REM = 0.27;

export interface TimelinePanel {
  element: HTMLElement;
  show(timeline: Timeline, range: TimeRange): void;
  isBusy(): boolean;
  leave(): void;
}

export function timelinePanel(app: App): TimelinePanel {
  const { element, extras, body, addAction, addDrawer } = panel('Timeline', 'timeline');
  const chart = timelineChart((from, to) => app.go({ selectedRange: { from, to } }));
  const curl = command('API call');
  const rows = h('div', {});
  let shown: { timeline: Timeline; range: TimeRange; points: Points } | null = null;
  body.append(chart.element);

  const switches = SERIES.map((name) => {
    const count = h('b', {});
    const button = h(
      'button',
      { class: `key ${name}`, type: 'button', title: 'Show or hide' },
      NAMES[name],
      count,
    );
    button.addEventListener('click', () => {
      const { hidden } = app.view();
      const others = SERIES.filter((other) => (other === name) !== hidden.includes(other));
      app.go({ hidden: others }, 'replace');
    });
    extras.append(button);
    return { name, button, count };
  });

  const step = h('span', { class: 'hint step' });
  extras.append(step);

  const drawer = addDrawer('table', 'Table', rows, fillTable);
  addAction('download', 'CSV', () => {
    if (shown) download('timeline.csv', timelineCsv(shown.timeline, shown.range.from));
  });
  addAction('download', 'PNG', () => {
    const canvas = chart.canvas();
    if (!canvas || !shown) return;
    const { range } = shown;
    const offsetMs = app.offsetMs();
    const caption = `${formatTime(range.from, offsetMs)} – ${formatTime(range.to, offsetMs)}, UTC${app.timezone()}`;
    download('timeline.png', timelinePng(canvas, app.project.name, caption, shown.points));
  });
  addDrawer('code', 'curl', curl.element);

  /** It can have a thousand rows, so it is filled only while it is open. */
  function fillTable(): void {
    if (shown === null) return;
    const { edges, requests, attacks } = shown.points;
    const columns = [
      { title: 'Time' },
      { title: 'Requests', number: true },
      { title: 'Attacks', number: true },
    ];
    const cells = requests.map((n, i) => [
      formatRange(edges[i] ?? 0, edges[i + 1] ?? 0, app.offsetMs()),
      formatCount(n),
      formatCount(attacks[i] ?? 0),
    ]);
    fill(rows, table('Timeline as a table', columns, cells));
  }

  function draw(): void {
    if (shown === null) return;
    const { hidden } = app.view();
    chart.draw({ points: shown.points, hidden, offsetMs: app.offsetMs() });
    for (const { name, button, count } of switches) {
      button.setAttribute('aria-pressed', String(!hidden.includes(name)));
      count.textContent = formatCount(total(shown.points[name]));
    }
    step.textContent = `per ${stepName(shown.points)}`;
    if (drawer.isOpen()) fillTable();
  }

  const stopTheme = onTheme(() => chart.recolour());
  return {
    element,
    show(timeline, range) {
      const rem = Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
      const pointsMax = Math.max(40, chart.element.clientWidth / (POINT_WIDTH_REM * rem));
      shown = { timeline, range, points: drawnPoints(timeline, range.from, app.offsetMs(), pointsMax) };
      const { hosts } = app.view();
      curl.set(
        timelineCurl({ ...range, origin: location.origin, project: app.project.id, hosts }, app.timezone()),
      );
      draw();
    },
    isBusy: () => chart.isBusy(),
    leave() {
      stopTheme();
      chart.destroy();
    },
  };
}

/** The length of a point; the first and the last may be shorter. */
function stepName({ edges }: Points): string {
  const stepMs = Math.max(0, ...edges.slice(1).map((edge, i) => edge - (edges[i] ?? edge)));
  return duration(stepMs);
}

/** Every point of the API, not merged. */
export function timelineCsv({ requests, attacks }: Timeline, from: number): string {
  const rows = requests.map(({ time, num }, i) => [
    new Date(requests[i - 1]?.time ?? from).toISOString(),
    new Date(time).toISOString(),
    num,
    attacks[i]?.num ?? 0,
  ]);
  return csv([['from', 'to', 'requests', 'attacks'], ...rows]);
}
