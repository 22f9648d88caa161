import { CATEGORIES } from '../event.ts';
import {
  CRS_TABLE,
  EVIDENCE_ORDER,
  OWN_RULE,
  POINTS,
  POINTS_WITHOUT_SEVERITY,
  STEPS,
  TABLE_VERSION,
} from '../ingest/categories/table.ts';
import {
  AWS_CONDITIONS,
  AWS_GROUPS,
  AWS_IP_SET,
  AWS_MANAGED_RULE,
  AWS_RULES,
  LTS_TABLE,
  LTS_UNKNOWN,
  type NameRow,
} from '../ingest/categories/vendor-tables.ts';
import { command, type Io, printLine } from './command.ts';

export const categoriesCommand = command({
  name: 'categories',
  about: 'show which evidence puts an attack in which category',
  settings: ['categories', 'json'],
  required: [],
  async run({ categories: overrides = new Map(), json }, _operands, io) {
    const chosen = [...overrides].map(([rule, category]) => ({ rule, category: category ?? 'none' }));
    if (json) printLine(io.stdout, JSON.stringify({ ...TABLE, overrides: chosen }));
    else {
      printTable(io);
      section(
        io,
        'Overrides',
        chosen.map(({ rule, category }) => [category, [rule]]),
      );
    }
    return 0;
  },
});

const TABLE = {
  version: TABLE_VERSION,
  order: EVIDENCE_ORDER,
  points: POINTS,
  points_without_severity: POINTS_WITHOUT_SEVERITY,
  steps: STEPS,
  crs: CRS_TABLE,
  own_rule: OWN_RULE,
  lts: { attacks: LTS_TABLE, unknown: LTS_UNKNOWN },
  aws: {
    conditions: AWS_CONDITIONS,
    rules: AWS_RULES,
    groups: AWS_GROUPS,
    ip_set: { category: AWS_IP_SET.category, name: AWS_IP_SET.name.source },
    managed_rule: AWS_MANAGED_RULE,
    own_rule: OWN_RULE,
  },
};

type Rows = readonly (readonly [category: string, names: readonly string[]])[];

function printTable(io: Io): void {
  printLine(io.stdout, `Table of categories, version ${TABLE_VERSION}`);
  printLine(io.stdout, '');
  printLine(io.stdout, `A rule is judged by the first that says something: ${EVIDENCE_ORDER.join('; ')}.`);
  const words = Object.keys(POINTS).filter((severity) => Number.isNaN(Number(severity)));
  const points = words.map((severity) => `${severity} ${POINTS[severity]}`).join(', ');
  printLine(
    io.stdout,
    `Each distinct rule has points by its severity (${points}; a CRS rule without one ${POINTS_WITHOUT_SEVERITY}).`,
  );
  printLine(io.stdout, 'If rules of several categories matched, these steps choose the category:');
  STEPS.forEach((step, i) => {
    printLine(io.stdout, `  ${i + 1}. ${step}`);
  });
  section(io, 'OWASP Core Rule Set, by rule id', [
    ...CRS_TABLE.map(
      ({ category, rules, engineRules = [] }) => [category ?? 'none', [...rules, ...engineRules]] as const,
    ),
    [OWN_RULE, ['any other rule']],
  ]);
  section(
    io,
    'By tag',
    CRS_TABLE.flatMap(({ category, tags }) => (tags ? [[category ?? 'none', tags] as const] : [])),
  );
  section(
    io,
    'By file',
    CRS_TABLE.flatMap(({ category, files }) => (files ? [[category ?? 'none', files] as const] : [])),
  );
  section(io, "The vendor's attack log, by `attack`", [
    ...CATEGORIES.map((name) => [name, [name]] as const),
    ...rowsOf(LTS_TABLE),
    [LTS_UNKNOWN, ['anything else']],
  ]);
  section(io, 'AWS WAF, by what a rule looked for', rowsOf(AWS_CONDITIONS));
  section(io, 'AWS WAF, by rule or the last part of a label', rowsOf(AWS_RULES));
  section(io, 'AWS WAF, by rule group', [
    ...rowsOf(AWS_GROUPS),
    [AWS_IP_SET.category, ['rules with IP set in their name']],
    [AWS_MANAGED_RULE, ['any other managed rule']],
    [OWN_RULE, ['own rules']],
  ]);
}

function rowsOf(table: readonly NameRow[]): Rows {
  return table.map(({ category, names }) => [category, names]);
}

const CATEGORY_WIDTH = Math.max(...CATEGORIES.map(({ length }) => length));

function section({ stdout }: Io, title: string, rows: Rows): void {
  if (rows.length === 0) return;
  printLine(stdout, '');
  printLine(stdout, title);
  for (const [category, names] of rows) {
    printLine(stdout, `  ${category.padEnd(CATEGORY_WIDTH)}  ${names.join(', ')}`);
  }
}
