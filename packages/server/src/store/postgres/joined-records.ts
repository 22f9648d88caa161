/** Joins many records into one value, which is sent in binary; an array of them is not. */
export class JoinedRecords {
  readonly #parts: Uint8Array[] = [];
  /** Positions in SQL begin with 1. */
  readonly firsts: number[] = [];
  readonly lengths: number[] = [];
  #next = 1;

  add(record: Uint8Array): void {
    this.#parts.push(new Uint8Array(record));
    this.firsts.push(this.#next);
    this.lengths.push(record.length);
    this.#next += record.length;
  }

  bytes(): Buffer {
    return Buffer.concat(this.#parts);
  }
}
