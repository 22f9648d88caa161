/** The timeline with all that belongs to it: switches of the series, table, CSV, picture, and the call of the API. */
import type { Timeline } from '@wafstat/client';
import { SERIES, type SeriesName } from '../address.ts';
import type { App } from '../app.ts';
import { csv } from '../csv.ts';
import { timelineCurl } from '../curl.ts';
import { fill, h } from '../dom.ts';
import { duration, exact, moment, stretch } from '../format.ts';
import { drawnPoints, type Points, total } from '../points.ts';
import { onTheme } from '../theme.ts';
import type { Range } from '../time-span.ts';
import { command } from './copy.ts';
import { download } from './download.ts';
import { panel } from './panel.ts';
import { picture } from './picture.ts';
import { table } from './table.ts';
import { timelineChart } from './timeline-chart.ts';

const NAMES: Readonly<Record<SeriesName, string>> = { requests: 'Requests', attacks: 'Attacks' };
/** A step narrower than this is not seen as one. */
const POINT_WIDTH_REM = 0.27;

export interface TimelinePanel {
  element: HTMLElement;
  show(timeline: Timeline, range: Range): void;
  isBusy(): boolean;
  leave(): void;
}

export function timelinePanel(app: App): TimelinePanel {
  const { element, extras, body, addAction, addDrawer } = panel('Timeline', 'timeline');
  const chart = timelineChart((from, to) => app.go({ span: { from, to } }));
  const curl = command('The same question as a call of the API');
  const rows = h('div', {});
  let shown: { timeline: Timeline; range: Range; points: Points } | null = null;
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
      app.go({ hidden: others }, 'refine');
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
    const caption = `${moment(range.from, offsetMs)} – ${moment(range.to, offsetMs)}, UTC${app.timezone()}`;
    download('timeline.png', picture(canvas, app.project.name, caption, shown.points));
  });
  addDrawer('code', 'curl', curl.element);

  /** The whole of it can be a thousand rows, so only when someone looks. */
  function fillTable(): void {
    if (shown === null) return;
    const { edges, requests, attacks } = shown.points;
    const columns = [
      { title: 'Time' },
      { title: 'Requests', number: true },
      { title: 'Attacks', number: true },
    ];
    const cells = requests.map((n, i) => [
      stretch(edges[i] ?? 0, edges[i + 1] ?? 0, app.offsetMs()),
      exact(n),
      exact(attacks[i] ?? 0),
    ]);
    fill(rows, table('Timeline as a table', columns, cells));
  }

  function draw(): void {
    if (shown === null) return;
    const { hidden } = app.view();
    chart.draw({ points: shown.points, hidden, offsetMs: app.offsetMs() });
    for (const { name, button, count } of switches) {
      button.setAttribute('aria-pressed', String(!hidden.includes(name)));
      count.textContent = exact(total(shown.points[name]));
    }
    step.textContent = `per ${stepName(shown.points)}`;
    if (drawer.isOpen()) fillTable();
  }

  const forget = onTheme(() => chart.recolour());
  return {
    element,
    show(timeline, range) {
      const rem = Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
      const points_max = Math.max(40, chart.element.clientWidth / (POINT_WIDTH_REM * rem));
      shown = { timeline, range, points: drawnPoints(timeline, range.from, app.offsetMs(), points_max) };
      const { hosts } = app.view();
      curl.set(
        timelineCurl({ ...range, origin: location.origin, project: app.project.id, hosts }, app.timezone()),
      );
      draw();
    },
    isBusy: () => chart.isBusy(),
    leave() {
      forget();
      chart.destroy();
    },
  };
}

/** How long the points are, but for those that the ends of the range cut. */
function stepName({ edges }: Points): string {
  const step_ms = Math.max(0, ...edges.slice(1).map((edge, i) => edge - (edges[i] ?? edge)));
  return duration(step_ms);
}

/** Every point as the API gives it. */
export function timelineCsv({ requests, attacks }: Timeline, from: number): string {
  const rows = requests.map(({ time, num }, i) => [
    new Date(requests[i - 1]?.time ?? from).toISOString(),
    new Date(time).toISOString(),
    num,
    attacks[i]?.num ?? 0,
  ]);
  return csv([['from', 'to', 'requests', 'attacks'], ...rows]);
}
