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
  ALB_REFUSED,
  ATTACK_WORDS,
  AWS_CONDITIONS,
  AWS_GROUPS,
  AWS_IP_SET,
  AWS_MANAGED_RULE,
  AWS_RULES,
  AZURE_GROUPS,
  AZURE_MANAGED_RULE,
  AZURE_RATE_LIMIT,
  CLOUD_ARMOR_EXPRESSIONS,
  CLOUD_ARMOR_MANAGED_RULE,
  CLOUD_ARMOR_MATCHES,
  CLOUDFLARE_MANAGED_RULE,
  CLOUDFLARE_SCORES,
  CLOUDFLARE_SOURCES,
  LTS_TABLE,
  LTS_UNKNOWN,
  NAXSI_RULES,
  NAXSI_SCORES,
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
  own_rule: CUSTOM_RULE,
  lts: { attacks: LTS_TABLE, unknown: LTS_UNKNOWN },
  aws: {
    conditions: AWS_CONDITIONS,
    rules: AWS_RULES,
    groups: AWS_GROUPS,
    ip_set: { category: AWS_IP_SET.category, name: AWS_IP_SET.name.source },
    managed_rule: AWS_MANAGED_RULE,
    own_rule: CUSTOM_RULE,
    alb_refused: ALB_REFUSED,
  },
  cloudflare: {
    sources: CLOUDFLARE_SOURCES,
    words: ATTACK_WORDS,
    scores: CLOUDFLARE_SCORES,
    managed_rule: CLOUDFLARE_MANAGED_RULE,
  },
  azure: {
    groups: AZURE_GROUPS,
    rateLimit: { category: AZURE_RATE_LIMIT.category, name: AZURE_RATE_LIMIT.name.source },
    managed_rule: AZURE_MANAGED_RULE,
    own_rule: CUSTOM_RULE,
  },
  cloud_armor: {
    expressions: CLOUD_ARMOR_EXPRESSIONS,
    matches: CLOUD_ARMOR_MATCHES,
    managed_rule: CLOUD_ARMOR_MANAGED_RULE,
    own_rule: CUSTOM_RULE,
  },
  naxsi: { scores: NAXSI_SCORES, rules: NAXSI_RULES, own_rule: CUSTOM_RULE },
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
    ...rowsOf(LTS_TABLE),
    [LTS_UNKNOWN, ['anything else']],
  ]);
  section(io, 'AWS WAF, by what a rule looked for', rowsOf(AWS_CONDITIONS));
  section(io, 'AWS WAF, by rule or the last part of a label', rowsOf(AWS_RULES));
  section(io, 'AWS WAF, by rule group', [
    ...rowsOf(AWS_GROUPS),
    [AWS_IP_SET.category, ['rules with IP set in their name']],
    [AWS_MANAGED_RULE, ['any other managed rule']],
    [CUSTOM_RULE, ['own rules']],
  ]);
  section(io, 'AWS load balancer', [[ALB_REFUSED, ['requests that AWS WAF refused']]]);
  section(io, 'Cloudflare, by source', rowsOf(CLOUDFLARE_SOURCES));
  section(io, 'Cloudflare, by words in the description of a managed rule (rules of CRS by their id)', [
    ...rowsOf(ATTACK_WORDS),
    ...CLOUDFLARE_SCORES.map(({ category, names }) => [category, [`${names.join(', ')} up to 20`]] as const),
    [CLOUDFLARE_MANAGED_RULE, ['any other managed rule']],
  ]);
  section(io, 'Azure, by rule group or rule set (rules of CRS by their id)', [
    ...rowsOf(AZURE_GROUPS),
    [AZURE_RATE_LIMIT.category, ['custom rules with rate limit in their name']],
    [AZURE_MANAGED_RULE, ['any other managed rule']],
    [CUSTOM_RULE, ['custom rules']],
  ]);
  section(io, 'Google Cloud Armor, by expression (rules of CRS by their id)', [
    ...rowsOf(CLOUD_ARMOR_EXPRESSIONS),
    [CLOUD_ARMOR_MANAGED_RULE, ['any other expression']],
  ]);
  section(io, 'Google Cloud Armor, by what else the rule matched', [
    ...rowsOf(CLOUD_ARMOR_MATCHES),
    [CUSTOM_RULE, ['custom rules']],
  ]);
  section(io, 'NAXSI, by score', [...rowsOf(NAXSI_SCORES), [CUSTOM_RULE, ['any other score']]]);
  section(io, 'NAXSI, by rule id, where there is no score', [
    ...NAXSI_RULES.map(
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
