/** Merges that are known already, so that a transaction need not repeat what was computed before it began. */
export class KnownMerges<Key, Merged> {
  readonly #known = new Map<Key, { stored: Buffer | undefined; merged: Merged }>();
  readonly #room: { bytes: number };

  /** `room`: how much may be kept, shared by all merges of a transaction. */
  constructor(room: { bytes: number }) {
    this.#room = room;
  }

  /** The merge of the same addition with the same stored record. */
  get(key: Key, stored: Uint8Array | undefined): Merged | undefined {
    const known = this.#known.get(key);
    if (known === undefined) return undefined;
    const isSame = stored === undefined ? known.stored === undefined : known.stored?.equals(stored);
    return isSame ? known.merged : undefined;
  }

  /** `bytes`: the length of what is merged. `copy` is called if there is room. */
  keep(key: Key, stored: Uint8Array | undefined, bytes: number, copy: () => Merged): void {
    this.#room.bytes -= bytes + (stored?.length ?? 0);
    if (this.#room.bytes >= 0)
      this.#known.set(key, { stored: stored && Buffer.from(stored), merged: copy() });
  }
}
