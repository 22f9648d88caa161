/**
 * The change counter of an LMDB file, cached for at most a millisecond, which is how long lmdb-js keeps a snapshot. In a busy
 * service a read takes 2 us and the first read of a snapshot 4 to 6 us. A computed timeline of 64 us needs the counter of the
 * counts four times and that of the identity data once.
 *
 * What was cached for the current value is never older than it, but may be newer. So whatever must be of one snapshot is read
 * after `renew`: the value and all reads until the next `await` are.
 */
export class ChangeCounter {
  readonly #read: () => number;
  readonly #takeSnapshot: () => void;
  #value: number | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(read: () => number, takeSnapshot: () => void) {
    this.#read = read;
    this.#takeSnapshot = takeSnapshot;
  }

  get(): number {
    return this.#value ?? this.renew();
  }

  /** Reads the counter in a new snapshot. */
  renew(): number {
    this.#takeSnapshot();
    const value = this.#read();
    this.#value = value;
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.forget();
    }, 0);
    return value;
  }

  /** Must be called after a change in this process. */
  forget(): void {
    this.#value = undefined;
  }
}
