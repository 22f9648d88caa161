import { SERVER_OPTIONS } from '../config.ts';
import { CATEGORIES } from '../event.ts';
import * as crs from '../ingest/categories/crs-table.ts';
import * as vendors from '../ingest/categories/vendor-tables.ts';
import { command, type Io, printLine } from './command.ts';
import { JSON_OUTPUT } from './options.ts';

export const categoriesCommand = command({
  name: 'categories',
  description: 'print the table that maps rules to attack categories',
  options: { categories: SERVER_OPTIONS.categories, json: JSON_OUTPUT },
  async run({ categories: overrides = new Map(), json }, _operands, io) {
    const rows = [...overrides].map(([rule, category]) => ({ rule, category: category ?? 'none' }));
    if (json) printLine(io.stdout, JSON.stringify({ ...TABLE, overrides: rows }));
    else printTable(io, { ...SECTIONS, Overrides: rows.map(({ rule, category }) => [category, [rule]]) });
    return 0;
  },
});

const TABLE = {
  version: crs.TABLE_VERSION,
  order: crs.EVIDENCE_ORDER,
  points: crs.POINTS,
  points_without_severity: crs.POINTS_WITHOUT_SEVERITY,
  steps: crs.STEPS,
  crs: crs.CRS_TABLE,
  custom_rule: crs.CUSTOM_RULE,
  lts: { attacks: vendors.LTS_TABLE, unknown: vendors.LTS_UNKNOWN },
  aws: {
    conditions: vendors.AWS_CONDITIONS,
    rules: vendors.AWS_RULES,
    groups: vendors.AWS_GROUPS,
    ip_set: { category: vendors.AWS_IP_SET.category, name: vendors.AWS_IP_SET.name.source },
    managed_rule: vendors.AWS_MANAGED_RULE,
    custom_rule: crs.CUSTOM_RULE,
    alb_refused: vendors.ALB_REFUSED,
  },
  cloudflare: {
    sources: vendors.CLOUDFLARE_SOURCES,
    words: vendors.ATTACK_WORDS,
    scores: vendors.CLOUDFLARE_SCORES,
    managed_rule: vendors.CLOUDFLARE_MANAGED_RULE,
  },
  azure: {
    groups: vendors.AZURE_GROUPS,
    rate_limit: { category: vendors.AZURE_RATE_LIMIT.category, name: vendors.AZURE_RATE_LIMIT.name.source },
    managed_rule: vendors.AZURE_MANAGED_RULE,
    custom_rule: crs.CUSTOM_RULE,
  },
  cloud_armor: {
    expressions: vendors.CLOUD_ARMOR_EXPRESSIONS,
    matches: vendors.CLOUD_ARMOR_MATCHES,
    managed_rule: vendors.CLOUD_ARMOR_MANAGED_RULE,
    custom_rule: crs.CUSTOM_RULE,
  },
  naxsi: { scores: vendors.NAXSI_SCORES, rules: vendors.NAXSI_RULES, custom_rule: crs.CUSTOM_RULE },
};

type Rows = readonly (readonly [category: string, names: readonly string[]])[];

/** Rows by title. */
const SECTIONS: Readonly<Record<string, Rows>> = {
  'OWASP Core Rule Set, by rule id': [
    ...crs.CRS_TABLE.map(
      ({ category, rules, engineRules = [] }) => [category ?? 'none', [...rules, ...engineRules]] as const,
    ),
    [crs.CUSTOM_RULE, ['any other rule']],
  ],
  'By tag': crs.CRS_TABLE.flatMap(({ category, tags }) =>
    tags ? [[category ?? 'none', tags] as const] : [],
  ),
  'By file': crs.CRS_TABLE.flatMap(({ category, files }) =>
    files ? [[category ?? 'none', files] as const] : [],
  ),
  "The vendor's attack log, by `attack`": [
    ...CATEGORIES.map((name) => [name, [name]] as const),
    ...rowsOf(vendors.LTS_TABLE),
    [vendors.LTS_UNKNOWN, ['anything else']],
  ],
  'AWS WAF, by what a rule looked for': rowsOf(vendors.AWS_CONDITIONS),
  'AWS WAF, by rule or the last part of a label': rowsOf(vendors.AWS_RULES),
  'AWS WAF, by rule group': [
    ...rowsOf(vendors.AWS_GROUPS),
    [vendors.AWS_IP_SET.category, ['rules with IP set in their name']],
    [vendors.AWS_MANAGED_RULE, ['any other managed rule']],
    [crs.CUSTOM_RULE, ['custom rules']],
  ],
  'AWS load balancer': [[vendors.ALB_REFUSED, ['requests that AWS WAF refused']]],
  'Cloudflare, by source': rowsOf(vendors.CLOUDFLARE_SOURCES),
  'Cloudflare, by words in the description of a managed rule (rules of CRS by their id)': [
    ...rowsOf(vendors.ATTACK_WORDS),
    ...vendors.CLOUDFLARE_SCORES.map(
      ({ category, names }) => [category, [`${names.join(', ')} up to 20`]] as const,
    ),
    [vendors.CLOUDFLARE_MANAGED_RULE, ['any other managed rule']],
  ],
  'Azure, by rule group or rule set (rules of CRS by their id)': [
    ...rowsOf(vendors.AZURE_GROUPS),
    [vendors.AZURE_RATE_LIMIT.category, ['custom rules with rate limit in their name']],
    [vendors.AZURE_MANAGED_RULE, ['any other managed rule']],
    [crs.CUSTOM_RULE, ['custom rules']],
  ],
  'Google Cloud Armor, by expression (rules of CRS by their id)': [
    ...rowsOf(vendors.CLOUD_ARMOR_EXPRESSIONS),
    [vendors.CLOUD_ARMOR_MANAGED_RULE, ['any other expression']],
  ],
  'Google Cloud Armor, by what else the rule matched': [
    ...rowsOf(vendors.CLOUD_ARMOR_MATCHES),
    [crs.CUSTOM_RULE, ['custom rules']],
  ],
  'NAXSI, by score': [...rowsOf(vendors.NAXSI_SCORES), [crs.CUSTOM_RULE, ['any other score']]],
  'NAXSI, by rule id, where there is no score': [
    ...vendors.NAXSI_RULES.map(
      ({ category, from, to }) => [category, [from === to ? `${from}` : `${from} to ${to}`]] as const,
    ),
    [crs.CUSTOM_RULE, ['any other rule']],
  ],
};

function rowsOf(table: readonly vendors.NameRow[]): Rows {
  return table.map(({ category, names }) => [category, names]);
}

const CATEGORY_WIDTH = Math.max(...CATEGORIES.map(({ length }) => length));

function printTable({ stdout }: Io, sections: typeof SECTIONS): void {
  printLine(stdout, `Table of categories, version ${crs.TABLE_VERSION}`);
  printLine(stdout, '');
  printLine(
    stdout,
    `The category of a rule comes from the first of these that applies: ${crs.EVIDENCE_ORDER.join('; ')}.`,
  );
  const words = Object.keys(crs.POINTS).filter((severity) => Number.isNaN(Number(severity)));
  const points = words.map((severity) => `${severity} ${crs.POINTS[severity]}`).join(', ');
  printLine(
    stdout,
    `Each distinct rule has points by severity (${points}; a CRS rule without a severity ${crs.POINTS_WITHOUT_SEVERITY}).`,
  );
  printLine(stdout, 'If rules of several categories matched, these steps choose the category:');
  for (const [i, step] of crs.STEPS.entries()) printLine(stdout, `  ${i + 1}. ${step}`);
  for (const [title, rows] of Object.entries(sections)) {
    if (rows.length === 0) continue;
    printLine(stdout, '');
    printLine(stdout, title);
    for (const [category, names] of rows)
      printLine(stdout, `  ${category.padEnd(CATEGORY_WIDTH)}  ${names.join(', ')}`);
  }
}
