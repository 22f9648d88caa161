/** The networks each user has logged in from. Stored as keyed hashes, so that the file does not reveal them. */
import { createHmac } from 'node:crypto';
import { isIPv6 } from 'node:net';
import { BoundedCache } from '../cache.ts';
import type { IdentityStore } from './identity-store.ts';

/** Longer than a holiday. */
const KNOWN_MS = 90 * 86_400_000;
/** A login renews the entry at most once a day, so most logins write nothing. */
const RENEW_MS = 86_400_000;
/** Home, office, phone, and changing addresses of a provider. */
const NETWORKS_PER_USER_MAX = 32;
/** Entries that are not written yet, or cannot be. */
const UNWRITTEN_MAX = 1_000;

export interface KnownNetworks {
  has(userId: string, network: string): boolean;
  /** Never fails and never waits: a login must not depend on it. */
  add(userId: string, network: string): void;
}

export function createKnownNetworks(store: IdentityStore, key: Buffer, now: () => number): KnownNetworks {
  const unwritten = new BoundedCache<string, true>({
    name: null,
    entriesMax: UNWRITTEN_MAX,
    unitBytes: 200,
  });
  const hashOf = (userId: string, network: string) =>
    createHmac('sha256', key).update(`${userId} ${network}`).digest('base64url');

  /** Ignores entries from the future: after a clock was set back they would never expire. */
  function isYounger(userId: string, hash: string, ageMsMax: number): boolean {
    const time = store.get('login', `${userId} ${hash}`);
    if (time === undefined) return false;
    const ageMs = now() - time;
    return ageMs >= -RENEW_MS && ageMs < ageMsMax;
  }

  return {
    has(userId, network) {
      const hash = hashOf(userId, network);
      return unwritten.get(hash) !== undefined || isYounger(userId, hash, KNOWN_MS);
    },
    add(userId, network) {
      const hash = hashOf(userId, network);
      if (unwritten.get(hash) || isYounger(userId, hash, RENEW_MS)) return;
      unwritten.set(hash, true);
      const limits = { max: NETWORKS_PER_USER_MAX, before: now() - KNOWN_MS };
      store.putKnownLogin(userId, hash, now(), limits).then(
        () => unwritten.delete(hash),
        // The entry stays in memory; changes that must be durable report the failure.
        () => {},
      );
    },
  };
}

/** The network that counts as one client: an IPv4 address, or the /64 of an IPv6 address, which is one subscriber. */
export function networkOf(address: string): string {
  const [bare = ''] = address.split('%', 1);
  if (!isIPv6(bare)) return bare;
  // The URL parser writes all parts in hexadecimal, without leading zeros.
  const [head = '', tail = ''] = new URL(`http://[${bare}]`).hostname.slice(1, -1).split('::');
  const split = (part: string) => (part === '' ? [] : part.split(':'));
  const zeros = Array<string>(8 - split(head).length - split(tail).length).fill('0');
  const groups = [...split(head), ...zeros, ...split(tail)];
  if (groups.slice(0, 6).join(':') === '0:0:0:0:0:ffff') {
    const [high = 0, low = 0] = groups.slice(6).map((group) => Number.parseInt(group, 16));
    return [high >> 8, high & 255, low >> 8, low & 255].join('.');
  }
  return `${groups.slice(0, 4).join(':')}::/64`;
}

/** The addresses that one customer of a provider may have: the /24 of an IPv4 address, the /48 of an IPv6 address. */
export function blockOf(network: string): string {
  const separator = network.includes(':') ? ':' : '.';
  return network.split(separator, 3).join(separator);
}
