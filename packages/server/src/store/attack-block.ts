/**
 * Kept attacks of one project and hour, by column, so that a query reads the columns that it needs:
 *
 *   block   = version threshold entries first last section(times) section(counts) column*    in the order of COLUMNS
 *   column  = values width section(dictionary) index{values}   width 0: all values are equal, or each is another one
 *   section = length*2 + deflated byte{length}
 *
 * `first` and `last` are times in milliseconds since the start of the hour, `times` those of all entries, each as the
 * difference from the one before. A dictionary is text, its values separated by U+0000. An index has 1 or 2 bytes, low byte
 * first.
 */
import { deflateRawSync, inflateRawSync } from 'node:zlib';
import { CATEGORIES, type MatchedRule } from '../event.ts';
import type { AttackEntry } from './attack-entries.ts';
import { NumberReader, RecordWriter } from './record-bytes.ts';
import { HOUR_MS } from './store.ts';

const VERSION = 1;

/** Also bounds what a page of a list decodes; indexes have two bytes at most. */
export const BLOCK_ENTRIES_MAX = 4_096;

/** One value per entry. */
const ENTRY_COLUMNS = [
  'host',
  'attack',
  'source',
  'country',
  'method',
  'url',
  'query',
  'status',
  'score',
  'userAgent',
  'id',
  'ruleCount',
] as const;
/** One value per matched rule. */
const RULE_COLUMNS = ['rule', 'variable', 'value', 'severity'] as const;
const COLUMNS = [...ENTRY_COLUMNS, ...RULE_COLUMNS] as const;
export type ColumnName = (typeof COLUMNS)[number];

/** A shorter text does not become smaller. */
const DEFLATED_BYTES_MIN = 64;
/** Larger than any section. Limits what a damaged block can allocate. */
const SECTION_BYTES_MAX = 64 * 1_024 * 1_024;

/** `threshold`: see attack-hours.ts. Entries must be in the order of `compareEntries`, and of the same hour. */
export function encodeBlock(hour: number, entries: readonly AttackEntry[], threshold: number): Buffer {
  const writer = new RecordWriter();
  writer.clear();
  const start = hour * HOUR_MS;
  const times = entries.map(({ time }) => time - start);
  const [first = 0, last = 0] = [times[0], times.at(-1)];
  for (const number of [VERSION, threshold, entries.length, first, last]) writer.number(number);
  writeNumbers(
    writer,
    times.map((time, i) => time - (times[i - 1] ?? first)),
  );
  writeNumbers(writer, entries.every(({ count }) => count === 1) ? [] : entries.map(({ count }) => count));
  const rules = entries.flatMap((entry) => entry.rules);
  for (const name of ENTRY_COLUMNS) writeColumn(writer, entries.map(ENTRY_VALUES[name]));
  for (const name of RULE_COLUMNS) writeColumn(writer, rules.map(RULE_VALUES[name]));
  return Buffer.from(writer.bytes());
}

const ENTRY_VALUES: Record<(typeof ENTRY_COLUMNS)[number], (entry: AttackEntry) => string> = {
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
  ruleCount: ({ rules }) => String(rules.length),
};

const RULE_VALUES: Record<(typeof RULE_COLUMNS)[number], (rule: MatchedRule) => string> = {
  rule: ({ id }) => id,
  variable: ({ variable = '' }) => variable,
  value: ({ value = '' }) => value,
  severity: ({ severity = '' }) => severity,
};

function numberText(value: number | undefined): string {
  return value === undefined ? '' : String(value);
}

function writeNumbers(writer: RecordWriter, numbers: readonly number[]): void {
  const section = new RecordWriter();
  section.clear();
  for (const number of numbers) section.number(number);
  writeSection(writer, section.bytes());
}

function writeSection(writer: RecordWriter, plain: Uint8Array): void {
  const deflated = plain.length < DEFLATED_BYTES_MIN ? plain : deflateRawSync(plain);
  const isSmaller = deflated.length < plain.length;
  const bytes = isSmaller ? deflated : plain;
  writer.number(bytes.length * 2 + (isSmaller ? 1 : 0));
  writer.copy(bytes, 0, bytes.length);
}

function writeColumn(writer: RecordWriter, values: readonly string[]): void {
  const numbers = new Map<string, number>();
  const indexes = values.map((value) => {
    const number = numbers.get(value) ?? numbers.size;
    numbers.set(value, number);
    return number;
  });
  const isEachAnother = numbers.size === values.length;
  const width = isEachAnother || numbers.size === 1 ? 0 : numbers.size <= 256 ? 1 : 2;
  writer.number(values.length);
  writer.number(width);
  const dictionary = [...numbers.keys()];
  if (dictionary.some((value) => value.includes(SEPARATOR))) throw new Error('a value has U+0000');
  writeSection(writer, Buffer.from(dictionary.join(SEPARATOR)));
  if (width === 0) return;
  const bytes = new Uint8Array(values.length * width);
  for (const [i, index] of indexes.entries()) {
    bytes[i * width] = index & 255;
    if (width === 2) bytes[i * width + 1] = index >> 8;
  }
  writer.copy(bytes, 0, bytes.length);
}

const SEPARATOR = '\0';

interface StoredColumn {
  values: number;
  width: number;
  dictionary: StoredSection;
  indexes: Uint8Array;
}

interface StoredSection {
  bytes: Uint8Array;
  isDeflated: boolean;
}

/** The values of a column: `dictionary[index(i)]`. */
export interface Column {
  dictionary: readonly string[];
  index(i: number): number;
}

export function blockHeader(bytes: Uint8Array): { threshold: number; entries: number } {
  const reader = new NumberReader(bytes);
  if (reader.number() !== VERSION) throw new Error('a block of attacks has an unknown version');
  return { threshold: reader.number(), entries: reader.number() };
}

/** Throws if the block is damaged. Columns are decoded when they are read. */
export class AttackBlock {
  readonly bytes: Uint8Array;
  readonly threshold: number;
  /** How many entries it has. */
  readonly length: number;
  /** The times of the first and the last entry. */
  readonly first: number;
  readonly last: number;
  readonly #times: StoredSection;
  readonly #counts: StoredSection;
  readonly #stored: StoredColumn[];
  readonly #columns = new Map<ColumnName, Column>();
  #decodedTimes: Float64Array | undefined;
  #decodedCounts: Float64Array | undefined;
  #ruleEnds: Uint32Array | undefined;

  constructor(hour: number, bytes: Uint8Array) {
    this.bytes = bytes;
    const reader = new NumberReader(bytes);
    if (reader.number() !== VERSION) throw new Error('a block of attacks has an unknown version');
    this.threshold = reader.number();
    this.length = reader.number();
    if (this.length > BLOCK_ENTRIES_MAX) throw new Error('a block of attacks has too many entries');
    this.first = hour * HOUR_MS + reader.number();
    this.last = hour * HOUR_MS + reader.number();
    this.#times = readSection(reader);
    this.#counts = readSection(reader);
    this.#stored = COLUMNS.map(() => readColumn(reader));
  }

  /** Milliseconds since the epoch, ascending. */
  get times(): Float64Array {
    if (this.#decodedTimes) return this.#decodedTimes;
    const times = readNumbers(this.#times, this.length);
    let time = this.first;
    for (let i = 0; i < times.length; i++) {
      time += times[i] ?? 0;
      times[i] = time;
    }
    this.#decodedTimes = times;
    return times;
  }

  get counts(): Float64Array {
    this.#decodedCounts ??=
      this.#counts.bytes.length === 0
        ? new Float64Array(this.length).fill(1)
        : readNumbers(this.#counts, this.length);
    return this.#decodedCounts;
  }

  column(name: ColumnName): Column {
    const known = this.#columns.get(name);
    if (known) return known;
    const column = decodeColumn(this.#stored[COLUMNS.indexOf(name)] as StoredColumn);
    this.#columns.set(name, column);
    return column;
  }

  /** The position after the last rule of each entry, in the columns of rules. */
  get ruleEnds(): Uint32Array {
    if (this.#ruleEnds) return this.#ruleEnds;
    const { dictionary, index } = this.column('ruleCount');
    const counts = dictionary.map(Number);
    const ends = new Uint32Array(this.length);
    let end = 0;
    for (let i = 0; i < this.length; i++) {
      end += counts[index(i)] ?? 0;
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
      rules: this.#rules(i),
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

  #rules(i: number): MatchedRule[] {
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
    const { dictionary, index } = this.column(name);
    const value = dictionary[index(i)];
    if (value === undefined) throw new Error('a block of attacks has an index without a value');
    return value;
  }

  entries(): AttackEntry[] {
    return Array.from({ length: this.length }, (_, i) => this.entry(i));
  }
}

function fail(category: string): never {
  throw new Error(`a block of attacks has the unknown category '${category}'`);
}

function readSection(reader: NumberReader): StoredSection {
  const packed = reader.number();
  return { bytes: take(reader, Math.floor(packed / 2)), isDeflated: packed % 2 === 1 };
}

function take(reader: NumberReader, length: number): Uint8Array {
  const end = reader.at + length;
  if (end > reader.bytes.length) throw new Error('a block of attacks is too short');
  const taken = reader.bytes.subarray(reader.at, end);
  reader.at = end;
  return taken;
}

function plainBytes({ bytes, isDeflated }: StoredSection): Uint8Array {
  return isDeflated ? inflateRawSync(bytes, { maxOutputLength: SECTION_BYTES_MAX }) : bytes;
}

function readNumbers(section: StoredSection, length: number): Float64Array {
  const reader = new NumberReader(plainBytes(section));
  const numbers = new Float64Array(length);
  for (let i = 0; i < length; i++) numbers[i] = reader.number();
  return numbers;
}

function readColumn(reader: NumberReader): StoredColumn {
  const values = reader.number();
  const width = reader.number();
  const dictionary = readSection(reader);
  return { values, width, dictionary, indexes: take(reader, values * width) };
}

function decodeColumn({ values, width, dictionary: section, indexes }: StoredColumn): Column {
  const dictionary = values === 0 ? [] : Buffer.from(plainBytes(section)).toString().split(SEPARATOR);
  if (width === 1) return { dictionary, index: (i) => indexes[i] ?? dictionary.length };
  if (width === 2)
    return { dictionary, index: (i) => (indexes[2 * i] ?? 255) + 256 * (indexes[2 * i + 1] ?? 255) };
  return dictionary.length === values ? { dictionary, index: (i) => i } : { dictionary, index: () => 0 };
}
