/** What a matched rule counts as, and why; and what a request counts as that matched several. */
import type { Category } from '../../event.ts';
import { CRS_TABLE, OWN_RULE, POINTS } from './table.ts';

/** A matched rule, as an audit or error log tells it. What the log does not say is ''. */
export interface Rule {
  id: string;
  severity: string;
  ver: string;
  file: string;
  tags: readonly string[];
  /** What a vendor's own name for the rule says. Wins over the tables of CRS, not over the operator. */
  named?: Evidence;
}

export interface Judgement {
  rule: string;
  points: number;
  /** Null: it is no attack by itself. */
  category: Category | null;
  /** The evidence, in a few words. */
  because: string;
}

/** Categories of single rules that the operator chose; null takes a rule out of the count. */
export type Overrides = ReadonlyMap<string, Category | null>;

/** A log is attacker input: an id, or what the operator sees of it, stays short. */
const RULE_ID_LENGTH_MAX = 64;

export function judge(rule: Rule, overrides: Overrides): Judgement {
  const { category, because } = evidence(rule, overrides);
  const points = POINT_VALUES.get(rule.severity) ?? POINT_VALUES.get(rule.severity.toLowerCase()) ?? 0;
  return { rule: rule.id.slice(0, RULE_ID_LENGTH_MAX), points, category, because };
}

/**
 * The category with the most anomaly points, over distinct rules, the way CRS itself scores. A tie goes to the
 * category whose rule matched first. (A fixed order of categories would be wrong: `?page=../../etc/passwd` matches
 * rules against file inclusion and one against command injection.)
 */
export function primaryCategory(distinct: readonly Judgement[]): Category | null {
  const points = new Map<Category, number>();
  for (const { category, points: more } of distinct) {
    if (category !== null) points.set(category, (points.get(category) ?? 0) + more);
  }
  let best: Category | null = null;
  for (const [category, sum] of points) {
    if (best === null || sum > (points.get(best) ?? 0)) best = category;
  }
  return best;
}

export interface Evidence {
  category: Category | null;
  because: string;
}

const POINT_VALUES: ReadonlyMap<string, number> = new Map(Object.entries(POINTS));
const BY_RULE = index(({ rules }) => rules, 'rule id');
/** `942` for `942xxx`, which saves making that text for every rule of every request. */
const BY_THOUSAND: ReadonlyMap<string, Evidence> = new Map(
  [...BY_RULE].flatMap(([name, row]) => (name.endsWith('xxx') ? [[name.slice(0, -3), row] as const] : [])),
);
const BY_TAG = index(({ tags }) => tags ?? [], 'tag');
const BY_FILE = index(({ files }) => files ?? [], 'file');
const OWN: Evidence = { category: OWN_RULE, because: 'a rule that is none of CRS' };

function evidence(rule: Rule, overrides: Overrides): Evidence {
  const chosen = overrides.get(rule.id);
  if (chosen !== undefined) return { category: chosen, because: 'override' };
  if (rule.named !== undefined) return rule.named;
  const byRule = BY_RULE.get(rule.id) ?? BY_THOUSAND.get(rule.id.slice(0, -3));
  if (byRule !== undefined && isCrs(rule, byRule)) return byRule;
  for (const tag of rule.tags) {
    const byTag = BY_TAG.get(tag);
    if (byTag !== undefined) return byTag;
  }
  return BY_FILE.get(fileName(rule.file)) ?? OWN;
}

/** People number their own rules inside the ranges of CRS, so the id alone proves nothing. */
function isCrs({ id, ver, file: path, tags }: Rule, byRule: Evidence): boolean {
  // The ids of version 2 meant other things.
  if (ver.startsWith('OWASP_CRS')) return !ver.startsWith('/2', 'OWASP_CRS'.length);
  const file = fileName(path);
  if (BY_FILE.has(file) && file.includes(`-${id.slice(0, 3)}-`)) return true;
  if (tags.some((tag) => tag.startsWith('OWASP_CRS') || BY_TAG.get(tag)?.category === byRule.category)) {
    return true;
  }
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
      names(row).map((name) => [name, { category: row.category, because: `${kind} ${name}` }] as const),
    ),
  );
}
