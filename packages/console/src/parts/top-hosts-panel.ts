/** The most attacked hosts. */
import type { HostFigures } from '../api.ts';
import type { App } from '../app.ts';
import { button, h, refill } from '../dom.ts';
import { formatCount, share } from '../format.ts';
import { total } from '../points.ts';
import { panel } from './panel.ts';
import { pageLink } from './shell.ts';
import { numbers, tableHead } from './table.ts';

const ROWS_MAX = 13;

export interface TopHostsPanel {
  element: HTMLElement;
  show(hosts: readonly HostFigures[]): void;
}

export function topHostsPanel(app: App): TopHostsPanel {
  const { element, body, extras } = panel('Most attacked hosts', 'top-hosts');
  const rows = h('tbody', {});
  const props = { href: '/console/hosts', class: 'all' };
  extras.append(pageLink('All hosts', props, () => app.go({ page: 'hosts', order: 'attacks' })));
  const head = tableHead(['Host', ...numbers('Requests', 'Attacks', 'Attack rate')]);
  body.append(h('table', { class: 'plain' }, head, rows));
  return {
    element,
    show(hosts) {
      const ordered = hosts.toSorted(
        (a, b) => total(b.attacks) - total(a.attacks) || total(b.requests) - total(a.requests),
      );
      refill(rows, ...ordered.slice(0, ROWS_MAX).map(row));
    },
  };

  function row({ id, hostname, requests, attacks }: HostFigures): HTMLElement {
    const props = { class: 'link cut', title: `Show only ${hostname}`, 'data-focus': id };
    const only = button(props, () => app.go({ hosts: [id] }), hostname);
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
