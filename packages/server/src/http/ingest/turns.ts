/**
 * Shares the processor: long computations run step by step, a few milliseconds in each turn of the event loop and
 * fairly between owners, so that other requests never wait for them.
 */
import { FairQueue } from './fair-queue.ts';

const TURN_MS_MAX = 5;

export class Turns {
  readonly #queue = new FairQueue<() => void>();
  readonly #now: () => number;
  #isScheduled = false;

  /** `now`: milliseconds that never go back. */
  constructor(now = () => performance.now()) {
    this.#now = now;
  }

  /** Runs the generator to its end. A step is what it does until its next `yield`. */
  run<T>(owner: string, steps: Generator<void, T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const step = () => {
        try {
          const { done, value } = steps.next();
          if (!done) {
            this.#queue.add(owner, step);
            return;
          }
          resolve(value);
        } catch (error) {
          reject(error);
        }
      };
      this.#queue.add(owner, step);
      this.#schedule();
    });
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => this.#turn());
  }

  #turn(): void {
    this.#isScheduled = false;
    const end = this.#now() + TURN_MS_MAX;
    do this.#queue.take()?.();
    while (this.#queue.peek() && this.#now() < end);
    if (this.#queue.peek()) this.#schedule();
  }
}
