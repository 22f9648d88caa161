/**
 * Kept attacks of one project and hour, by column, so that a query reads the columns that it needs:
 *
 *   block   = head body
 *   head    = length{2} version threshold entries rules attacks first last size place*     one per section
 *   place   = length*2 + deflated, then the CRC-32 of the section unless it is empty
 *   body    = times counts ranks rule-counts indexes* hashes* dictionary*     all of these are sections; one per column
 *   deflated dictionary = parts length* deflated*     the number of parts, which have 512 values each, and their lengths
 *   packed  = width numbers     a byte, then numbers of so many bits each (0, 1, 2, 4, 8 or 16), from the low bits on
 *
 * `length` is that of the head in bytes. `attacks` is the sum of the counts, `size` that of `entrySize`. `first` and `last`
 * are times in milliseconds since the start of the hour; `times` has each as the difference from the one before. `counts` is
 * empty if all are 1, `ranks` (8 bytes each) if the hour was never over the limit. A dictionary is text, its values separated
 * by U+0000. Indexes and rule counts are packed; a column has no indexes if each value is another one. `hashes` has 8 bytes
 * for each value of the dictionary, then for each the number of its entries (2 bytes); of IDs, 2 bytes of their CRC-32. All
 * numbers of fixed length begin with the low byte.
 */
import { hash } from 'node:crypto';
import { crc32, deflateRawSync, inflateRawSync } from 'node:zlib';
import { CATEGORIES, type MatchedRule } from '../event.ts';
import { type AttackEntry, entryKey } from './attack-entries.ts';
import { NumberReader, RecordWriter } from './record-bytes.ts';
import { HOUR_MS, StoreDamaged } from './store.ts';

const VERSION = 2;

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
const COLUMN_NUMBERS = Object.fromEntries(COLUMNS.map((name, i) => [name, i])) as Record<ColumnName, number>;
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

/** The columns that `entrySize` adds up. Attackers do not choose how long the others are. */
const SIZED_COLUMNS: readonly ColumnName[] = [
  ...(['id', 'source', 'method', 'url', 'query', 'userAgent'] as const),
  ...RULE_COLUMNS,
];

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
/** How many values of a dictionary are deflated together: fewer would take more space. */
const PART_VALUES = 512;
/** Larger than any section. Limits what a damaged block can allocate. */
const SECTION_BYTES_MAX = 64 * 1_024 * 1_024;

/** The values of a column: `dictionary[indexes[i]]`. */
interface Column {
  dictionary: readonly string[];
  indexes: ArrayLike<number>;
}

/** What is encoded, one value per entry. */
interface BlockContent {
  hour: number;
  /** See attack-hours.ts. */
  threshold: number;
  times: readonly number[];
  counts: readonly number[];
  /** Empty if the hour was never over the limit. */
  ranks: readonly number[];
  ruleCounts: readonly number[];
  column: (name: ColumnName) => Column;
  /** The block will soon be merged with others: do not take the time to deflate it. */
  isOpen?: boolean | undefined;
}

type Encoding = Generator<void, Buffer>;

/** `entries`: in the order of `compareEntries`, at least one. `ranks`: of each. Each step takes a few milliseconds. */
export function encodeBlock(
  content: Pick<BlockContent, 'hour' | 'threshold' | 'ranks' | 'isOpen'> & {
    entries: readonly AttackEntry[];
  },
): Encoding {
  const { entries } = content;
  const rules = entries.flatMap((entry) => entry.rules);
  return encode({
    ...content,
    times: entries.map(({ time }) => time),
    counts: entries.map(({ count }) => count),
    ruleCounts: entries.map((entry) => entry.rules.length),
    column(name) {
      const dictionary = new Dictionary();
      const numberOf = (value: string) => dictionary.numberOf(value);
      const values = isRuleColumn(name) ? rules.map(RULE_VALUES[name]) : entries.map(ENTRY_VALUES[name]);
      return { dictionary: dictionary.values, indexes: values.map(numberOf) };
    },
  });
}

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

/** As `encodeBlock`, from rows of other blocks. */
export function encodeRows(
  content: Pick<BlockContent, 'hour' | 'threshold' | 'isOpen'> & { rows: readonly BlockRow[] },
): Encoding {
  const { rows, threshold } = content;
  return encode({
    ...content,
    times: rows.map(({ time }) => time),
    counts: rows.map(({ count }) => count),
    ranks: threshold > 0 ? rows.map(({ rank }) => rank) : [],
    ruleCounts: rows.map(({ block: { ruleEnds }, i }) => (ruleEnds[i] ?? 0) - (ruleEnds[i - 1] ?? 0)),
    column: (name) => columnOfRows(name, rows),
  });
}

/** Looks up each value once per block. */
function columnOfRows(name: ColumnName, rows: readonly BlockRow[]): Column {
  const dictionary = new Dictionary();
  const known = new Map<AttackBlock, Column & { numbers: Int32Array }>();
  const indexes: number[] = [];
  const isOfRules = isRuleColumn(name);
  for (const { block, i } of rows) {
    let source = known.get(block);
    if (source === undefined) {
      const values = block.dictionary(name);
      const numbers = new Int32Array(values.length).fill(-1);
      source = { dictionary: values, indexes: block.indexes(name), numbers };
      known.set(block, source);
    }
    const first = isOfRules ? (block.ruleEnds[i - 1] ?? 0) : i;
    const end = isOfRules ? (block.ruleEnds[i] ?? 0) : i + 1;
    for (let at = first; at < end; at++) {
      const index = source.indexes[at] ?? 0;
      let number = source.numbers[index] ?? -1;
      if (number === -1) {
        number = dictionary.numberOf(source.dictionary[index] ?? noValue());
        source.numbers[index] = number;
      }
      indexes.push(number);
    }
  }
  return { dictionary: dictionary.values, indexes };
}

/** Numbers values in the order in which they appear. */
class Dictionary {
  readonly values: string[] = [];
  readonly #numbers = new Map<string, number>();

  numberOf(value: string): number {
    const known = this.#numbers.get(value);
    if (known !== undefined) return known;
    const number = this.values.push(value) - 1;
    this.#numbers.set(value, number);
    return number;
  }
}

function* encode(content: BlockContent): Encoding {
  const { hour, threshold, times, counts, ranks, ruleCounts, column, isOpen = false } = content;
  const start = hour * HOUR_MS;
  const [first = 0, last = 0] = [times[0], times.at(-1)];
  const sections: Section[] = [
    plainSection(toNumbers(times.map((time, i) => time - (times[i - 1] ?? first)))),
    plainSection(toNumbers(counts.every((count) => count === 1) ? [] : counts)),
    plainSection(bytesOf(Float64Array.from(ranks))),
    plainSection(pack(ruleCounts, Math.max(...ruleCounts))),
  ];
  const rules = ruleCounts.reduce((sum, count) => sum + count, 0);
  let size = ENTRY_SIZE * times.length + RULE_SIZE * rules;
  for (const [number, name] of COLUMNS.entries()) {
    yield;
    const { dictionary, indexes } = column(name);
    if (SIZED_COLUMNS.includes(name)) size += sizeOf(dictionary, indexes);
    const isOwn = dictionary.length === indexes.length;
    sections[FIRST_INDEX + number] = plainSection(isOwn ? EMPTY : pack(indexes, dictionary.length - 1));
    const rulesOf = isRuleColumn(name) ? ruleCounts : undefined;
    sections[FIRST_HASH + number] = plainSection(
      times.length < HASHED_ENTRIES_MIN ? EMPTY : toHashes(name, dictionary, indexes, rulesOf),
    );
    yield;
    sections[FIRST_DICTIONARY + number] = dictionarySection(dictionary, isOpen);
  }
  const head = new RecordWriter();
  head.clear();
  const attacks = counts.reduce((sum, count) => sum + count, 0);
  for (const number of [VERSION, threshold, times.length, rules, attacks, first - start, last - start, size])
    head.number(number);
  for (const { bytes, isDeflated } of sections) {
    head.number(bytes.length * 2 + (isDeflated ? 1 : 0));
    if (bytes.length > 0) head.number(crc32(bytes));
  }
  const length = Buffer.alloc(HEAD_LENGTH_BYTES);
  length.writeUInt16LE(HEAD_LENGTH_BYTES + head.bytes().length);
  return Buffer.concat([length, head.bytes(), ...sections.map(({ bytes }) => bytes)]);
}

/** How long the values are, each as often as it occurs. */
function sizeOf(dictionary: readonly string[], indexes: ArrayLike<number>): number {
  let size = 0;
  for (let i = 0; i < indexes.length; i++) size += dictionary[indexes[i] ?? 0]?.length ?? 0;
  return size;
}

/** `ruleCounts`: of a column of rules. An entry with the same rule twice counts once. */
function toHashes(
  name: ColumnName,
  dictionary: readonly string[],
  indexes: ArrayLike<number>,
  ruleCounts: readonly number[] | undefined,
): Uint8Array {
  if (name === 'id') return bytesOf(Uint16Array.from(dictionary, fingerprintOf));
  if (!HASHED_COLUMNS.includes(name)) return EMPTY;
  const counts = new Uint16Array(dictionary.length);
  const count = (index: number) => {
    counts[index] = (counts[index] ?? 0) + 1;
  };
  if (ruleCounts === undefined) for (let i = 0; i < indexes.length; i++) count(indexes[i] ?? 0);
  let at = 0;
  for (const length of ruleCounts ?? []) {
    const own = new Set<number>();
    for (const end = at + length; at < end; at++) own.add(indexes[at] ?? 0);
    own.forEach(count);
  }
  return Buffer.concat([...dictionary.map(valueHash), bytesOf(counts)]);
}

const HEAD_LENGTH_BYTES = 2;

/** The length of the head of a block. */
export function headLength(block: Uint8Array): number {
  return (block[0] ?? 0) + 256 * (block[1] ?? 0);
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

/** Queries read it of many blocks, so it is not deflated. */
function plainSection(bytes: Uint8Array): Section {
  return { bytes, isDeflated: false };
}

/** A page of few attacks from many blocks inflates only the parts with their values. */
function dictionarySection(values: readonly string[], isOpen: boolean): Section {
  const plain = Buffer.from(values.join(SEPARATOR));
  if (isOpen || plain.length < DEFLATED_BYTES_MIN) return plainSection(plain);
  const parts: Buffer[] = [];
  for (let i = 0; i < values.length; i += PART_VALUES)
    parts.push(deflateRawSync(values.slice(i, i + PART_VALUES).join(SEPARATOR)));
  const lengths = toNumbers([parts.length, ...parts.map(({ length }) => length)]);
  const bytes = Buffer.concat([lengths, ...parts]);
  return bytes.length < plain.length ? { bytes, isDeflated: true } : plainSection(plain);
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

type Indexes = Uint8Array | Uint16Array;

/** See `packed` above: no number is in two bytes of others, which makes unpacking several times as fast. */
const WIDTHS: readonly number[] = [0, 1, 2, 4, 8, 16];

/** `largest`: less than 65,536. */
function pack(numbers: ArrayLike<number>, largest: number): Uint8Array {
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

function unpack(bytes: Uint8Array, length: number): Indexes {
  const width = bytes[0] ?? 0;
  if (!WIDTHS.includes(width) || bytes.length !== packedLength(length, width))
    throw new Error('a block of attacks has too few indexes');
  if (width === 0) return new Uint8Array(length);
  const packed = new Uint8Array(bytes.length - 1);
  packed.set(bytes.subarray(1));
  if (width === 8) return packed;
  return width === 16 ? new Uint16Array(packed.buffer) : unpackBits(packed, width).subarray(0, length);
}

function unpackBits(bytes: Uint8Array, width: number): Uint8Array {
  const mask = (1 << width) - 1;
  const numbers = new Uint8Array((bytes.length * 8) / width);
  for (let i = 0, at = 0; at < bytes.length; at++) {
    const byte = bytes[at] as number;
    for (let bit = 0; bit < 8; bit += width) numbers[i++] = (byte >> bit) & mask;
  }
  return numbers;
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
    this.#bytes = width > 8 ? unpack(bytes, length) : Uint8Array.from(bytes.subarray(1));
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

const EMPTY = new Uint8Array(0);

/** `toEntry` replaces it in values. */
const SEPARATOR = '\0';

/** Of IDs, which are too many for longer hashes. */
function fingerprintOf(id: string): number {
  return crc32(id) & 0xffff;
}

/** What `AttackBlock.find` searches for. Nobody finds two values with the same hash that matter. */
export function valueHash(value: string): Buffer {
  return Buffer.from(hash('sha256', value, 'hex').slice(0, 2 * HASH_BYTES), 'hex');
}

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
  readonly #bodyPart: ((part: BodyPart) => Uint8Array) | undefined;
  readonly #body: Uint8Array;
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
    return new AttackBlock(new BlockHead(hour, bytes), bytes.subarray(headLength(bytes)));
  }

  /**
   * `body`: its bytes, or a function for its parts. That is called for each section that is read; its result need not be
   * valid any longer than that.
   */
  constructor(head: BlockHead, body: Uint8Array | ((part: BodyPart) => Uint8Array)) {
    this.#head = head;
    this.#bodyPart = typeof body === 'function' ? body : undefined;
    this.#body = typeof body === 'function' ? EMPTY : body;
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

  /** Of a block that is in memory as a whole, or else a copy. */
  get body(): Uint8Array {
    return this.#bodyPart ? Buffer.concat(BODY_PARTS.map((part) => this.part(part))) : this.#body;
  }

  part(part: BodyPart): Uint8Array {
    // A copy, because the next part may replace this one.
    if (this.#bodyPart) return new Uint8Array(this.#bodyPart(part));
    const middle = this.#head.layout.ends[FIRST_LONG - 1] ?? 0;
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

  entry(i: number): AttackEntry {
    const text = (name: ColumnName) => this.#text(name, i);
    const [category = '', action = ''] = text('attack').split(' ');
    const entry: AttackEntry = {
      id: this.idOf(i),
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
    const column = COLUMN_NUMBERS[name];
    const index = this.indexes(name)[i] ?? noValue();
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

  /** Forgets the decoded columns, which may have megabytes. */
  release(): void {
    this.#dictionaries = [];
    this.#dictionaryParts = [];
    this.#indexes = [];
  }

  entries(): AttackEntry[] {
    return Array.from({ length: this.length }, (_, i) => this.entry(i));
  }

  /** Valid until the next section is read. */
  #section(section: number): Uint8Array {
    const { ends, checksums, isChecked } = this.#head.layout;
    let [start, end] = [ends[section - 1] ?? 0, ends[section] ?? 0];
    if (start === end) return EMPTY;
    let body = this.#body;
    if (this.#bodyPart) {
      const part = section < FIRST_LONG ? 0 : 1;
      const offset = part === 0 ? 0 : (ends[FIRST_LONG - 1] ?? 0);
      [body, start, end] = [this.#bodyPart(part), start - offset, end - offset];
    }
    const bytes = body.subarray(start, end);
    if (bytes.length < end - start) throw new Error('a block of attacks is too short');
    if (!isChecked[section] && crc32(bytes) !== checksums[section])
      throw new StoreDamaged('a block of attacks');
    isChecked[section] = 1;
    return bytes;
  }
}

/** What `find` finds. */
interface FoundValues {
  /** 1 for each value of the dictionary that has one of the hashes. */
  matches: Uint8Array;
  /** How many entries have such a value, if that is known. */
  entries: number | undefined;
}

/** By section: where it ends in the body, its checksum, and whether it is deflated; whether it was checked with this head. */
interface Layout {
  ends: Uint32Array;
  checksums: Uint32Array;
  isDeflated: Uint8Array;
  isChecked: Uint8Array;
}

function readLayout(places: NumberReader): Layout {
  const ends = new Uint32Array(SECTIONS);
  const checksums = new Uint32Array(SECTIONS);
  const isDeflated = new Uint8Array(SECTIONS);
  let end = 0;
  for (let section = 0; section < SECTIONS; section++) {
    const place = places.number();
    end += Math.floor(place / 2);
    ends[section] = end;
    isDeflated[section] = place % 2;
    if (place > 1) checksums[section] = places.number();
  }
  return { ends, checksums, isDeflated, isChecked: new Uint8Array(SECTIONS) };
}

function textOf({ buffer, byteOffset, length }: Uint8Array): string {
  return Buffer.from(buffer, byteOffset, length).toString();
}

function noValue(): never {
  throw new Error('a block of attacks has an index without a value');
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
