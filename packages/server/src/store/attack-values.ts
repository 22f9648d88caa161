/** Numbers for the values of columns in many blocks, by their hashes: comparing texts would take several times as long. */
import type { AttackBlock } from './attack-block.ts';
import { type ColumnName, valueHash } from './attack-layout.ts';

/** A megabyte of pairs: of 4,096 values on 64 hosts. */
const SMALL_BITS = [12, 6] as const;

/** Numbers pairs of 32-bit numbers from 0 on, in the order in which they appear. */
export class PairNumbers {
  size = 0;
  /** The number of the pair in each slot, plus 1. A power of two, at least twice as many as there are pairs. */
  #slots = new Int32Array(1_024);
  #pairs = new Int32Array(1_024);
  /** So that attackers cannot choose values that share slots. */
  readonly #seed = Math.floor(Math.random() * 2 ** 32);
  /** By pair of small numbers, which most are: the number of the pair, plus 1. */
  #small: Int32Array | undefined;

  numberOf(a: number, b: number): number {
    if (a >>> SMALL_BITS[0] !== 0 || b >>> SMALL_BITS[1] !== 0) return this.#search(a, b);
    this.#small ??= new Int32Array(2 ** (SMALL_BITS[0] + SMALL_BITS[1]));
    const at = (a << SMALL_BITS[1]) | b;
    const number = (this.#small[at] as number) - 1;
    if (number !== -1) return number;
    const found = this.#search(a, b);
    this.#small[at] = found + 1;
    return found;
  }

  #search(a: number, b: number): number {
    const mask = this.#slots.length - 1;
    let slot = this.#firstSlot(a, b) & mask;
    for (;;) {
      const number = (this.#slots[slot] as number) - 1;
      if (number === -1) return this.#add(a, b, slot);
      if (this.#pairs[2 * number] === a && this.#pairs[2 * number + 1] === b) return number;
      slot = (slot + 1) & mask;
    }
  }

  pairOf(number: number): [a: number, b: number] {
    return [this.#pairs[2 * number] ?? 0, this.#pairs[2 * number + 1] ?? 0];
  }

  #add(a: number, b: number, slot: number): number {
    const number = this.size++;
    this.#slots[slot] = number + 1;
    this.#pairs[2 * number] = a;
    this.#pairs[2 * number + 1] = b;
    if (2 * this.size === this.#slots.length) this.#grow();
    return number;
  }

  #firstSlot(a: number, b: number): number {
    const mixed = Math.imul(a ^ this.#seed, 0x9e3779b1) ^ Math.imul(b + this.#seed, 0x85ebca6b);
    return Math.imul(mixed ^ (mixed >>> 15), 0xc2b2ae35) >>> 7;
  }

  #grow(): void {
    const pairs = new Int32Array(2 * this.#pairs.length);
    pairs.set(this.#pairs);
    this.#pairs = pairs;
    this.#slots = new Int32Array(2 * this.#slots.length);
    const mask = this.#slots.length - 1;
    for (let number = 0; number < this.size; number++) {
      let slot = this.#firstSlot(pairs[2 * number] as number, pairs[2 * number + 1] as number) & mask;
      while (this.#slots[slot] !== 0) slot = (slot + 1) & mask;
      this.#slots[slot] = number + 1;
    }
  }
}

/** Numbers of values, which are the same in every block. The number of no value ('') is 0. */
export class ValueNumbers {
  /** The values, by number. */
  readonly texts: string[] = [];
  readonly #hashes = new PairNumbers();
  /** Of blocks without hashes. */
  readonly #numbers = new Map<string, number>();

  constructor() {
    this.#ofText('');
  }

  /** The number of each value of a dictionary. */
  of(block: AttackBlock, column: ColumnName): Int32Array {
    const hashes = block.hashes(column);
    if (hashes === undefined)
      return Int32Array.from(
        block.dictionary(column),
        (text) => this.#numbers.get(text) ?? this.#ofText(text),
      );
    const numbers = new Int32Array(hashes.length / 2);
    for (let i = 0; i < numbers.length; i++) {
      const number = this.#hashes.numberOf(hashes[2 * i] as number, hashes[2 * i + 1] as number);
      numbers[i] = number;
      if (number === this.texts.length) this.texts.push(block.dictionary(column)[i] ?? '');
    }
    return numbers;
  }

  #ofText(text: string): number {
    const hash = valueHash(text);
    const number = this.#hashes.numberOf(hash.readInt32LE(0), hash.readInt32LE(4));
    if (number === this.texts.length) this.texts.push(text);
    this.#numbers.set(text, number);
    return number;
  }
}
