/** What a matched rule counts as, and why; and what a request counts as that matched several. */
import type { Category } from '../../event.ts';
import { paranoiaLevelOfRule } from './paranoia-levels.ts';
import {
  COUNTING_RULES,
  CRS_TABLE,
  OWN_RULE,
  PAYLOAD_CATEGORIES,
  POINTS,
  POINTS_WITHOUT_SEVERITY,
  SPECIFIC_CONTEXT,
  SUMS,
  TIE_WINNERS,
  UNKNOWN_ATTACK,
  VERDICT_RULES,
  WORD_RULES,
} from './table.ts';

/** A matched rule, as an audit or error log tells it. What the log does not say is ''. */
export interface Rule {
  /** Digits only; '' when the message was cut before it. */
  id: string;
  severity: string;
  ver: string;
  file: string;
  tags: readonly string[];
  /** This rule stopped the request. */
  denied?: boolean | undefined;
  /** The message was cut, or may hold fields that the client wrote: it cannot prove that there was no attack. */
  doubtful?: boolean | undefined;
  /** The message names two rules, of which a client wrote one: it cannot prove that the operator excluded the match. */
  ambiguous?: boolean | undefined;
  /** Of 980130 and 980170: the category with the highest sum (categoryOfSums). */
  sums?: Category | undefined;
  /** Of 980130 and its neighbours: the message says that a score exceeded its limit, as 949 does. */
  exceeded?: boolean | undefined;
  /** What a vendor's own name for the rule says. Wins over the tables of CRS, not over the operator. */
  named?: { category: Category; because: string };
}

export interface Judgement {
  /** '' for a message that was cut before the rule ID. */
  rule: string;
  points: number;
  /** Null: it is no attack by itself. */
  category: Category | null;
  /** The evidence, in a few words. */
  because: string;
  /** Paranoia level of a rule of CRS. */
  level?: number | undefined;
  /** It says that the request was an attack, but not of which kind. */
  verdict?: boolean | undefined;
  denied?: boolean | undefined;
  sums?: Category | undefined;
}

/** Categories of single rules that the operator chose; null takes a rule out of the count. */
export type Overrides = ReadonlyMap<string, Category | null>;

/** Which part of the choice left one category, as in STEPS of table.ts. */
export type DecisionStep =
  | 'only'
  | 'denied'
  | 'payload'
  | 'level'
  | 'points'
  | 'tie'
  | 'sums'
  | 'verdict'
  | 'none';

export interface Decision {
  category: Category | null;
  /** The rule that decided; '' when a cut message did, or nothing. */
  rule: string;
  step: DecisionStep;
  /** A sentence for people. */
  reason: string;
}

/** No rule ID of any rule set is longer. */
export const RULE_ID_PATTERN = /^\d{1,19}$/;

export function judge(rule: Rule, overrides: Overrides): Judgement {
  const id = rule.named !== undefined || RULE_ID_PATTERN.test(rule.id) ? rule.id : '';
  const { category, because, isCrs } = evidence({ ...rule, id }, overrides);
  const judgement: Judgement = { rule: id, points: 0, category, because };
  if (rule.denied) judgement.denied = true;
  if (category === null) {
    if (because === OVERRIDE) return judgement;
    const isVerdict = isCrs && isVerdictRule(id);
    // What the client may have written proves nothing: neither that there was no attack, nor which sum is highest.
    if (id === '' || (rule.doubtful && !isVerdict)) return { ...judgement, ...UNREADABLE };
    if (isVerdict || (isCrs && rule.exceeded)) judgement.verdict = true;
    if (isCrs && rule.sums !== undefined) judgement.sums = rule.sums;
    return judgement;
  }
  judgement.points = pointsOf(rule, isCrs);
  if (isCrs) judgement.level = levelOf(rule);
  return judgement;
}

/** The category of a request, by its distinct rules. */
export function primaryCategory(distinct: readonly Judgement[]): Category | null {
  return decide(distinct).category;
}

/** Chooses the category of a request, in the steps that STEPS of table.ts lists. `blocked`: the log says that it was stopped. */
export function decide(distinct: readonly Judgement[], blocked = false): Decision {
  const candidates = distinct.filter(isCandidate);
  const sums = distinct.find((each) => each.sums !== undefined)?.sums;
  const isCut = distinct.some(({ rule, verdict }) => rule === '' && verdict);
  const hasPayload = candidates.some(({ category }) => PAYLOAD_CATEGORIES.has(category));
  // The rule of a cut message is unknown, but CRS added up its points.
  if (candidates.length === 0 || (isCut && !hasPayload && sums !== undefined)) {
    return byVerdict(distinct, sums, isCut, blocked);
  }
  const chosen = bySteps(candidates);
  const own = candidates.find(({ category, denied }) => category === OWN_RULE && denied);
  if (own !== undefined && chosen.step !== 'only' && isNotOutscored(own, candidates, chosen)) {
    const reason = `Custom rule ${own.rule} denied the request, and the other rules do not outscore it.`;
    return { category: OWN_RULE, rule: own.rule, step: 'denied', reason };
  }
  return chosen;
}

function isNotOutscored(own: Candidate, candidates: readonly Candidate[], { category }: Decision): boolean {
  return category === OWN_RULE || own.points >= sumOf(candidates, category);
}

/** What the message of a rule 980xxx says of the request. */
export function scoresOf(message: string): Pick<Rule, 'sums' | 'exceeded'> {
  return { sums: categoryOfSums(message), ...(message.includes('Score Exceeded') && { exceeded: true }) };
}

/** The highest sum in the message of 980130 (`SQLI=5,XSS=0,..`) or 980170 (`SQLI=5, XSS=0, ..`). */
export function categoryOfSums(message: string): Category | undefined {
  const sums = new Map<string, number>();
  for (const [, name = '', sum] of message.matchAll(/\b([A-Z]{3,4})=(\d{1,9})\b/g))
    sums.set(name, Number(sum));
  let best: Category | undefined;
  let most = 0;
  for (const [category, names] of SUMS) {
    const sum = names.reduce((total, name) => total + (sums.get(name) ?? 0), 0);
    if (sum > most) [best, most] = [category, sum];
  }
  return best;
}

type Candidate = Judgement & { category: Category };

function isCandidate(judgement: Judgement): judgement is Candidate {
  return judgement.category !== null;
}

function byVerdict(
  distinct: readonly Judgement[],
  sums: Category | undefined,
  isCut: boolean,
  blocked: boolean,
): Decision {
  const verdict = distinct.find((each) => each.verdict);
  // Rule 901001 denies every request when CRS is not set up: that is no attack.
  const isSetUp = distinct.some(({ denied, verdict: isVerdict }) => denied && !isVerdict);
  // A verdict that rests on a rule which the operator excluded is excluded with it.
  const isExcluded = !isCut && distinct.some(({ because }) => because === OVERRIDE);
  if ((verdict === undefined && (!blocked || isSetUp)) || isExcluded) {
    return { category: null, rule: '', step: 'none', reason: 'No rule that matched is an attack by itself.' };
  }
  const rule = distinct.find((each) => each.verdict && each.rule !== '')?.rule ?? '';
  const because = isCut ? 'A message was cut before it names the rule' : 'Only the verdict is known';
  return sums === undefined
    ? {
        category: UNKNOWN_ATTACK,
        rule,
        step: 'verdict',
        reason: `${because}, so this is an attack of unknown kind.`,
      }
    : { category: sums, rule, step: 'sums', reason: `${because}; the sums of CRS are highest for ${sums}.` };
}

function bySteps(matched: readonly Candidate[]): Decision {
  if (hasOneCategory(matched))
    return decision(matched, 'only', 'All rules that matched are of this category.');
  const payload = matched.filter(({ category }) => PAYLOAD_CATEGORIES.has(category));
  const lowerContext = payload.length > 0 ? contextBelow(matched, payload) : [];
  if (payload.length > 0 && lowerContext.length === 0 && hasOneCategory(payload)) {
    return decision(payload, 'payload', 'Payload rules win over the others.');
  }
  const pool = lowerContext.length > 0 ? lowerContext : payload.length > 0 ? payload : matched;
  const level = lowestLevel(pool);
  const lowest = pool.filter((each) => levelIn(each) === level);
  if (hasOneCategory(lowest)) {
    return decision(
      lowest,
      'level',
      `Only its rules matched at paranoia level ${level}, the lowest that counts.`,
    );
  }
  return byPoints(lowest, level);
}

function byPoints(lowest: readonly Candidate[], level: number): Decision {
  const sums = new Map<Category, number>();
  for (const { category, points } of lowest) sums.set(category, (sums.get(category) ?? 0) + points);
  const most = Math.max(...sums.values());
  const best = lowest.filter(({ category }) => sums.get(category) === most);
  const among = `among the rules of paranoia level ${level}`;
  if (hasOneCategory(best)) return decision(best, 'points', `It has the most points ${among}: ${most}.`);
  const telling = best.filter(({ rule }) => !WORD_RULES.has(rule));
  const tied = telling.length > 0 ? telling : best;
  const winner = TIE_WINNERS.find((category) => tied.some((each) => each.category === category));
  const category = winner ?? tied[0]?.category;
  const why = hasOneCategory(tied)
    ? 'the others have only rules that look for words'
    : winner === undefined
      ? 'its rule matched first'
      : `${winner} wins a tie`;
  return decision(
    tied.filter((each) => each.category === category),
    'tie',
    `Several categories have ${most} points ${among}, and ${why}.`,
  );
}

/** Context rules of a lower paranoia level than every payload rule, which say more than those. */
function contextBelow(matched: readonly Candidate[], payload: readonly Candidate[]): Candidate[] {
  const level = lowestLevel(payload);
  const onlyCount = payload.every(({ rule }) => COUNTING_RULES.has(rule));
  return matched.filter(
    (each) =>
      levelIn(each) < level &&
      each.points > 0 &&
      (onlyCount ? !PAYLOAD_CATEGORIES.has(each.category) : SPECIFIC_CONTEXT.has(each.category)),
  );
}

/** Of rules of one category: the first of those with the most points stands for them. */
function decision(rules: readonly Candidate[], step: DecisionStep, reason: string): Decision {
  const most = Math.max(...rules.map(({ points }) => points));
  const first = rules.find(({ points }) => points === most);
  return { category: first?.category ?? null, rule: first?.rule ?? '', step, reason };
}

function hasOneCategory(rules: readonly Candidate[]): boolean {
  return rules.every(({ category }) => category === rules[0]?.category);
}

function sumOf(rules: readonly Candidate[], category: Category | null): number {
  return rules.reduce((total, each) => total + (each.category === category ? each.points : 0), 0);
}

/** Rules that are not of CRS have no level: nobody enables them for being strict. */
function levelIn({ level = 1 }: Judgement): number {
  return level;
}

function lowestLevel(rules: readonly Judgement[]): number {
  return Math.min(...rules.map(levelIn));
}

export function isVerdictRule(id: string): boolean {
  return id.length === 6 && VERDICTS.has(id.slice(0, -3));
}

interface Evidence {
  category: Category | null;
  because: string;
  isCrs: boolean;
}

const OVERRIDE = 'override';
const POINT_VALUES: ReadonlyMap<string, number> = new Map(Object.entries(POINTS));
const VERDICTS: ReadonlySet<string> = new Set(VERDICT_RULES.map((name) => name.slice(0, -3)));
const BY_RULE = index(({ rules }) => rules, 'rule id');
const BY_ENGINE_RULE = index(({ engineRules }) => engineRules ?? [], 'rule id');
/** `942` for `942xxx`, which saves making that text for every rule of every request. */
const BY_THOUSAND: ReadonlyMap<string, Evidence> = new Map(
  [...BY_RULE].flatMap(([name, row]) => (name.endsWith('xxx') ? [[name.slice(0, -3), row] as const] : [])),
);
const BY_TAG = index(({ tags }) => tags ?? [], 'tag');
const BY_FILE = index(({ files }) => files ?? [], 'file');
const OWN: Evidence = { category: OWN_RULE, because: 'a rule that is none of CRS', isCrs: false };
const UNREADABLE = {
  rule: '',
  because: 'a match whose rule is unknown: the message was cut or forged',
  verdict: true,
};
const CUT: Evidence = { category: null, because: UNREADABLE.because, isCrs: false };

function evidence(rule: Rule, overrides: Overrides): Evidence {
  const chosen = overrides.get(rule.id);
  if (chosen !== undefined && (chosen !== null || !rule.ambiguous))
    return { category: chosen, because: OVERRIDE, isCrs: isNamedCrs(rule) };
  if (rule.named !== undefined) return { ...rule.named, isCrs: false };
  const byRule = BY_RULE.get(rule.id) ?? BY_THOUSAND.get(rule.id.slice(0, -3));
  if (byRule !== undefined && isCrs(rule, byRule)) return byRule;
  const byEngineRule = BY_ENGINE_RULE.get(rule.id);
  if (byEngineRule !== undefined && rule.ver === '' && rule.tags.length === 0) {
    return { ...byEngineRule, isCrs: false };
  }
  for (const tag of rule.tags) {
    const byTag = BY_TAG.get(tag);
    if (byTag !== undefined) return { ...byTag, isCrs: isNamedCrs(rule) };
  }
  const byFile = BY_FILE.get(fileName(rule.file));
  if (byFile !== undefined) return byFile;
  return rule.id === '' && rule.file === '' ? CUT : OWN;
}

function pointsOf({ severity, denied }: Rule, isCrs: boolean): number {
  const points = POINT_VALUES.get(severity) ?? POINT_VALUES.get(severity.toLowerCase()) ?? 0;
  if (isCrs) return points === 0 ? POINTS_WITHOUT_SEVERITY : points;
  // Own rules often have no severity. One that denies is as critical as a rule can be.
  return denied ? Math.max(points, POINTS_WITHOUT_SEVERITY) : points;
}

const LEVEL_TAG = 'paranoia-level/';

function levelOf({ id, ver, tags }: Rule): number {
  const tag = tags.find((each) => each.startsWith(LEVEL_TAG));
  const level = tag === undefined ? Number.NaN : Number(tag.slice(LEVEL_TAG.length));
  return level >= 1 && level <= 4 ? level : paranoiaLevelOfRule(id, ver);
}

function isNamedCrs({ ver, tags }: Rule): boolean {
  // The ids of version 2 meant other things.
  if (ver.startsWith('OWASP_CRS')) return !ver.startsWith('/2', 'OWASP_CRS'.length);
  return tags.some((tag) => tag.startsWith('OWASP_CRS') || tag.startsWith(LEVEL_TAG));
}

/** People number their own rules inside the ranges of CRS, so the id alone proves nothing. */
function isCrs(rule: Rule, byRule: Evidence): boolean {
  const { id, ver, file: path, tags } = rule;
  if (ver.startsWith('OWASP_CRS')) return isNamedCrs(rule);
  const file = fileName(path);
  if (BY_FILE.has(file) && file.includes(`-${id.slice(0, 3)}-`)) return true;
  if (isNamedCrs(rule) || tags.some((tag) => BY_TAG.get(tag)?.category === byRule.category)) return true;
  // With nothing to go by, a verdict is more likely a verdict than someone's own rule.
  return byRule.category === null && ver === '' && file === '' && tags.length === 0;
}

function fileName(path: string): string {
  const name = path.slice(path.lastIndexOf('/') + 1);
  return name.endsWith('.conf') ? name.slice(0, -'.conf'.length) : name;
}

function index(
  names: (row: (typeof CRS_TABLE)[number]) => readonly string[],
  kind: string,
): ReadonlyMap<string, Evidence> {
  return new Map(
    CRS_TABLE.flatMap((row) =>
      names(row).map(
        (name) => [name, { category: row.category, because: `${kind} ${name}`, isCrs: true }] as const,
      ),
    ),
  );
}
