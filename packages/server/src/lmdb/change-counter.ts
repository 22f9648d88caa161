/**
 * The change counter of an LMDB file, kept for a millisecond: so long lmdb-js keeps a snapshot, too. A read takes 2 us, the
 * first one of a snapshot 4 to 6 us, and a timeline needs the counter five times: without this it takes 12% longer.
 *
 * What is cached for the current value may be used. Anything else must be read after `renew`: then the value and what is
 * read until the next `await` are of one snapshot.
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

  /** To be called after a change in this process. */
  forget(): void {
    this.#value = undefined;
  }
}
