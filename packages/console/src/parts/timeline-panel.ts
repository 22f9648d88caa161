/** The timeline: chart, what it shows, table, CSV, PNG and curl. */
import { ATTACK_TYPES, type AttackType, type Point, type Timeline } from '@wafstat/client';
import type { App } from '../app.ts';
import { type AttackSeries, byAttacks, CATEGORY_NAMES, pointsOf, totalsOf } from '../categories.ts';
import { button, fill, h, icon, refill } from '../dom.ts';
import { attackTimelineCurl, csv, download, timelineCurl, timelinePng } from '../export.ts';
import { duration, formatCount, formatRange, formatTime } from '../format.ts';
import { countsBetween, drawnEdges, total } from '../points.ts';
import { onTheme, remPx } from '../theme.ts';
import type { TimeRange } from '../time-range.ts';
import { categoryFilter, SERIES, SERIES_TITLES, type SeriesName, type View } from '../view.ts';
import { command } from './copy.ts';
import { panel } from './panel.ts';
import { numbers, table } from './table.ts';
import { type DrawnSeries, timelineChart } from './timeline-chart.ts';

/** Narrower steps cannot be told apart. */
const POINT_WIDTH_REM = 0.27;

export interface TimelineData extends Timeline {
  /** Null: the view does not need them. */
  categories: readonly AttackSeries[] | null;
}

export interface TimelinePanel {
  element: HTMLElement;
  show(data: TimelineData, range: TimeRange): void;
  isBusy(): boolean;
  leave(): void;
}

interface Shown {
  data: TimelineData;
  range: TimeRange;
  edges: number[];
  /** All series of the view, with those that are hidden. */
  series: DrawnSeries[];
}

export function timelinePanel(app: App): TimelinePanel {
  const { element, extras, body, addAction, addDrawer } = panel('Timeline', 'timeline');
  const chart = timelineChart((from, to) => app.go({ selectedRange: { from, to } }));
  const empty = h('p', { class: 'empty-chart hint', hidden: true });
  const legend = h('div', { class: 'legend', role: 'group', 'aria-label': 'Categories', hidden: true });
  const curl = command('API call');
  const rows = h('div', {});
  let shown: Shown | null = null;
  body.append(h('div', { class: 'chart-box' }, chart.element, empty), legend);

  const modes = [
    { byCategory: false, title: 'Requests and attacks' },
    { byCategory: true, title: 'By category' },
  ].map(({ byCategory, title }) => {
    const choose = () => app.go({ byCategory }, 'replace');
    const isOn = String(app.view().byCategory === byCategory);
    return { byCategory, element: button({ class: null, 'aria-pressed': isOn }, choose, title) };
  });
  const modeSwitch = h(
    'div',
    { class: 'segments compact', role: 'group', 'aria-label': 'Show' },
    ...modes.map((mode) => mode.element),
  );
  const chip = button({ class: 'chip', hidden: true }, () => {
    // The chip disappears, and the focus would be lost.
    modes.find(({ byCategory }) => byCategory === app.view().byCategory)?.element.focus();
    app.go({ category: null });
  });
  const switches = SERIES.map((name) => {
    const count = h('b', {});
    const toggle = () => {
      const { hidden } = app.view();
      app.go({ hidden: SERIES.filter((other) => (other === name) !== hidden.includes(other)) }, 'replace');
    };
    const props = { class: `key ${name}`, title: 'Show or hide' };
    return { name, element: button(props, toggle, SERIES_TITLES[name], count), count };
  });
  const sum = h('span', { class: 'sum', hidden: true });
  const step = h('span', { class: 'hint step' });
  extras.append(modeSwitch, chip, ...switches.map((one) => one.element), sum, step);

  const drawer = addDrawer('table', 'Table', rows, fillTable);
  addAction('download', 'CSV', () => {
    if (shown) download('timeline.csv', timelineCsv(columnsOf(app.view(), shown.data), shown.range.from));
  });
  addAction('download', 'PNG', () => {
    const canvas = chart.canvas();
    if (!canvas || !shown) return;
    const [from, to] = [shown.range.from, shown.range.to].map((time) => formatTime(time, app.offsetMs()));
    const caption = `${from} – ${to}, UTC${app.timezone()}`;
    const entries = drawn(shown.series).map((one) => ({ ...one, count: total(one.counts) }));
    download('timeline.png', timelinePng(canvas, app.project.name, caption, entries));
  });
  addDrawer('code', 'curl', curl.element);

  /** It can have a thousand rows, so it is filled only while it is open. */
  function fillTable(): void {
    if (shown === null) return;
    const { edges, series } = shown;
    const cells = edges
      .slice(1)
      .map((end, i) => [
        formatRange(edges[i] ?? 0, end, app.offsetMs()),
        ...series.map(({ counts }) => formatCount(counts[i] ?? 0)),
      ]);
    const titles = series.map(({ title }) => title);
    refill(rows, table('Timeline as a table', ['Time', ...numbers(...titles)], cells));
  }

  /** A stack has no switches for its series. */
  function drawn(series: readonly DrawnSeries[]): readonly DrawnSeries[] {
    const { byCategory, hidden } = app.view();
    return byCategory ? series : series.filter(({ name }) => !hidden.includes(switchOf(name)));
  }

  function draw({ edges, series, data }: Shown): void {
    const { byCategory, category } = app.view();
    chart.draw({ edges, series: drawn(series), isStack: byCategory, offsetMs: app.offsetMs() });
    for (const mode of modes) mode.element.ariaPressed = String(mode.byCategory === byCategory);
    const name = category && CATEGORY_NAMES[category];
    chip.hidden = name === null;
    chip.ariaLabel = `Category: ${name}. Remove the filter`;
    fill(chip, `Category: ${name}`, icon('close'));
    empty.hidden = !byCategory || series.some(({ counts }) => total(counts) > 0);
    empty.textContent = name === null ? 'No attacks in this range' : `No attacks in this range: ${name}`;
    showSwitches(series);
    showLegend(data);
    step.textContent = `per ${stepName(edges)}`;
    if (drawer.isOpen()) fillTable();
  }

  function showSwitches(series: readonly DrawnSeries[]): void {
    const { byCategory, hidden } = app.view();
    for (const { name, element, count } of switches) {
      const one = series.find((other) => switchOf(other.name) === name);
      element.hidden = byCategory;
      element.ariaPressed = String(!hidden.includes(name));
      count.textContent = formatCount(total(one?.counts ?? []));
    }
  }

  /** Lists the categories that have attacks. Each filters. */
  function showLegend({ categories }: TimelineData): void {
    const { byCategory, category } = app.view();
    legend.hidden = sum.hidden = !byCategory || categories === null;
    if (legend.hidden || categories === null) return;
    const counts = totalsOf(categories);
    const all = formatCount(total(Object.values(counts)));
    const chosen = category && h('b', {}, formatCount(counts[category]));
    fill(sum, 'Attacks ', chosen, chosen && ' of ', chosen ? all : h('b', {}, all));
    const entries = byAttacks(counts).filter((name) => counts[name] > 0);
    legend.classList.toggle('filtered', category !== null);
    refill(legend, ...entries.map((name) => legendEntry(name, counts[name], name === category)));
  }

  function legendEntry(name: AttackType, count: number, isChosen: boolean): HTMLElement {
    const props = {
      class: 'key',
      title: isChosen ? 'Show all categories' : 'Show only this category',
      'aria-pressed': String(isChosen),
      'data-focus': name,
    };
    const filter = () => app.go(categoryFilter(app.view(), name));
    const entry = button(props, filter, CATEGORY_NAMES[name], h('b', {}, formatCount(count)));
    entry.style.setProperty('--key', `var(--category-${name})`);
    return entry;
  }

  const stopTheme = onTheme(() => chart.recolour());
  return {
    element,
    show(data, range) {
      const view = app.view();
      const pointsMax = Math.max(40, chart.element.clientWidth / (POINT_WIDTH_REM * remPx()));
      const ends = data.requests.map(({ time }) => time);
      const edges = drawnEdges(ends, range.from, app.offsetMs(), pointsMax);
      shown = { data, range, edges, series: seriesOf(view, data, edges) };
      const query = { ...range, origin: location.origin, project: app.project.id, hosts: view.hosts };
      const commands = [
        ...(view.byCategory ? [] : [timelineCurl(query, app.timezone())]),
        ...(data.categories === null ? [] : [attackTimelineCurl(query, app.timezone())]),
      ];
      curl.set(commands.join('\n'));
      draw(shown);
    },
    isBusy: () => chart.isBusy(),
    leave() {
      stopTheme();
      chart.destroy();
    },
  };
}

/** The attacks of a category are switched like all attacks. */
function switchOf(name: DrawnSeries['name']): SeriesName {
  return name === 'requests' ? 'requests' : 'attacks';
}

interface Column {
  name: SeriesName | AttackType;
  points: readonly Point[];
}

/** What the view shows. */
function columnsOf({ byCategory, category }: View, data: TimelineData): Column[] {
  const ofCategory = (name: AttackType) => ({ name, points: pointsOf(data.categories ?? [], name) });
  const chosen = category === null ? [] : [ofCategory(category)];
  if (byCategory) return category === null ? ATTACK_TYPES.map(ofCategory) : chosen;
  const requests = { name: 'requests' as const, points: data.requests };
  return [requests, ...(category === null ? [{ name: 'attacks' as const, points: data.attacks }] : chosen)];
}

/** A stack has the largest category at the bottom, and none that is empty. */
function seriesOf(view: View, data: TimelineData, edges: number[]): DrawnSeries[] {
  const series = columnsOf(view, data).map(({ name, points }) => ({
    name,
    title: name in SERIES_TITLES ? SERIES_TITLES[name as SeriesName] : CATEGORY_NAMES[name as AttackType],
    counts: countsBetween(edges, points),
    colour: view.byCategory ? `category-${name}` : name === 'requests' ? 'accent' : 'attack',
  }));
  if (!view.byCategory) return series;
  return series
    .filter(({ counts }) => total(counts) > 0)
    .toSorted((a, b) => total(b.counts) - total(a.counts));
}

/** The length of a point; the first and the last may be shorter. */
function stepName(edges: readonly number[]): string {
  const stepMs = Math.max(0, ...edges.slice(1).map((edge, i) => edge - (edges[i] ?? edge)));
  return duration(stepMs);
}

/** Every point of the API, not merged. */
function timelineCsv(columns: readonly Column[], from: number): string {
  const ends = columns[0]?.points.map(({ time }) => time) ?? [];
  const rows = ends.map((end, i) => [
    new Date(ends[i - 1] ?? from).toISOString(),
    new Date(end).toISOString(),
    ...columns.map(({ points }) => points[i]?.num ?? 0),
  ]);
  return csv([['from', 'to', ...columns.map(({ name }) => name)], ...rows]);
}
