/** Requests and attacks of each host in the whole range. */
import { ATTACK_TYPES } from '@wafstat/client';
import type { HostFigures } from './api.ts';
import { type Counts, sumOf, total } from './counts.ts';

export interface HostTotals {
  id: string;
  hostname: string;
  requests: number;
  attacks: number;
}

export function hostTotals(hosts: readonly HostFigures[]): HostTotals[] {
  return hosts.map(({ requests, attacks, ...host }) => ({
    ...host,
    requests: total(requests),
    attacks: total(attacks),
  }));
}

/** Not an ID: events without a registered host. */
export const NO_HOST = '';

export const NO_HOST_TITLE = 'Requests and attacks of log lines without a registered host';

/** The part of the project that no host has. Null: nothing. */
export function withoutHost(whole: Counts, hosts: readonly HostTotals[]): HostTotals | null {
  const rest = (name: 'requests' | 'attacks', all: readonly number[]) =>
    total(all) - total(hosts.map((host) => host[name]));
  const requests = rest('requests', whole.requests);
  const attacks = rest('attacks', sumOf(whole.attacks, ATTACK_TYPES));
  return requests + attacks > 0 ? { id: NO_HOST, hostname: 'No host', requests, attacks } : null;
}
