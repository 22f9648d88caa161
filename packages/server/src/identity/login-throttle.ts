/**
 * Limits how fast passwords can be guessed, without locking out the owner of an account (decision 0020). Attempts from a
 * network that the user has logged in from before wait only for their own failures. All other attempts at an account run
 * one at a time, with a growing delay; a network that has not tried yet goes first. Delays hold no resources: only argon2 itself takes a slot.
 */
import { hash } from 'node:crypto';
import { BoundedCache } from '../cache.ts';
import { Semaphore } from '../fair-queue.ts';
import { blockOf, type KnownNetworks, networkOf } from './known-networks.ts';

/** Typing errors are free. */
const PAIR_FAILURES_FREE = 5;
/** Limits guesses at one account from many addresses. */
const ACCOUNT_FAILURES_FREE = 20;
/** An office behind one address makes many typing errors. */
const ADDRESS_FAILURES_FREE = 50;
const DELAY_MS_FIRST = 250;
/** Allows 17,280 guesses a day at one account from all addresses together; a person can still wait this long. */
const DELAY_MS_MAX = 5_000;
/** An attacker may be behind the same address, so the owner must not wait long. */
const KNOWN_DELAY_MS_MAX = 1_000;
/** Attempts that would wait longer are refused: HTTP clients give up after 30 s. */
const WAIT_MS_MAX = 15_000;
/** Failures are forgotten after this long without another one. */
const FORGET_MS = 15 * 60_000;
/** About 200 bytes each, 4 MB in total. */
const FAILURES_MAX = 20_000;
/** Delayed attempts of one address; further ones are refused. */
const ADDRESS_DELAYED_MAX = 8;
/** Attempts in progress per address, or per user and address if known: enough for an office at nine o'clock. */
const IN_PROGRESS_PER_KEY_MAX = 64;
/** Attempts in progress in total, separately for known and unknown pairs; a few KB per attempt. */
const IN_PROGRESS_MAX = 1_000;
/** Concurrent argon2 runs, separately for known and unknown pairs: 19 MiB and about 20 ms of a core per run. */
const HASH_SLOTS = 2;

export class LoginThrottled extends Error {
  readonly limit: keyof typeof RETRY_AFTER_S;
  readonly retryAfterS: number;

  constructor(limit: LoginThrottled['limit']) {
    super(MESSAGES[limit]);
    this.limit = limit;
    this.retryAfterS = RETRY_AFTER_S[limit];
  }
}

const RETRY_AFTER_S = {
  account: WAIT_MS_MAX / 1_000,
  address: WAIT_MS_MAX / 1_000,
  service: 5,
  exchanges: 1,
};

const MESSAGES = {
  account: `too many failed logins for this user: retry in ${RETRY_AFTER_S.account} s`,
  address: `too many logins from this address: retry in ${RETRY_AFTER_S.address} s`,
  service: `the service is processing too many logins: retry in ${RETRY_AFTER_S.service} s`,
  exchanges: `too many token exchanges by this user: retry in ${RETRY_AFTER_S.exchanges} s`,
};

export type LoginThrottle = ReturnType<typeof createLoginThrottle>;

export function createLoginThrottle(
  knownNetworks: KnownNetworks,
  now: () => number,
  sleep: (ms: number) => Promise<void>,
) {
  const failures = new BoundedCache<string, { count: number; at: number; turn: number }>({
    name: null,
    entriesMax: FAILURES_MAX,
    unitBytes: 200,
  });
  /** Failed attempts so far, which order those that wait without a clock. */
  let turns = 0;
  /** Attempts that run one after the other, by account or known pair. */
  const lanes = new Map<string, Lane>();
  const delayedAttempts = new Counters();
  // Separate slots, so that attackers cannot take those of known users.
  const groups = { known: new AttemptGroup(), unknown: new AttemptGroup() };

  function failuresOf(key: string): number {
    const entry = failures.get(key);
    if (entry === undefined) return 0;
    const ageMs = now() - entry.at;
    // A clock that was set back must not prolong a delay.
    return ageMs >= 0 && ageMs < FORGET_MS ? entry.count : 0;
  }

  /** Doubles with each failure beyond the free ones. */
  function delayOf(key: string, failuresFree: number, maxMs: number): number {
    const excess = failuresOf(key) - failuresFree;
    return excess < 0 ? 0 : Math.min(maxMs, DELAY_MS_FIRST * 2 ** excess);
  }

  function addFailure(key: string): void {
    failures.set(key, { count: failuresOf(key) + 1, at: now(), turn: turns });
  }

  /**
   * The waiting attempts, the next one first: one of each network in turn, first networks that have not failed yet, then
   * those that failed longest ago. Among new networks, blocks of addresses take turns in the same way.
   */
  function ranked(waiting: readonly Waiting[]): Waiting[] {
    const turnOf = (key: string) => failures.get(key)?.turn ?? 0;
    const ofPair = new Counters();
    const ranks = waiting.map((attempt) => {
      const { pair, block } = attempt;
      ofPair.add(pair, 1);
      return { attempt, rank: [ofPair.of(pair), turnOf(pair), turnOf(block)] as const };
    });
    ranks.sort(({ rank: a }, { rank: b }) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]);
    return ranks.map(({ attempt }) => attempt);
  }

  /** If too many wait, the last one is refused, which need not be this one. */
  function waitForTurn(lane: Lane, keys: Pick<Waiting, 'pair' | 'block'>, waitingMax: number): Promise<void> {
    return new Promise((start, reject) => {
      const { waiting } = lane;
      waiting.push({ ...keys, start, refuse: () => reject(new LoginThrottled('account')) });
      if (waiting.length > waitingMax) remove(waiting, ranked(waiting).at(-1))?.refuse();
    });
  }

  /** Runs one attempt at a time. The delay depends on whether the previous attempt failed, so it is computed last. */
  async function runInLane<T>(
    key: string,
    keys: Pick<Waiting, 'pair' | 'block'>,
    delayMs: () => number,
    work: () => Promise<T>,
  ): Promise<T> {
    const arrivedAt = now();
    const lane = lanes.get(key);
    const current = lane ?? { waiting: [] };
    if (lane === undefined) lanes.set(key, current);
    // One attempt is running, or waits for its delay.
    else await waitForTurn(lane, keys, Math.floor(WAIT_MS_MAX / Math.max(delayMs(), 1)) - 1);
    try {
      const delay = delayMs();
      if (now() - arrivedAt + delay > WAIT_MS_MAX) throw new LoginThrottled('account');
      if (delay > 0) await sleep(delay);
      return await work();
    } finally {
      const next = remove(current.waiting, ranked(current.waiting)[0]);
      if (next === undefined) lanes.delete(key);
      else next.start();
    }
  }

  async function delayAddress(network: string): Promise<void> {
    const delay = delayOf(addressKey(network), ADDRESS_FAILURES_FREE, DELAY_MS_MAX);
    if (delay === 0) return;
    if (delayedAttempts.of(network) >= ADDRESS_DELAYED_MAX) throw new LoginThrottled('address');
    delayedAttempts.add(network, 1);
    try {
      await sleep(delay);
    } finally {
      delayedAttempts.add(network, -1);
    }
  }

  return {
    /**
     * Runs `check` and resolves to its result, or rejects with LoginThrottled. `device` is the ID of a browser that the
     * user has signed in with before.
     */
    attempt(
      givenAccount: string,
      { address, device = null }: { address: string; device?: string | null },
      check: () => Promise<boolean>,
    ): Promise<boolean> {
      const account = shortened(givenAccount);
      const network = networkOf(address);
      const pair = device === null ? `pair ${account} ${network}` : `device ${device}`;
      const block = `block ${account} ${blockOf(network)}`;
      const counted = async () => {
        const succeeded = await check();
        if (succeeded) {
          failures.delete(pair);
          knownNetworks.add(account, network);
        } else {
          turns++;
          for (const key of [pair, block, accountKey(account), addressKey(network)]) addFailure(key);
        }
        return succeeded;
      };
      if (device !== null || knownNetworks.has(account, network)) {
        const pairDelay = () => delayOf(pair, PAIR_FAILURES_FREE, KNOWN_DELAY_MS_MAX);
        return groups.known.run(pair, async (slot) => {
          if (pairDelay() === 0) return slot(counted);
          return runInLane(pair, { pair, block }, pairDelay, () => slot(counted));
        });
      }
      const accountDelay = () =>
        Math.max(
          delayOf(pair, PAIR_FAILURES_FREE, DELAY_MS_MAX),
          delayOf(accountKey(account), ACCOUNT_FAILURES_FREE, DELAY_MS_MAX),
        );
      return groups.unknown.run(network, async (slot) => {
        await delayAddress(network);
        return runInLane(accountKey(account), { pair, block }, accountDelay, () => slot(counted));
      });
    },
  };
}

/** Limits the attempts in progress, and those that run argon2. */
export class AttemptGroup {
  readonly #slots = new Semaphore(HASH_SLOTS);
  readonly #inProgress = new Counters();
  #total = 0;

  /** `work` gets a function that runs the hash in a slot. */
  async run<T>(
    key: string,
    work: (slot: <R>(hash: () => Promise<R>) => Promise<R>) => Promise<T>,
  ): Promise<T> {
    const left = IN_PROGRESS_MAX - this.#total;
    if (left <= 0) throw new LoginThrottled('service');
    // No more than is left for others, so that a new address finds room while a hundred others send all they can.
    if (this.#inProgress.of(key) >= Math.min(IN_PROGRESS_PER_KEY_MAX, left))
      throw new LoginThrottled('address');
    this.#inProgress.add(key, 1);
    this.#total++;
    try {
      return await work(async (hash) => {
        const release = await this.#slots.acquire(key, 1);
        return hash().finally(release);
      });
    } finally {
      this.#total--;
      this.#inProgress.add(key, -1);
    }
  }
}

class Counters {
  readonly #counts = new Map<string, number>();

  of(key: string): number {
    return this.#counts.get(key) ?? 0;
  }

  add(key: string, change: number): void {
    const count = this.of(key) + change;
    if (count === 0) this.#counts.delete(key);
    else this.#counts.set(key, count);
  }
}

interface Lane {
  readonly waiting: Waiting[];
}

/** An attempt that waits for its turn. */
interface Waiting {
  /** The keys of its failures: of the user and the network, and of the user and the block of addresses. */
  readonly pair: string;
  readonly block: string;
  start(): void;
  refuse(): void;
}

function remove<T>(list: T[], item: T | undefined): T | undefined {
  if (item !== undefined) list.splice(list.indexOf(item), 1);
  return item;
}

const accountKey = (account: string) => `account ${account}`;
const addressKey = (network: string) => `address ${network}`;

/** Bounds the memory per account: clients may send names of any length. */
function shortened(account: string): string {
  // Shorter than a hash, so that no account can imitate one.
  return account.length < 44 ? account : hash('sha256', account, 'base64');
}
