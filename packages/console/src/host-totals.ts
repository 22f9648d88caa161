/** Requests and attacks of each host in the whole range. */
import type { Figures, HostFigures } from './api.ts';
import { total } from './points.ts';
import type { HostSort } from './view.ts';

export interface HostTotals {
  id: string;
  hostname: string;
  requests: number;
  attacks: number;
}

export function hostTotals(hosts: readonly HostFigures[]): HostTotals[] {
  return hosts.map(({ id, hostname, requests, attacks }) => ({
    id,
    hostname,
    requests: total(requests),
    attacks: total(attacks),
  }));
}

/** Not an ID: events without a registered host. */
export const NO_HOST = '';

export const NO_HOST_TITLE = 'Requests and attacks of log lines without a registered host';

/** The part of the project that no host has. Null: nothing. */
export function withoutHost(whole: Figures, items: readonly HostFigures[]): HostTotals | null {
  const rest = (of: (figures: Figures) => readonly number[]) =>
    total(of(whole)) - total(items.map((host) => total(of(host))));
  const requests = rest((figures) => figures.requests);
  const attacks = rest((figures) => figures.attacks);
  return requests + attacks > 0 ? { id: NO_HOST, hostname: 'No host', requests, attacks } : null;
}

/** By attack rate. Of hosts without requests, more attacks are a higher rate. */
export function byRate(a: HostTotals, b: HostTotals): number {
  const rate = ({ requests, attacks }: HostTotals) => attacks / Math.max(1, requests);
  return rate(a) - rate(b);
}

type Compare = (a: HostTotals, b: HostTotals) => number;

const byName: Compare = (a, b) => (a.hostname < b.hostname ? -1 : 1);

/** The largest first. */
export const HOST_COMPARE: Readonly<Record<HostSort, Compare>> = {
  requests: (a, b) => b.requests - a.requests || byName(a, b),
  attacks: (a, b) => b.attacks - a.attacks || byName(a, b),
  rate: (a, b) => byRate(b, a) || byName(a, b),
  name: byName,
};
