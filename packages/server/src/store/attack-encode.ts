/** Encodes blocks of kept attacks (attack-layout.ts), from entries or from rows of other blocks. */
import { crc32, deflateRawSync } from 'node:zlib';
import type { MatchedRule } from '../event.ts';
import type { AttackBlock, BlockRow } from './attack-block.ts';
import type { AttackEntry } from './attack-entries.ts';
import {
  BODY_PARTS,
  COLUMNS,
  type ColumnName,
  EMPTY,
  ENTRY_SIZE,
  type EntryColumn,
  FIRST_DICTIONARY,
  FIRST_HASH,
  FIRST_INDEX,
  fingerprintOf,
  HASHED_COLUMNS,
  HASHED_ENTRIES_MIN,
  HEAD_LENGTH_BYTES,
  isRuleColumn,
  noValue,
  PART_OF,
  PART_VALUES,
  RULE_SIZE,
  type RuleColumn,
  SEPARATOR,
  SIZED_COLUMNS,
  VERSION,
  valueHash,
} from './attack-layout.ts';
import { pack } from './attack-packed.ts';
import { RecordWriter } from './record-bytes.ts';
import { HOUR_MS } from './store.ts';

/** Shorter texts do not become much smaller, and inflating them takes longer than reading them. */
const DEFLATED_BYTES_MIN = 1_024;

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
  /** The block will soon be merged with others: do not take the time to deflate it, and to hash its values. */
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
      isOpen || times.length < HASHED_ENTRIES_MIN ? EMPTY : toHashes(name, dictionary, indexes, rulesOf),
    );
    yield;
    sections[FIRST_DICTIONARY + number] = yield* dictionarySection(dictionary, isOpen);
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
  const body = BODY_PARTS.flatMap((part) => sections.filter((_, section) => PART_OF[section] === part));
  return Buffer.concat([length, head.bytes(), ...body.map(({ bytes }) => bytes)]);
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
function* dictionarySection(values: readonly string[], isOpen: boolean): Generator<void, Section> {
  const plain = Buffer.from(values.join(SEPARATOR));
  if (isOpen || plain.length < DEFLATED_BYTES_MIN) return plainSection(plain);
  const parts: Buffer[] = [];
  for (let i = 0; i < values.length; i += PART_VALUES) {
    yield;
    parts.push(deflateRawSync(values.slice(i, i + PART_VALUES).join(SEPARATOR)));
  }
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
