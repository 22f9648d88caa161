import { createHash } from 'node:crypto';
import type { Soon } from '../soon.ts';

/**
 * Slows down guessing without locking anyone out. Wrong attempts are counted for an account at an address, for an
 * address, and for an account; past a few, the next attempt waits before it is looked at. It is looked at in the
 * end, so a stranger can make a user's login slow at worst, and only from the user's own address: who has logged
 * in from an address before does not wait for what others do elsewhere.
 */

/** Typing errors are free. */
const PAIR_FAILURES_FREE = 5;
/** An office behind one address has many typing errors. */
const ADDRESS_FAILURES_FREE = 50;
/** Guessing from many addresses at one account. */
const ACCOUNT_FAILURES_FREE = 100;
const WAIT_MS_FIRST = 250;
/** Some 17,000 guesses a day, against passwords that a computer makes: nothing. For a person: bearable. */
const WAIT_MS_MAX = 5_000;
/** Failures are forgotten after this long without another one. */
const FORGET_MS = 15 * 60_000;
/** Bounds the memory; past it the oldest are forgotten. */
const ENTRIES_MAX = 20_000;
/** More waiting attempts than this for one account at one address are turned away at once. */
const WAITING_MAX = 8;

export interface Throttle {
  /** Says when the attempt may be looked at, mostly at once; false: too many are waiting already. */
  admit(account: string, address: string): Soon<boolean>;
  failed(account: string, address: string): void;
  succeeded(account: string, address: string): void;
}

export function createThrottle(now: () => number, sleep: (ms: number) => Promise<void>): Throttle {
  const failures = new Map<string, { count: number; at: number }>();
  const waiting = new Map<string, number>();
  const trusted = new Set<string>();

  function countOf(key: string): number {
    const entry = failures.get(key);
    return entry && now() - entry.at < FORGET_MS ? entry.count : 0;
  }

  function waitOf(pair: string, account: string, address: string): number {
    const excess = Math.max(
      countOf(pair) - PAIR_FAILURES_FREE,
      // Who has been let in from here before does not wait for what others do, here or elsewhere.
      trusted.has(pair) ? -1 : countOf(`address ${address}`) - ADDRESS_FAILURES_FREE,
      trusted.has(pair) ? -1 : countOf(`account ${account}`) - ACCOUNT_FAILURES_FREE,
    );
    return excess < 0 ? 0 : Math.min(WAIT_MS_MAX, WAIT_MS_FIRST * 2 ** excess);
  }

  /** The oldest stand first. */
  function forgetOld(): void {
    if (failures.size === 0) return;
    for (const [key, { at }] of failures) {
      if (now() - at < FORGET_MS) break;
      failures.delete(key);
    }
  }

  async function admitLater(pair: string, wait_ms: number): Promise<boolean> {
    const others = waiting.get(pair) ?? 0;
    if (others >= WAITING_MAX) return false;
    waiting.set(pair, others + 1);
    try {
      await sleep(wait_ms);
    } finally {
      const left = (waiting.get(pair) ?? 1) - 1;
      if (left === 0) waiting.delete(pair);
      else waiting.set(pair, left);
    }
    return true;
  }

  return {
    admit(given, address) {
      forgetOld();
      // Nobody has failed of late, so nobody waits.
      if (failures.size === 0) return true;
      const account = shortened(given);
      const pair = pairOf(account, address);
      const wait_ms = waitOf(pair, account, address);
      return wait_ms === 0 || admitLater(pair, wait_ms);
    },
    failed(given, address) {
      const account = shortened(given);
      for (const key of [pairOf(account, address), `address ${address}`, `account ${account}`]) {
        const count = countOf(key) + 1;
        // Deleted first, so that the order of the map is that of the latest failures.
        failures.delete(key);
        failures.set(key, { count, at: now() });
      }
      for (const key of failures.keys()) {
        if (failures.size <= ENTRIES_MAX) break;
        failures.delete(key);
      }
    },
    succeeded(given, address) {
      const account = shortened(given);
      const pair = pairOf(account, address);
      if (failures.size > 0) failures.delete(pair);
      // In the order in which they came: who is forgotten past the limit waits once, and is back.
      if (trusted.has(pair)) return;
      trusted.add(pair);
      for (const key of trusted) {
        if (trusted.size <= ENTRIES_MAX) break;
        trusted.delete(key);
      }
    },
  };
}

function pairOf(account: string, address: string): string {
  return `${account.length} ${account} ${address}`;
}

/** An account is what a stranger says it is, at any length; what is kept of it is short. */
function shortened(account: string): string {
  // Below the length of a hash, so that none can pass for one.
  return account.length < 44 ? account : createHash('sha256').update(account).digest('base64');
}
