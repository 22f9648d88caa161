import { CATEGORIES, categoryNumber } from '../../event.ts';
import type { Overrides } from './judge.ts';

/** What an operator writes by hand: enough for every rule of a large set. */
const OVERRIDES_MAX = 10_000;

/**
 * `{"rules": {"942100": "custom", "900123": "none"}}`: categories of single rules, where the table does not suit.
 * Throws an Error that names every mistake.
 */
export function parseOverrides(text: string): Overrides {
  const rules = rulesOf(text);
  const entries = Object.entries(rules);
  const problems = entries.flatMap(([rule, category]) => problemsOf(rule, category));
  if (entries.length > OVERRIDES_MAX) problems.push(`it has more than ${OVERRIDES_MAX} rules`);
  if (problems.length > 0) throw new Error(problems.join('; '));
  return new Map(
    entries.map(([rule, category]) => {
      const number = categoryNumber(String(category));
      return [rule, number === undefined ? null : (CATEGORIES[number] ?? null)];
    }),
  );
}

function rulesOf(text: string): Readonly<Record<string, unknown>> {
  let file: unknown;
  try {
    file = JSON.parse(text);
  } catch (error) {
    throw new Error(`it is not JSON (${(error as Error).message})`);
  }
  const others = isObject(file) ? Object.keys(file).filter((name) => name !== 'rules') : [];
  if (!isObject(file) || !isObject(file.rules) || others.length > 0) {
    throw new Error('it must be an object with "rules" and nothing else: {"rules": {"942100": "custom"}}');
  }
  return file.rules;
}

function problemsOf(rule: string, category: unknown): string[] {
  const problems: string[] = [];
  if (!/^[1-9]\d{0,18}$/.test(rule)) problems.push(`"${rule}" is not a rule id`);
  if (category !== 'none' && (typeof category !== 'string' || categoryNumber(category) === undefined)) {
    problems.push(
      `rule "${rule}" is ${JSON.stringify(category)}, but must be none, ${CATEGORIES.join(', ')}`,
    );
  }
  return problems;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
