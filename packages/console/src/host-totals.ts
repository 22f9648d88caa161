/** Requests and attacks of each host in the whole range. */
import { ATTACK_TYPES, type AttackType } from '@wafstat/client';
import type { HostFigures } from './api.ts';
import { type Counts, sumOf, total } from './counts.ts';

export interface HostTotals {
  id: string;
  hostname: string;
  requests: number;
  attacks: number;
}

/** `categories`: the attacks that count. */
export function hostTotals(
  hosts: readonly HostFigures[],
  categories: readonly AttackType[] = ATTACK_TYPES,
): HostTotals[] {
  return hosts.map(({ id, hostname, ...counts }) => ({ id, hostname, ...countTotals(counts, categories) }));
}

function countTotals({ requests, attacks }: Counts, categories: readonly AttackType[]) {
  return { requests: total(requests), attacks: total(sumOf(attacks, categories)) };
}

/** Not an ID: events without a registered host. */
export const NO_HOST = '';

export const NO_HOST_TITLE = 'Requests and attacks of log lines without a registered host';

/** The part of the project that no host has. Null: nothing. */
export function withoutHost(
  whole: Counts,
  hosts: readonly HostTotals[],
  categories: readonly AttackType[] = ATTACK_TYPES,
): HostTotals | null {
  const all = countTotals(whole, categories);
  const rest = (name: 'requests' | 'attacks') => all[name] - total(hosts.map((host) => host[name]));
  const [requests, attacks] = [rest('requests'), rest('attacks')];
  return requests + attacks > 0 ? { id: NO_HOST, hostname: 'No host', requests, attacks } : null;
}
