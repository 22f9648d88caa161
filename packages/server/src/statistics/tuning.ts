/**
 * Which rules hit users, and the narrowest exclusion for each: from the kept attacks. docs/tuning.md states the rules by which
 * sources attack, and by which rows are marked and ordered.
 */
import {
  type AttackBlock,
  type SelectedRows,
  type Selection,
  Slices,
  type Store,
  type TimeRange,
} from '../store/store.ts';
import type { Zone } from '../zone.ts';
import {
  detectingRule,
  isBlocked,
  isVerdict,
  type Match,
  type MatchedRequest,
  pointsOf,
  type Removal,
} from './anomaly-score.ts';
import { Sources } from './attacking-sources.ts';
import { type Exclusion, exclusionText, hasTarget, targetVariable } from './exclusion.ts';
import { DAY_MS } from './grid.ts';
import { pathPattern } from './path-pattern.ts';

export interface TuningQuery extends Selection, TimeRange {
  /** The score from which a request is blocked. */
  threshold: number;
  /** Days are those of its clock. */
  zone: Zone;
  /** The ID of the first exclusion. */
  idFrom: number;
}

export type Likely = 'false_positive' | 'unclear' | 'attack';

export interface TuningItem {
  rules: string[];
  /** '' without a registered host. */
  host: string;
  path: string;
  variable: string;
  attacks: number;
  blocked: number;
  sources: number;
  days: number;
  alone: number;
  likely: Likely;
  reasons: string[];
  exclusion: string;
  opens_attacks: number;
  first_seen: number;
  last_seen: number;
}

interface BlockingDay {
  day: string;
  attacks: number;
  would_block: number;
  false_positives: number;
}

export interface TuningReport {
  total: number;
  items: TuningItem[];
  /** Attacks that the report is based on. */
  kept_attacks: number;
  /** Attacks without a path, without rules that detect, or beyond the limits. */
  left_out: number;
  blocking: {
    days: BlockingDay[];
    would_block: number;
    false_positives: number;
    /** Whether the last week of the range has no likely false positive. */
    ready: boolean;
    text: string;
  };
}

/** Rows of a report. */
export const ITEMS_MAX = 1_000;
/** Distinct requests (host, path, rules with variables, score) of attacking sources, and of others: about a kilobyte each. */
const SIGNATURES_MAX = 32_768;
/** Regular expressions with more variable parts are slow in firewalls, or too large. */
const STARS_MAX = 8;
/** Distinct matches (rule, variable, severity), which attackers can invent. */
const MATCHES_MAX = 131_072;
/** Distinct pairs of a request and a source, which take about 50 bytes each. */
const PAIRS_MAX = 2_097_152;

/** A false positive comes from at least this many sources, on several days; in a range of one day, from more. */
const SOURCES_MIN = 3;
const SOURCES_MIN_ONE_DAY = 10;
const DAYS_MIN = 2;
/** Users match few rules: those of the row, and up to this many others. */
const OTHER_RULES_MAX = 2;
const WEEK_DAYS = 7;

/** What was sent by attacking sources, or by others. */
interface Tally {
  attacks: number;
  blocked: number;
  sources: Set<number>;
  /** Attacks by local day, since the epoch. */
  days: Map<number, number>;
  first: number;
  last: number;
}

/** Requests on a host and a path that matched the same. */
interface Signature extends MatchedRequest {
  hasVerdict: boolean;
  attackers: Tally;
  others: Tally;
  isFalsePositive: boolean;
}

/** What exclusions select: a host and a path. */
interface Group {
  host: string;
  path: string;
  signatures: Map<string, Signature>;
  /** Requests of attacking sources beyond the limit, of which nothing else is known. */
  unknownAttacks: number;
  /** What the better rows exclude: see `removalKey`. */
  removed: Set<string>;
  /** Requests of attacking sources, by what an exclusion removes of them. Undefined until it is needed. */
  attacks?: Map<string, Set<Signature>>;
}

interface Candidate {
  group: Group;
  variable: string;
  rules: readonly number[];
  signatures: Signature[];
  attackers: Tally;
  others: Tally;
  likely: Likely;
}

export async function tuningReport(
  store: Pick<Store, 'hosts' | 'scanAttacks'>,
  query: TuningQuery,
): Promise<TuningReport> {
  const hostnames = new Map((await store.hosts(query.project)).map(({ id, hostname }) => [id, hostname]));
  const sources = new Sources();
  await store.scanAttacks(query, (hour) => addToSources(sources, hour));
  const requests = new Requests(query, sources, hostnames);
  await store.scanAttacks(query, (hour) => requests.add(hour));
  return new Slices().run(reportOf(query, sources, requests));
}

const ROWS_PER_STEP = 256;

function* addToSources(sources: Sources, hour: readonly SelectedRows[]): Generator<void, void> {
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

/** The kept attacks, by host, path and what they matched. */
class Requests {
  readonly groups = new Map<string, Map<string, Group>>();
  keptAttacks = 0;
  /** Attacks that no row can have. */
  leftOut = 0;
  /** Attacks of sources that may be users, which are beyond the limits. */
  unknownOthers = 0;
  /** Attacks by local day that are in no signature: all, and those that were blocked. */
  readonly otherDays = new Map<number, { attacks: number; blocked: number }>();
  readonly #query: TuningQuery;
  readonly #sources: Sources;
  readonly #hostnames: ReadonlyMap<string, string>;
  readonly #matches: Match[] = [NO_MATCH];
  readonly #matchNumbers = new Map<string, number>();
  #attackerSignatures = 0;
  #otherSignatures = 0;
  #pairs = 0;

  constructor(query: TuningQuery, sources: Sources, hostnames: ReadonlyMap<string, string>) {
    this.#query = query;
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
    const isBlockedAction = lazy(actions.dictionary, (text) => text.endsWith(' block'));
    const groups = new Map<number, Group | undefined>();
    const matchNumbers = new Map<number, number>();
    const { times, counts, ruleEnds } = block;
    // Clocks change at whole hours, nearly everywhere.
    const offset = this.#query.zone.offsetAt(block.first);

    const groupOf = (i: number) => {
      const [host, url] = [hosts.index(i), urls.index(i)];
      const key = host * urls.dictionary.length + url;
      const known = groups.get(key);
      if (known || groups.has(key)) return known;
      const group = this.#groupOf(hosts.dictionary[host] ?? '', urls.dictionary[url] ?? '');
      groups.set(key, group);
      return group;
    };
    const matchOf = (at: number) => {
      const [rule, variable, severity] = [rules.index(at), variables.index(at), severities.index(at)];
      const key = (rule * variables.dictionary.length + variable) * severities.dictionary.length + severity;
      const known = matchNumbers.get(key);
      if (known !== undefined) return known;
      const number = this.#matchNumber(
        detecting(rule),
        variables.dictionary[variable] ?? '',
        severities.dictionary[severity] ?? '',
      );
      matchNumbers.set(key, number);
      return number;
    };

    return (i) => {
      const found: number[] = [];
      let hasVerdict = false;
      for (let at = ruleEnds[i - 1] ?? 0; at < (ruleEnds[i] ?? 0); at++) {
        if (detecting(rules.index(at)) > 0) {
          const number = matchOf(at);
          if (!found.includes(number)) found.push(number);
        } else if (isVerdictRule(rules.index(at))) hasVerdict = true;
      }
      const [time, count] = [times[i] ?? 0, counts[i] ?? 0];
      this.keptAttacks += count;
      const day = Math.floor((time + offset) / DAY_MS);
      const blocked = isBlockedAction(actions.index(i)) ? count : 0;
      const group = groupOf(i);
      const address = addresses.index(i);
      const number = numbers(address);
      const isAttacking = addresses.dictionary[address] !== '' && this.#sources.isAttacking(number);
      // A match beyond the limit is unknown, and so is the request.
      const isKnown = group !== undefined && found.length > 0 && !found.includes(0);
      const scoreText = scores.dictionary[scores.index(i)] ?? '';
      const signature = isKnown
        ? this.#signature(group, found, scoreText, hasVerdict, isAttacking)
        : undefined;
      if (signature === undefined) {
        this.#addOther(day, count, hasVerdict ? count : blocked);
        if (group && found.length > 0 && isAttacking) group.unknownAttacks += count;
        if (found.length > 0 && !isAttacking && urls.dictionary[urls.index(i)] !== '')
          this.unknownOthers += count;
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

  #groupOf(hostId: string, url: string): Group | undefined {
    if (url === '') return undefined;
    const path = pathPattern(url);
    const host = this.#hostnames.get(hostId) ?? '';
    let hosts = this.groups.get(path);
    if (hosts === undefined) {
      if (this.groups.size === SIGNATURES_MAX || path.split('*').length > STARS_MAX + 1) return undefined;
      hosts = new Map();
      this.groups.set(path, hosts);
    }
    const known = hosts.get(host);
    if (known) return known;
    const group: Group = { host, path, signatures: new Map(), unknownAttacks: 0, removed: new Set() };
    hosts.set(host, group);
    return group;
  }

  /** 0 beyond the limit. */
  #matchNumber(rule: number, logged: string, severity: string): number {
    const variable = targetVariable(logged);
    const key = `${rule} ${severity} ${variable}`;
    const known = this.#matchNumbers.get(key);
    if (known !== undefined) return known;
    if (this.#matches.length > MATCHES_MAX) return 0;
    this.#matchNumbers.set(key, this.#matches.length);
    return this.#matches.push({ rule, variable, points: pointsOf(severity) }) - 1;
  }

  /** Undefined beyond the limit. `numbers`: of matches. */
  #signature(
    group: Group,
    numbers: number[],
    score: string,
    hasVerdict: boolean,
    isAttacking: boolean,
  ): Signature | undefined {
    const sorted = numbers.length === 1 ? numbers : numbers.sort((a, b) => a - b);
    const key = `${hasVerdict ? 1 : 0} ${score} ${sorted.join()}`;
    const known = group.signatures.get(key);
    if (known) return known;
    const isFull = (isAttacking ? this.#attackerSignatures : this.#otherSignatures) === SIGNATURES_MAX;
    if (isFull) return undefined;
    if (isAttacking) this.#attackerSignatures++;
    else this.#otherSignatures++;
    const signature: Signature = {
      matches: sorted.map((number) => this.#matches[number] ?? NO_MATCH),
      score: score === '' ? undefined : Number(score),
      hasVerdict,
      attackers: NOTHING,
      others: NOTHING,
      isFalsePositive: false,
    };
    group.signatures.set(key, signature);
    return signature;
  }
}

const NO_MATCH: Match = { rule: 0, variable: '', points: 0 };

function emptyTally(): Tally {
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

function* reportOf(query: TuningQuery, sources: Sources, requests: Requests): Generator<void, TuningReport> {
  const candidates: Candidate[] = [];
  for (const hosts of requests.groups.values()) {
    for (const group of hosts.values()) {
      yield;
      candidates.push(...(yield* candidatesOf(group)));
    }
  }
  const range = daysOf(query);
  for (const [n, candidate] of candidates.entries()) {
    if (n % ROWS_PER_STEP === 0) yield;
    candidate.likely = likelyOf(candidate, sources, query);
    if (candidate.likely !== 'false_positive') continue;
    for (const signature of candidate.signatures) signature.isFalsePositive = true;
  }
  const items: TuningItem[] = [];
  for (const candidate of yield* bestOf(candidates)) {
    yield;
    items.push(itemOf(candidate, query, sources, requests, range.length, query.idFrom + items.length));
  }
  return {
    total: candidates.length,
    items,
    kept_attacks: requests.keptAttacks,
    left_out: requests.leftOut,
    blocking: yield* blockingOf(query, requests, range),
  };
}

/** The first rows. Sorting all candidates would be one long step: there can be tens of thousands. */
function* bestOf(candidates: readonly Candidate[]): Generator<void, Candidate[]> {
  let best: Candidate[] = [];
  for (let from = 0; from < candidates.length; from += ITEMS_MAX) {
    yield;
    const more = candidates.slice(from, from + ITEMS_MAX);
    best = [...best, ...more].sort(compareCandidates).slice(0, ITEMS_MAX);
  }
  return best;
}

/** The local days that the range touches. */
function daysOf({ from, to, zone }: TuningQuery): { first: number; length: number } {
  if (from === to) return { first: 0, length: 0 };
  const dayOf = (time: number) => Math.floor((time + zone.offsetAt(time)) / DAY_MS);
  const first = dayOf(from);
  return { first, length: dayOf(to - 1) - first + 1 };
}

function* candidatesOf(group: Group): Generator<void, Candidate[]> {
  const found = new Map<string, Candidate>();
  let n = 0;
  for (const signature of group.signatures.values()) {
    if (n++ % ROWS_PER_STEP === 0) yield;
    const byVariable = new Map<string, number[]>();
    for (const { rule, variable } of signature.matches) {
      const rules = byVariable.get(variable) ?? [];
      if (!rules.includes(rule)) rules.push(rule);
      byVariable.set(variable, rules);
    }
    for (const [variable, unsorted] of byVariable) {
      const rules = unsorted.sort((a, b) => a - b);
      const key = `${rules.join()} ${variable}`;
      const candidate = found.get(key);
      if (candidate === undefined) {
        const { attackers, others } = signature;
        const signatures = [signature];
        found.set(key, { group, variable, rules, signatures, attackers, others, likely: 'unclear' });
        continue;
      }
      for (const kind of ['attackers', 'others'] as const) {
        // The first signature keeps its own tally.
        if (candidate.signatures.length === 1) candidate[kind] = sumOf(candidate[kind]);
        addTo(candidate[kind], signature[kind]);
      }
      candidate.signatures.push(signature);
    }
  }
  return [...found.values()];
}

function sumOf(...tallies: readonly Tally[]): Tally {
  const sum = emptyTally();
  for (const tally of tallies) addTo(sum, tally);
  return sum;
}

/** In place: copying the sources for each of many signatures would take quadratic time. */
function addTo(sum: Tally, { attacks, blocked, sources, days, first, last }: Tally): void {
  sum.attacks += attacks;
  sum.blocked += blocked;
  for (const source of sources) sum.sources.add(source);
  for (const [day, count] of days) sum.days.set(day, (sum.days.get(day) ?? 0) + count);
  sum.first = Math.min(sum.first, first);
  sum.last = Math.max(sum.last, last);
}

function likelyOf(
  { rules, attackers, others }: Candidate,
  sources: Sources,
  { from, to }: TimeRange,
): Likely {
  const count = others.sources.size;
  if (others.attacks === 0) return 'attack';
  const isSteady =
    to - from > DAY_MS ? count >= SOURCES_MIN && others.days.size >= DAYS_MIN : count >= SOURCES_MIN_ONE_DAY;
  let focused = 0;
  for (const number of others.sources)
    if (sources.ruleCount(number) <= rules.length + OTHER_RULES_MAX) focused++;
  if (isSteady && 2 * focused >= count) return 'false_positive';
  return count < attackers.sources.size ? 'attack' : 'unclear';
}

const ORDER: readonly Likely[] = ['false_positive', 'unclear', 'attack'];

/** By mark; then by sources times days, both without attacking sources; then by attacks. */
function compareCandidates(a: Candidate, b: Candidate): number {
  const weight = ({ others }: Candidate) => others.sources.size * others.days.size;
  const attacks = ({ attackers, others }: Candidate) => attackers.attacks + others.attacks;
  return (
    ORDER.indexOf(a.likely) - ORDER.indexOf(b.likely) ||
    weight(b) - weight(a) ||
    attacks(b) - attacks(a) ||
    compareTexts(a.group.host, b.group.host) ||
    compareTexts(a.group.path, b.group.path) ||
    compareTexts(a.variable, b.variable) ||
    compareTexts(a.rules.join(), b.rules.join())
  );
}

function compareTexts(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function itemOf(
  candidate: Candidate,
  query: TuningQuery,
  sources: Sources,
  requests: Requests,
  rangeDays: number,
  id: number,
): TuningItem {
  const { group, variable, rules, likely } = candidate;
  const all = sumOf(candidate.attackers, candidate.others);
  const removed = rules.map((rule) => removalKey(rule, hasTarget(rule, variable) ? variable : null));
  const alone = candidate.signatures
    .filter((request) => !isBlocked(request, query.threshold, removalOf(new Set(removed))))
    .reduce((sum, { attackers, others }) => sum + attackers.attacks + others.attacks, 0);
  const opens = openedAttacks(group, removed, query, requests);
  // Rows that follow must not open an attack together with this one.
  if (likely === 'false_positive' && opens === 0)
    for (const each of groupsOf(group, requests)) for (const key of removed) each.removed.add(key);
  const reasons = reasonsOf(candidate, sources, rangeDays, alone, opens);
  const exclusion: Exclusion = {
    host: group.host === '' ? null : group.host,
    path: group.path,
    variable,
    rules,
  };
  const since = new Date(all.first + query.zone.offsetAt(all.first)).toISOString().slice(0, 10);
  const comments = [
    `${likely.replace('_', ' ')}: ${group.host}${group.path}, ${rules.length === 1 ? 'rule' : 'rules'} ${rules.join(' ')}, ${variable || 'no variable'}`,
    `${reasons.join('; ')}. Since ${since}: ${plural(all.attacks, 'attack')}, ${alone} of them pass with this exclusion alone.`,
  ];
  return {
    rules: rules.map(String),
    host: group.host,
    path: group.path,
    variable,
    attacks: all.attacks,
    blocked: all.blocked,
    sources: all.sources.size,
    days: all.days.size,
    alone,
    likely,
    reasons,
    exclusion: exclusionText(exclusion, id, comments),
    opens_attacks: opens,
    first_seen: all.first,
    last_seen: all.last,
  };
}

/** `variable`: null for the whole rule. */
function removalKey(rule: number, variable: string | null): string {
  return variable === null ? String(rule) : `${rule} ${variable}`;
}

function removalOf(removed: ReadonlySet<string>): (match: Match) => Removal {
  return ({ rule, variable }) => {
    if (removed.has(removalKey(rule, null))) return 'rule';
    return removed.has(removalKey(rule, variable)) ? 'target' : 'nothing';
  };
}

/** How many attacks of attacking sources would pass, together with the exclusions of the rows before. */
function openedAttacks(
  group: Group,
  removed: readonly string[],
  { threshold }: TuningQuery,
  requests: Requests,
): number {
  let opened = 0;
  for (const each of groupsOf(group, requests)) {
    opened += each.unknownAttacks;
    each.attacks ??= attacksOf(each);
    const removal = removalOf(new Set([...each.removed, ...removed]));
    const affected = new Set(removed.flatMap((key) => [...(each.attacks?.get(key) ?? [])]));
    for (const signature of affected) {
      const isOpened = isBlocked(signature, threshold) && !isBlocked(signature, threshold, removal, 'go');
      if (isOpened) opened += signature.attackers.attacks;
    }
  }
  return opened;
}

/** An exclusion without a host is for all of them. */
function groupsOf(group: Group, { groups }: Requests): Group[] {
  return group.host === '' ? [...(groups.get(group.path)?.values() ?? [])] : [group];
}

function attacksOf({ signatures }: Group): Map<string, Set<Signature>> {
  const found = new Map<string, Set<Signature>>();
  for (const signature of signatures.values()) {
    if (signature.attackers.attacks === 0) continue;
    for (const { rule, variable } of signature.matches) {
      for (const key of [removalKey(rule, null), removalKey(rule, variable)]) {
        const known = found.get(key);
        if (known) known.add(signature);
        else found.set(key, new Set([signature]));
      }
    }
  }
  return found;
}

function reasonsOf(
  { group, rules, variable, attackers, others, likely }: Candidate,
  sources: Sources,
  rangeDays: number,
  alone: number,
  opens: number,
): string[] {
  const reasons: string[] = [];
  const [hostile, count] = [attackers.sources.size, others.sources.size];
  if (hostile > 0 && likely === 'attack') {
    const within = durationText(attackers.last - attackers.first);
    const files = plural(sources.fileCount(attackers.sources), 'rule file');
    reasons.push(`${plural(hostile, 'attacking source')} within ${within}, which matched rules of ${files}`);
  }
  if (count > 0) {
    const only = [...others.sources].filter((number) => sources.hasOnly(number, rules)).length;
    const which = rules.length === 1 ? 'this rule' : 'these rules';
    const each = count === 1 ? '' : only === count ? 'each ' : `${only} of them `;
    const share = only === 0 ? 'all with other rules too' : `${each}with ${which} only`;
    reasons.push(
      `${plural(count, 'source')} on ${others.days.size} of ${plural(rangeDays, 'day')}, ${share}`,
    );
  } else if (others.attacks > 0) reasons.push('the log does not name the sources');
  if (hostile > 0 && likely !== 'attack') reasons.push(`${plural(hostile, 'attacking source')} sent it, too`);
  if (alone === 0) reasons.push('the same requests also match other rules or variables, which block them');
  if (opens > 0) reasons.push(`the exclusion would let ${plural(opens, 'attack')} of attacking sources pass`);
  const whole = rules.filter((rule) => !hasTarget(rule, variable));
  if (whole.length > 0) {
    const why =
      variable === '' ? 'the log does not name the variable' : 'an exclusion cannot name the variable';
    reasons.push(`broader: removes ${whole.join(', ')} for the whole path, because ${why}`);
  }
  if (group.host === '')
    reasons.push('broader: applies to all hosts, because the log names no registered host');
  return reasons;
}

const COUNT = new Intl.NumberFormat('en');

function plural(count: number, what: string): string {
  return `${COUNT.format(count)} ${what}${count === 1 ? '' : 's'}`;
}

const UNITS = [
  ['day', DAY_MS],
  ['hour', 3_600_000],
  ['minute', 60_000],
] as const;

/** `3 minutes`, at least one. */
function durationText(ms: number): string {
  const [name, unitMs] = UNITS.find(([, each]) => ms >= each) ?? UNITS[2];
  return plural(Math.max(1, Math.round(ms / unitMs)), name);
}

/** What the engine would have blocked, by day. */
function* blockingOf(
  query: TuningQuery,
  { groups, otherDays, unknownOthers }: Requests,
  { first, length }: { first: number; length: number },
): Generator<void, TuningReport['blocking']> {
  const counts = new Map<number, [attacks: number, wouldBlock: number, falsePositives: number]>();
  const add = (day: number, attacks: number, wouldBlock: number, falsePositives: number) => {
    const known = counts.get(day) ?? [0, 0, 0];
    counts.set(day, [known[0] + attacks, known[1] + wouldBlock, known[2] + falsePositives]);
  };
  for (const [day, { attacks, blocked }] of otherDays) add(day, attacks, blocked, 0);
  for (const group of [...groups.values()].flatMap((hosts) => [...hosts.values()])) {
    yield;
    for (const signature of group.signatures.values()) {
      const blocks = isBlocked(signature, query.threshold) ? 1 : 0;
      for (const [day, count] of signature.attackers.days) add(day, count, blocks * count, 0);
      const wrong = signature.isFalsePositive ? blocks : 0;
      for (const [day, count] of signature.others.days) add(day, count, blocks * count, wrong * count);
    }
  }
  const start = Math.max(first, Math.min(...counts.keys(), first + length));
  const days = Array.from({ length: first + length - start }, (_, i): BlockingDay => {
    const [attacks, would_block, false_positives] = counts.get(start + i) ?? [0, 0, 0];
    const day = new Date((start + i) * DAY_MS).toISOString().slice(0, 10);
    return { day, attacks, would_block, false_positives };
  });
  const sum = (list: readonly BlockingDay[], name: 'attacks' | 'would_block' | 'false_positives') =>
    list.reduce((total, each) => total + each[name], 0);
  const week = days.slice(-WEEK_DAYS);
  const isWeek = query.to - query.from >= WEEK_DAYS * DAY_MS;
  const [wrong, blocks] = [sum(week, 'false_positives'), sum(week, 'would_block')];
  const wouldBlock = `With the engine on, ${plural(blocks, 'attack')} would have been blocked`;
  let text = `No likely false positive in the last ${WEEK_DAYS} days. ${wouldBlock}.`;
  if (wrong > 0)
    text = `${wouldBlock} in the last ${WEEK_DAYS} days; ${COUNT.format(wrong)} of them are likely false positives.`;
  else if (unknownOthers > 0)
    text = `No likely false positive was found, but ${plural(unknownOthers, 'attack')} of sources that may be users are beyond the limits of this report: choose a host or a shorter range. ${wouldBlock}.`;
  else if (!isWeek)
    text = `No likely false positive, but the range is shorter than ${WEEK_DAYS} days. ${wouldBlock}.`;
  else if (sum(week, 'attacks') === 0)
    text = `No attacks are kept of the last ${WEEK_DAYS} days: check that the logs still arrive.`;
  return {
    days,
    would_block: sum(days, 'would_block'),
    false_positives: sum(days, 'false_positives'),
    ready: wrong === 0 && unknownOthers === 0 && isWeek && sum(week, 'attacks') > 0,
    text,
  };
}
