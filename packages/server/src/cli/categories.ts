import { SERVER_OPTIONS } from '../config.ts';
import { CATEGORIES } from '../event.ts';
import {
  CRS_TABLE,
  CUSTOM_RULE,
  EVIDENCE_ORDER,
  POINTS,
  POINTS_WITHOUT_SEVERITY,
  STEPS,
  TABLE_VERSION,
} from '../ingest/categories/crs-table.ts';
import {
  AWS,
  AZURE,
  CLOUD_ARMOR,
  CLOUDFLARE,
  LTS,
  NAXSI,
  type NameRow,
} from '../ingest/categories/vendor-tables.ts';
import { command, type Io, printLine } from './command.ts';
import { JSON_OUTPUT } from './options.ts';

export const categoriesCommand = command({
  name: 'categories',
  description: 'print the table that maps rules to attack categories',
  options: { categories: SERVER_OPTIONS.categories, json: JSON_OUTPUT },
  async run({ categories: overrides = new Map(), json }, _operands, io) {
    const rows = [...overrides].map(([rule, category]) => ({ rule, category: category ?? 'none' }));
    if (json) printLine(io.stdout, JSON.stringify({ ...TABLE, overrides: rows }));
    else {
      printTable(io);
      section(
        io,
        'Overrides',
        rows.map(({ rule, category }) => [category, [rule]]),
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
  custom_rule: CUSTOM_RULE,
  lts: LTS,
  aws: {
    conditions: AWS.conditions,
    rules: AWS.rules,
    groups: AWS.groups,
    ip_set: { category: AWS.ipSet.category, name: AWS.ipSet.name.source },
    managed_rule: AWS.managedRule,
    custom_rule: CUSTOM_RULE,
    alb_refused: AWS.albRefused,
  },
  cloudflare: {
    sources: CLOUDFLARE.sources,
    words: CLOUDFLARE.words,
    scores: CLOUDFLARE.scores,
    managed_rule: CLOUDFLARE.managedRule,
  },
  azure: {
    groups: AZURE.groups,
    rate_limit: { category: AZURE.rateLimit.category, name: AZURE.rateLimit.name.source },
    managed_rule: AZURE.managedRule,
    custom_rule: CUSTOM_RULE,
  },
  cloud_armor: {
    expressions: CLOUD_ARMOR.expressions,
    matches: CLOUD_ARMOR.matches,
    managed_rule: CLOUD_ARMOR.managedRule,
    custom_rule: CUSTOM_RULE,
  },
  naxsi: { ...NAXSI, custom_rule: CUSTOM_RULE },
};

type Rows = readonly (readonly [category: string, names: readonly string[]])[];

function printTable(io: Io): void {
  printLine(io.stdout, `Table of categories, version ${TABLE_VERSION}`);
  printLine(io.stdout, '');
  printLine(
    io.stdout,
    `The category of a rule comes from the first of these that applies: ${EVIDENCE_ORDER.join('; ')}.`,
  );
  const words = Object.keys(POINTS).filter((severity) => Number.isNaN(Number(severity)));
  const points = words.map((severity) => `${severity} ${POINTS[severity]}`).join(', ');
  printLine(
    io.stdout,
    `Each distinct rule has points by severity (${points}; a CRS rule without a severity ${POINTS_WITHOUT_SEVERITY}).`,
  );
  printLine(io.stdout, 'If rules of several categories matched, these steps choose the category:');
  STEPS.forEach((step, i) => {
    printLine(io.stdout, `  ${i + 1}. ${step}`);
  });
  section(io, 'OWASP Core Rule Set, by rule id', [
    ...CRS_TABLE.map(
      ({ category, rules, engineRules = [] }) => [category ?? 'none', [...rules, ...engineRules]] as const,
    ),
    [CUSTOM_RULE, ['any other rule']],
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
    ...rowsOf(LTS.attacks),
    [LTS.unknown, ['anything else']],
  ]);
  section(io, 'AWS WAF, by what a rule looked for', rowsOf(AWS.conditions));
  section(io, 'AWS WAF, by rule or the last part of a label', rowsOf(AWS.rules));
  section(io, 'AWS WAF, by rule group', [
    ...rowsOf(AWS.groups),
    [AWS.ipSet.category, ['rules with IP set in their name']],
    [AWS.managedRule, ['any other managed rule']],
    [CUSTOM_RULE, ['custom rules']],
  ]);
  section(io, 'AWS load balancer', [[AWS.albRefused, ['requests that AWS WAF refused']]]);
  section(io, 'Cloudflare, by source', rowsOf(CLOUDFLARE.sources));
  section(io, 'Cloudflare, by words in the description of a managed rule (rules of CRS by their id)', [
    ...rowsOf(CLOUDFLARE.words),
    ...CLOUDFLARE.scores.map(({ category, names }) => [category, [`${names.join(', ')} up to 20`]] as const),
    [CLOUDFLARE.managedRule, ['any other managed rule']],
  ]);
  section(io, 'Azure, by rule group or rule set (rules of CRS by their id)', [
    ...rowsOf(AZURE.groups),
    [AZURE.rateLimit.category, ['custom rules with rate limit in their name']],
    [AZURE.managedRule, ['any other managed rule']],
    [CUSTOM_RULE, ['custom rules']],
  ]);
  section(io, 'Google Cloud Armor, by expression (rules of CRS by their id)', [
    ...rowsOf(CLOUD_ARMOR.expressions),
    [CLOUD_ARMOR.managedRule, ['any other expression']],
  ]);
  section(io, 'Google Cloud Armor, by what else the rule matched', [
    ...rowsOf(CLOUD_ARMOR.matches),
    [CUSTOM_RULE, ['custom rules']],
  ]);
  section(io, 'NAXSI, by score', [...rowsOf(NAXSI.scores), [CUSTOM_RULE, ['any other score']]]);
  section(io, 'NAXSI, by rule id, where there is no score', [
    ...NAXSI.rules.map(
      ({ category, from, to }) => [category, [from === to ? `${from}` : `${from} to ${to}`]] as const,
    ),
    [CUSTOM_RULE, ['any other rule']],
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
