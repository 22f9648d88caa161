/** The four figures on top, each with its change against the span before. */
import type { HostFigures } from '../api.ts';
import { fill, h } from '../dom.ts';
import { type Change, change, changeOfShare, exact, readable, share } from '../format.ts';

export interface Totals {
  requests: number;
  attacks: number;
  hosts: readonly HostFigures[];
}

export interface FiguresRow {
  element: HTMLElement;
  /** `against` says what the span before is. */
  show(now: Totals, before: Totals, against: string): void;
}

export function figuresRow(): FiguresRow {
  const element = h('dl', { class: 'figures' });
  fill(element, ...['Requests', 'Attacks', 'Share of attacks', 'Busiest host'].map(skeleton));
  return {
    element,
    show(now, before, against) {
      const shares = [now, before].map(({ requests, attacks }) =>
        requests === 0 ? null : attacks / requests,
      );
      const [shareNow, shareBefore] = shares;
      fill(
        element,
        figure(
          'Requests',
          readable(now.requests),
          exact(now.requests),
          change(now.requests, before.requests),
          against,
          'requests',
        ),
        figure(
          'Attacks',
          readable(now.attacks),
          exact(now.attacks),
          change(now.attacks, before.attacks),
          against,
          'attacks',
        ),
        figure(
          'Share of attacks',
          share(now.attacks, now.requests),
          `${exact(now.attacks)} of ${exact(now.requests)}`,
          typeof shareNow === 'number' && typeof shareBefore === 'number'
            ? changeOfShare(shareNow, shareBefore)
            : null,
          against,
          'share',
        ),
        busiest(now, before, against),
      );
    },
  };
}

function busiest(now: Totals, before: Totals, against: string): HTMLElement {
  const host = busiestHost(now.hosts);
  if (host === undefined)
    return figure('Busiest host', '–', 'No host had requests', null, against, 'busiest');
  const requests = sum(host.requests);
  const past = sum(before.hosts.find(({ id }) => id === host.id)?.requests ?? []);
  const element = figure(
    'Busiest host',
    host.hostname,
    host.hostname,
    change(requests, past),
    against,
    'busiest',
  );
  element.querySelector('.change')?.prepend(h('span', {}, `${readable(requests)} requests`), ' ');
  return element;
}

/** By requests; of equals, the first by name. */
export function busiestHost(hosts: readonly HostFigures[]): HostFigures | undefined {
  const [first] = hosts.toSorted((a, b) => sum(b.requests) - sum(a.requests));
  return first !== undefined && sum(first.requests) > 0 ? first : undefined;
}

function figure(
  name: string,
  text: string,
  title: string,
  difference: Change | null,
  against: string,
  kind: string,
): HTMLElement {
  return h(
    'div',
    { class: `figure ${kind}` },
    h('dt', {}, name),
    h('dd', { class: 'value', title }, text),
    h('dd', { class: 'change', title: `Against ${against}` }, difference && changeBadge(difference)),
  );
}

const ARROWS = { up: '▲', down: '▼', same: '' } as const;

function changeBadge({ text, direction }: Change): HTMLElement {
  return h(
    'span',
    { class: `difference ${direction}` },
    h('span', { 'aria-hidden': 'true' }, ARROWS[direction]),
    text,
  );
}

function skeleton(name: string): HTMLElement {
  return h(
    'div',
    { class: 'figure' },
    h('dt', {}, name),
    h('dd', { class: 'value' }, h('span', { class: 'skeleton' })),
    h('dd', { class: 'change' }, h('span', { class: 'skeleton' })),
  );
}

function sum(counts: readonly number[]): number {
  return counts.reduce((total, n) => total + n, 0);
}
