/** Conditions on kept attacks, tested once per distinct value of a block instead of once per entry. */
import { isIPv4 } from 'node:net';
import { networkOf } from '../event.ts';
import { type AttackBlock, firstRow } from './attack-block.ts';
import { entryId } from './attack-entries.ts';
import { type ColumnName, valueHash } from './attack-layout.ts';
import type { Indexes, RuleCursor } from './attack-packed.ts';
import { ValueNumbers } from './attack-values.ts';
import { timeInId } from './store.ts';

/** What a list of values selects; the `n...` parameters of the API exclude. */
export interface AttackFilter {
  include: Partial<Record<FilterName, readonly string[]>>;
  exclude: Partial<Record<FilterName, readonly string[]>>;
}

const COLUMN_OF = {
  ids: 'id',
  hosts: 'host',
  categories: 'attack',
  /** `block`, `log`, or '' if the log does not say. */
  actions: 'attack',
  /** Addresses and networks. */
  sources: 'source',
  countries: 'country',
  methods: 'method',
  /** Whole paths, or prefixes that end with `*`. */
  urls: 'url',
  statuses: 'status',
  rules: 'rule',
  /** The values that rules matched. */
  values: 'value',
  // Texts that the value contains.
  sourceParts: 'source',
  urlParts: 'url',
  valueParts: 'value',
} as const satisfies Record<string, ColumnName>;

export type FilterName = keyof typeof COLUMN_OF;

/** `Object.keys` has no type for the names. */
export const FILTERS = Object.keys(COLUMN_OF) as FilterName[];

/** Whether a value in a column is one of those that the filter names. */
type ValueTest = (value: string) => boolean;

interface Condition {
  name: FilterName;
  values: readonly string[];
  test: ValueTest;
  /** 1 for each value of a dictionary that passes the test. */
  matches: (block: AttackBlock, column: ColumnName) => Uint8Array;
  /** The hashes of the values if these are all that the test accepts. */
  hashes: readonly Buffer[] | undefined;
  isExcluded: boolean;
}

export class AttackMatcher {
  readonly #conditions: Condition[];

  constructor({ include, exclude }: AttackFilter) {
    const conditions = (lists: AttackFilter['include'], isExcluded: boolean) =>
      FILTERS.flatMap((name): Condition[] => {
        const values = lists[name];
        if (values === undefined) return [];
        const hashes = exactValues(name, values)?.map(valueHash);
        const test = testOf(name, values);
        return [{ name, values, test, matches: rememberedMatches(test), hashes, isExcluded }];
      });
    this.#conditions = [...conditions(include, false), ...conditions(exclude, true)];
  }

  /** The number of conditions. */
  get size(): number {
    return this.#conditions.length;
  }

  /** How many entries fulfil all conditions. Undefined if only `rows` can tell. */
  count(block: AttackBlock): number | undefined {
    if (this.#conditions.length === 0) return block.length;
    const [condition, ...others] = this.#conditions;
    if (condition?.hashes === undefined || others.length > 0) return undefined;
    const entries = block.find(COLUMN_OF[condition.name], condition.hashes)?.entries;
    return condition.isExcluded && entries !== undefined ? block.length - entries : entries;
  }

  /** The positions of the entries between two times that fulfil all conditions, ascending. */
  rows(block: AttackBlock, from: number, to: number): Uint16Array {
    const tests: RowTest[] = [];
    for (const condition of this.#conditions) {
      const test = rowTest(block, condition);
      if (test === 'none') return new Uint16Array(0);
      if (test !== 'all') tests.push(test);
    }
    const first = from <= block.first ? 0 : firstRow(block.times, from);
    const end = block.last < to ? block.length : firstRow(block.times, to);
    let rows: Uint16Array | undefined;
    // The first one leaves few rows to the others.
    for (const { select } of tests.sort((a, b) => a.entries - b.entries)) rows = select(rows, first, end);
    return rows ?? allRows(first, end);
  }
}

/** All from `first` on, before `end`. */
export function allRows(first: number, end: number): Uint16Array {
  const rows = new Uint16Array(end - first);
  for (let n = 0; n < rows.length; n++) rows[n] = first + n;
  return rows;
}

interface RowTest {
  /** How many entries of the block pass; their number if that is not known. */
  entries: number;
  /** Those of some rows that pass, in the same array. `rows`: undefined for all from `first` on, before `end`. */
  select: (rows: Uint16Array | undefined, first: number, end: number) => Uint16Array;
}

function toTest(entries: number, test: (i: number) => boolean): RowTest {
  return {
    entries,
    select(rows, first, end) {
      const all = rows ?? allRows(first, end);
      let found = 0;
      for (const i of all) if (test(i)) all[found++] = i;
      return all.subarray(0, found);
    },
  };
}

function rowTest(block: AttackBlock, condition: Condition): RowTest | 'all' | 'none' {
  const { name, isExcluded, hashes } = condition;
  const column = COLUMN_OF[name];
  if (column === 'id') return idTest(block, condition);
  const found = hashes && block.find(column, hashes);
  const matches = found?.matches ?? condition.matches(block, column);
  if (!matches.includes(1)) return isExcluded ? 'all' : 'none';
  const matching = found?.entries ?? block.length;
  const entries = isExcluded ? block.length - matching : matching;
  if (column === 'rule' || column === 'value')
    return ruleTest(block, { column, matches, isExcluded, entries });
  if (!matches.includes(0)) return isExcluded ? 'none' : 'all';
  const indexes = block.indexes(column);
  const passes = isExcluded ? matches.map((match) => 1 - match) : matches;
  const index = onlyIndexOf(passes);
  return {
    entries,
    select(rows, first, end) {
      if (rows) return passingRows(rows, indexes, passes);
      if (index !== undefined && entries * SEARCHED_ENTRIES < end - first)
        return positionsOf(indexes, index, first, end);
      return passingRowsOf(indexes, passes, first, end);
    },
  };
}

/** Writes each row, and keeps it only if it passes: a branch that is hard to predict takes twice as long. */
function passingRows(rows: Uint16Array, indexes: Indexes, passes: Uint8Array): Uint16Array {
  let found = 0;
  for (let n = 0; n < rows.length; n++) {
    const i = rows[n] as number;
    rows[found] = i;
    found += passes[indexes[i] as number] as number;
  }
  return rows.subarray(0, found);
}

/** As `passingRows`, for all from `first` on, before `end`. */
function passingRowsOf(indexes: Indexes, passes: Uint8Array, first: number, end: number): Uint16Array {
  const rows = new Uint16Array(end - first);
  let found = 0;
  for (let i = first; i < end; i++) {
    rows[found] = i;
    found += passes[indexes[i] as number] as number;
  }
  return rows.subarray(0, found);
}

/** Undefined if more than one value passes. */
function onlyIndexOf(passes: Uint8Array): number | undefined {
  const index = passes.indexOf(1);
  return passes.indexOf(1, index + 1) === -1 ? index : undefined;
}

/** If a value has one entry of so many, or fewer, native searches are faster than a loop. */
const SEARCHED_ENTRIES = 24;

function positionsOf(indexes: Indexes, index: number, first: number, end: number): Uint16Array {
  const positions: number[] = [];
  for (let i = indexes.indexOf(index, first); i !== -1 && i < end; i = indexes.indexOf(index, i + 1))
    positions.push(i);
  return Uint16Array.from(positions);
}

/** The generated ID of an entry without one contains its time: only entries of that time are hashed. */
function idTest(block: AttackBlock, { values, test, isExcluded }: Condition): RowTest | 'all' | 'none' {
  const times = new Set(values.map(timeInId));
  const isGenerated = [...times].some(
    (time) => time !== undefined && time >= block.first && time <= block.last,
  );
  if (!isGenerated && !block.mayHaveId(values)) return isExcluded ? 'all' : 'none';
  const { dictionary, index } = block.column('id');
  const matches = dictionary.map(test);
  if (!isGenerated && !matches.some(Boolean)) return isExcluded ? 'all' : 'none';
  return toTest(block.length, (i) => {
    const at = index(i);
    const isMatch =
      dictionary[at] === '' && times.has(block.times[i]) ? test(entryId(block.entry(i))) : matches[at];
    return isMatch !== isExcluded;
  });
}

interface RuleMatches {
  column: ColumnName;
  /** 1 for each value of the dictionary that the filter names. */
  matches: Uint8Array;
  isExcluded: boolean;
  entries: number;
}

/** An entry has any number of rules: it matches if one of them does. */
function ruleTest(block: AttackBlock, { column, matches, isExcluded, entries }: RuleMatches): RowTest {
  const indexes = block.indexes(column);
  const index = onlyIndexOf(matches);
  return {
    entries,
    select(rows, first, end) {
      const cursor = block.ruleCursor();
      if (rows === undefined && index !== undefined && !isExcluded)
        return distinctRows(positionsOf(indexes, index, 0, indexes.length), cursor, first, end);
      const hasMatch = (i: number) => {
        const [start, stop] = cursor.rulesOf(i);
        for (let at = start; at < stop; at++) if (matches[indexes[at] as number] === 1) return true;
        return false;
      };
      return toTest(entries, (i) => hasMatch(i) !== isExcluded).select(rows, first, end);
    },
  };
}

/** The entries from `first` on, before `end`, that have the rules at some positions. In the same array. */
function distinctRows(positions: Uint16Array, cursor: RuleCursor, first: number, end: number): Uint16Array {
  let found = 0;
  for (const position of positions) {
    const row = cursor.rowOf(position);
    if (row >= first && row < end && (found === 0 || row !== positions[found - 1])) positions[found++] = row;
  }
  return positions.subarray(0, found);
}

/** All values that the test accepts, if there are few. */
function exactValues(name: FilterName, values: readonly string[]): readonly string[] | undefined {
  if (name === 'sources' && values.every(isIPv4))
    return values.flatMap((address) => [address, networkOf(address, PREFIX_BITS)]);
  const areExact = name === 'rules' || (name === 'urls' && !values.some((value) => value.endsWith('*')));
  return areExact ? values : undefined;
}

/** Tests each value once, although many blocks have it. */
function rememberedMatches(test: ValueTest): Condition['matches'] {
  let [values, results] = [new ValueNumbers(), new Uint8Array(0)];
  return (block, column) => {
    // These hardly repeat.
    if (column === 'value') return Uint8Array.from(block.dictionary(column), (text) => (test(text) ? 1 : 0));
    if (values.texts.length > REMEMBERED_MAX) [values, results] = [new ValueNumbers(), new Uint8Array(0)];
    const numbers = values.of(block, column);
    const known = results.length;
    if (known < values.texts.length) {
      const more = values.texts.slice(known).map((text) => (test(text) ? 1 : 0));
      results = Uint8Array.from([...results, ...more]);
    }
    return Uint8Array.from(numbers, (number) => results[number] as number);
  };
}

/** A few megabytes. */
const REMEMBERED_MAX = 16_384;

function testOf(name: FilterName, values: readonly string[]): ValueTest {
  if (name === 'sources') return addressTest(values);
  if (name === 'urls') return urlTest(values);
  if (name === 'sourceParts' || name === 'urlParts' || name === 'valueParts')
    return (value) => values.some((part) => value.includes(part));
  const wanted = new Set(values);
  if (name === 'categories') return (value) => wanted.has(value.slice(0, value.indexOf(' ')));
  if (name === 'actions') return (value) => wanted.has(value.slice(value.indexOf(' ') + 1));
  return (value) => wanted.has(value);
}

function urlTest(values: readonly string[]): ValueTest {
  const paths = new Set(values.filter((value) => !value.endsWith('*')));
  const sorted = values
    .filter((value) => value.endsWith('*'))
    .map((value) => value.slice(0, -1))
    .sort();
  // Without prefixes of others, the one that a path may begin with is the last that is not greater.
  const prefixes: string[] = [];
  for (const prefix of sorted) {
    const shorter = prefixes.at(-1);
    if (shorter === undefined || !prefix.startsWith(shorter)) prefixes.push(prefix);
  }
  return (value) => {
    if (value === '') return false;
    if (paths.has(value)) return true;
    let [first, end] = [0, prefixes.length];
    while (first < end) {
      const middle = (first + end) >> 1;
      if ((prefixes[middle] ?? '') <= value) first = middle + 1;
      else end = middle;
    }
    const prefix = prefixes[first - 1];
    return prefix !== undefined && value.startsWith(prefix);
  };
}

/** A kept network is selected if it is in one of these networks, or if one of these is in it: IPv6 addresses are kept as /64. */
function addressTest(values: readonly string[]): ValueTest {
  const addresses = new Set<string>();
  /** The bits of networks, by their number; and of the networks around `values` that `--attack-sources prefix` keeps. */
  const networks = new Map<number, Set<string>>();
  const around = new Set<string>();
  for (const value of values) {
    const [address = '', length = 128] = value.split('/');
    const bits = bitsOf(address);
    const count = Math.min(Number(length) + 1, bits.length);
    if (count === bits.length) addresses.add(networkOf(address, KEPT_BITS));
    else networks.set(count, (networks.get(count) ?? new Set()).add(bits.slice(0, count)));
    const prefix = bits.slice(0, 1 + (address.includes(':') ? PREFIX_BITS.ipv6 : PREFIX_BITS.ipv4));
    if (count > prefix.length) around.add(prefix);
  }
  return (value) => {
    if (value === '' || addresses.has(value)) return value !== '';
    const [address = '', length] = value.split('/');
    const isPrefix = length !== undefined && Number(length) !== KEPT_BITS.ipv6;
    if (networks.size === 0 && !isPrefix) return false;
    const bits = bitsOf(address);
    if (isPrefix && around.has(bits.slice(0, Number(length) + 1))) return true;
    return [...networks].some(([count, all]) => all.has(bits.slice(0, count)));
  };
}

const KEPT_BITS = { ipv4: 32, ipv6: 64 } as const;
const PREFIX_BITS = { ipv4: 24, ipv6: 48 } as const;

/** 4 or 6, and the bits that are kept. */
function bitsOf(address: string): string {
  const binary = (number: number, length: number) => number.toString(2).padStart(length, '0');
  if (!address.includes(':'))
    return `4${address
      .split('.')
      .map((part) => binary(Number(part), 8))
      .join('')}`;
  const [start = ''] = networkOf(address, KEPT_BITS).split('::');
  const groups = start.split(':');
  return `6${[0, 1, 2, 3].map((i) => binary(Number.parseInt(groups[i] || '0', 16), 16)).join('')}`;
}
