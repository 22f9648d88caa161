/** Conditions on kept attacks, tested once per distinct value of a block instead of once per entry. */
import { BlockList } from 'node:net';
import type { AttackBlock, ColumnName } from './attack-block.ts';

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
        return values ? [{ column: COLUMN_OF[name], test: testOf(name, values), isExcluded }] : [];
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
      const test = condition.column === 'rule' ? ruleTest(block, condition) : entryTest(block, condition);
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

function entryTest(block: AttackBlock, { column, test, isExcluded }: Condition): RowTest {
  const { dictionary, index } = block.column(column);
  const passes = dictionary.map((value) => test(value) !== isExcluded);
  if (passes.every(Boolean)) return 'all';
  return passes.some(Boolean) ? (i) => passes[index(i)] === true : 'none';
}

/** An entry has any number of rules: it matches if one of them does. */
function ruleTest(block: AttackBlock, { column, test, isExcluded }: Condition): RowTest {
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
