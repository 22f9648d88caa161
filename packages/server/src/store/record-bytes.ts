/** The bytes of records: numbers of variable length, 7 bits per byte, low bits first. */

export class NumberReader {
  readonly bytes: Uint8Array;
  at = 0;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  number(): number {
    const first = this.bytes[this.at++] ?? 255;
    // Most numbers have one byte.
    if (first < 128) return first;
    let value = first & 127;
    for (let scale = 128; ; scale *= 128) {
      const byte = this.bytes[this.at++];
      if (byte === undefined) throw new Error('a record ends inside a number');
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  }
}

/** Room for a checksum before a record. */
export const HEAD_BYTES = 4;

/** Encodes records into one growing buffer. */
export class RecordWriter {
  #buffer = Buffer.allocUnsafe(4_096);
  #length = 0;

  clear(): void {
    this.#length = HEAD_BYTES;
  }

  bytes(): Uint8Array {
    return this.#buffer.subarray(HEAD_BYTES, this.#length);
  }

  /** The record after HEAD_BYTES that the caller fills in. */
  withHead(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }

  copy(from: Uint8Array, start: number, end: number): void {
    this.#reserve(end - start);
    this.#buffer.set(from.subarray(start, end), this.#length);
    this.#length += end - start;
  }

  number(value: number): void {
    this.#reserve(10);
    this.#number(value);
  }

  cell(gap: number, count: number): void {
    this.#reserve(20);
    this.#number(gap * 2 + (count > 1 ? 1 : 0));
    if (count > 1) this.#number(count);
  }

  /** Returns the position of the length, which closeSection fills in. */
  openSection(series: number): number {
    this.#reserve(20);
    this.#number(series);
    return this.#length;
  }

  closeSection(start: number): void {
    const length = this.#length - start;
    this.#reserve(10);
    const header = length < 128 ? 1 : length < 16_384 ? 2 : length < 2_097_152 ? 3 : 4;
    this.#buffer.copyWithin(start + header, start, this.#length);
    this.#length = start;
    this.#number(length);
    if (this.#length !== start + header) throw new Error('a section is longer than its length field allows');
    this.#length += length;
  }

  #number(value: number): void {
    // Beyond 2^53 numbers are not exact: reject the batch instead of storing a wrong count.
    if (!Number.isSafeInteger(value) || value < 0) throw new Error(`${value} cannot be stored exactly`);
    let rest = value;
    while (rest > 127) {
      this.#buffer[this.#length++] = (rest % 128) + 128;
      rest = Math.floor(rest / 128);
    }
    this.#buffer[this.#length++] = rest;
  }

  #reserve(bytes: number): void {
    if (this.#length + bytes <= this.#buffer.length) return;
    const larger = Buffer.allocUnsafe(Math.max(this.#buffer.length * 2, this.#length + bytes));
    larger.set(this.#buffer.subarray(0, this.#length));
    this.#buffer = larger;
  }
}
