/** Time range, time zone, hosts and live mode. */
import type { Host } from '@wafstat/client';
import type { App } from '../app.ts';
import { button, fill, h, icon, uniqueId, visibleText } from '../dom.ts';
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
import { loader, sentence } from './states.ts';

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
    const ariaLabel = label === title ? null : `${label}, ${title}`;
    return { name, element: button({ class: null, title, 'aria-label': ariaLabel }, choose, label) };
  });
  const custom = customRange(app);
  const goBack = () => {
    // A shared link has no earlier view to go back to.
    if (history.state?.within === true) history.back();
    else app.go({ selectedRange: { preset: DEFAULT_PRESET } });
  };
  const back = button({ class: 'button quiet', hidden: true }, goBack, icon('back'), 'Back');
  const segments = h(
    'div',
    { class: 'segments', role: 'group', 'aria-label': 'Time range' },
    ...presets.map(({ element }) => element),
    custom.element,
  );
  return {
    element: h('div', { class: 'ranges' }, segments, back),
    show() {
      const { selectedRange } = app.view();
      const isPreset = 'preset' in selectedRange;
      for (const { name, element } of presets)
        element.ariaPressed = String(isPreset && name === selectedRange.preset);
      custom.label(isPreset ? null : formatRange(selectedRange.from, selectedRange.to, app.offsetMs()));
      segments.classList.toggle('custom', !isPreset);
      back.hidden = isPreset;
    },
  };
}

function zonePicker(app: App): Controls {
  const select = h('select', { 'aria-label': 'Time zone' });
  select.addEventListener('change', () => app.go({ timezone: select.value || null }));
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
  const element = button({ class: 'button live' }, () => app.go({ live: !app.view().live }, 'replace'));
  return {
    element,
    show() {
      const { live, selectedRange } = app.view();
      element.hidden = !endsNow(selectedRange);
      element.ariaPressed = String(live);
      element.title = live ? 'Updates every 5 seconds. Click to pause.' : 'Paused. Click to resume.';
      const name = live ? 'Live' : 'Paused';
      element.ariaLabel = name;
      fill(
        element,
        live ? h('span', { class: 'pulse' }) : icon('pause'),
        h('span', { class: 'label' }, name),
      );
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
  const opener = h('button', { type: 'button' });
  const panel = popover(opener, 'Custom range', form, () => {
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
      opener.ariaPressed = String(text !== null);
      fill(opener, icon('clock'), text ?? 'Custom');
      opener.ariaLabel = text === null ? 'Custom range' : `Custom range: ${text}`;
      opener.title = text ?? 'Custom range';
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
  const search = h('input', {
    type: 'search',
    placeholder: 'Find a host',
    'aria-label': 'Find a host',
    autocomplete: 'off',
    spellcheck: 'false',
  });
  const list = h('div', { class: 'host-list', role: 'group', 'aria-label': 'Hosts' });
  const hint = h('p', { class: 'hint', role: 'status' });
  const chooseAll = () => {
    app.go({ hosts: [] });
    panel.close();
    opener.focus();
  };
  const all = button({ class: 'button small' }, chooseAll, 'All hosts');
  const opener = h('button', { class: 'button', type: 'button' });

  async function read(signal: AbortSignal): Promise<void> {
    const { total, items } = await client.hosts({ hostname: search.value, limit: LISTED_MAX, signal });
    for (const { id, hostname } of items) names.set(id, hostname);
    fill(list, ...items.map(row));
    if (total === 0) hint.textContent = 'No matching host';
    else if (total === items.length) hint.textContent = '';
    else hint.textContent = `${total - items.length} more. Search to find them.`;
  }
  const { load } = loader(app, read, (failure) => {
    hint.textContent = sentence(failure);
  });
  const content = h('div', { class: 'host-picker' }, search, list, hint, all);
  const panel = popover(opener, 'Hosts', content, load);
  search.addEventListener('input', load);

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
    const { hostname } = await client.host(id).catch(() => ({ hostname: id }));
    names.set(id, hostname);
    show();
  }

  function show(): void {
    const { hosts } = app.view();
    const [first] = hosts;
    if (first !== undefined && !names.has(first)) void loadName(first);
    let label = first === undefined ? 'All hosts' : `${hosts.length} hosts`;
    if (first !== undefined && hosts.length === 1) label = names.get(first) ?? '1 host';
    fill(opener, icon('server'), h('span', { class: 'cut' }, label), icon('down'));
    opener.ariaLabel = visibleText(`Hosts: ${label}`);
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
function popover(opener: HTMLButtonElement, label: string, content: Node, opened: () => void): Popover {
  const id = uniqueId();
  const box = h('div', { class: 'popover', id, role: 'dialog', 'aria-label': label, hidden: true }, content);
  const element = h('div', { class: 'popover-anchor' }, opener, box);
  opener.setAttribute('aria-controls', id);
  opener.ariaHasPopup = 'dialog';
  opener.ariaExpanded = 'false';

  const outside = (event: Event) => {
    if (event.target instanceof Node && !element.contains(event.target)) close();
  };
  function open(): void {
    box.hidden = false;
    opener.ariaExpanded = 'true';
    // Opens to the left if it would exceed the screen.
    box.classList.toggle('leftwards', opener.getBoundingClientRect().left + box.offsetWidth > innerWidth - 8);
    document.addEventListener('pointerdown', outside);
    box.querySelector<HTMLElement>('input, select, button')?.focus();
    opened();
  }
  function close(): void {
    box.hidden = true;
    opener.ariaExpanded = 'false';
    document.removeEventListener('pointerdown', outside);
  }
  opener.addEventListener('click', () => (box.hidden ? open() : close()));
  element.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || box.hidden) return;
    event.stopPropagation();
    close();
    opener.focus();
  });
  element.addEventListener('focusout', ({ relatedTarget }) => {
    if (relatedTarget instanceof Node && !element.contains(relatedTarget)) close();
  });
  return { element, close };
}
