/** Time range, time zone, hosts and live mode. */
import type { Host } from '@wafstat/client';
import type { App } from '../app.ts';
import { fill, h, icon, uniqueId } from '../dom.ts';
import { formatRange } from '../format.ts';
import {
  allOffsets,
  browserOffset,
  DEFAULT_PRESET,
  endsNow,
  PRESETS,
  type PresetName,
  rangeProblem,
  resolveRange,
} from '../time-range.ts';
import { field } from './form.ts';
import { isAbort, sentence } from './states.ts';

export interface Controls {
  element: HTMLElement;
  show(): void;
}

export function controls(app: App, hasHostPicker: boolean): Controls {
  const parts = [
    rangePicker(app),
    zonePicker(app),
    ...(hasHostPicker ? [hostPicker(app)] : []),
    liveButton(app),
  ];
  return {
    element: h('div', { class: 'controls' }, ...parts.map(({ element }) => element)),
    show() {
      for (const part of parts) part.show();
    },
  };
}

function rangePicker(app: App): Controls {
  const presets = (Object.keys(PRESETS) as PresetName[]).map((name) => {
    const { label, title } = PRESETS[name];
    const choose = () => app.go({ selectedRange: { preset: name }, offset: 0 });
    const button = h(
      'button',
      {
        type: 'button',
        'aria-label': label === title ? null : `${label}, ${title}`,
        title,
        on: { click: choose },
      },
      label,
    );
    return { name, button };
  });
  const custom = customRange(app);
  const back = h('button', { class: 'button quiet', type: 'button', hidden: true }, icon('back'), 'Back');
  back.addEventListener('click', () => {
    // A shared link has no earlier view to go back to.
    if (history.state?.within === true) history.back();
    else app.go({ selectedRange: { preset: DEFAULT_PRESET } });
  });
  const segments = h(
    'div',
    { class: 'segments', role: 'group', 'aria-label': 'Time range' },
    ...presets.map(({ button }) => button),
    custom.element,
  );
  return {
    element: h('div', { class: 'ranges' }, segments, back),
    show() {
      const { selectedRange } = app.view();
      const preset = 'preset' in selectedRange ? selectedRange.preset : null;
      for (const { name, button } of presets) button.setAttribute('aria-pressed', String(name === preset));
      custom.label(
        preset === null && 'from' in selectedRange
          ? formatRange(selectedRange.from, selectedRange.to, app.offsetMs())
          : null,
      );
      segments.classList.toggle('custom', preset === null);
      back.hidden = preset !== null;
    },
  };
}

function zonePicker(app: App): Controls {
  const select = h('select', { 'aria-label': 'Time zone' });
  const change = () => app.go({ timezone: select.value === '' ? null : select.value });
  select.addEventListener('change', change);
  return {
    element: h('div', { class: 'with-icon' }, icon('globe'), select),
    show() {
      const { timezone } = app.view();
      const local = browserOffset(app.now());
      const offsets = allOffsets();
      // A URL can hold any, such as +05:37.
      if (timezone !== null && !offsets.includes(timezone)) offsets.push(timezone);
      fill(
        select,
        h('option', { value: '' }, `Local, UTC${local}`),
        ...offsets.map((offset) => h('option', { value: offset }, `UTC${offset}`)),
      );
      select.value = timezone ?? '';
    },
  };
}

function liveButton(app: App): Controls {
  const button = h('button', { class: 'button live', type: 'button' });
  button.addEventListener('click', () => app.go({ live: !app.view().live }, 'replace'));
  return {
    element: button,
    show() {
      const { live, selectedRange } = app.view();
      button.hidden = !endsNow(selectedRange);
      button.setAttribute('aria-pressed', String(live));
      button.title = live ? 'Updates every 5 seconds. Click to pause.' : 'Paused. Click to resume.';
      const name = live ? 'Live' : 'Paused';
      button.setAttribute('aria-label', name);
      fill(button, live ? h('span', { class: 'pulse' }) : icon('pause'), h('span', { class: 'label' }, name));
    },
  };
}

interface CustomRange {
  element: HTMLElement;
  /** Shows the custom range as text; null if a preset is selected. */
  label(text: string | null): void;
}

function customRange(app: App): CustomRange {
  const from = field('From', { type: 'datetime-local', required: true });
  const to = field(
    'To',
    { type: 'datetime-local', required: true },
    'The end is not included. Times are in the selected time zone.',
  );
  const problem = h('p', { class: 'problem', role: 'alert' });
  const form = h(
    'form',
    { class: 'custom-range' },
    from.element,
    to.element,
    problem,
    h('button', { class: 'button primary', type: 'submit' }, 'Apply'),
  );
  const button = h('button', { type: 'button', 'aria-label': 'Custom range' }, 'Custom');
  const panel = popover(button, 'Custom range', form, () => {
    const range = resolveRange(app.view().selectedRange, app.offsetMs(), app.now());
    from.input.value = toLocal(range.from, app.offsetMs());
    to.input.value = toLocal(range.to, app.offsetMs());
    problem.textContent = '';
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const range = {
      from: toTime(from.input.value, app.offsetMs()),
      to: toTime(to.input.value, app.offsetMs()),
    };
    problem.textContent = rangeProblem(range) ?? '';
    if (problem.textContent !== '') return;
    panel.close();
    app.go({ selectedRange: range, offset: 0 });
  });
  return {
    element: panel.element,
    label(text) {
      button.setAttribute('aria-pressed', String(text !== null));
      fill(button, icon('clock'), text ?? 'Custom');
      button.setAttribute('aria-label', text === null ? 'Custom range' : `Custom range: ${text}`);
      button.title = text ?? 'Custom range';
    },
  };
}

/** The value of a `datetime-local` input. */
function toLocal(time: number, offsetMs: number): string {
  return new Date(time + offsetMs).toISOString().slice(0, 16);
}

function toTime(local: string, offsetMs: number): number {
  return Date.parse(`${local}Z`) - offsetMs;
}

/** Search finds the rest. */
const LISTED_MAX = 100;

function hostPicker(app: App): Controls {
  const client = app.api.client(app.project.id);
  const names = new Map<string, string>();
  let aborter = new AbortController();

  const search = h('input', {
    type: 'search',
    placeholder: 'Find a host',
    'aria-label': 'Find a host',
    autocomplete: 'off',
    spellcheck: 'false',
  });
  const list = h('div', { class: 'host-list', role: 'group', 'aria-label': 'Hosts' });
  const hint = h('p', { class: 'hint', role: 'status' });
  const all = h('button', { class: 'button small', type: 'button' }, 'All hosts');
  const button = h('button', { class: 'button', type: 'button' });
  const panel = popover(
    button,
    'Hosts',
    h('div', { class: 'host-picker' }, search, list, hint, all),
    () => void load(),
  );

  all.addEventListener('click', () => {
    app.go({ hosts: [] });
    panel.close();
    button.focus();
  });
  search.addEventListener('input', () => void load());

  async function load(): Promise<void> {
    aborter.abort();
    aborter = new AbortController();
    try {
      const { total, items } = await client.hosts({
        hostname: search.value,
        limit: LISTED_MAX,
        signal: aborter.signal,
      });
      for (const { id, hostname } of items) names.set(id, hostname);
      fill(list, ...items.map(row));
      hint.textContent =
        total > items.length
          ? `${total - items.length} more. Search to find them.`
          : total === 0
            ? 'No matching host'
            : '';
    } catch (failure) {
      if (!isAbort(failure) && !app.handleSignedOut(failure)) hint.textContent = sentence(failure);
    }
  }

  function row({ id, hostname }: Host): HTMLElement {
    const box = h('input', { type: 'checkbox', 'data-id': id });
    box.checked = app.view().hosts.includes(id);
    box.addEventListener('change', () => {
      const others = app.view().hosts.filter((chosen) => chosen !== id);
      app.go({ hosts: box.checked ? [...others, id] : others });
    });
    return h('label', {}, box, h('span', {}, hostname));
  }

  /** The URL has IDs only. */
  async function loadName(id: string): Promise<void> {
    const { items } = await client.hosts().catch(() => ({ items: [] }));
    for (const host of items) names.set(host.id, host.hostname);
    if (!names.has(id)) names.set(id, id);
    show();
  }

  function show(): void {
    const { hosts } = app.view();
    const [first] = hosts;
    if (first !== undefined && !names.has(first)) void loadName(first);
    const label =
      first === undefined
        ? 'All hosts'
        : hosts.length === 1
          ? (names.get(first) ?? '1 host')
          : `${hosts.length} hosts`;
    fill(button, icon('server'), h('span', { class: 'cut' }, label), icon('down'));
    button.setAttribute('aria-label', `Hosts: ${label}`);
    all.disabled = hosts.length === 0;
    for (const box of list.querySelectorAll('input')) box.checked = hosts.includes(box.dataset.id ?? '');
  }

  return { element: panel.element, show };
}

interface Popover {
  element: HTMLElement;
  close(): void;
}

/** A button that opens a panel. Escape, a click outside, or moving the focus away closes it. */
function popover(button: HTMLButtonElement, label: string, panel: Node, opened?: () => void): Popover {
  const id = uniqueId();
  const box = h('div', { class: 'popover', id, role: 'dialog', 'aria-label': label, hidden: true }, panel);
  const element = h('div', { class: 'popover-anchor' }, button, box);
  button.setAttribute('aria-expanded', 'false');
  button.setAttribute('aria-controls', id);
  button.setAttribute('aria-haspopup', 'dialog');

  const outside = (event: Event) => {
    if (event.target instanceof Node && !element.contains(event.target)) close();
  };
  function open(): void {
    box.hidden = false;
    button.setAttribute('aria-expanded', 'true');
    // Opens to the left if it would exceed the screen.
    box.classList.toggle('leftwards', button.getBoundingClientRect().left + box.offsetWidth > innerWidth - 8);
    document.addEventListener('pointerdown', outside);
    box.querySelector<HTMLElement>('input, select, button')?.focus();
    opened?.();
  }
  function close(): void {
    box.hidden = true;
    button.setAttribute('aria-expanded', 'false');
    document.removeEventListener('pointerdown', outside);
  }
  button.addEventListener('click', () => (box.hidden ? open() : close()));
  element.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || box.hidden) return;
    event.stopPropagation();
    close();
    button.focus();
  });
  element.addEventListener('focusout', ({ relatedTarget }) => {
    if (relatedTarget instanceof Node && !element.contains(relatedTarget)) close();
  });
  return { element, close };
}
