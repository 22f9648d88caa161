/** Group commit: items that arrive while a group is being written form the next group. */
import { reached } from '../rare-states.ts';
import { type Appended, type Batch, HOUR_MS, StoreUnavailable } from './store.ts';

/** Bounds how long one transaction holds the event loop and the write lock. */
const GROUP_WEIGHT_MAX = 50_000;

interface Waiting<Item, Result> {
  item: Item;
  resolve(result: Result): void;
  reject(error: unknown): void;
}

export class GroupCommit<Item, Result> {
  readonly #weigh: (item: Item) => number;
  readonly #commit: (items: readonly Item[]) => Promise<Result[]>;
  readonly #failsAll: (error: unknown) => boolean;
  #waiting: Waiting<Item, Result>[] = [];
  #running: Promise<void> | null = null;

  /** `failsAll`: whether an error is independent of the items, so that retrying them one by one is useless. */
  constructor(
    weigh: (item: Item) => number,
    commit: (items: readonly Item[]) => Promise<Result[]>,
    failsAll: (error: unknown) => boolean = () => false,
  ) {
    this.#weigh = weigh;
    this.#commit = commit;
    this.#failsAll = failsAll;
  }

  add(item: Item): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      this.#running ??= this.#run();
    });
  }

  /** Resolves when nothing is waiting or being written. */
  async idle(): Promise<void> {
    await this.#running;
  }

  async #run(): Promise<void> {
    // Groups the callers of this turn, even before the first commit.
    await Promise.resolve();
    while (this.#waiting.length > 0) await this.#commitGroup(this.#nextGroup());
    this.#running = null;
  }

  #nextGroup(): Waiting<Item, Result>[] {
    let weight = 0;
    const end = this.#waiting.findIndex(({ item }, i) => {
      weight += this.#weigh(item);
      return i > 0 && weight > GROUP_WEIGHT_MAX;
    });
    return this.#waiting.splice(0, end === -1 ? this.#waiting.length : end);
  }

  async #commitGroup(group: Waiting<Item, Result>[]): Promise<void> {
    if (group.length > 1) reached('group-commit.shared');
    try {
      const results = await this.#commit(group.map(({ item }) => item));
      // The commit returns one result per item.
      for (const [i, { resolve }] of group.entries()) resolve(results[i] as Result);
    } catch (error) {
      // Waiting items would fail too, each group one timeout later than the one before.
      const failsAll = this.#failsAll(error);
      const failed = failsAll ? [...group, ...this.#waiting.splice(0)] : group;
      // One item that cannot be written must not fail the others.
      if (group.length === 1 || failsAll) for (const { reject } of failed) reject(error);
      else for (const one of group) await this.#commitGroup([one]);
    }
  }
}

const MINUTE_MS = 60_000;
/** What parts of a batch cost, roughly in microseconds: to write the counts of a host in a minute. */
const MINUTE_WEIGHT = 24;
/** To decode and write the top lists of a host in an hour of a flood. */
const LISTS_WEIGHT = 1_000;
/** To do so for the short list of error pages of a host, hour and code. */
const PAGES_WEIGHT = 200;
const ATTACK_WEIGHT = 5;
const FLAGGED_WEIGHT = 25;

/** The cost of a batch, roughly in microseconds. Exact if the events of each host are sorted by time. */
export function weighBatch({ events, pages = [] }: Pick<Batch, 'events' | 'pages'>): number {
  const minutes = new Map<string | null, number>();
  const hours = new Map<string | null, number>();
  let weight = events.length + pages.length * PAGES_WEIGHT;
  for (const { time, hostId, details, flagged } of events) {
    if (isNew(minutes, hostId, Math.floor(time / MINUTE_MS))) weight += MINUTE_WEIGHT;
    if (flagged !== undefined) weight += FLAGGED_WEIGHT;
    if (details === undefined) continue;
    weight += ATTACK_WEIGHT;
    if (isNew(hours, hostId, Math.floor(time / HOUR_MS))) weight += LISTS_WEIGHT;
  }
  return weight;
}

function isNew(latest: Map<string | null, number>, host: string | null, time: number): boolean {
  if (latest.get(host) === time) return false;
  latest.set(host, time);
  return true;
}

/** One group commit for each project, so that projects do not wait for each other. */
export class ProjectCommits {
  readonly #commit: (batches: readonly Batch[]) => Promise<Appended[]>;
  readonly #failsAll: (error: unknown) => boolean;
  readonly #projects = new Map<string, GroupCommit<Batch, Appended>>();

  constructor(
    commit: (batches: readonly Batch[]) => Promise<Appended[]>,
    failsAll = (error: unknown) => error instanceof StoreUnavailable,
  ) {
    this.#commit = commit;
    this.#failsAll = failsAll;
  }

  append(batch: Batch): Promise<Appended> {
    const { project } = batch;
    let commits = this.#projects.get(project);
    if (commits === undefined) {
      commits = new GroupCommit<Batch, Appended>(weighBatch, this.#commit, this.#failsAll);
      this.#projects.set(project, commits);
    }
    return commits.add(batch);
  }

  /** Resolves when nothing is waiting or being written. */
  async idle(): Promise<void> {
    await Promise.all([...this.#projects.values()].map((commits) => commits.idle()));
  }
}
