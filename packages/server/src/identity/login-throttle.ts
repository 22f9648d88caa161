/**
 * Limits how fast passwords can be guessed, without locking the owner of an account out (decision 0020). An attempt from
 * a network the user has logged in from before waits only for its own failures. All other attempts at an account
 * run one at a time, with a growing delay. Delays hold no resources: only argon2 itself takes a slot.
 */
import { createHash } from 'node:crypto';
import { FairSemaphore } from './fair-semaphore.ts';
import type { KnownLogins } from './known-logins.ts';
import { networkOf } from './network.ts';

/** Typing errors are free. */
const PAIR_FAILURES_FREE = 5;
/** Guessing at one account from many addresses. */
const ACCOUNT_FAILURES_FREE = 20;
/** An office behind one address makes many typing errors. */
const ADDRESS_FAILURES_FREE = 50;
const DELAY_MS_FIRST = 250;
/** 17,280 guesses a day at one account, from however many addresses; bearable for a person. */
const DELAY_MS_MAX = 5_000;
/** Somebody behind the same address may guess too, so the owner's turn must come soon. */
const KNOWN_DELAY_MS_MAX = 1_000;
/** HTTP clients give up after 30 s; an attempt that would wait longer than this is refused instead. */
const WAIT_MS_MAX = 15_000;
/** Failures are forgotten after this long without another one. */
const FORGET_MS = 15 * 60_000;
/** About 200 bytes each: 4 MB. Beyond it the oldest are forgotten. */
const FAILURES_MAX = 20_000;
/** Attempts of one address that wait because of its failures; the rest are refused. */
const ADDRESS_DELAYED_MAX = 8;
/** Attempts in progress of one address (of one user and address when known). An office logs in at nine o'clock. */
const IN_PROGRESS_PER_KEY_MAX = 64;
/** Attempts in progress in total, for known and for unknown pairs each: a few KB each. */
const IN_PROGRESS_MAX = 1_000;
/** argon2 runs at once, for known and for unknown pairs each: 19 MiB and about 20 ms of a core per run. */
const HASH_SLOTS = 2;

export interface LoginThrottle {
  /** Runs `check` when the limits allow it; rejects with LoginThrottled when they do not. Resolves to its result. */
  attempt(account: string, from: AttemptSource, check: () => Promise<boolean>): Promise<boolean>;
}

export interface AttemptSource {
  address: string;
  /** A browser that the user has signed in with before. */
  device?: string | null;
}

export class LoginThrottled extends Error {
  readonly limit: 'account' | 'address' | 'service';
  readonly retryAfterS: number;

  constructor(limit: LoginThrottled['limit']) {
    super(MESSAGES[limit]);
    this.limit = limit;
    this.retryAfterS = limit === 'service' ? 5 : WAIT_MS_MAX / 1_000;
  }
}

const MESSAGES = {
  account: `too many failed logins for this user: try again in ${WAIT_MS_MAX / 1_000} s`,
  address: `too many logins from this address: try again in ${WAIT_MS_MAX / 1_000} s`,
  service: 'the service is checking too many logins: try again in 5 s',
};

export function createLoginThrottle(
  known: KnownLogins,
  now: () => number,
  sleep: (ms: number) => Promise<void>,
): LoginThrottle {
  const failures = new Map<string, { count: number; at: number }>();
  const lanes = new Map<string, Lane>();
  const delayedByAddress = new Map<string, number>();
  // Separate slots, so that strangers cannot take those of known users.
  const groups = { known: new Group(), unknown: new Group() };

  function failuresOf(key: string): number {
    const entry = failures.get(key);
    if (entry === undefined) return 0;
    const ageMs = now() - entry.at;
    // A clock that was set back must not make a delay last.
    return ageMs >= 0 && ageMs < FORGET_MS ? entry.count : 0;
  }

  function addFailure(key: string): void {
    const count = failuresOf(key) + 1;
    // Deleted first, so that the map stays in the order of the latest failures.
    failures.delete(key);
    failures.set(key, { count, at: now() });
    for (const oldest of failures.keys()) {
      if (failures.size <= FAILURES_MAX) break;
      failures.delete(oldest);
    }
  }

  /** One attempt at a time. The delay is computed when the turn comes, because the attempt before may have failed. */
  async function inLane<T>(
    key: string,
    network: string | null,
    delayMs: () => number,
    work: () => Promise<T>,
  ) {
    const lane = lanes.get(key) ?? new Lane();
    const places = Math.floor(WAIT_MS_MAX / Math.max(delayMs(), 1));
    // No network takes more than half of the places; a known pair has the lane for itself.
    const share = network === null ? places : Math.max(1, places >> 1);
    if (lane.size >= places || lane.of(network) >= share) throw new LoginThrottled('account');
    lanes.set(key, lane);
    const arrivedAt = now();
    return lane
      .run(network, async () => {
        const delay = delayMs();
        if (now() - arrivedAt + delay > WAIT_MS_MAX) throw new LoginThrottled('account');
        if (delay > 0) await sleep(delay);
        return work();
      })
      .finally(() => {
        if (lane.size === 0) lanes.delete(key);
      });
  }

  async function delayAddress(network: string): Promise<void> {
    const delay = delayAfter(failuresOf(addressKey(network)) - ADDRESS_FAILURES_FREE, DELAY_MS_MAX);
    if (delay === 0) return;
    const delayed = delayedByAddress.get(network) ?? 0;
    if (delayed >= ADDRESS_DELAYED_MAX) throw new LoginThrottled('address');
    delayedByAddress.set(network, delayed + 1);
    try {
      await sleep(delay);
    } finally {
      const left = (delayedByAddress.get(network) ?? 1) - 1;
      if (left === 0) delayedByAddress.delete(network);
      else delayedByAddress.set(network, left);
    }
  }

  return {
    attempt(givenAccount, { address, device = null }, check) {
      const account = shortened(givenAccount);
      const network = networkOf(address);
      const pair = device === null ? `pair ${account} ${network}` : `device ${device}`;
      const counted = async () => {
        const right = await check();
        if (right) {
          failures.delete(pair);
          known.add(account, network);
        } else for (const key of [pair, accountKey(account), addressKey(network)]) addFailure(key);
        return right;
      };
      const pairDelay = (maxMs: number) => delayAfter(failuresOf(pair) - PAIR_FAILURES_FREE, maxMs);
      if (device !== null || known.has(account, network)) {
        return groups.known.run(pair, async (slot) => {
          if (pairDelay(KNOWN_DELAY_MS_MAX) === 0) return slot(counted);
          return inLane(
            pair,
            null,
            () => pairDelay(KNOWN_DELAY_MS_MAX),
            () => slot(counted),
          );
        });
      }
      const accountDelay = () =>
        Math.max(
          pairDelay(DELAY_MS_MAX),
          delayAfter(failuresOf(accountKey(account)) - ACCOUNT_FAILURES_FREE, DELAY_MS_MAX),
        );
      return groups.unknown.run(network, async (slot) => {
        await delayAddress(network);
        return inLane(accountKey(account), network, accountDelay, () => slot(counted));
      });
    },
  };
}

/** Attempts in progress, and their slots for argon2. */
class Group {
  readonly #slots = new FairSemaphore(HASH_SLOTS);
  readonly #byKey = new Map<string, number>();
  #total = 0;

  /** `work` gets a function that runs the hash itself in a slot. */
  async run<T>(
    key: string,
    work: (slot: <R>(hash: () => Promise<R>) => Promise<R>) => Promise<T>,
  ): Promise<T> {
    const others = this.#byKey.get(key) ?? 0;
    if (others >= IN_PROGRESS_PER_KEY_MAX) throw new LoginThrottled('address');
    if (this.#total >= IN_PROGRESS_MAX) throw new LoginThrottled('service');
    this.#byKey.set(key, others + 1);
    this.#total++;
    try {
      return await work((hash) => this.#slots.run(key, hash));
    } finally {
      this.#total--;
      const left = (this.#byKey.get(key) ?? 1) - 1;
      if (left === 0) this.#byKey.delete(key);
      else this.#byKey.set(key, left);
    }
  }
}

/** Runs work one after the other, in the order it came. */
class Lane {
  #tail: Promise<unknown> = Promise.resolve();
  readonly #networks: (string | null)[] = [];

  get size(): number {
    return this.#networks.length;
  }

  of(network: string | null): number {
    return this.#networks.filter((one) => one === network).length;
  }

  run<T>(network: string | null, work: () => Promise<T>): Promise<T> {
    this.#networks.push(network);
    const result = this.#tail.then(work).finally(() => {
      this.#networks.splice(this.#networks.indexOf(network), 1);
    });
    this.#tail = result.catch(() => {});
    return result;
  }
}

function delayAfter(excess: number, maxMs: number): number {
  return excess < 0 ? 0 : Math.min(maxMs, DELAY_MS_FIRST * 2 ** excess);
}

const accountKey = (account: string) => `account ${account}`;
const addressKey = (network: string) => `address ${network}`;

/** An account is what a stranger says it is, at any length; what is kept of it is short. */
function shortened(account: string): string {
  // Below the length of a hash, so that none can pass for one.
  return account.length < 44 ? account : createHash('sha256').update(account).digest('base64');
}
