/** Four key figures, each with its change from the previous period. */
import type { HostFigures } from '../api.ts';
import { fill, h } from '../dom.ts';
import { type Change, change, compactCount, formatCount, rateChange, share } from '../format.ts';
import { total } from '../points.ts';
import { SERIES, SERIES_TITLES, type SeriesName } from '../view.ts';

export interface Totals {
  requests: number;
  attacks: number;
  hosts: readonly HostFigures[];
}

/** The previous period: its name and its exact range. */
export interface PreviousPeriod {
  name: string;
  range: string;
}

export interface FiguresRow {
  element: HTMLElement;
  show(now: Totals, before: Totals, previous: PreviousPeriod): void;
}

interface Figure {
  kind: SeriesName | 'share' | 'busiest';
  name: string;
  text: string;
  /** The tooltip. */
  title: string;
  change: Change | null;
  more?: string;
}

export function figuresRow(): FiguresRow {
  const figures = h('dl', { class: 'figures' });
  fill(figures, ...['Requests', 'Attacks', 'Attack rate', 'Busiest host'].map(skeleton));
  return {
    element: figures,
    show(now, before, previous) {
      const all = [
        ...SERIES.map((kind) => count(kind, now[kind], before[kind])),
        attackRate(now, before),
        busiest(now, before),
      ];
      fill(figures, ...all.map((figure) => figureElement(figure, previous)));
    },
  };
}

function count(kind: SeriesName, now: number, before: number): Figure {
  const text = compactCount(now);
  return { kind, name: SERIES_TITLES[kind], text, title: formatCount(now), change: change(now, before) };
}

function attackRate(now: Totals, before: Totals): Figure {
  const comparable = now.requests > 0 && before.requests > 0;
  return {
    kind: 'share',
    name: 'Attack rate',
    text: share(now.attacks, now.requests),
    title: `${formatCount(now.attacks)} of ${formatCount(now.requests)}`,
    change: comparable ? rateChange(now.attacks / now.requests, before.attacks / before.requests) : null,
  };
}

function busiest(now: Totals, before: Totals): Figure {
  const figure = { kind: 'busiest', name: 'Busiest host' } as const;
  const host = busiestHost(now.hosts);
  if (host === undefined) return { ...figure, text: '–', title: 'No requests', change: null };
  const requests = total(host.requests);
  const past = total(before.hosts.find(({ id }) => id === host.id)?.requests ?? []);
  const more = `${compactCount(requests)} requests`;
  return { ...figure, text: host.hostname, title: host.hostname, change: change(requests, past), more };
}

/** The host with the most requests; the first by name if there are several. */
function busiestHost(hosts: readonly HostFigures[]): HostFigures | undefined {
  const [first] = hosts.toSorted((a, b) => total(b.requests) - total(a.requests));
  return first !== undefined && total(first.requests) > 0 ? first : undefined;
}

const ARROWS = { up: '▲', down: '▼', same: null } as const;

function figureElement(
  { kind, name, text, title, change: difference, more }: Figure,
  previous: PreviousPeriod,
) {
  const sign = difference && ARROWS[difference.direction];
  const arrow = sign && h('span', { class: 'arrow', 'aria-hidden': 'true' }, sign);
  return h(
    'div',
    { class: `figure ${kind}` },
    h('dt', {}, name),
    h('dd', { class: 'value', title }, text),
    h(
      'dd',
      { class: 'change', title: difference && `vs ${previous.name}: ${previous.range}` },
      more !== undefined && `${more} `,
      difference && h('span', { class: 'difference' }, arrow, difference.text),
      difference && more === undefined && h('span', { class: 'against' }, ` vs ${previous.name}`),
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
