/** Chooses the category of a matched rule, and of a request that matched several rules. */
import { CATEGORIES, type Category, isCategory, POINTS_WITHOUT_SEVERITY } from '../../event.ts';
import { asObject, type JsonObject } from '../formats/json.ts';
import {
  COUNTING_RULES,
  CRS_TABLE,
  CUSTOM_RULE,
  DECISIVE,
  PAYLOAD_CATEGORIES,
  POINTS,
  paranoiaLevelOfRule,
  SPECIFIC_CONTEXT,
  SUMS,
  TIE_WINNER,
  UNKNOWN_ATTACK,
  WORD_RULES,
} from './crs-table.ts';

/** A matched rule from an audit or error log. A field that the log does not have is ''. */
export interface Rule {
  /** Digits only; '' if the message was cut before it. */
  id: string;
  severity: string;
  ver: string;
  file: string;
  tags: readonly string[];
  /** What matched, like ARGS:q. */
  variable?: string | undefined;
  /** The value of the variable, or the part of it that matched. May have secrets. */
  value?: string | undefined;
  /** This rule stopped the request. */
  denied?: boolean | undefined;
  /** The message was cut or may contain fields that the client wrote, so it cannot prove that there was no attack. */
  doubtful?: boolean | undefined;
  /** The message names two rules, one written by the client, so it cannot prove that the operator excluded the match. */
  ambiguous?: boolean | undefined;
  /** In 980130 and 980170: the category with the highest sum (scoresOf). */
  sums?: Category | undefined;
  /** In 980xxx: a score exceeded its limit, as in 949xxx. */
  exceeded?: boolean | undefined;
  /** In 949xxx and 980xxx: the inbound anomaly score. */
  score?: number | undefined;
  /** What follows from the vendor's name of the rule. Wins over the CRS tables, but not over the operator. */
  named?: { category: Category; because: string };
}

export interface Classification {
  /** The rule ID; '' if the message was cut before it. */
  rule: string;
  points: number;
  /** Null if the rule alone is not an attack. */
  category: Category | null;
  /** The evidence, in a few words. */
  because: string;
  /** The paranoia level of a CRS rule. */
  level?: number | undefined;
  /** The rule says that the request was an attack, but not of which kind. */
  verdict?: boolean | undefined;
  denied?: boolean | undefined;
  sums?: Category | undefined;
}

/** The operator's categories of single rules; null excludes a rule. */
export type Overrides = ReadonlyMap<string, Category | null>;

/** The step that left one category, see STEPS in crs-table.ts. */
type DecisionStep =
  | 'only'
  | 'denied'
  | 'payload'
  | 'level'
  | 'webshell'
  | 'points'
  | 'tie'
  | 'sums'
  | 'verdict'
  | 'none';

export interface Decision {
  category: Category | null;
  /** The rule that decided; '' if it was a cut message, or none. */
  rule: string;
  step: DecisionStep;
  /** A sentence for the user. */
  reason: string;
}

/** No rule ID of any rule set is longer. */
export const RULE_ID_PATTERN = /^\d{1,19}$/;

export function classify(rule: Rule, overrides: Overrides): Classification {
  const id = rule.named !== undefined || RULE_ID_PATTERN.test(rule.id) ? rule.id : '';
  const { category, because, isCrs } = evidence(id === rule.id ? rule : { ...rule, id }, overrides);
  const result: Classification = { rule: id, points: 0, category, because };
  if (rule.denied) result.denied = true;
  if (category === null) {
    if (because === OVERRIDE) return result;
    const isCrsVerdict = isCrs && isVerdict({ id });
    // Text that the client may have written proves neither that there was no attack, nor which sum is highest.
    if (id === '' || (rule.doubtful && !isCrsVerdict)) return { ...result, ...UNREADABLE };
    if (isCrsVerdict || (isCrs && rule.exceeded)) result.verdict = true;
    if (isCrs && rule.sums !== undefined) result.sums = rule.sums;
    return result;
  }
  result.points = pointsOf(rule, isCrs);
  if (isCrs) result.level = levelOf(rule);
  return result;
}

/** Classifies a rule without points, whose category follows from the log or from a vendor's names. */
export function judgement(rule: string, category: Category, because: string): Classification {
  return { rule, points: 0, category, because };
}

/** Chooses the category of a request from its distinct rules, by STEPS in crs-table.ts. `blocked` is from the log. */
export function decide(distinct: readonly Classification[], blocked = false): Decision {
  const candidates = distinct.filter(isCandidate);
  const sums = distinct.find((each) => each.sums !== undefined)?.sums;
  const isCut = distinct.some(({ rule, verdict }) => rule === '' && verdict);
  const hasPayload = candidates.some(({ category }) => PAYLOAD_CATEGORIES.has(category));
  // The rule of a cut message is unknown, but the sums of CRS include its points.
  if (candidates.length === 0 || (isCut && !hasPayload && sums !== undefined)) {
    return byVerdict(distinct, sums, isCut, blocked);
  }
  const chosen = bySteps(candidates);
  const custom = candidates.find(({ category, denied }) => category === CUSTOM_RULE && denied);
  if (custom === undefined || chosen.step === 'only') return chosen;
  const rivals = candidates.filter(({ category }) => category === chosen.category);
  const rivalPoints = rivals.reduce((total, { points }) => total + points, 0);
  if (chosen.category !== CUSTOM_RULE && custom.points < rivalPoints) return chosen;
  const reason = `Custom rule ${custom.rule} denied the request, and the other rules do not outscore it.`;
  return { category: CUSTOM_RULE, rule: custom.rule, step: 'denied', reason };
}

const INBOUND_SCORE =
  /Inbound (?:Anomaly Score Exceeded \(Total (?:Inbound )?Score: |Scores: blocking=)(\d{1,6})\b/;

/** Adds what the message of the rule says about scores. */
export function addScores(rule: Rule, message: string): void {
  const isSum = rule.id.startsWith('980');
  if (isSum) Object.assign(rule, scoresOf(message));
  const score = isSum || rule.id.startsWith('949') ? INBOUND_SCORE.exec(message)?.[1] : undefined;
  if (score !== undefined) rule.score = Number(score);
}

/** Reads the message of a rule 980xxx, such as 980130 (`SQLI=5,XSS=0,..`) or 980170 (`SQLI=5, XSS=0, ..`). */
export function scoresOf(message: string): Pick<Rule, 'sums' | 'exceeded'> {
  const sums = new Map<string, number>();
  for (const [, name = '', sum] of message.matchAll(/\b([A-Z]{3,4})=(\d{1,9})\b/g))
    sums.set(name, Number(sum));
  let best: Category | undefined;
  let most = 0;
  for (const [category, names] of SUMS) {
    const sum = names.reduce((total, name) => total + (sums.get(name) ?? 0), 0);
    if (sum > most) [best, most] = [category, sum];
  }
  return { sums: best, ...(message.includes('Score Exceeded') && { exceeded: true }) };
}

type Candidate = Classification & { category: Category };

function isCandidate(rule: Classification): rule is Candidate {
  return rule.category !== null;
}

function byVerdict(
  distinct: readonly Classification[],
  sums: Category | undefined,
  isCut: boolean,
  blocked: boolean,
): Decision {
  const verdict = distinct.find((each) => each.verdict);
  // Rule 901001 denies every request if CRS is not set up: that is not an attack.
  const isSetUp = distinct.some((each) => each.denied && !each.verdict);
  // A verdict based on a rule that the operator excluded is excluded too.
  const isExcluded = !isCut && distinct.some(({ because }) => because === OVERRIDE);
  if ((verdict === undefined && (!blocked || isSetUp)) || isExcluded) {
    return { category: null, rule: '', step: 'none', reason: 'No rule that matched is an attack by itself.' };
  }
  const rule = distinct.find((each) => each.verdict && each.rule !== '')?.rule ?? '';
  const because = isCut ? 'A message was cut before it names the rule' : 'Only the verdict is known';
  if (sums !== undefined)
    return {
      category: sums,
      rule,
      step: 'sums',
      reason: `${because}; the sums of CRS are highest for ${sums}.`,
    };
  const reason = `${because}, so this is an attack of unknown kind.`;
  return { category: UNKNOWN_ATTACK, rule, step: 'verdict', reason };
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
  if (!hasOneCategory(lowest)) return byPoints(lowest, level);
  const reason = `Only its rules matched at paranoia level ${level}, the lowest that counts.`;
  return decision(lowest, 'level', reason);
}

function byPoints(lowest: readonly Candidate[], level: number): Decision {
  const decisive = lowest.filter(({ category }) => category === DECISIVE);
  if (decisive.length > 0)
    return decision(decisive, 'webshell', 'A rule found a web shell, which wins over other payload.');
  const sums = new Map<Category, number>();
  for (const { category, points } of lowest) sums.set(category, (sums.get(category) ?? 0) + points);
  const most = Math.max(...sums.values());
  const best = lowest.filter(({ category }) => sums.get(category) === most);
  const among = `among the rules of paranoia level ${level}`;
  if (hasOneCategory(best)) return decision(best, 'points', `It has the most points ${among}: ${most}.`);
  const specific = best.filter(({ rule }) => !WORD_RULES.has(rule));
  const tied = specific.length > 0 ? specific : best;
  const hasWinner = tied.some((each) => each.category === TIE_WINNER);
  const category = hasWinner ? TIE_WINNER : tied[0]?.category;
  const why = hasOneCategory(tied)
    ? 'the others have only rules that look for words'
    : hasWinner
      ? `${TIE_WINNER} wins a tie`
      : 'its rule matched first';
  const chosen = tied.filter((each) => each.category === category);
  return decision(chosen, 'tie', `Several categories have ${most} points ${among}, and ${why}.`);
}

/** Context rules of a lower paranoia level than every payload rule, which are stronger evidence. */
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

/** Names the first rule with the most points; all `rules` are of one category. */
function decision(rules: readonly Candidate[], step: DecisionStep, reason: string): Decision {
  const most = Math.max(...rules.map(({ points }) => points));
  const first = rules.find(({ points }) => points === most);
  return { category: first?.category ?? null, rule: first?.rule ?? '', step, reason };
}

function hasOneCategory(rules: readonly Candidate[]): boolean {
  return rules.every(({ category }) => category === rules[0]?.category);
}

/** Rules outside CRS have no level and count as level 1. */
function levelIn({ level = 1 }: Classification): number {
  return level;
}

function lowestLevel(rules: readonly Classification[]): number {
  return Math.min(...rules.map(levelIn));
}

export function isVerdict({ id }: { id: string }): boolean {
  return /^9[45]9\d{3}$/.test(id);
}

interface Evidence {
  category: Category | null;
  because: string;
  isCrs: boolean;
}

const OVERRIDE = 'override';
const POINT_VALUES: ReadonlyMap<string, number> = new Map(Object.entries(POINTS));
const BY_RULE = index(({ rules }) => rules, 'rule id');
const BY_ENGINE_RULE = index(({ engineRules }) => engineRules ?? [], 'rule id');
const BY_TAG = index(({ tags }) => tags ?? [], 'tag');
const BY_FILE = index(({ files }) => files ?? [], 'file');
const CUSTOM: Evidence = { category: CUSTOM_RULE, because: 'not a CRS rule', isCrs: false };
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
  const byRule = BY_RULE.get(rule.id) ?? BY_RULE.get(`${rule.id.slice(0, -3)}xxx`);
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
  return rule.id === '' && rule.file === '' ? CUT : CUSTOM;
}

function pointsOf({ severity, denied, named }: Rule, isCrs: boolean): number {
  const points = POINT_VALUES.get(severity) ?? POINT_VALUES.get(severity.toLowerCase()) ?? 0;
  if (isCrs || named !== undefined) return points === 0 ? POINTS_WITHOUT_SEVERITY : points;
  // Custom rules often have no severity. One that denies is critical.
  return denied ? Math.max(points, POINTS_WITHOUT_SEVERITY) : points;
}

const LEVEL_TAG = 'paranoia-level/';

function levelOf({ id, ver, tags }: Rule): number {
  const tag = tags.find((each) => each.startsWith(LEVEL_TAG));
  const level = tag === undefined ? Number.NaN : Number(tag.slice(LEVEL_TAG.length));
  return level >= 1 && level <= 4 ? level : paranoiaLevelOfRule(id, ver);
}

function isNamedCrs({ ver, tags }: Rule): boolean {
  // CRS 2 used the IDs for other rules.
  if (ver.startsWith('OWASP_CRS')) return !ver.startsWith('/2', 'OWASP_CRS'.length);
  return tags.some((tag) => tag.startsWith('OWASP_CRS') || tag.startsWith(LEVEL_TAG));
}

/** Operators number custom rules inside the ranges of CRS, so the ID alone proves nothing. */
function isCrs(rule: Rule, byRule: Evidence): boolean {
  const { id, ver, file: path, tags } = rule;
  if (ver.startsWith('OWASP_CRS')) return isNamedCrs(rule);
  const file = fileName(path);
  if (BY_FILE.has(file) && file.includes(`-${id.slice(0, 3)}-`)) return true;
  if (isNamedCrs(rule) || tags.some((tag) => BY_TAG.get(tag)?.category === byRule.category)) return true;
  // Without other evidence, the ID of a verdict is more likely a verdict than a custom rule.
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

/** Enough for every rule of a large rule set. */
const OVERRIDES_MAX = 10_000;

/**
 * Parses `{"rules": {"942100": "custom", "900123": "none"}}`: categories of single rules that replace those of the
 * table. Throws an Error that lists every mistake.
 */
export function parseOverrides(text: string): Overrides {
  const entries = Object.entries(overriddenRules(text));
  const problems = entries.flatMap(([rule, category]) => problemsOf(rule, category));
  if (entries.length > OVERRIDES_MAX) problems.push(`it has more than ${OVERRIDES_MAX} rules`);
  if (problems.length > 0) throw new Error(problems.join('; '));
  return new Map(entries.map(([rule, category]) => [rule, isCategory(category) ? category : null]));
}

function overriddenRules(text: string): JsonObject {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    throw new Error(`it is not JSON (${(error as Error).message})`);
  }
  const file = asObject(json) ?? {};
  const rules = asObject(file.rules);
  if (rules === null || Object.keys(file).length > 1) {
    throw new Error('it must be an object with "rules" and nothing else: {"rules": {"942100": "custom"}}');
  }
  return rules;
}

function problemsOf(rule: string, category: unknown): string[] {
  const problems: string[] = [];
  if (!/^[1-9]\d{0,18}$/.test(rule)) problems.push(`"${rule}" is not a rule id`);
  if (category !== 'none' && !isCategory(category)) {
    problems.push(
      `rule "${rule}" is ${JSON.stringify(category)}, but must be one of none, ${CATEGORIES.join(', ')}`,
    );
  }
  return problems;
}
