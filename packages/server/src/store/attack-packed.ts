/** Packed numbers of blocks of attacks (attack-layout.ts). */
import { EMPTY } from './attack-layout.ts';

export type Indexes = Uint8Array | Uint16Array;

/** In bits. No byte has a part of a number and another one, so that most numbers need not be unpacked. */
const WIDTHS: readonly number[] = [0, 1, 2, 4, 8, 16];

/** `largest`: less than 65,536. */
export function pack(numbers: ArrayLike<number>, largest: number): Uint8Array {
  const width = WIDTHS.find((each) => largest < 2 ** each) ?? 16;
  const bytes = new Uint8Array(packedLength(numbers.length, width));
  bytes[0] = width;
  const perByte = 8 / width;
  for (let i = 0; i < numbers.length; i++) {
    const number = numbers[i] ?? 0;
    if (width === 16) {
      bytes[1 + 2 * i] = number;
      bytes[2 + 2 * i] = number >> 8;
    } else if (width > 0) {
      const at = 1 + Math.floor(i / perByte);
      bytes[at] = (bytes[at] ?? 0) | (number << (width * (i % perByte)));
    }
  }
  return bytes;
}

function packedLength(numbers: number, width: number): number {
  return 1 + Math.ceil((numbers * width) / 8);
}

/** May be a view of `bytes`. */
export function unpack(bytes: Uint8Array, length: number): Indexes {
  const width = bytes[0] ?? 0;
  if (!WIDTHS.includes(width) || bytes.length !== packedLength(length, width))
    throw new Error('a block of attacks has too few indexes');
  if (width === 0) return new Uint8Array(length);
  const packed = bytes.subarray(1);
  if (width === 8) return packed;
  if (width === 16) return new Uint16Array(new Uint8Array(packed).buffer);
  return unpackBits(packed, width).subarray(0, length);
}

/** One of the numbers, which has to exist. Its position if nothing is packed. */
export function packedAt(bytes: Uint8Array, i: number): number | undefined {
  const width = bytes[0];
  if (width === undefined) return i;
  if (width === 0) return 0;
  if (width === 16) return (bytes[1 + 2 * i] ?? 0) + 256 * (bytes[2 + 2 * i] ?? Number.NaN);
  const bit = i * width;
  const byte = bytes[1 + (bit >> 3)];
  return byte === undefined ? undefined : (byte >> (bit & 7)) & ((1 << width) - 1);
}

/** Takes all numbers of a byte from a table: faster than taking them out one by one. */
function unpackBits(packed: Uint8Array, width: number): Uint8Array {
  const table = WIDER[width] as Uint16Array | Uint32Array;
  const { length } = packed;
  const wider = width === 2 ? new Uint32Array(length) : new Uint16Array(length);
  for (let i = 0; i < length; i++) wider[i] = table[packed[i] as number] as number;
  const bytes = new Uint8Array(wider.buffer);
  return width === 1 ? unpackBits(bytes, 2) : bytes;
}

/** By width, then by value of a byte: its numbers with 2 or 8 bits each. */
const WIDER: Record<number, Uint16Array | Uint32Array> = {
  1: new Uint16Array(256).map((_, byte) => widen(byte, 1, 2)),
  2: new Uint32Array(256).map((_, byte) => widen(byte, 2, 8)),
  4: new Uint16Array(256).map((_, byte) => widen(byte, 4, 8)),
};

function widen(byte: number, width: number, wider: number): number {
  let wide = 0;
  for (let n = 0; n < 8 / width; n++) wide |= ((byte >> (n * width)) & ((1 << width) - 1)) << (n * wider);
  return wide;
}

/**
 * Finds the rules of entries, and the entries of rules, in ascending order. Adds up the packed numbers of rules byte by byte:
 * `ruleEnds` of a block takes ten times as long.
 */
export class RuleCursor {
  readonly #bytes: Uint8Array | Uint16Array;
  readonly #width: number;
  readonly #perByte: number;
  /** By value of a byte: the sum of its numbers. */
  readonly #sums: Uint8Array;
  /** The current byte, and the number of rules before it. */
  #at = 0;
  #rules = 0;

  /** Of packed numbers. */
  constructor(bytes: Uint8Array, length: number) {
    const width = bytes[0] ?? 0;
    this.#bytes = width > 8 ? unpack(bytes, length) : bytes.subarray(1);
    this.#width = width;
    this.#perByte = width > 8 ? 1 : 8 / width;
    this.#sums = BYTE_SUMS[width] ?? EMPTY;
  }

  /** The position of the first rule of an entry, in the columns of rules, and the position after the last one. */
  rulesOf(row: number): [first: number, end: number] {
    while ((this.#at + 1) * this.#perByte <= row) this.#next();
    let [first, rest] = [this.#rules, this.#bytes[this.#at] ?? 0];
    const mask = (1 << this.#width) - 1;
    for (let i = this.#at * this.#perByte; i < row; i++, rest >>= this.#width) first += rest & mask;
    return [first, first + (rest & mask)];
  }

  /** The entry that has the rule at a position. */
  rowOf(position: number): number {
    while (this.#rules + this.#sum() <= position && this.#at < this.#bytes.length) this.#next();
    let [row, end, rest] = [this.#at * this.#perByte, this.#rules, this.#bytes[this.#at] ?? 0];
    const mask = (1 << this.#width) - 1;
    for (; end + (rest & mask) <= position && rest > 0; row++, rest >>= this.#width) end += rest & mask;
    return row;
  }

  #next(): void {
    this.#rules += this.#sum();
    this.#at++;
  }

  #sum(): number {
    const byte = this.#bytes[this.#at] ?? 0;
    return this.#sums[byte] ?? byte;
  }
}

/** By width of packed numbers. */
const BYTE_SUMS: readonly (Uint8Array | undefined)[] = WIDTHS.reduce<Uint8Array[]>((tables, width) => {
  if (width > 0 && width < 8) {
    const sum = (_: number, byte: number) =>
      unpackBits(Uint8Array.of(byte), width).reduce((total, number) => total + number, 0);
    tables[width] = new Uint8Array(256).map(sum);
  }
  return tables;
}, []);
