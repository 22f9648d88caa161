/** Reads blocks of kept attacks (attack-layout.ts), column by column. */
import { crc32, inflateRawSync } from 'node:zlib';
import { CATEGORIES, type MatchedRule } from '../event.ts';
import { type AttackEntry, entryKey } from './attack-entries.ts';
import {
  BLOCK_ENTRIES_MAX,
  BLOCK_SIZE_MAX,
  BODY_PARTS,
  type BodyPart,
  COLUMN_NUMBERS,
  COLUMNS,
  COUNTS,
  type ColumnName,
  EMPTY,
  ENTRY_SIZE,
  FIRST_DICTIONARY,
  FIRST_HASH,
  FIRST_INDEX,
  fingerprintOf,
  HASH_BYTES,
  HEAD_LENGTH_BYTES,
  isRuleColumn,
  noValue,
  PART_OF,
  PART_VALUES,
  RANKS,
  RULE_COUNTS,
  RULE_SIZE,
  SECTIONS,
  SEPARATOR,
  SIZED_COLUMNS,
  TIMES,
  VERSION,
} from './attack-layout.ts';
import { type Indexes, packedAt, RuleCursor, unpack } from './attack-packed.ts';
import { NumberReader } from './record-bytes.ts';
import { HOUR_MS, StoreDamaged } from './store.ts';

/** The head of a block, which tells how much the block has, and where its sections are. */
export class BlockHead {
  readonly bytes: Uint8Array;
  readonly threshold: number;
  /** How many entries it has, and the sum of their counts. */
  readonly length: number;
  readonly attacks: number;
  readonly rules: number;
  /** The times of the first and the last entry. */
  readonly first: number;
  readonly last: number;
  /** The sum of `entrySize`. */
  readonly size: number;
  readonly #places: NumberReader;
  #layout: Layout | undefined;

  /** Throws if it is damaged. `bytes` may be followed by others. */
  constructor(hour: number, bytes: Uint8Array) {
    this.bytes = bytes.subarray(0, headLength(bytes));
    const reader = new NumberReader(this.bytes);
    reader.at = HEAD_LENGTH_BYTES;
    if (reader.number() !== VERSION) throw new Error('a block of attacks has an unknown version');
    this.threshold = reader.number();
    this.length = reader.number();
    this.rules = reader.number();
    if (this.length > BLOCK_ENTRIES_MAX || this.rules > BLOCK_SIZE_MAX)
      throw new Error('a block of attacks has too many entries');
    this.attacks = reader.number();
    this.first = hour * HOUR_MS + reader.number();
    this.last = hour * HOUR_MS + reader.number();
    this.size = reader.number();
    this.#places = reader;
  }

  /** Decoded when it is needed: many queries read nothing else. */
  get layout(): Layout {
    this.#layout ??= readLayout(this.#places);
    return this.#layout;
  }
}

/** Throws if the block is damaged. Columns are decoded when they are read. */
export class AttackBlock {
  readonly #head: BlockHead;
  readonly #readPart: (part: BodyPart) => Uint8Array;
  #parts: (Uint8Array | undefined)[] = [];
  #dictionaries: (readonly string[])[] = [];
  /** Of dictionaries that were not read as a whole. */
  #dictionaryParts: ((readonly string[])[] | undefined)[] = [];
  #indexes: Indexes[] = [];
  #times: Float64Array | undefined;
  #counts: Float64Array | undefined;
  #ranks: Float64Array | undefined;
  #ruleEnds: Uint16Array | undefined;

  /** A block in memory. */
  static of(hour: number, bytes: Uint8Array): AttackBlock {
    const head = new BlockHead(hour, bytes);
    const { partEnds } = head.layout;
    const body = new Uint8Array(
      bytes.buffer,
      bytes.byteOffset + head.bytes.length,
      bytes.length - head.bytes.length,
    );
    return new AttackBlock(head, (part) => body.subarray(partEnds[part - 1] ?? 0, partEnds[part]));
  }

  /** `readPart`: returns a part of the body, which must not change while the block is used. */
  constructor(head: BlockHead, readPart: (part: BodyPart) => Uint8Array) {
    this.#head = head;
    this.#readPart = readPart;
  }

  get head(): Uint8Array {
    return this.#head.bytes;
  }

  get threshold(): number {
    return this.#head.threshold;
  }

  get length(): number {
    return this.#head.length;
  }

  get attacks(): number {
    return this.#head.attacks;
  }

  get first(): number {
    return this.#head.first;
  }

  get last(): number {
    return this.#head.last;
  }

  get size(): number {
    return this.#head.size;
  }

  get body(): Buffer {
    return Buffer.concat(BODY_PARTS.map((part) => this.part(part)));
  }

  part(part: BodyPart): Uint8Array {
    const bytes = this.#parts[part] ?? this.#readPart(part);
    this.#parts[part] = bytes;
    return bytes;
  }

  get bytes(): Buffer {
    return Buffer.concat([this.head, this.body]);
  }

  /** Throws unless all sections are intact. */
  checkSections(): void {
    for (let section = 0; section < SECTIONS; section++) this.#section(section);
  }

  /** Milliseconds since the epoch, ascending. */
  get times(): Float64Array {
    if (this.#times) return this.#times;
    const times = readNumbers(this.#section(TIMES), this.length);
    let time = this.first;
    for (let i = 0; i < times.length; i++) {
      time += times[i] ?? 0;
      times[i] = time;
    }
    this.#times = times;
    return times;
  }

  get counts(): Float64Array {
    if (this.#counts) return this.#counts;
    const stored = this.#section(COUNTS);
    this.#counts =
      stored.length === 0 ? new Float64Array(this.length).fill(1) : readNumbers(stored, this.length);
    return this.#counts;
  }

  /** See `sampleRank`. Empty if the hour was not over the limit. */
  get ranks(): Float64Array {
    this.#ranks ??= new Float64Array(new Uint8Array(this.#section(RANKS)).buffer);
    return this.#ranks;
  }

  /** The values of a column: `dictionary[index(i)]`. */
  column(name: ColumnName) {
    const [dictionary, indexes] = [this.dictionary(name), this.indexes(name)];
    return { dictionary, index: (i: number) => indexes[i] ?? dictionary.length };
  }

  dictionary(name: ColumnName): readonly string[] {
    const column = COLUMN_NUMBERS[name];
    const known = this.#dictionaries[column];
    if (known) return known;
    const dictionary: string[] = [];
    for (let part = 0; this.#values(name) > 0; part++) {
      const values = this.#dictionaryPart(column, part);
      if (values === undefined) break;
      for (const value of values) dictionary.push(value);
    }
    this.#dictionaries[column] = dictionary;
    this.#dictionaryParts[column] = undefined;
    return dictionary;
  }

  /** Up to 512 values of a deflated dictionary, or all of another one. Undefined after the last part. */
  #dictionaryPart(column: number, part: number): readonly string[] | undefined {
    const parts = this.#dictionaryParts[column] ?? [];
    this.#dictionaryParts[column] = parts;
    if (parts[part]) return parts[part];
    const bytes = this.#section(FIRST_DICTIONARY + column);
    if (!this.#isDeflated(column)) {
      if (part > 0) return undefined;
      parts[0] = textOf(bytes).split(SEPARATOR);
      return parts[0];
    }
    const reader = new NumberReader(bytes);
    const count = reader.number();
    if (part >= count) return undefined;
    let [start, length] = [0, 0];
    for (let n = 0; n < count; n++) {
      const own = reader.number();
      if (n < part) start += own;
      if (n === part) length = own;
    }
    start += reader.at;
    const deflated = bytes.subarray(start, start + length);
    parts[part] = textOf(inflateRawSync(deflated, { maxOutputLength: SECTION_BYTES_MAX })).split(SEPARATOR);
    return parts[part];
  }

  #isDeflated(column: number): boolean {
    return this.#head.layout.isDeflated[FIRST_DICTIONARY + column] === 1;
  }

  /** The positions of the values in their dictionary. */
  indexes(name: ColumnName): Indexes {
    const column = COLUMN_NUMBERS[name];
    const known = this.#indexes[column];
    if (known) return known;
    const bytes = this.#section(FIRST_INDEX + column);
    const values = this.#values(name);
    const indexes = bytes.length > 0 ? unpack(bytes, values) : new Uint16Array(values).map((_, i) => i);
    this.#indexes[column] = indexes;
    return indexes;
  }

  #values(name: ColumnName): number {
    return isRuleColumn(name) ? this.#head.rules : this.length;
  }

  /** Two numbers for the hash of each value of the dictionary. Undefined if the block has no hashes of the column. */
  hashes(name: ColumnName): Int32Array | undefined {
    const bytes = this.#section(FIRST_HASH + COLUMN_NUMBERS[name]);
    if (bytes.length === 0 || name === 'id') return undefined;
    const copy = new Uint8Array((bytes.length / (HASH_BYTES + 2)) * HASH_BYTES);
    copy.set(bytes.subarray(0, copy.length));
    return new Int32Array(copy.buffer);
  }

  /** Undefined if the block has no hashes of the column. */
  find(name: ColumnName, wanted: readonly Buffer[]): FoundValues | undefined {
    const bytes = this.#section(FIRST_HASH + COLUMN_NUMBERS[name]);
    if (bytes.length === 0) return undefined;
    const matches = new Uint8Array(bytes.length / (HASH_BYTES + 2));
    const hashes = Buffer.from(bytes.buffer, bytes.byteOffset, matches.length * HASH_BYTES);
    if (wanted.length > SEARCHES_MAX) {
      const texts = new Set(wanted.map((each) => each.toString('latin1')));
      for (let i = 0; i < matches.length; i++)
        if (texts.has(hashes.toString('latin1', i * HASH_BYTES, (i + 1) * HASH_BYTES))) matches[i] = 1;
    } else {
      for (const each of wanted) {
        let at = hashes.indexOf(each);
        while (at % HASH_BYTES > 0) at = hashes.indexOf(each, at + 1);
        if (at !== -1) matches[at / HASH_BYTES] = 1;
      }
    }
    let [values, entries] = [0, 0];
    for (let i = matches.indexOf(1); i !== -1; i = matches.indexOf(1, i + 1)) {
      const at = hashes.length + 2 * i;
      entries += (bytes[at] ?? 0) + 256 * (bytes[at + 1] ?? 0);
      values++;
    }
    // An entry may have several of the rules.
    return { matches, entries: isRuleColumn(name) && values > 1 ? undefined : entries };
  }

  /** Whether it may have an entry with one of these IDs in its log. */
  mayHaveId(ids: readonly string[]): boolean {
    const bytes = this.#section(FIRST_HASH + COLUMN_NUMBERS.id);
    if (bytes.length === 0) return true;
    const fingerprints = new Uint16Array(new Uint8Array(bytes).buffer);
    return ids.some((id) => fingerprints.includes(fingerprintOf(id)));
  }

  /** The position after the last rule of each entry, in the columns of rules. */
  get ruleEnds(): Uint16Array {
    if (this.#ruleEnds) return this.#ruleEnds;
    const counts = unpack(this.#section(RULE_COUNTS), this.length);
    const ends = new Uint16Array(this.length);
    let end = 0;
    for (let i = 0; i < ends.length; i++) {
      end += counts[i] ?? 0;
      ends[i] = end;
    }
    this.#ruleEnds = ends;
    return ends;
  }

  ruleCursor(): RuleCursor {
    return new RuleCursor(this.#section(RULE_COUNTS), this.length);
  }

  idOf(i: number): string {
    return this.#text('id', i);
  }

  /** Before all entries are read: they are read faster then, single ones more slowly. */
  unpack(): void {
    for (const name of COLUMNS) this.indexes(name);
    this.ruleEnds;
  }

  entry(i: number): AttackEntry {
    const text = (name: ColumnName) => this.#text(name, i);
    const [category = '', action = ''] = text('attack').split(' ');
    const entry: AttackEntry = {
      id: this.idOf(i),
      time: this.times[i] ?? 0,
      hostId: text('host') || null,
      category: CATEGORIES.find((name) => name === category) ?? fail(category),
      count: this.attacks === this.length ? 1 : (this.counts[i] ?? 0),
      rules: this.#rulesOf(i),
    };
    if (action !== '') entry.blocked = action === 'block';
    for (const name of ['source', 'country', 'method', 'url', 'query', 'userAgent'] as const) {
      const value = text(name);
      if (value !== '') entry[name] = value;
    }
    for (const name of ['status', 'score'] as const) {
      const value = text(name);
      if (value !== '') entry[name] = Number(value);
    }
    return entry;
  }

  #rulesOf(i: number): MatchedRule[] {
    const rules: MatchedRule[] = [];
    const ends = this.#ruleEnds;
    const [first, end] = ends ? [ends[i - 1] ?? 0, ends[i] ?? 0] : this.ruleCursor().rulesOf(i);
    for (let at = first; at < end; at++) {
      const rule: MatchedRule = { id: this.#text('rule', at) };
      for (const name of ['variable', 'value', 'severity'] as const) {
        const value = this.#text(name, at);
        if (value !== '') rule[name] = value;
      }
      rules.push(rule);
    }
    return rules;
  }

  #text(name: ColumnName, i: number): string {
    const column = COLUMN_NUMBERS[name];
    const indexes = this.#indexes[column];
    const index = (indexes ? indexes[i] : packedAt(this.#section(FIRST_INDEX + column), i)) ?? noValue();
    const known = this.#dictionaries[column];
    if (known) return known[index] ?? noValue();
    if (!this.#isDeflated(column)) return this.dictionary(name)[index] ?? noValue();
    const values = this.#dictionaryPart(column, Math.floor(index / PART_VALUES));
    return values?.[index % PART_VALUES] ?? noValue();
  }

  /** `entrySize` of each entry. */
  get sizes(): Float64Array {
    const { ruleEnds } = this;
    const sizes = new Float64Array(this.length);
    for (let i = 0; i < sizes.length; i++)
      sizes[i] = ENTRY_SIZE + RULE_SIZE * ((ruleEnds[i] ?? 0) - (ruleEnds[i - 1] ?? 0));
    for (const name of SIZED_COLUMNS) {
      const lengths = Uint16Array.from(this.dictionary(name), ({ length }) => length);
      const indexes = this.indexes(name);
      const isOfRules = isRuleColumn(name);
      for (let i = 0, at = 0; i < sizes.length; i++) {
        const end = isOfRules ? (ruleEnds[i] ?? 0) : i + 1;
        for (; at < end; at++) sizes[i] = (sizes[i] ?? 0) + (lengths[indexes[at] ?? 0] ?? 0);
      }
    }
    return sizes;
  }

  /** Forgets what was read, which may have megabytes. */
  release(): void {
    this.#dictionaries = [];
    this.#dictionaryParts = [];
    this.#indexes = [];
    this.#parts = [];
  }

  entries(): AttackEntry[] {
    this.unpack();
    return Array.from({ length: this.length }, (_, i) => this.entry(i));
  }

  #section(section: number): Uint8Array {
    const { starts, lengths, checksums, isChecked } = this.#head.layout;
    const [start = 0, length = 0] = [starts[section], lengths[section]];
    if (length === 0) return EMPTY;
    const bytes = this.part(PART_OF[section] ?? 0).subarray(start, start + length);
    if (bytes.length < length) throw new Error('a block of attacks is too short');
    if (!isChecked[section] && crc32(bytes) !== checksums[section])
      throw new StoreDamaged('a block of attacks');
    isChecked[section] = 1;
    return bytes;
  }
}

/** For more values, one pass over the hashes is faster than a search for each. */
const SEARCHES_MAX = 16;

/** Larger than any section. Limits what a damaged block can allocate. */
const SECTION_BYTES_MAX = 64 * 1_024 * 1_024;

/** An entry of a block, which becomes one of another block. */
export interface BlockRow {
  block: AttackBlock;
  i: number;
  time: number;
  count: number;
  /** 0 in hours that were never over the limit. */
  rank: number;
  /** See `entryKey`; '' until it is needed. */
  key: string;
}

/** As `compareEntries`. The rows of a block are in order. */
export function compareRows(a: BlockRow, b: BlockRow): number {
  if (a.block === b.block) return a.i - b.i;
  if (a.time !== b.time) return a.time - b.time;
  const [one, other] = [a.block.idOf(a.i), b.block.idOf(b.i)];
  if (one !== other) return one < other ? -1 : 1;
  for (const row of [a, b]) row.key ||= entryKey(row.block.entry(row.i));
  return a.key < b.key ? -1 : 1;
}

/** The length of the head of a block. */
export function headLength(block: Uint8Array): number {
  return (block[0] ?? 0) + 256 * (block[1] ?? 0);
}

/** What `find` finds. */
interface FoundValues {
  /** 1 for each value of the dictionary that has one of the hashes. */
  matches: Uint8Array;
  /** How many entries have such a value, if that is known. */
  entries: number | undefined;
}

/**
 * By section: where it begins in its part, its length, its checksum, and whether it is deflated; whether it was checked with
 * this head. By part: where it ends in the body.
 */
interface Layout {
  starts: Uint32Array;
  lengths: Uint32Array;
  checksums: Uint32Array;
  isDeflated: Uint8Array;
  isChecked: Uint8Array;
  partEnds: number[];
}

function readLayout(places: NumberReader): Layout {
  const starts = new Uint32Array(SECTIONS);
  const lengths = new Uint32Array(SECTIONS);
  const checksums = new Uint32Array(SECTIONS);
  const isDeflated = new Uint8Array(SECTIONS);
  const partLengths = BODY_PARTS.map(() => 0);
  for (let section = 0; section < SECTIONS; section++) {
    const place = places.number();
    const [part, length] = [PART_OF[section] ?? 0, Math.floor(place / 2)];
    starts[section] = partLengths[part] ?? 0;
    lengths[section] = length;
    partLengths[part] = (partLengths[part] ?? 0) + length;
    isDeflated[section] = place % 2;
    if (place > 1) checksums[section] = places.number();
  }
  let end = 0;
  const partEnds = partLengths.map((length) => {
    end += length;
    return end;
  });
  return { starts, lengths, checksums, isDeflated, isChecked: new Uint8Array(SECTIONS), partEnds };
}

function textOf({ buffer, byteOffset, length }: Uint8Array): string {
  return Buffer.from(buffer, byteOffset, length).toString();
}

function fail(category: string): never {
  throw new Error(`a block of attacks has the unknown category '${category}'`);
}

function readNumbers(bytes: Uint8Array, length: number): Float64Array {
  const reader = new NumberReader(bytes);
  const numbers = new Float64Array(length);
  for (let i = 0; i < length; i++) numbers[i] = reader.number();
  return numbers;
}

/** The first row that is not before a time. */
export function firstRow(times: Float64Array, time: number): number {
  let [first, end] = [0, times.length];
  while (first < end) {
    const middle = (first + end) >> 1;
    if ((times[middle] ?? 0) < time) first = middle + 1;
    else end = middle;
  }
  return first;
}
