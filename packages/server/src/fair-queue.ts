/** Fair scheduling between owners (projects, users): a queue, a semaphore and a time slicer on top of it. */

/** Takes one item of each owner in turn, so that a long queue of one owner delays the others by one item only. */
export class FairQueue<T> {
  /** The owner whose turn it is comes first. */
  readonly #queues = new Map<string, T[]>();

  get isEmpty(): boolean {
    return this.#queues.size === 0;
  }

  add(owner: string, item: T): void {
    const queue = this.#queues.get(owner);
    if (queue === undefined) this.#queues.set(owner, [item]);
    else queue.push(item);
  }

  /** The next item, which stays in the queue: the first of the first owner whose first item is ready. */
  peek(isReady: (item: T) => boolean = () => true): T | undefined {
    for (const [item] of this.#queues.values()) {
      if (item !== undefined && isReady(item)) return item;
    }
    return undefined;
  }

  /** Removes the item that `peek` returns, and ends the turn of its owner. */
  take(isReady: (item: T) => boolean = () => true): T | undefined {
    for (const [owner, queue] of this.#queues) {
      const [item] = queue;
      if (item === undefined || !isReady(item)) continue;
      queue.shift();
      this.#queues.delete(owner);
      if (queue.length > 0) this.#queues.set(owner, queue);
      return item;
    }
    return undefined;
  }

  /** Removes the items of all owners for which the condition holds. */
  takeAll(condition: (item: T) => boolean): T[] {
    const taken: T[] = [];
    for (const [owner, queue] of this.#queues) {
      const kept = queue.filter((item) => !condition(item));
      if (kept.length === queue.length) continue;
      taken.push(...queue.filter(condition));
      // The owner keeps its turn.
      if (kept.length === 0) this.#queues.delete(owner);
      else this.#queues.set(owner, kept);
    }
    return taken;
  }
}

interface WaitingTask {
  owner: string;
  weight: number;
  start(): void;
}

/** A weighted semaphore that is fair between owners. */
export class Semaphore {
  readonly #weightMax: number;
  readonly #ownerWeightMax: number;
  #weight = 0;
  /** Only of owners with running tasks. */
  readonly #ownerWeights = new Map<string, number>();
  readonly #waiting = new FairQueue<WaitingTask>();

  /** `ownerWeightMax`: what one owner may use, so that others need not wait until a task of this owner ends. */
  constructor(weightMax: number, ownerWeightMax = weightMax) {
    this.#weightMax = weightMax;
    this.#ownerWeightMax = ownerWeightMax;
  }

  /** Resolves to a function that releases the weight. A weight over the limit is admitted alone. */
  async acquire(owner: string, weight: number): Promise<() => void> {
    await new Promise<void>((start) => {
      this.#waiting.add(owner, { owner, weight, start });
      this.#startWaiting();
    });
    let isReleased = false;
    return () => {
      if (isReleased) return;
      isReleased = true;
      this.#add(owner, -weight);
      this.#startWaiting();
    };
  }

  #startWaiting(): void {
    const isReady = ({ owner, weight }: WaitingTask) => {
      const used = this.#ownerWeights.get(owner) ?? 0;
      return used === 0 || used + weight <= this.#ownerWeightMax;
    };
    const fits = (weight: number) => this.#weight === 0 || this.#weight + weight <= this.#weightMax;
    for (
      let next = this.#waiting.peek(isReady);
      next && fits(next.weight);
      next = this.#waiting.peek(isReady)
    ) {
      this.#waiting.take(isReady);
      // Added here, not when the caller resumes: others may arrive in between.
      this.#add(next.owner, next.weight);
      next.start();
    }
  }

  #add(owner: string, weight: number): void {
    this.#weight += weight;
    const used = (this.#ownerWeights.get(owner) ?? 0) + weight;
    if (used > 0) this.#ownerWeights.set(owner, used);
    else this.#ownerWeights.delete(owner);
  }
}

const SLICE_MS_MAX = 5;

/** Runs long computations in slices, one in each turn of the event loop, so that requests never wait for them. */
export class TimeSlicer {
  readonly #waiting = new FairQueue<() => void>();
  readonly #now: () => number;

  /** `now`: monotonic milliseconds. */
  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /** Waits for a turn of the owner. */
  nextTurn(owner: string): Promise<void> {
    return new Promise((resolve) => {
      if (this.#waiting.isEmpty) this.#schedule();
      this.#waiting.add(owner, resolve);
    });
  }

  /** Runs the generator to its end; each `yield` is a point where it may be interrupted. */
  async run<T>(owner: string, steps: Generator<void, T>): Promise<T> {
    for (;;) {
      await this.nextTurn(owner);
      const end = this.#now() + SLICE_MS_MAX;
      do {
        const { done, value } = steps.next();
        if (done) return value;
      } while (this.#now() < end);
    }
  }

  #schedule(): void {
    setImmediate(() => {
      this.#waiting.take()?.();
      if (!this.#waiting.isEmpty) this.#schedule();
    });
  }
}
