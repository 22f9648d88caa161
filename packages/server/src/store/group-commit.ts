/** Group commit: items that arrive while a group is being written form the next group. */
import { weighRequests } from './flagged-requests.ts';
import { type Appended, type Batch, StoreUnavailable } from './store.ts';
import { weighTopLists } from './top-records.ts';

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

/** One group commit for each project, so that projects do not wait for each other. */
export class ProjectCommits {
  readonly #commit: (batches: readonly Batch[]) => Promise<Appended[]>;
  readonly #weigh: (batch: Batch) => number;
  readonly #failsAll: (error: unknown) => boolean;
  readonly #projects = new Map<string, GroupCommit<Batch, Appended>>();

  constructor(
    commit: (batches: readonly Batch[]) => Promise<Appended[]>,
    weigh: (batch: Batch) => number = ({ events }) =>
      events.length + weighTopLists(events) + weighRequests(events),
    failsAll = (error: unknown) => error instanceof StoreUnavailable,
  ) {
    this.#commit = commit;
    this.#weigh = weigh;
    this.#failsAll = failsAll;
  }

  append(batch: Batch): Promise<Appended> {
    const { project } = batch;
    let commits = this.#projects.get(project);
    if (commits === undefined) {
      commits = new GroupCommit<Batch, Appended>(this.#weigh, this.#commit, this.#failsAll);
      this.#projects.set(project, commits);
    }
    return commits.add(batch);
  }

  /** Resolves when nothing is waiting or being written. */
  async idle(): Promise<void> {
    await Promise.all([...this.#projects.values()].map((commits) => commits.idle()));
  }
}
