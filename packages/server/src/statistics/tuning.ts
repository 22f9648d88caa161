/**
 * Which rules hit users, and the narrowest exclusion for each: from the kept attacks. docs/tuning.md states the rules by which
 * sources attack, and by which rows are marked and ordered.
 */
import { number, plural } from '../printable.ts';
import { HOUR_MS, type Selection, Slices, type Store, type TimeRange } from '../store/store.ts';
import type { Zone } from '../zone.ts';
import { isBlocked, type Match, type Removal } from './anomaly-score.ts';
import { Sources } from './attacking-sources.ts';
import { type Exclusion, exclusionText, hasTarget } from './exclusion.ts';
import { DAY_MS } from './grid.ts';
import {
  addToSources,
  emptyTally,
  type Group,
  MatchedRequests,
  ROWS_PER_STEP,
  type Signature,
  type Tally,
} from './matched-requests.ts';

export interface TuningQuery extends Selection, TimeRange {
  /** The score from which a request is blocked. */
  threshold: number;
  /** Days are those of its clock. */
  zone: Zone;
  /** The ID of the first exclusion. */
  idFrom: number;
}

type Likely = 'false_positive' | 'unclear' | 'attack';

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
/** A false positive comes from at least this many sources, on several days; in a range of one day, from more. */
const SOURCES_MIN = 3;
const SOURCES_MIN_ONE_DAY = 10;
const DAYS_MIN = 2;
/** Users match few rules: those of the row, and up to this many others. */
const OTHER_RULES_MAX = 2;
const WEEK_DAYS = 7;

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
  store: Pick<Store, 'hosts' | 'sources' | 'scanAttacks'>,
  query: TuningQuery,
): Promise<TuningReport> {
  const hostnames = new Map((await store.hosts(query.project)).map(({ id, hostname }) => [id, hostname]));
  const sources = new Sources();
  await store.scanAttacks(query, (hour) => addToSources(sources, hour));
  const requests = new MatchedRequests(query.zone, sources, hostnames);
  await store.scanAttacks(query, (hour) => requests.add(hour));
  // Log sources: the time of the first event of any.
  const dataFrom = Math.min(
    ...(await store.sources(query.project)).map(({ first_seen }) => first_seen ?? query.to),
  );
  return new Slices().run(reportOf(query, dataFrom, sources, requests));
}

function* reportOf(
  query: TuningQuery,
  dataFrom: number,
  sources: Sources,
  requests: MatchedRequests,
): Generator<void, TuningReport> {
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
    blocking: yield* blockingOf(query, dataFrom, requests, range),
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
  requests: MatchedRequests,
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
    `${reasons.join('; ')}. Since ${since}: ${plural(all.attacks, 'attack')}, ${number(alone)} of them pass with this exclusion alone.`,
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
  requests: MatchedRequests,
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
function groupsOf(group: Group, { groups }: MatchedRequests): Group[] {
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

const UNITS = [
  ['day', DAY_MS],
  ['hour', HOUR_MS],
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
  dataFrom: number,
  { groups, otherDays, unknownOthers }: MatchedRequests,
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
  const [blocks, wrong] = [sum(days, 'would_block'), sum(days, 'false_positives')];
  // A week that begins at noon touches eight days.
  const weekFrom = query.to - WEEK_DAYS * DAY_MS;
  const week = days.slice(-daysOf({ ...query, from: weekFrom }).length);
  const isWeek = query.from <= weekFrom && dataFrom <= weekFrom;
  const problem = problemOf({
    isWeek,
    wrong: sum(week, 'false_positives'),
    unknownOthers,
    attacks: sum(week, 'attacks'),
  });
  const reason = problem ?? `No likely false positive in the last ${WEEK_DAYS} days.`;
  return {
    days,
    would_block: blocks,
    false_positives: wrong,
    ready: problem === null,
    text: `${reason} With the engine on, ${plural(blocks, 'attack')} of this range would have been blocked; likely false positives among them: ${number(wrong)}.`,
  };
}

/** Why the engine should not be switched on; null if there is no reason. */
function problemOf({
  isWeek,
  wrong,
  unknownOthers,
  attacks,
}: {
  isWeek: boolean;
  wrong: number;
  unknownOthers: number;
  attacks: number;
}): string | null {
  if (wrong > 0) return 'There are likely false positives.';
  if (unknownOthers > 0)
    return `No likely false positive was found, but ${plural(unknownOthers, 'attack')} of sources that may be users are beyond the limits of this report: choose a host or a shorter range.`;
  if (!isWeek)
    return `No likely false positive, but this range has less than ${WEEK_DAYS} days of data: most are found only in a week.`;
  if (attacks === 0)
    return `No attacks are kept of the last ${WEEK_DAYS} days: check that the logs still arrive.`;
  return null;
}
