/** The timeline: chart, series switches, table, CSV, PNG and curl. */
import type { Timeline } from '@wafstat/client';
import type { App } from '../app.ts';
import { button, fill, h } from '../dom.ts';
import { csv, download, timelineCurl, timelinePng } from '../export.ts';
import { duration, formatCount, formatRange, formatTime } from '../format.ts';
import { drawnPoints, type Points, total } from '../points.ts';
import { onTheme, remPx } from '../theme.ts';
import type { TimeRange } from '../time-range.ts';
import { SERIES, SERIES_TITLES } from '../view.ts';
import { command } from './copy.ts';
import { panel } from './panel.ts';
import { numbers, table } from './table.ts';
import { timelineChart } from './timeline-chart.ts';

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
    const toggle = () => {
      const { hidden } = app.view();
      app.go({ hidden: SERIES.filter((other) => (other === name) !== hidden.includes(other)) }, 'replace');
    };
    const props = { class: `key ${name}`, title: 'Show or hide' };
    const element = button(props, toggle, SERIES_TITLES[name], count);
    extras.append(element);
    return { name, element, count };
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
    const [from, to] = [shown.range.from, shown.range.to].map((time) => formatTime(time, app.offsetMs()));
    const caption = `${from} – ${to}, UTC${app.timezone()}`;
    download('timeline.png', timelinePng(canvas, app.project.name, caption, shown.points));
  });
  addDrawer('code', 'curl', curl.element);

  /** It can have a thousand rows, so it is filled only while it is open. */
  function fillTable(): void {
    if (shown === null) return;
    const { edges, requests, attacks } = shown.points;
    const cells = requests.map((n, i) => [
      formatRange(edges[i] ?? 0, edges[i + 1] ?? 0, app.offsetMs()),
      formatCount(n),
      formatCount(attacks[i] ?? 0),
    ]);
    fill(rows, table('Timeline as a table', ['Time', ...numbers('Requests', 'Attacks')], cells));
  }

  function draw(): void {
    if (shown === null) return;
    const { hidden } = app.view();
    chart.draw({ points: shown.points, hidden, offsetMs: app.offsetMs() });
    for (const { name, element, count } of switches) {
      element.setAttribute('aria-pressed', String(!hidden.includes(name)));
      count.textContent = formatCount(total(shown.points[name]));
    }
    step.textContent = `per ${stepName(shown.points)}`;
    if (drawer.isOpen()) fillTable();
  }

  const stopTheme = onTheme(() => chart.recolour());
  return {
    element,
    show(timeline, range) {
      const pointsMax = Math.max(40, chart.element.clientWidth / (POINT_WIDTH_REM * remPx()));
      shown = { timeline, range, points: drawnPoints(timeline, range.from, app.offsetMs(), pointsMax) };
      const { hosts } = app.view();
      const query = { ...range, origin: location.origin, project: app.project.id, hosts };
      curl.set(timelineCurl(query, app.timezone()));
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
function timelineCsv({ requests, attacks }: Timeline, from: number): string {
  const rows = requests.map(({ time, num }, i) => [
    new Date(requests[i - 1]?.time ?? from).toISOString(),
    new Date(time).toISOString(),
    num,
    attacks[i]?.num ?? 0,
  ]);
  return csv([['from', 'to', 'requests', 'attacks'], ...rows]);
}
