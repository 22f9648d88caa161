/** A weighted semaphore: work starts fairly between owners, while the weight of all that runs stays within a limit. */
import { FairQueue } from './ingest/fair-queue.ts';

export class Semaphore {
  readonly #weightMax: number;
  #running = 0;
  readonly #waiting = new FairQueue<{ weight: number; start(): void }>();

  constructor(weightMax: number) {
    this.#weightMax = weightMax;
  }

  /** Resolves with a function that releases the weight. What is heavier than the limit runs alone. */
  async acquire(owner: string, weight: number): Promise<() => void> {
    await new Promise<void>((start) => {
      this.#waiting.add(owner, { weight, start });
      this.#startWaiting();
    });
    let isReleased = false;
    return () => {
      if (isReleased) return;
      isReleased = true;
      this.#running -= weight;
      this.#startWaiting();
    };
  }

  #startWaiting(): void {
    for (let next = this.#waiting.peek(); next && this.#fits(next.weight); next = this.#waiting.peek()) {
      this.#waiting.take();
      // Added here, not when the caller goes on: others may come in between.
      this.#running += next.weight;
      next.start();
    }
  }

  #fits(weight: number): boolean {
    return this.#running === 0 || this.#running + weight <= this.#weightMax;
  }
}
