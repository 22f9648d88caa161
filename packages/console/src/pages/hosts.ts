/** The hosts of the project with their statistics in the selected range. */

import type { HostFigures } from '../api.ts';
import type { App, Page } from '../app.ts';
import { button, fill, h, icon, refill, svg } from '../dom.ts';
import { formatCount, share } from '../format.ts';
import { controls } from '../parts/controls.ts';
import { field, formDialog } from '../parts/form.ts';
import { pageHead } from '../parts/shell.ts';
import { loader, message } from '../parts/states.ts';
import { actions, type Cell, numbers, table } from '../parts/table.ts';
import { total } from '../points.ts';
import { endsNow, resolveRange } from '../time-range.ts';
import { HOST_ORDERS, type HostOrder } from '../view.ts';

const ROWS_MAX = 25;
const LINE_POINTS = 60;

export function hostsPage(app: App): Page {
  const bar = controls(app, false);
  const search = h('input', {
    type: 'search',
    placeholder: 'Find a host',
    'aria-label': 'Find a host',
    spellcheck: 'false',
  });
  const order = h(
    'select',
    { 'aria-label': 'Order' },
    ...HOST_ORDERS.map((name) => h('option', { value: name }, ORDER_NAMES[name])),
  );
  const mayChange = app.project.roles.includes('admin');
  const addHost = () => nameForm('Add a host', 'Add', '', (name) => app.api.addHost(app.project.id, name));
  const add = button({ class: 'button primary', hidden: !mayChange }, addHost, icon('plus'), 'Add a host');
  const list = h('div', { class: 'content', 'aria-busy': 'true' }, h('div', { class: 'skeleton block' }));
  const element = h(
    'div',
    { class: 'page' },
    pageHead('h1', 'Hosts', add),
    bar.element,
    h('div', { class: 'controls' }, h('div', { class: 'with-icon' }, icon('search'), search), order),
    list,
  );

  search.addEventListener('input', () => app.go({ search: search.value, offset: 0 }, 'replace'));
  order.addEventListener('change', () => {
    const chosen = HOST_ORDERS.find((name) => name === order.value) ?? 'requests';
    app.go({ order: chosen, offset: 0 });
  });

  async function read(signal: AbortSignal): Promise<void> {
    const { selectedRange, order: by, search: wanted, offset } = app.view();
    const range = resolveRange(selectedRange, app.offsetMs(), app.now());
    const { items } = await app.api.figures(app.project.id, { ...range, signal });
    const found = items.filter(({ hostname }) => hostname.includes(wanted.trim().toLowerCase()));
    const shown = found.toSorted(COMPARE[by]).slice(offset, offset + ROWS_MAX);
    const query = { ...range, hosts: shown.map(({ id }) => id), points: LINE_POINTS, signal };
    const lines = shown.length === 0 ? [] : (await app.api.figures(app.project.id, query)).items;
    draw(shown, new Map(lines.map((host) => [host.id, host])), found.length, items.length);
    list.setAttribute('aria-busy', 'false');
  }
  const { load, abort } = loader(app, read, list);

  function draw(
    shown: readonly HostFigures[],
    lines: ReadonlyMap<string, HostFigures>,
    found: number,
    all: number,
  ): void {
    if (shown.length === 0) {
      fill(
        list,
        all === 0
          ? message(
              'No hosts yet',
              'A host is registered when the first log line names it, or when you add it.',
            )
          : message('No matching host', `None of the ${formatCount(all)} hosts matches the search.`),
      );
      return;
    }
    const counts = numbers('Requests', 'Attacks', 'Attack rate');
    const columns = ['Host', ...counts, 'Trend', 'ID', ...(mayChange ? [actions()] : [])];
    const rows = shown.map((host) => row(host, lines.get(host.id)));
    refill(list, table('Hosts', columns, rows), pager(found));
  }

  function row({ id, hostname, requests, attacks }: HostFigures, line: HostFigures | undefined): Cell[] {
    const open = () => app.go({ page: 'dashboard', hosts: [id] });
    const link = { class: 'link cut', 'aria-label': `Dashboard of ${hostname}`, 'data-focus': `open ${id}` };
    const name = `Rename ${hostname}`;
    const rename = () =>
      nameForm(name, 'Rename', hostname, (next) => app.api.renameHost(app.project.id, id, next));
    const quiet = { class: 'button quiet small', 'aria-label': name, 'data-focus': `rename ${id}` };
    return [
      button(link, open, hostname),
      formatCount(total(requests)),
      h('span', { class: total(attacks) > 0 ? 'attack' : 'faint' }, formatCount(total(attacks))),
      share(total(attacks), total(requests)),
      line ? sparkline(line.requests, line.attacks) : '',
      h('code', { class: 'faint' }, id),
      ...(mayChange ? [button(quiet, rename, icon('edit'), 'Rename')] : []),
    ];
  }

  function pager(found: number): HTMLElement | null {
    const { offset } = app.view();
    if (found <= ROWS_MAX) return null;
    const end = offset + ROWS_MAX;
    const step = (label: string, to: number, possible: boolean) =>
      button({ disabled: !possible, 'data-focus': label }, () => app.go({ offset: to }), label);
    const [first, last, all] = [offset + 1, Math.min(found, end), found].map(formatCount);
    return h(
      'div',
      { class: 'pager' },
      step('Previous', Math.max(0, offset - ROWS_MAX), offset > 0),
      h('span', { class: 'hint' }, `${first} to ${last} of ${all}`),
      step('Next', end, end < found),
    );
  }

  function nameForm(title: string, verb: string, name: string, act: (name: string) => Promise<void>): void {
    const hint =
      name === ''
        ? undefined
        : 'The host keeps its ID and counts. Log lines with the old name will count for a new host.';
    const hostname = field(
      'Host name',
      { value: name, required: true, spellcheck: 'false', autocapitalize: 'none' },
      hint,
    );
    formDialog(app, title, verb, [hostname.element], () => act(hostname.input.value), load);
    hostname.input.select();
  }

  return {
    element,
    title: 'Hosts',
    show() {
      bar.show();
      const view = app.view();
      if (document.activeElement !== search) search.value = view.search;
      order.value = view.order;
      load();
    },
    refresh() {
      if (endsNow(app.view().selectedRange) && document.querySelector('dialog') === null) load();
    },
    leave: abort,
  };
}

const ORDER_NAMES: Readonly<Record<HostOrder, string>> = {
  requests: 'Most requests',
  attacks: 'Most attacks',
  share: 'Highest attack rate',
  name: 'Name',
};

type Compare = (a: HostFigures, b: HostFigures) => number;

const byName: Compare = (a, b) => (a.hostname < b.hostname ? -1 : 1);
const shareOf = ({ requests, attacks }: HostFigures) => total(attacks) / Math.max(1, total(requests));

export const COMPARE: Readonly<Record<HostOrder, Compare>> = {
  requests: (a, b) => total(b.requests) - total(a.requests) || byName(a, b),
  attacks: (a, b) => total(b.attacks) - total(a.attacks) || byName(a, b),
  share: (a, b) => shareOf(b) - shareOf(a) || byName(a, b),
  name: byName,
};

const WIDTH = 160;
const HEIGHT = 28;

/** Requests as a line, attacks as bars, each on its own scale. */
function sparkline(requests: readonly number[], attacks: readonly number[]): SVGSVGElement {
  const viewBox = `0 0 ${WIDTH} ${HEIGHT}`;
  return svg(
    'svg',
    { class: 'sparkline', viewBox, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    svg('path', { class: 'attacks', d: bars(attacks, Math.max(...requests, 1)) }),
    svg('path', { class: 'requests', d: line(requests) }),
  );
}

function line(counts: readonly number[]): string {
  const most = Math.max(...counts, 1);
  const step = WIDTH / Math.max(1, counts.length - 1);
  return counts.map((n, i) => `${i === 0 ? 'M' : 'L'}${round(i * step)} ${round(height(n, most))}`).join('');
}

/** On the scale of the requests, or on their own where they would be invisible. */
function bars(counts: readonly number[], requestsMax: number): string {
  const most = Math.max(...counts, 1);
  const scale = Math.max(most * 1.6, requestsMax / 8);
  const step = WIDTH / Math.max(1, counts.length);
  return counts
    .map((n, i) =>
      n === 0
        ? ''
        : `M${round(i * step)} ${HEIGHT}V${round(height(n, scale))}h${round(step * 0.8)}V${HEIGHT}z`,
    )
    .join('');
}

function height(n: number, most: number): number {
  return HEIGHT - 1 - (n / most) * (HEIGHT - 3);
}

function round(n: number): number {
  return Math.round(n * 100) / 100;
}
