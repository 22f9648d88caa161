/** The most attacked hosts. */
import type { HostFigures } from '../api.ts';
import type { App } from '../app.ts';
import { fill, h } from '../dom.ts';
import { formatCount, share } from '../format.ts';
import { total } from '../points.ts';
import { panel } from './panel.ts';

const ROWS_MAX = 13;

export interface TopHostsPanel {
  element: HTMLElement;
  show(hosts: readonly HostFigures[]): void;
}

export function topHostsPanel(app: App): TopHostsPanel {
  const { element, body, extras } = panel('Most attacked hosts', 'top-hosts');
  const rows = h('tbody', {});
  const heads = ['Host', 'Requests', 'Attacks', 'Attack rate'];
  const all = h('a', { href: '/console/hosts', class: 'all' }, 'All hosts');
  all.addEventListener('click', (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    app.go({ page: 'hosts', order: 'attacks' });
  });
  extras.append(all);
  body.append(
    h(
      'table',
      { class: 'plain' },
      h(
        'thead',
        {},
        h(
          'tr',
          {},
          ...heads.map((title, i) => h('th', { scope: 'col', class: i > 0 ? 'number' : null }, title)),
        ),
      ),
      rows,
    ),
  );
  return {
    element,
    show(hosts) {
      const ordered = hosts.toSorted(
        (a, b) => total(b.attacks) - total(a.attacks) || total(b.requests) - total(a.requests),
      );
      fill(rows, ...ordered.slice(0, ROWS_MAX).map(row));
    },
  };

  function row({ id, hostname, requests, attacks }: HostFigures): HTMLElement {
    const only = h('button', { class: 'link cut', type: 'button', title: `Show only ${hostname}` }, hostname);
    only.addEventListener('click', () => app.go({ hosts: [id] }));
    return h(
      'tr',
      {},
      h('th', { scope: 'row' }, only),
      h('td', { class: 'number' }, formatCount(total(requests))),
      h('td', { class: `number ${total(attacks) > 0 ? 'attack' : 'faint'}` }, formatCount(total(attacks))),
      h('td', { class: 'number faint' }, share(total(attacks), total(requests))),
    );
  }
}
