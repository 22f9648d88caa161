/**
 * The change counter of an LMDB file, cached for a millisecond, which is how long lmdb-js keeps a snapshot. In a busy
 * service a read takes 2 us and the first read of a snapshot 4 to 6 us, of about 85 us for a computed timeline, which needs
 * the counter of the counts four times and that of the identity data once.
 *
 * Entries that were cached for the current value may be used. Everything else must be read after `renew`: then the value
 * and all reads until the next `await` are from one snapshot.
 */
export class ChangeCounter {
  readonly #read: () => number;
  readonly #takeSnapshot: () => void;
  #value: number | undefined;

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
    setTimeout(() => this.forget(), 0);
    return value;
  }

  /** Must be called after a change in this process. */
  forget(): void {
    this.#value = undefined;
  }
}
