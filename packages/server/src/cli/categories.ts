import { SERVER_OPTIONS } from '../config.ts';
import { CATEGORIES, POINTS_WITHOUT_SEVERITY } from '../event.ts';
import * as crs from '../ingest/categories/crs-table.ts';
import * as vendors from '../ingest/categories/vendor-tables.ts';
import { command, type Io, printLine, printText } from './command.ts';
import { JSON_OUTPUT } from './options.ts';

export const categoriesCommand = command({
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
  points_without_severity: POINTS_WITHOUT_SEVERITY,
  steps: crs.STEPS,
  crs: crs.CRS_TABLE,
  custom_rule: crs.CUSTOM_RULE,
  lts: vendors.LTS,
  aws: {
    conditions: vendors.AWS.conditions,
    rules: vendors.AWS.rules,
    groups: vendors.AWS.groups,
    ip_set: { category: vendors.AWS.ipSet.category, name: vendors.AWS.ipSet.name.source },
    managed_rule: vendors.AWS.managedRule,
    custom_rule: crs.CUSTOM_RULE,
    alb_refused: vendors.AWS.albRefused,
  },
  cloudflare: {
    sources: vendors.CLOUDFLARE.sources,
    words: vendors.CLOUDFLARE.words,
    scores: vendors.CLOUDFLARE.scores,
    managed_rule: vendors.CLOUDFLARE.managedRule,
  },
  azure: {
    groups: vendors.AZURE.groups,
    rate_limit: { category: vendors.AZURE.rateLimit.category, name: vendors.AZURE.rateLimit.name.source },
    managed_rule: vendors.AZURE.managedRule,
    custom_rule: crs.CUSTOM_RULE,
  },
  cloud_armor: {
    expressions: vendors.CLOUD_ARMOR.expressions,
    matches: vendors.CLOUD_ARMOR.matches,
    managed_rule: vendors.CLOUD_ARMOR.managedRule,
    custom_rule: crs.CUSTOM_RULE,
  },
  naxsi: { ...vendors.NAXSI, custom_rule: crs.CUSTOM_RULE },
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
    ...rowsOf(vendors.LTS.attacks),
    [vendors.LTS.unknown, ['anything else']],
  ],
  'AWS WAF, by what a rule looked for': rowsOf(vendors.AWS.conditions),
  'AWS WAF, by rule or the last part of a label': rowsOf(vendors.AWS.rules),
  'AWS WAF, by rule group': [
    ...rowsOf(vendors.AWS.groups),
    [vendors.AWS.ipSet.category, ['rules with IP set in their name']],
    [vendors.AWS.managedRule, ['any other managed rule']],
    [crs.CUSTOM_RULE, ['custom rules']],
  ],
  'AWS load balancer': [[vendors.AWS.albRefused, ['requests that AWS WAF refused']]],
  'Cloudflare, by source': rowsOf(vendors.CLOUDFLARE.sources),
  'Cloudflare, by words in the description of a managed rule (rules of CRS by their id)': [
    ...rowsOf(vendors.CLOUDFLARE.words),
    ...vendors.CLOUDFLARE.scores.map(
      ({ category, names }) => [category, [`${names.join(', ')} up to 20`]] as const,
    ),
    [vendors.CLOUDFLARE.managedRule, ['any other managed rule']],
  ],
  'Azure, by rule group or rule set (rules of CRS by their id)': [
    ...rowsOf(vendors.AZURE.groups),
    [vendors.AZURE.rateLimit.category, ['custom rules with rate limit in their name']],
    [vendors.AZURE.managedRule, ['any other managed rule']],
    [crs.CUSTOM_RULE, ['custom rules']],
  ],
  'Google Cloud Armor, by expression (rules of CRS by their id)': [
    ...rowsOf(vendors.CLOUD_ARMOR.expressions),
    [vendors.CLOUD_ARMOR.managedRule, ['any other expression']],
  ],
  'Google Cloud Armor, by what else the rule matched': [
    ...rowsOf(vendors.CLOUD_ARMOR.matches),
    [crs.CUSTOM_RULE, ['custom rules']],
  ],
  'NAXSI, by score': [...rowsOf(vendors.NAXSI.scores), [crs.CUSTOM_RULE, ['any other score']]],
  'NAXSI, by rule id, where there is no score': [
    ...vendors.NAXSI.rules.map(
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
  printText(stdout, `Table of categories, version ${crs.TABLE_VERSION}`);
  printText(stdout, '');
  printText(
    stdout,
    `The category of a rule comes from the first of these that applies: ${crs.EVIDENCE_ORDER.join('; ')}.`,
  );
  const words = Object.keys(crs.POINTS).filter((severity) => Number.isNaN(Number(severity)));
  const points = words.map((severity) => `${severity} ${crs.POINTS[severity]}`).join(', ');
  printText(
    stdout,
    `Each distinct rule has points by severity (${points}; a CRS rule without a severity ${POINTS_WITHOUT_SEVERITY}).`,
  );
  printText(stdout, 'If rules of several categories matched, these steps choose the category:');
  for (const [i, step] of crs.STEPS.entries()) printText(stdout, `  ${i + 1}. ${step}`);
  for (const [title, rows] of Object.entries(sections)) {
    if (rows.length === 0) continue;
    printText(stdout, '');
    printText(stdout, title);
    for (const [category, names] of rows)
      printText(stdout, `  ${category.padEnd(CATEGORY_WIDTH)}  ${names.join(', ')}`);
  }
}
