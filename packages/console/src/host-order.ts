/** The orders in which hosts can be listed; of equals, the first by name comes first. */
import type { HostOrder } from './address.ts';
import type { HostFigures } from './api.ts';
import { total } from './points.ts';

export const ORDER_NAMES: Readonly<Record<HostOrder, string>> = {
  requests: 'Most requests first',
  attacks: 'Most attacks first',
  share: 'Highest share of attacks first',
  name: 'By name',
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
