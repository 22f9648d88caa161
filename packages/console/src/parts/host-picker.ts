/** Which hosts: found by a part of the name, several at once. */
import type { Host } from '@wafstat/client';
import type { App } from '../app.ts';
import { fill, h } from '../dom.ts';
import { icon } from '../icons.ts';
import type { Controls } from './controls.ts';
import { popover } from './popover.ts';
import { isAbort, sentence } from './states.ts';

/** More would not be looked through; the search finds the rest. */
const LISTED_MAX = 100;

export function hostPicker(app: App): Controls {
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
          ? `${total - items.length} more: search for them`
          : total === 0
            ? 'No host has such a name.'
            : '';
    } catch (failure) {
      if (!isAbort(failure) && !app.ended(failure)) hint.textContent = sentence(failure);
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

  /** The address has IDs; people want names. */
  async function nameFirst(id: string): Promise<void> {
    const { items } = await client.hosts().catch(() => ({ items: [] }));
    for (const host of items) names.set(host.id, host.hostname);
    if (!names.has(id)) names.set(id, id);
    show();
  }

  function show(): void {
    const { hosts } = app.view();
    const [first] = hosts;
    if (first !== undefined && !names.has(first)) void nameFirst(first);
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
