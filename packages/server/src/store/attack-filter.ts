/** Conditions on kept attacks, tested once per distinct value of a block instead of once per entry. */
import { networkOf } from '../event.ts';
import type { AttackBlock, ColumnName } from './attack-block.ts';
import { entryId } from './attack-entries.ts';
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
  isExcluded: boolean;
}

export class AttackMatcher {
  readonly #conditions: Condition[];

  constructor({ include, exclude }: AttackFilter) {
    const conditions = (lists: AttackFilter['include'], isExcluded: boolean) =>
      FILTERS.flatMap((name): Condition[] => {
        const values = lists[name];
        return values ? [{ name, values, test: testOf(name, values), isExcluded }] : [];
      });
    this.#conditions = [...conditions(include, false), ...conditions(exclude, true)];
  }

  /** The number of conditions. */
  get size(): number {
    return this.#conditions.length;
  }

  /** The positions of the entries between two times that fulfil all conditions, ascending. */
  rows(block: AttackBlock, from: number, to: number): number[] {
    const tests: ((i: number) => boolean)[] = [];
    for (const condition of this.#conditions) {
      const test = rowTest(block, condition);
      if (test === 'none') return [];
      if (test !== 'all') tests.push(test);
    }
    const { times } = block;
    const rows: number[] = [];
    for (let i = 0; i < block.length; i++) {
      const time = times[i] ?? 0;
      if (time >= from && time < to && tests.every((test) => test(i))) rows.push(i);
    }
    return rows;
  }
}

type RowTest = 'all' | 'none' | ((i: number) => boolean);

function rowTest(block: AttackBlock, condition: Condition): RowTest {
  const column = COLUMN_OF[condition.name];
  if (column === 'id') return idTest(block, condition);
  return column === 'rule' || column === 'value'
    ? ruleTest(block, column, condition)
    : entryTest(block, column, condition);
}

function entryTest(block: AttackBlock, column: ColumnName, { test, isExcluded }: Condition): RowTest {
  const { dictionary, index } = block.column(column);
  const passes = dictionary.map((value) => test(value) !== isExcluded);
  if (passes.every(Boolean)) return 'all';
  return passes.some(Boolean) ? (i) => passes[index(i)] === true : 'none';
}

/** The generated ID of an entry without one contains its time: only entries of that time are hashed. */
function idTest(block: AttackBlock, { values, test, isExcluded }: Condition): RowTest {
  const { dictionary, index } = block.column('id');
  const matches = dictionary.map(test);
  const times = new Set(dictionary.includes('') ? values.map(timeInId) : []);
  const isGenerated = [...times].some(
    (time) => time !== undefined && time >= block.first && time <= block.last,
  );
  if (!isGenerated && !matches.some(Boolean)) return isExcluded ? 'all' : 'none';
  return (i) => {
    const at = index(i);
    const isMatch =
      dictionary[at] === '' && times.has(block.times[i]) ? test(entryId(block.entry(i))) : matches[at];
    return isMatch !== isExcluded;
  };
}

/** An entry has any number of rules: it matches if one of them does. */
function ruleTest(block: AttackBlock, column: ColumnName, { test, isExcluded }: Condition): RowTest {
  const { dictionary, index } = block.column(column);
  const matches = dictionary.map(test);
  if (!matches.some(Boolean)) return isExcluded ? 'all' : 'none';
  const { ruleEnds } = block;
  return (i) => {
    for (let at = ruleEnds[i - 1] ?? 0; at < (ruleEnds[i] ?? 0); at++) {
      if (matches[index(at)]) return !isExcluded;
    }
    return isExcluded;
  };
}

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

/** IPv6 addresses are kept as their /64 network, so a longer prefix selects that. */
function addressTest(values: readonly string[]): ValueTest {
  const addresses = new Set<string>();
  /** The bits of networks, by their number. */
  const networks = new Map<number, Set<string>>();
  for (const value of values) {
    const [address = '', length = 128] = value.split('/');
    const bits = bitsOf(address);
    const count = Math.min(Number(length) + 1, bits.length);
    if (count === bits.length) addresses.add(firstAddress(networkOf(address, KEPT_BITS)));
    else networks.set(count, (networks.get(count) ?? new Set()).add(bits.slice(0, count)));
  }
  return (value) => {
    // A kept network is selected if its first address is.
    const address = firstAddress(value);
    if (address === '' || networks.size === 0) return addresses.has(address);
    const bits = bitsOf(address);
    return addresses.has(address) || [...networks].some(([count, all]) => all.has(bits.slice(0, count)));
  };
}

const KEPT_BITS = { ipv4: 32, ipv6: 64 } as const;

function firstAddress(network: string): string {
  const slash = network.indexOf('/');
  return slash === -1 ? network : network.slice(0, slash);
}

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
