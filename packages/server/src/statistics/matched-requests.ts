/**
 * The kept attacks of a tuning report, by host, path and what they matched. Combinations are found by numbers, because joining and
 * hashing texts for each attack takes a third of the report.
 */
import type { AttackBlock, SelectedRows } from '../store/store.ts';
import type { Zone } from '../zone.ts';
import { detectingRule, isVerdict, type Match, type MatchedRequest, pointsOf } from './anomaly-score.ts';
import type { Sources } from './attacking-sources.ts';
import { targetVariable } from './exclusion.ts';
import { DAY_MS } from './grid.ts';
import { pathPattern } from './path-pattern.ts';

/** Distinct requests (host, path, rules with variables, score) of attacking sources, and of others: about a kilobyte each. */
const SIGNATURES_MAX = 32_768;
/** Regular expressions with more variable parts are slow in firewalls, or too large. */
const STARS_MAX = 8;
/** Distinct matches (rule, variable, points), and distinct variables, which attackers can invent. */
const MATCHES_MAX = 131_072;
/** Distinct pairs of a request and a source, which take about 50 bytes each. */
const PAIRS_MAX = 2_097_152;

/** What was sent by attacking sources, or by others. */
export interface Tally {
  attacks: number;
  blocked: number;
  sources: Set<number>;
  /** Attacks by local day, since the epoch. */
  days: Map<number, number>;
  first: number;
  last: number;
}

/** Requests on a host and a path that matched the same. */
export interface Signature extends MatchedRequest {
  attackers: Tally;
  others: Tally;
  isFalsePositive: boolean;
}

/** What exclusions select: a host and a path. */
export interface Group {
  host: string;
  path: string;
  /** By their number: see `#signature`. */
  signatures: Map<number, Signature>;
  /** Requests of attacking sources beyond the limit, of which nothing else is known. */
  unknownAttacks: number;
  /** What the better rows exclude: see `removalKey`. */
  removed: Set<string>;
  /** Requests of attacking sources, by what an exclusion removes of them. Undefined until it is needed. */
  attacks?: Map<string, Set<Signature>>;
}

/** How many rows of an hour are added, or rows of a report computed, before others get a turn. */
export const ROWS_PER_STEP = 256;

export function* addToSources(sources: Sources, hour: readonly SelectedRows[]): Generator<void, void> {
  const blocks = hour.toSorted((a, b) => a.block.first - b.block.first);
  const adders = blocks.map(({ block }) => sourceAdder(sources, block));
  const isInOrder = blocks.every(({ block }, n) => block.first >= (blocks[n - 1]?.block.last ?? 0));
  if (isInOrder) {
    let done = 0;
    for (const [n, { block, rows }] of blocks.entries()) {
      for (const i of rows ?? block.times.keys()) {
        if (done++ % ROWS_PER_STEP === 0) yield;
        adders[n]?.(i);
      }
    }
    return;
  }
  const all = blocks.flatMap(({ block, rows }, n) =>
    Array.from(rows ?? block.times.keys(), (i) => ({ n, i, time: block.times[i] ?? 0 })),
  );
  yield;
  all.sort((a, b) => a.time - b.time);
  for (const [at, { n, i }] of all.entries()) {
    if (at % ROWS_PER_STEP === 0) yield;
    adders[n]?.(i);
  }
}

function sourceAdder(sources: Sources, block: AttackBlock): (row: number) => void {
  const [addresses, urls, rules] = [block.column('source'), block.column('url'), block.column('rule')];
  const numbers = lazy(addresses.dictionary, (text) => (text === '' ? undefined : sources.add(text)));
  const paths = lazy(urls.dictionary, (url) => hashOf(pathPattern(url)));
  const detecting = lazy(rules.dictionary, detectingRule);
  const { times, counts, ruleEnds } = block;
  return (i) => {
    const number = numbers(addresses.index(i));
    if (number === undefined) return;
    const found: number[] = [];
    for (let at = ruleEnds[i - 1] ?? 0; at < (ruleEnds[i] ?? 0); at++) {
      const rule = detecting(rules.index(at));
      if (rule > 0) found.push(rule);
    }
    sources.addRequests(number, times[i] ?? 0, counts[i] ?? 0, paths(urls.index(i)), found);
  };
}

/** Computes a value for each entry of a dictionary, once, when it is needed. */
function lazy<T>(dictionary: readonly string[], of: (text: string) => T): (index: number) => T {
  const values: T[] = [];
  const isKnown = new Uint8Array(dictionary.length);
  return (index) => {
    if (isKnown[index] !== 1) {
      values[index] = of(dictionary[index] ?? '');
      isKnown[index] = 1;
    }
    return values[index] as T;
  };
}

/** FNV-1a. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash | 0;
}

export class MatchedRequests {
  /** By path, then by host. */
  readonly groups = new Map<string, Map<string, Group>>();
  keptAttacks = 0;
  /** Attacks that no row can have. */
  leftOut = 0;
  /** Attacks of sources that may be users, which are beyond the limits. */
  unknownOthers = 0;
  /** Attacks by local day that are in no signature: all, and those that were blocked. */
  readonly otherDays = new Map<number, { attacks: number; blocked: number }>();
  readonly #zone: Zone;
  readonly #sources: Sources;
  readonly #hostnames: ReadonlyMap<string, string>;
  readonly #variables = new Map<string, number>();
  readonly #matches: Match[] = [NO_MATCH];
  readonly #matchNumbers = new Map<number, number>();
  /** A set of matches is a smaller set and its last match. The empty one is 0. */
  readonly #setNumbers = new Map<number, number>();
  #attackerSignatures = 0;
  #otherSignatures = 0;
  #pairs = 0;

  constructor(zone: Zone, sources: Sources, hostnames: ReadonlyMap<string, string>) {
    this.#zone = zone;
    this.#sources = sources;
    this.#hostnames = hostnames;
  }

  *add(hour: readonly SelectedRows[]): Generator<void, void> {
    for (const { block, rows } of hour) {
      const add = this.#adder(block);
      let done = 0;
      for (const i of rows ?? block.times.keys()) {
        if (done++ % ROWS_PER_STEP === 0) yield;
        add(i);
      }
    }
  }

  #adder(block: AttackBlock): (row: number) => void {
    const [addresses, urls, hosts] = [block.column('source'), block.column('url'), block.column('host')];
    const [rules, variables] = [block.column('rule'), block.column('variable')];
    const [severities, actions, scores] = [
      block.column('severity'),
      block.column('attack'),
      block.column('score'),
    ];
    const numbers = lazy(addresses.dictionary, (text) => this.#sources.find(text));
    const isVerdictRule = lazy(rules.dictionary, isVerdict);
    const detecting = lazy(rules.dictionary, detectingRule);
    const names = lazy(variables.dictionary, targetVariable);
    const variableNumbers = lazy(variables.dictionary, (text) => this.#variableNumber(targetVariable(text)));
    const points = lazy(severities.dictionary, pointsOf);
    const isBlockedAction = lazy(actions.dictionary, (text) => text.endsWith(' block'));
    const hostNames = lazy(hosts.dictionary, (id) => this.#hostnames.get(id) ?? '');
    const paths = lazy(urls.dictionary, pathPattern);
    const groups = lazy(urls.dictionary, (url) => this.#groupsOf(pathPattern(url)));
    const scoreValues = lazy(scores.dictionary, (text) => (text === '' ? -1 : Number(text)));
    const { times, counts, ruleEnds } = block;
    // Clocks change at whole hours, nearly everywhere.
    const offset = this.#zone.offsetAt(block.first);

    return (i) => {
      const found: number[] = [];
      let hasVerdict = false;
      for (let at = ruleEnds[i - 1] ?? 0; at < (ruleEnds[i] ?? 0); at++) {
        const rule = rules.index(at);
        if (detecting(rule) > 0) {
          const variable = variables.index(at);
          const number = this.#matchNumber(
            detecting(rule),
            variableNumbers(variable),
            points(severities.index(at)),
            names(variable),
          );
          if (!found.includes(number)) found.push(number);
        } else if (isVerdictRule(rule)) hasVerdict = true;
      }
      const time = times[i] ?? 0;
      const count = counts[i] ?? 0;
      this.keptAttacks += count;
      const day = Math.floor((time + offset) / DAY_MS);
      const blocked = isBlockedAction(actions.index(i)) ? count : 0;
      const url = urls.index(i);
      const group = groupOf(groups(url), hostNames(hosts.index(i)), paths(url));
      const address = addresses.index(i);
      const number = numbers(address);
      const isAttacking = addresses.dictionary[address] !== '' && this.#sources.isAttacking(number);
      // A match beyond the limit is unknown, and so is the request.
      const isKnown = group !== undefined && found.length > 0 && !found.includes(0);
      const signature = isKnown
        ? this.#signature(group, found, scoreValues(scores.index(i)), hasVerdict, isAttacking)
        : undefined;
      if (signature === undefined) {
        this.#addOther(day, count, hasVerdict ? count : blocked);
        if (group && found.length > 0 && isAttacking) group.unknownAttacks += count;
        if (found.length > 0 && !isAttacking && paths(url) !== '') this.unknownOthers += count;
        return;
      }
      const kind = isAttacking ? 'attackers' : 'others';
      if (signature[kind] === NOTHING) signature[kind] = emptyTally();
      const tally = signature[kind];
      tally.attacks += count;
      tally.blocked += blocked;
      tally.days.set(day, (tally.days.get(day) ?? 0) + count);
      tally.first = Math.min(tally.first, time);
      tally.last = Math.max(tally.last, time);
      if (number === undefined || tally.sources.has(number) || this.#pairs === PAIRS_MAX) return;
      tally.sources.add(number);
      this.#pairs++;
    };
  }

  #addOther(day: number, attacks: number, blocked: number): void {
    this.leftOut += attacks;
    const known = this.otherDays.get(day) ?? { attacks: 0, blocked: 0 };
    this.otherDays.set(day, { attacks: known.attacks + attacks, blocked: known.blocked + blocked });
  }

  /** The groups of a path, by host. Undefined without a path, and beyond the limits. */
  #groupsOf(path: string): Map<string, Group> | undefined {
    const known = this.groups.get(path);
    if (known) return known;
    if (path === '' || this.groups.size === SIGNATURES_MAX || path.split('*').length > STARS_MAX + 1)
      return undefined;
    const groups = new Map<string, Group>();
    this.groups.set(path, groups);
    return groups;
  }

  /** Beyond the limit, the number is MATCHES_MAX. */
  #variableNumber(variable: string): number {
    const known = this.#variables.get(variable);
    if (known !== undefined) return known;
    const number = this.#variables.size;
    if (number < MATCHES_MAX) this.#variables.set(variable, number);
    return number;
  }

  /** 0 beyond the limits. A rule has up to nine digits, and points are less than eight: the key is exact. */
  #matchNumber(rule: number, variable: number, points: number, name: string): number {
    const key = (variable * 8 + points) * 2 ** 30 + rule;
    const known = this.#matchNumbers.get(key);
    if (known !== undefined) return known;
    if (variable === MATCHES_MAX || this.#matches.length > MATCHES_MAX) return 0;
    this.#matchNumbers.set(key, this.#matches.length);
    return this.#matches.push({ rule, variable: name, points }) - 1;
  }

  /** Undefined beyond the limit. `numbers`: of matches. `score`: -1 if the log has none. */
  #signature(
    group: Group,
    numbers: number[],
    score: number,
    hasVerdict: boolean,
    isAttacking: boolean,
  ): Signature | undefined {
    if (numbers.length > 1) numbers.sort((a, b) => a - b);
    const isFull = (isAttacking ? this.#attackerSignatures : this.#otherSignatures) === SIGNATURES_MAX;
    const set = this.#setNumber(numbers, !isFull);
    if (set === undefined) return undefined;
    const key = (set * 2 + (hasVerdict ? 1 : 0)) * 2 ** 20 + score + 1;
    const known = group.signatures.get(key);
    if (known) return known;
    if (isFull) return undefined;
    if (isAttacking) this.#attackerSignatures++;
    else this.#otherSignatures++;
    const signature: Signature = {
      matches: numbers.map((number) => this.#matches[number] ?? NO_MATCH),
      score: score === -1 ? undefined : score,
      attackers: NOTHING,
      others: NOTHING,
      isFalsePositive: false,
    };
    group.signatures.set(key, signature);
    return signature;
  }

  /** Undefined for a new set that must not be added. */
  #setNumber(numbers: readonly number[], mayAdd: boolean): number | undefined {
    let set = 0;
    for (const number of numbers) {
      const key = set * 2 * MATCHES_MAX + number;
      let next = this.#setNumbers.get(key);
      if (next === undefined) {
        if (!mayAdd) return undefined;
        next = this.#setNumbers.size + 1;
        this.#setNumbers.set(key, next);
      }
      set = next;
    }
    return set;
  }
}

function groupOf(groups: Map<string, Group> | undefined, host: string, path: string): Group | undefined {
  const known = groups?.get(host);
  if (known || groups === undefined) return known;
  const group: Group = { host, path, signatures: new Map(), unknownAttacks: 0, removed: new Set() };
  groups.set(host, group);
  return group;
}

const NO_MATCH: Match = { rule: 0, variable: '', points: 0 };

export function emptyTally(): Tally {
  return {
    attacks: 0,
    blocked: 0,
    sources: new Set(),
    days: new Map(),
    first: Number.MAX_SAFE_INTEGER,
    last: 0,
  };
}

/** Of nearly all requests, because attackers send others than users. Never changed. */
const NOTHING = emptyTally();
