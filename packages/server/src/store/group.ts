/** Group commit: while one group is being written, the callers that come form the next. */

/** Bounds how long one transaction keeps the event loop and the write lock. */
const GROUP_WEIGHT_MAX = 50_000;

interface Waiting<Item, Result> {
  item: Item;
  resolve(result: Result): void;
  reject(error: unknown): void;
}

export class GroupCommit<Item, Result> {
  readonly #weigh: (item: Item) => number;
  readonly #commit: (items: readonly Item[]) => Promise<Result[]>;
  readonly #isForAll: (error: unknown) => boolean;
  #waiting: Waiting<Item, Result>[] = [];
  #running: Promise<void> | null = null;

  /** `isForAll`: errors that no item of the group is the cause of, so that to try them one by one, or the next, is of no use. */
  constructor(
    weigh: (item: Item) => number,
    commit: (items: readonly Item[]) => Promise<Result[]>,
    isForAll: (error: unknown) => boolean = () => false,
  ) {
    this.#weigh = weigh;
    this.#commit = commit;
    this.#isForAll = isForAll;
  }

  add(item: Item): Promise<Result> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      this.#running ??= this.#run();
    });
  }

  /** Resolves when nothing is waiting or under way. */
  async idle(): Promise<void> {
    await this.#running;
  }

  async #run(): Promise<void> {
    // Lets the callers of this turn come together, even before the first commit.
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
      // The commit answers one result for each item.
      for (const [i, { resolve }] of group.entries()) resolve(results[i] as Result);
    } catch (error) {
      // Those who wait would hear the same, each group of them one time limit later than the one before.
      const isForAll = this.#isForAll(error);
      const failed = isForAll ? [...group, ...this.#waiting.splice(0)] : group;
      // One item that cannot be written must not take the others with it.
      if (group.length === 1 || isForAll) for (const { reject } of failed) reject(error);
      else for (const one of group) await this.#commitGroup([one]);
    }
  }
}
