/**
 * Kept attacks of one project and hour, by column, so that a query reads the columns that it needs:
 *
 *   block   = head body
 *   head    = length{2} version threshold entries rules attacks first last size place*     one per section
 *   place   = length*2 + deflated, then the CRC-32 of the section unless it is empty
 *   body    = times counts ranks rule-counts indexes* hashes* dictionary*     all of these are sections; one per column
 *
 * `length` is that of the head in bytes. `attacks` is the sum of the counts, `size` that of `entrySize`. `first` and `last`
 * are times in milliseconds since the start of the hour; `times` has each as the difference from the one before. `counts` is
 * empty if all are 1, `ranks` (8 bytes each) if the hour was never over the limit. A dictionary is text, its values separated
 * by U+0000. An index has 1 or 2 bytes; there are none if all values are equal, or each is another one. `hashes` has 8 bytes
 * for each value of the dictionary. All numbers of fixed length begin with the low byte.
 */
import { hash } from 'node:crypto';
import { crc32, deflateRawSync, inflateRawSync } from 'node:zlib';
import { CATEGORIES, type MatchedRule } from '../event.ts';
import type { AttackEntry } from './attack-entries.ts';
import { NumberReader, RecordWriter } from './record-bytes.ts';
import { HOUR_MS, StoreDamaged } from './store.ts';

const VERSION = 1;

/** Also bounds what a page of a list decodes; indexes have two bytes at most. */
export const BLOCK_ENTRIES_MAX = 4_096;
/** The sum of `entrySize`: larger sections would hold the event loop for more than 10 ms. */
export const BLOCK_SIZE_MAX = 1_048_576;

/** One value per entry, or one per matched rule. */
const RULE_COLUMNS = ['rule', 'severity', 'variable', 'value'] as const;
/** Long texts come last: a query reads them of few blocks. */
const COLUMNS = [
  ...(['host', 'attack', 'source', 'country', 'method', 'status', 'score', 'rule', 'severity'] as const),
  ...(['url', 'query', 'userAgent', 'id', 'variable', 'value'] as const),
] as const;
export type ColumnName = (typeof COLUMNS)[number];
type RuleColumn = (typeof RULE_COLUMNS)[number];
type EntryColumn = Exclude<ColumnName, RuleColumn>;

/** In a large block, a query finds these values by their hashes: their dictionaries take longer to inflate. */
const HASHED_COLUMNS: readonly ColumnName[] = ['source', 'url', 'rule'];
const HASHED_ENTRIES_MIN = 1_024;
const HASH_BYTES = 8;
/** For more values, one pass over the hashes is faster than a search for each. */
const SEARCHES_MAX = 16;

/** The numbers of sections. */
const [TIMES, COUNTS, RANKS, RULE_COUNTS, FIRST_INDEX] = [0, 1, 2, 3, 4];
const FIRST_HASH = FIRST_INDEX + COLUMNS.length;
const FIRST_DICTIONARY = FIRST_HASH + COLUMNS.length;
const FIRST_LONG = FIRST_DICTIONARY + COLUMNS.indexOf('url');
const SECTIONS = FIRST_DICTIONARY + COLUMNS.length;
/** The parts of a body: long texts are in the second one. */
export const BODY_PARTS = [0, 1] as const;
export type BodyPart = (typeof BODY_PARTS)[number];

/** The memory that an entry takes at least, and a rule: no block has more than 65,536 rules, so that indexes fit. */
const ENTRY_SIZE = 32;
const RULE_SIZE = 16;

/** How much of a block an entry takes. */
export function entrySize(entry: AttackEntry): number {
  const { id, source = '', method = '', url = '', query = '', userAgent = '', rules } = entry;
  let size = ENTRY_SIZE + id.length + source.length + method.length + url.length;
  size += query.length + userAgent.length;
  for (const { id: rule, variable = '', value = '', severity = '' } of rules)
    size += RULE_SIZE + rule.length + variable.length + value.length + severity.length;
  return size;
}

/** Shorter texts do not become much smaller, and inflating them takes longer than reading them. */
const DEFLATED_BYTES_MIN = 1_024;
/** Larger than any section. Limits what a damaged block can allocate. */
const SECTION_BYTES_MAX = 64 * 1_024 * 1_024;

interface BlockContent {
  hour: number;
  /** In the order of `compareEntries`, at least one. */
  entries: readonly AttackEntry[];
  /** See attack-hours.ts. */
  threshold: number;
  /** The rank of each entry; empty if the hour was never over the limit. */
  ranks: readonly number[];
}

/** Each step takes a few milliseconds. */
export function* encodeBlock({ hour, entries, threshold, ranks }: BlockContent): Generator<void, Buffer> {
  const start = hour * HOUR_MS;
  const times = entries.map(({ time }) => time - start);
  const [first = 0, last = 0] = [times[0], times.at(-1)];
  const counts = entries.map(({ count }) => count);
  const rules = entries.flatMap((entry) => entry.rules);
  const numbers: Section[] = [
    toSection(toNumbers(times.map((time, i) => time - (times[i - 1] ?? first)))),
    toSection(toNumbers(counts.every((count) => count === 1) ? [] : counts)),
    toSection(bytesOf(Float64Array.from(ranks))),
    // One byte each, because an entry has at most 32 rules.
    { bytes: Uint8Array.from(entries, (entry) => entry.rules.length), isDeflated: false },
  ];
  const columns: ColumnSections[] = [];
  for (const name of COLUMNS) {
    yield;
    const hasHashes = HASHED_COLUMNS.includes(name) && entries.length >= HASHED_ENTRIES_MIN;
    columns.push(toColumn(valuesOf(name, entries, rules), hasHashes));
  }
  const sections: Section[] = [
    ...numbers,
    ...columns.map(({ indexes }) => indexes),
    ...columns.map(({ hashes }) => hashes),
    ...columns.map(({ dictionary }) => dictionary),
  ];
  const head = new RecordWriter();
  head.clear();
  const attacks = counts.reduce((sum, count) => sum + count, 0);
  const size = entries.reduce((sum, entry) => sum + entrySize(entry), 0);
  for (const number of [VERSION, threshold, entries.length, rules.length, attacks, first, last, size])
    head.number(number);
  for (const { bytes, isDeflated } of sections) {
    head.number(bytes.length * 2 + (isDeflated ? 1 : 0));
    if (bytes.length > 0) head.number(crc32(bytes));
  }
  const length = Buffer.alloc(HEAD_LENGTH_BYTES);
  length.writeUInt16LE(HEAD_LENGTH_BYTES + head.bytes().length);
  return Buffer.concat([length, head.bytes(), ...sections.map(({ bytes }) => bytes)]);
}

const HEAD_LENGTH_BYTES = 2;

/** The length of the head of a block. */
export function headLength(block: Uint8Array): number {
  return (block[0] ?? 0) + 256 * (block[1] ?? 0);
}

function valuesOf(
  name: ColumnName,
  entries: readonly AttackEntry[],
  rules: readonly MatchedRule[],
): string[] {
  return isRuleColumn(name) ? rules.map(RULE_VALUES[name]) : entries.map(ENTRY_VALUES[name]);
}

function isRuleColumn(name: ColumnName): name is RuleColumn {
  return (RULE_COLUMNS as readonly string[]).includes(name);
}

const ENTRY_VALUES: Record<EntryColumn, (entry: AttackEntry) => string> = {
  host: ({ hostId }) => hostId ?? '',
  attack: ({ category, blocked }) => `${category} ${blocked === undefined ? '' : blocked ? 'block' : 'log'}`,
  source: ({ source = '' }) => source,
  country: ({ country = '' }) => country,
  method: ({ method = '' }) => method,
  url: ({ url = '' }) => url,
  query: ({ query = '' }) => query,
  status: ({ status }) => numberText(status),
  score: ({ score }) => numberText(score),
  userAgent: ({ userAgent = '' }) => userAgent,
  id: ({ id }) => id,
};

const RULE_VALUES: Record<RuleColumn, (rule: MatchedRule) => string> = {
  rule: ({ id }) => id,
  variable: ({ variable = '' }) => variable,
  value: ({ value = '' }) => value,
  severity: ({ severity = '' }) => severity,
};

function numberText(value: number | undefined): string {
  return value === undefined ? '' : String(value);
}

interface Section {
  bytes: Uint8Array;
  isDeflated: boolean;
}

function toSection(plain: Uint8Array): Section {
  const deflated = plain.length < DEFLATED_BYTES_MIN ? plain : deflateRawSync(plain);
  const isDeflated = deflated.length < plain.length;
  return { bytes: isDeflated ? deflated : plain, isDeflated };
}

function toNumbers(numbers: readonly number[]): Uint8Array {
  const writer = new RecordWriter();
  writer.clear();
  for (const number of numbers) writer.number(number);
  return writer.bytes();
}

function bytesOf({ buffer }: Uint8Array | Uint16Array | Float64Array): Uint8Array {
  return new Uint8Array(buffer);
}

interface ColumnSections {
  indexes: Section;
  hashes: Section;
  dictionary: Section;
}

function toColumn(values: readonly string[], hasHashes: boolean): ColumnSections {
  const numbers = new Map<string, number>();
  const indexes = values.map((value) => {
    const number = numbers.get(value) ?? numbers.size;
    numbers.set(value, number);
    return number;
  });
  const dictionary = [...numbers.keys()];
  const isOmitted = dictionary.length === values.length || dictionary.length === 1;
  const narrow = dictionary.length <= 256 ? Uint8Array.from(indexes) : Uint16Array.from(indexes);
  // Only dictionaries are deflated: queries read the others of many blocks.
  return {
    indexes: { bytes: isOmitted ? EMPTY : bytesOf(narrow), isDeflated: false },
    hashes: { bytes: hasHashes ? Buffer.concat(dictionary.map(valueHash)) : EMPTY, isDeflated: false },
    dictionary: toSection(Buffer.from(dictionary.join(SEPARATOR))),
  };
}

const EMPTY = new Uint8Array(0);

/** `toEntry` replaces it in values. */
const SEPARATOR = '\0';

/** What `AttackBlock.find` searches for. Nobody finds two values with the same hash that matter. */
export function valueHash(value: string): Buffer {
  return Buffer.from(hash('sha256', value, 'hex').slice(0, 2 * HASH_BYTES), 'hex');
}

/** The values of a column: `dictionary[index(i)]`. */
export interface Column {
  dictionary: readonly string[];
  index(i: number): number;
}

type Indexes = Uint8Array | Uint16Array;

/** Throws if the block is damaged. Columns are decoded when they are read. */
export class AttackBlock {
  readonly head: Uint8Array;
  readonly #bodyPart: ((part: BodyPart) => Uint8Array) | undefined;
  readonly #body: Uint8Array;
  readonly threshold: number;
  /** How many entries it has, and the sum of their counts. */
  readonly length: number;
  readonly attacks: number;
  /** The times of the first and the last entry. */
  readonly first: number;
  readonly last: number;
  /** The sum of `entrySize`. */
  readonly size: number;
  readonly #rules: number;
  readonly #places: NumberReader;
  #layout: Layout | undefined;
  /** A copy of the first part of the body: a query reads several sections of it. */
  #numbers: Uint8Array | undefined;
  readonly #dictionaries = new Map<ColumnName, readonly string[]>();
  readonly #indexes = new Map<ColumnName, Indexes>();
  #times: Float64Array | undefined;
  #counts: Float64Array | undefined;
  #ranks: Float64Array | undefined;
  #ruleEnds: Uint32Array | undefined;

  /**
   * `bytes`: the block, or its head if there is a function for the parts of the body. That is called for each section that
   * is read; its result need not be valid any longer than that.
   */
  constructor(hour: number, bytes: Uint8Array, bodyPart?: (part: BodyPart) => Uint8Array) {
    const length = headLength(bytes);
    this.head = bytes.subarray(0, length);
    this.#body = bytes.subarray(length);
    this.#bodyPart = bodyPart;
    const reader = new NumberReader(this.head);
    reader.at = HEAD_LENGTH_BYTES;
    if (reader.number() !== VERSION) throw new Error('a block of attacks has an unknown version');
    this.threshold = reader.number();
    this.length = reader.number();
    this.#rules = reader.number();
    if (this.length > BLOCK_ENTRIES_MAX || this.#rules > BLOCK_SIZE_MAX)
      throw new Error('a block of attacks has too many entries');
    this.attacks = reader.number();
    this.first = hour * HOUR_MS + reader.number();
    this.last = hour * HOUR_MS + reader.number();
    this.size = reader.number();
    this.#places = reader;
  }

  /** Of a block that is in memory as a whole, or else a copy. */
  get body(): Uint8Array {
    return this.#bodyPart ? Buffer.concat(BODY_PARTS.map((part) => this.part(part))) : this.#body;
  }

  part(part: BodyPart): Uint8Array {
    // A copy, because the next part may replace this one.
    if (this.#bodyPart) return new Uint8Array(this.#bodyPart(part));
    const middle = this.#openLayout().ends[FIRST_LONG - 1] ?? 0;
    return part === 0 ? this.#body.subarray(0, middle) : this.#body.subarray(middle);
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

  column(name: ColumnName): Column {
    const [dictionary, indexes] = [this.#dictionary(name), this.indexes(name)];
    return { dictionary, index: (i) => indexes[i] ?? dictionary.length };
  }

  #dictionary(name: ColumnName): readonly string[] {
    const known = this.#dictionaries.get(name);
    if (known) return known;
    const text = Buffer.from(this.#section(FIRST_DICTIONARY + COLUMNS.indexOf(name))).toString();
    const dictionary = this.#values(name) === 0 ? [] : text.split(SEPARATOR);
    this.#dictionaries.set(name, dictionary);
    return dictionary;
  }

  indexes(name: ColumnName): Indexes {
    const known = this.#indexes.get(name);
    if (known) return known;
    const indexes = this.#readIndexes(name);
    this.#indexes.set(name, indexes);
    return indexes;
  }

  #readIndexes(name: ColumnName): Indexes {
    const values = this.#values(name);
    const bytes = this.#section(FIRST_INDEX + COLUMNS.indexOf(name));
    if (bytes.length === 0) {
      const indexes = new Uint16Array(values);
      // All values are equal, or each is another one.
      return this.#dictionary(name).length === 1 ? indexes : indexes.map((_, i) => i);
    }
    if (bytes.length === values) return bytes;
    if (bytes.length !== 2 * values) throw new Error('a block of attacks has too few indexes');
    return new Uint16Array(new Uint8Array(bytes).buffer);
  }

  #values(name: ColumnName): number {
    return isRuleColumn(name) ? this.#rules : this.length;
  }

  /** 1 for each value of a dictionary that has one of these hashes. Undefined if the block has no hashes of the column. */
  find(name: ColumnName, wanted: readonly Buffer[]): Uint8Array | undefined {
    const bytes = this.#section(FIRST_HASH + COLUMNS.indexOf(name));
    if (bytes.length === 0) return undefined;
    const hashes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    const found = new Uint8Array(hashes.length / HASH_BYTES);
    if (wanted.length > SEARCHES_MAX) {
      const texts = new Set(wanted.map((each) => each.toString('latin1')));
      for (let i = 0; i < found.length; i++)
        if (texts.has(hashes.toString('latin1', i * HASH_BYTES, (i + 1) * HASH_BYTES))) found[i] = 1;
      return found;
    }
    for (const each of wanted) {
      let at = hashes.indexOf(each);
      while (at % HASH_BYTES > 0) at = hashes.indexOf(each, at + 1);
      if (at !== -1) found[at / HASH_BYTES] = 1;
    }
    return found;
  }

  /** The position after the last rule of each entry, in the columns of rules. */
  get ruleEnds(): Uint32Array {
    if (this.#ruleEnds) return this.#ruleEnds;
    const counts = this.#section(RULE_COUNTS);
    const ends = new Uint32Array(this.length);
    let end = 0;
    for (let i = 0; i < ends.length; i++) {
      end += counts[i] ?? 0;
      ends[i] = end;
    }
    this.#ruleEnds = ends;
    return ends;
  }

  entry(i: number): AttackEntry {
    const text = (name: ColumnName) => this.#text(name, i);
    const [category = '', action = ''] = text('attack').split(' ');
    const entry: AttackEntry = {
      id: text('id'),
      time: this.times[i] ?? 0,
      hostId: text('host') || null,
      category: CATEGORIES.find((name) => name === category) ?? fail(category),
      count: this.counts[i] ?? 0,
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
    for (let at = this.ruleEnds[i - 1] ?? 0; at < (this.ruleEnds[i] ?? 0); at++) {
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
    const value = this.#dictionary(name)[this.indexes(name)[i] ?? -1];
    if (value === undefined) throw new Error('a block of attacks has an index without a value');
    return value;
  }

  entries(): AttackEntry[] {
    return Array.from({ length: this.length }, (_, i) => this.entry(i));
  }

  #openLayout(): Layout {
    this.#layout ??= readLayout(this.#places);
    return this.#layout;
  }

  #section(section: number): Uint8Array {
    const { ends, checksums, isDeflated } = this.#openLayout();
    let [start, end] = [ends[section - 1] ?? 0, ends[section] ?? 0];
    if (start === end) return EMPTY;
    let body = this.#body;
    if (this.#bodyPart && section < FIRST_LONG) {
      this.#numbers ??= new Uint8Array(this.#bodyPart(0));
      body = this.#numbers;
    } else if (this.#bodyPart) {
      const offset = ends[FIRST_LONG - 1] ?? 0;
      [body, start, end] = [this.#bodyPart(1), start - offset, end - offset];
    }
    const bytes = body.subarray(start, end);
    if (bytes.length < end - start) throw new Error('a block of attacks is too short');
    if (crc32(bytes) !== checksums[section]) throw new StoreDamaged('a block of attacks');
    if (isDeflated[section]) return inflateRawSync(bytes, { maxOutputLength: SECTION_BYTES_MAX });
    return body === this.#body || body === this.#numbers ? bytes : new Uint8Array(bytes);
  }
}

/** By section: where it ends in the body, its checksum, and whether it is deflated. */
interface Layout {
  ends: Float64Array;
  checksums: Float64Array;
  isDeflated: Uint8Array;
}

function readLayout(places: NumberReader): Layout {
  const ends = new Float64Array(SECTIONS);
  const checksums = new Float64Array(SECTIONS);
  const isDeflated = new Uint8Array(SECTIONS);
  let end = 0;
  for (let section = 0; section < SECTIONS; section++) {
    const place = places.number();
    end += Math.floor(place / 2);
    ends[section] = end;
    isDeflated[section] = place % 2;
    if (place > 1) checksums[section] = places.number();
  }
  return { ends, checksums, isDeflated };
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
