/** The hosts of the project with their statistics in the selected range. */

import type { HostFigures } from '../api.ts';
import type { App, Page } from '../app.ts';
import { fill, h, icon } from '../dom.ts';
import { formatCount, share } from '../format.ts';
import { controls } from '../parts/controls.ts';
import { dialog, field, submitForm } from '../parts/form.ts';
import { failureNotice, isAbort, message } from '../parts/states.ts';
import { type Cell, table } from '../parts/table.ts';
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
  const add = h(
    'button',
    { class: 'button primary', type: 'button', hidden: !mayChange },
    icon('plus'),
    'Add a host',
  );
  const list = h('div', { class: 'content', 'aria-busy': 'true' }, h('div', { class: 'skeleton block' }));
  const element = h(
    'div',
    { class: 'page' },
    h('div', { class: 'page-head' }, h('h1', {}, 'Hosts'), add),
    bar.element,
    h('div', { class: 'controls' }, h('div', { class: 'with-icon' }, icon('search'), search), order),
    list,
  );
  let aborter = new AbortController();

  search.addEventListener('input', () => app.go({ search: search.value, offset: 0 }, 'replace'));
  order.addEventListener('change', () => {
    const chosen = HOST_ORDERS.find((name) => name === order.value) ?? 'requests';
    app.go({ order: chosen, offset: 0 });
  });
  add.addEventListener('click', () =>
    nameForm('Add a host', 'Add', '', (name) => app.api.addHost(app.project.id, name)),
  );

  async function load(): Promise<void> {
    aborter.abort();
    aborter = new AbortController();
    const { signal } = aborter;
    const { selectedRange, order: by, search: wanted, offset } = app.view();
    const range = resolveRange(selectedRange, app.offsetMs(), app.now());
    try {
      const { items } = await app.api.figures(app.project.id, { ...range, signal });
      const found = items.filter(({ hostname }) => hostname.includes(wanted.trim().toLowerCase()));
      const shown = found.toSorted(COMPARE[by]).slice(offset, offset + ROWS_MAX);
      const ids = shown.map(({ id }) => id);
      const lines =
        ids.length === 0
          ? []
          : (await app.api.figures(app.project.id, { ...range, hosts: ids, points: LINE_POINTS, signal }))
              .items;
      draw(shown, new Map(lines.map((host) => [host.id, host])), found.length, items.length);
      list.setAttribute('aria-busy', 'false');
    } catch (failure) {
      if (isAbort(failure) || app.handleSignedOut(failure)) return;
      fill(
        list,
        failureNotice(failure, () => void load()),
      );
    }
  }

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
    const columns = [
      { title: 'Host' },
      { title: 'Requests', number: true },
      { title: 'Attacks', number: true },
      { title: 'Attack rate', number: true },
      { title: 'Trend' },
      { title: 'ID' },
      ...(mayChange ? [{ title: 'Actions', actions: true }] : []),
    ];
    // Restores the focus after a refresh.
    const focused = list.contains(document.activeElement)
      ? document.activeElement?.getAttribute('aria-label')
      : null;
    fill(
      list,
      table(
        'Hosts',
        columns,
        shown.map((host) => row(host, lines.get(host.id))),
      ),
      pager(found),
    );
    if (focused)
      [...list.querySelectorAll<HTMLElement>('[aria-label]')]
        .find((one) => one.getAttribute('aria-label') === focused)
        ?.focus();
  }

  function row({ id, hostname, requests, attacks }: HostFigures, line: HostFigures | undefined): Cell[] {
    const open = h(
      'button',
      { class: 'link cut', type: 'button', 'aria-label': `Dashboard of ${hostname}` },
      hostname,
    );
    open.addEventListener('click', () => app.go({ page: 'dashboard', hosts: [id] }));
    const rename = h(
      'button',
      { class: 'button quiet small', type: 'button', 'aria-label': `Rename ${hostname}` },
      icon('edit'),
      'Rename',
    );
    rename.addEventListener('click', () =>
      nameForm(`Rename ${hostname}`, 'Rename', hostname, (name) =>
        app.api.renameHost(app.project.id, id, name),
      ),
    );
    return [
      open,
      formatCount(total(requests)),
      h('span', { class: total(attacks) > 0 ? 'attack' : 'faint' }, formatCount(total(attacks))),
      share(total(attacks), total(requests)),
      line ? sparkline(line.requests, line.attacks) : '',
      h('code', { class: 'faint' }, id),
      ...(mayChange ? [rename] : []),
    ];
  }

  function pager(found: number): HTMLElement | null {
    const { offset } = app.view();
    if (found <= ROWS_MAX) return null;
    const step = (label: string, to: number, possible: boolean) =>
      h(
        'button',
        { class: 'button', type: 'button', disabled: !possible, on: { click: () => app.go({ offset: to }) } },
        label,
      );
    return h(
      'div',
      { class: 'pager' },
      step('Previous', Math.max(0, offset - ROWS_MAX), offset > 0),
      h(
        'span',
        { class: 'hint' },
        `${formatCount(offset + 1)} to ${formatCount(Math.min(found, offset + ROWS_MAX))} of ${formatCount(found)}`,
      ),
      step('Next', offset + ROWS_MAX, offset + ROWS_MAX < found),
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
    const form = submitForm(
      title,
      verb,
      [hostname.element],
      async () => {
        await act(hostname.input.value);
        close();
        void load();
        return '';
      },
      app.handleSignedOut,
    );
    const close = dialog(title, form);
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
      void load();
    },
    refresh() {
      if (endsNow(app.view().selectedRange) && document.querySelector('dialog') === null) void load();
    },
    leave: () => aborter.abort(),
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

const SVG = 'http://www.w3.org/2000/svg';
const WIDTH = 160;
const HEIGHT = 28;

/** Requests as a line, attacks as bars, each on its own scale. */
function sparkline(requests: readonly number[], attacks: readonly number[]): SVGSVGElement {
  const svg = element('svg', {
    class: 'sparkline',
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    'aria-hidden': 'true',
  }) as SVGSVGElement;
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.append(
    element('path', { class: 'attacks', d: bars(attacks, Math.max(...requests, 1)) }),
    element('path', { class: 'requests', d: line(requests) }),
  );
  return svg;
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

function element(name: string, attributes: Readonly<Record<string, string>>): SVGElement {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
