/** Which users have logged in from which networks: stored as keyed hashes, so that the file does not tell who was where. */
import { createHmac } from 'node:crypto';
import type { IdentityStore } from './store.ts';

/** Longer than a holiday. */
const KNOWN_MS = 90 * 86_400_000;
/** A login renews the entry at most once a day: most logins write nothing. */
const RENEW_MS = 86_400_000;
/** Home, office, phone, and the addresses a provider hands out. Beyond it the oldest is forgotten. */
const NETWORKS_PER_USER_MAX = 32;
/** Entries in memory until they are written, and while nothing can be written. */
const RECENT_MAX = 1_000;

export interface KnownLogins {
  has(userId: string, network: string): boolean;
  /** Never fails and never waits: a login must not depend on it. */
  add(userId: string, network: string): void;
}

export function createKnownLogins(store: IdentityStore, key: Buffer, now: () => number): KnownLogins {
  const recent = new Set<string>();
  const hashOf = (userId: string, network: string) =>
    createHmac('sha256', key).update(`${userId} ${network}`).digest('base64url');

  /** False for an entry from far in the future too: a clock that was set back must not leave entries that never expire. */
  function isYounger(userId: string, hash: string, ageMsMax: number): boolean {
    const time = store.knownLogin(userId, hash);
    if (time === undefined) return false;
    const ageMs = now() - time;
    return ageMs >= -RENEW_MS && ageMs < ageMsMax;
  }

  return {
    has(userId, network) {
      const hash = hashOf(userId, network);
      return recent.has(hash) || isYounger(userId, hash, KNOWN_MS);
    },
    add(userId, network) {
      const hash = hashOf(userId, network);
      if (recent.has(hash) || isYounger(userId, hash, RENEW_MS)) return;
      if (recent.size >= RECENT_MAX) recent.clear();
      recent.add(hash);
      const limits = { max: NETWORKS_PER_USER_MAX, before: now() - KNOWN_MS };
      store.putKnownLogin(userId, hash, now(), limits).then(
        () => recent.delete(hash),
        // The entry stays in memory. What is wrong with the file shows wherever a write matters.
        () => {},
      );
    },
  };
}
