/** Conditions on kept attacks, tested once per distinct value of a block instead of once per entry. */
import { BlockList, isIPv4 } from 'node:net';
import { type AttackBlock, type ColumnName, firstRow, valueHash } from './attack-block.ts';

/** What a list of values selects; the `n...` parameters of the API exclude. */
export interface AttackFilter {
  include: Partial<Record<FilterName, readonly string[]>>;
  exclude: Partial<Record<FilterName, readonly string[]>>;
}

export const FILTERS = [
  'ids',
  'hosts',
  'categories',
  'actions',
  'sources',
  'countries',
  'methods',
  'urls',
  'statuses',
  'rules',
] as const;
export type FilterName = (typeof FILTERS)[number];

/** Whether a value in a column is one of those that the filter names. */
type ValueTest = (value: string) => boolean;

interface Condition {
  column: ColumnName;
  test: ValueTest;
  /** The hashes of the values if these are all that the test accepts. */
  hashes: readonly Buffer[] | undefined;
  isExcluded: boolean;
}

const COLUMN_OF: Record<FilterName, ColumnName> = {
  ids: 'id',
  hosts: 'host',
  categories: 'attack',
  actions: 'attack',
  sources: 'source',
  countries: 'country',
  methods: 'method',
  urls: 'url',
  statuses: 'status',
  rules: 'rule',
};

export class AttackMatcher {
  readonly #conditions: Condition[];

  constructor({ include, exclude }: AttackFilter) {
    const conditions = (lists: AttackFilter['include'], isExcluded: boolean) =>
      FILTERS.flatMap((name): Condition[] => {
        const values = lists[name];
        if (values === undefined) return [];
        const hashes = isExact(name, values) ? values.map(valueHash) : undefined;
        return [{ column: COLUMN_OF[name], test: testOf(name, values), hashes, isExcluded }];
      });
    this.#conditions = [...conditions(include, false), ...conditions(exclude, true)];
  }

  /** The number of conditions. */
  get size(): number {
    return this.#conditions.length;
  }

  /** The positions of the entries between two times that fulfil all conditions, ascending. */
  rows(block: AttackBlock, from: number, to: number): number[] {
    const first = from <= block.first ? 0 : firstRow(block.times, from);
    const end = block.last < to ? block.length : firstRow(block.times, to);
    let rows: number[] | undefined;
    for (const condition of this.#conditions) {
      const matches = matchesOf(block, condition);
      if (matches === 'all') continue;
      if (matches === 'none') return [];
      const test = condition.column === 'rule' ? ruleTest : entryTest;
      rows = filterRows(rows, first, end, test(block, condition, matches));
    }
    return rows ?? filterRows(undefined, first, end, () => true);
  }
}

type RowTest = (i: number) => boolean;

/** `rows`: undefined for all from `first` on, before `end`. */
function filterRows(
  rows: readonly number[] | undefined,
  first: number,
  end: number,
  test: RowTest,
): number[] {
  if (rows) return rows.filter(test);
  const found: number[] = [];
  for (let i = first; i < end; i++) if (test(i)) found.push(i);
  return found;
}

/** 1 for each value of the dictionary that the filter names. Or all entries fulfil the condition, or none. */
function matchesOf(
  block: AttackBlock,
  { column, test, hashes, isExcluded }: Condition,
): Uint8Array | 'all' | 'none' {
  const matches =
    (hashes && block.find(column, hashes)) ??
    Uint8Array.from(block.column(column).dictionary, (value) => (test(value) ? 1 : 0));
  if (!matches.includes(1)) return isExcluded ? 'all' : 'none';
  if (matches.includes(0) || column === 'rule') return matches;
  return isExcluded ? 'none' : 'all';
}

function entryTest(block: AttackBlock, { column, isExcluded }: Condition, matches: Uint8Array): RowTest {
  const indexes = block.indexes(column);
  const wanted = isExcluded ? 0 : 1;
  return (i) => matches[indexes[i] as number] === wanted;
}

/** An entry has any number of rules: it matches if one of them does. */
function ruleTest(block: AttackBlock, { column, isExcluded }: Condition, matches: Uint8Array): RowTest {
  const indexes = block.indexes(column);
  const { ruleEnds } = block;
  return (i) => {
    for (let at = ruleEnds[i - 1] ?? 0; at < (ruleEnds[i] ?? 0); at++) {
      if (matches[indexes[at] as number] === 1) return !isExcluded;
    }
    return isExcluded;
  };
}

/** Whether the test accepts these values only. */
function isExact(name: FilterName, values: readonly string[]): boolean {
  if (name === 'urls') return !values.some((value) => value.endsWith('*'));
  if (name === 'sources') return values.every(isIPv4);
  return name === 'rules';
}

function testOf(name: FilterName, values: readonly string[]): ValueTest {
  if (name === 'sources') return addressTest(values);
  if (name === 'urls') return urlTest(values);
  const wanted = new Set(values);
  if (name === 'categories') return (value) => wanted.has(value.slice(0, value.indexOf(' ')));
  if (name === 'actions') return (value) => wanted.has(value.slice(value.indexOf(' ') + 1));
  return (value) => wanted.has(value);
}

/** A whole path, or a prefix that ends with `*`. */
function urlTest(values: readonly string[]): ValueTest {
  const paths = new Set(values.filter((value) => !value.endsWith('*')));
  const prefixes = values.filter((value) => value.endsWith('*')).map((value) => value.slice(0, -1));
  return (value) => paths.has(value) || (value !== '' && prefixes.some((prefix) => value.startsWith(prefix)));
}

/** Addresses and networks. IPv6 addresses are kept as their /64 network, so a longer prefix selects that. */
function addressTest(values: readonly string[]): ValueTest {
  const list = new BlockList();
  for (const value of values) {
    const [address = '', bits = 128] = value.split('/');
    if (address.includes(':')) list.addSubnet(address, Math.min(Number(bits), IPV6_BITS_KEPT), 'ipv6');
    else list.addSubnet(address, Math.min(Number(bits), 32), 'ipv4');
  }
  return (value) => {
    // A kept network is selected if its first address is.
    const [address = ''] = value.split('/');
    return address !== '' && list.check(address, address.includes(':') ? 'ipv6' : 'ipv4');
  };
}

const IPV6_BITS_KEPT = 64;
