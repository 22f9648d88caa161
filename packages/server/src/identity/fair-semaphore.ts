/** A semaphore that serves its waiters in turn by key, so that no key delays another by more than one piece of work. */
export class FairSemaphore {
  #free: number;
  readonly #queues = new Map<string, (() => void)[]>();

  constructor(slots: number) {
    this.#free = slots;
  }

  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((enter) => this.#enqueue(key, enter));
    try {
      return await work();
    } finally {
      this.#release();
    }
  }

  #enqueue(key: string, enter: () => void): void {
    const queue = this.#queues.get(key);
    if (queue) queue.push(enter);
    else this.#queues.set(key, [enter]);
  }

  /** The slot passes to the key that waited longest for its turn; that key goes to the end. */
  #release(): void {
    const next = this.#queues.entries().next();
    if (next.done) {
      this.#free++;
      return;
    }
    const [key, queue] = next.value;
    this.#queues.delete(key);
    const enter = queue.shift();
    if (queue.length > 0) this.#queues.set(key, queue);
    enter?.();
  }
}
