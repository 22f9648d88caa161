/** The four figures on top, each with its change against the span before. */
import type { HostFigures } from '../api.ts';
import { fill, h } from '../dom.ts';
import { type Change, change, changeOfShare, exact, readable, share } from '../format.ts';
import { total } from '../points.ts';

export interface Totals {
  requests: number;
  attacks: number;
  hosts: readonly HostFigures[];
}

/** What the span before is: in words, and exactly. */
export interface Against {
  name: string;
  range: string;
}

export interface FiguresRow {
  element: HTMLElement;
  show(now: Totals, before: Totals, against: Against): void;
}

interface Figure {
  kind: 'requests' | 'attacks' | 'share' | 'busiest';
  name: string;
  text: string;
  /** What the text leaves out. */
  title: string;
  change: Change | null;
  more?: string;
}

export function figuresRow(): FiguresRow {
  const figures = h('dl', { class: 'figures' });
  fill(figures, ...['Requests', 'Attacks', 'Share of attacks', 'Busiest host'].map(skeleton));
  return {
    element: figures,
    show(now, before, against) {
      const all = [
        ...(['requests', 'attacks'] as const).map((kind) => count(kind, now[kind], before[kind])),
        shareOfAttacks(now, before),
        busiest(now, before),
      ];
      fill(figures, ...all.map((figure) => figureElement(figure, against)));
    },
  };
}

function count(kind: 'requests' | 'attacks', now: number, before: number): Figure {
  const name = kind === 'requests' ? 'Requests' : 'Attacks';
  return { kind, name, text: readable(now), title: exact(now), change: change(now, before) };
}

function shareOfAttacks(now: Totals, before: Totals): Figure {
  const comparable = now.requests > 0 && before.requests > 0;
  return {
    kind: 'share',
    name: 'Share of attacks',
    text: share(now.attacks, now.requests),
    title: `${exact(now.attacks)} of ${exact(now.requests)}`,
    change: comparable ? changeOfShare(now.attacks / now.requests, before.attacks / before.requests) : null,
  };
}

function busiest(now: Totals, before: Totals): Figure {
  const figure = { kind: 'busiest', name: 'Busiest host' } as const;
  const host = busiestHost(now.hosts);
  if (host === undefined) return { ...figure, text: '–', title: 'No host had requests', change: null };
  const requests = total(host.requests);
  const past = total(before.hosts.find(({ id }) => id === host.id)?.requests ?? []);
  const more = `${readable(requests)} requests`;
  return { ...figure, text: host.hostname, title: host.hostname, change: change(requests, past), more };
}

/** By requests; of equals, the first by name. */
export function busiestHost(hosts: readonly HostFigures[]): HostFigures | undefined {
  const [first] = hosts.toSorted((a, b) => total(b.requests) - total(a.requests));
  return first !== undefined && total(first.requests) > 0 ? first : undefined;
}

const ARROWS = { up: '▲', down: '▼', same: null } as const;

function figureElement({ kind, name, text, title, change: difference, more }: Figure, against: Against) {
  const sign = difference && ARROWS[difference.direction];
  const arrow = sign && h('span', { class: 'arrow', 'aria-hidden': 'true' }, sign);
  return h(
    'div',
    { class: `figure ${kind}` },
    h('dt', {}, name),
    h('dd', { class: 'value', title }, text),
    h(
      'dd',
      { class: 'change', title: difference && `Against ${against.name}: ${against.range}` },
      more !== undefined && `${more} `,
      difference && h('span', { class: 'difference' }, arrow, difference.text),
      difference && more === undefined && h('span', { class: 'against' }, ` vs ${against.name}`),
    ),
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
