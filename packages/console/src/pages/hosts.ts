/** The project's hosts, with what each had in the chosen range. */
import { HOST_ORDERS } from '../address.ts';
import type { HostFigures } from '../api.ts';
import type { App, Page } from '../app.ts';
import { fill, h } from '../dom.ts';
import { exact, share } from '../format.ts';
import { COMPARE, ORDER_NAMES } from '../host-order.ts';
import { icon } from '../icons.ts';
import { controls } from '../parts/controls.ts';
import { dialog } from '../parts/dialog.ts';
import { field, submitForm } from '../parts/form.ts';
import { sparkline } from '../parts/sparkline.ts';
import { failureNotice, isAbort, message } from '../parts/states.ts';
import { type Cell, table } from '../parts/table.ts';
import { total } from '../points.ts';
import { endsNow, rangeOf } from '../time-span.ts';

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

  search.addEventListener('input', () => app.go({ search: search.value, offset: 0 }, 'refine'));
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
    const { span, order: by, search: wanted, offset } = app.view();
    const range = rangeOf(span, app.offsetMs(), app.now());
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
      if (isAbort(failure) || app.ended(failure)) return;
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
              'A host appears here when the first log line names it, or when you add it.',
            )
          : message('No such host', `None of the ${exact(all)} hosts has a name with this in it.`),
      );
      return;
    }
    const columns = [
      { title: 'Host' },
      { title: 'Requests', number: true },
      { title: 'Attacks', number: true },
      { title: 'Share', number: true },
      { title: 'Trend' },
      { title: 'ID' },
      ...(mayChange ? [{ title: 'Actions', actions: true }] : []),
    ];
    // A button that has the focus must not vanish under the fingers, so a refresh gives it back.
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
      exact(total(requests)),
      h('span', { class: total(attacks) > 0 ? 'attack' : 'faint' }, exact(total(attacks))),
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
        `${exact(offset + 1)} to ${exact(Math.min(found, offset + ROWS_MAX))} of ${exact(found)}`,
      ),
      step('Next', offset + ROWS_MAX, offset + ROWS_MAX < found),
    );
  }

  function nameForm(title: string, verb: string, name: string, act: (name: string) => Promise<void>): void {
    const hint =
      name === ''
        ? undefined
        : 'The ID and the counts stay. Log lines with the old name will count for a new host.';
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
      app.ended,
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
    tick() {
      if (endsNow(app.view().span) && document.querySelector('dialog') === null) void load();
    },
    leave: () => aborter.abort(),
  };
}
