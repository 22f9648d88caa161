/** What AWS WAF says of a request: which rules matched, those that only count too. */
import type { Category } from '../../event.ts';
import type { Classification } from '../categories/classify.ts';
import { CUSTOM_RULE } from '../categories/crs-table.ts';
import {
  AWS_CONDITIONS,
  AWS_GROUPS,
  AWS_IP_SET,
  AWS_MANAGED_RULE,
  AWS_RULES,
  categoryOfName,
} from '../categories/vendor-tables.ts';
import { asArray, asObject, asText, type JsonObject } from './json-line.ts';

/**
 * The evidence that a request was an attack, the weightiest first; empty when it was none. A request that was let
 * through is an attack when a rule counted it.
 */
export function judgeAws(fields: JsonObject): Classification[] {
  const action = asText(fields.action);
  const stopped = action === '' || action === 'ALLOW' ? [] : terminating(fields);
  const matches = [...stopped, ...counted(fields)];
  if (matches.length === 0) return [];
  const judged = matches.slice(0, MATCHES_MAX).map(judgeMatch);
  const labels = asArray(fields.labels).slice(0, MATCHES_MAX).flatMap(judgeLabel);
  // What a rule is called says less than what it looked for: a name without a known meaning comes last.
  const telling = [
    ...judged.filter(({ tells }) => tells),
    ...labels,
    ...judged.filter(({ tells }) => !tells),
  ];
  return telling.map(({ rule, category, because }) => ({ rule, points: 0, category, because }));
}

/** AWS logs at most 100 labels, and few rules. */
const MATCHES_MAX = 100;

interface Match {
  rule: string;
  group: string;
  type: string;
  conditions: readonly string[];
}

function terminating(fields: JsonObject): Match[] {
  const inGroups = groups(fields).flatMap(({ group, fields: of }) => matchOf(of.terminatingRule, group));
  const rule = asText(fields.terminatingRuleId);
  const type = asText(fields.terminatingRuleType);
  return [
    ...inGroups,
    { rule, group: '', type, conditions: conditionsOf(fields.terminatingRuleMatchDetails) },
  ];
}

/** Rules whose action is COUNT, and those of a group that the operator set to count. */
function counted(fields: JsonObject): Match[] {
  const own = asArray(fields.nonTerminatingMatchingRules).flatMap((rule) => matchOf(rule, ''));
  const inGroups = groups(fields).flatMap(({ group, fields: of }) =>
    [...asArray(of.nonTerminatingMatchingRules), ...asArray(of.excludedRules)].flatMap((rule) =>
      matchOf(rule, group),
    ),
  );
  return [...own, ...inGroups];
}

function groups(fields: JsonObject): { group: string; fields: JsonObject }[] {
  return asArray(fields.ruleGroupList).flatMap((entry) => {
    const of = asObject(entry);
    return of === null ? [] : [{ group: asText(of.ruleGroupId), fields: of }];
  });
}

function matchOf(value: unknown, group: string): Match[] {
  const rule = asObject(value);
  if (rule === null) return [];
  return [{ rule: asText(rule.ruleId), group, type: '', conditions: conditionsOf(rule.ruleMatchDetails) }];
}

function conditionsOf(details: unknown): string[] {
  return asArray(details).map((detail) => asText(asObject(detail)?.conditionType));
}

interface Told {
  rule: string;
  category: Category;
  because: string;
  /** Not by the last resort. */
  tells: boolean;
}

function judgeMatch({ rule, group, type, conditions }: Match): Told {
  const name = rule.slice(0, TEXT_LENGTH_MAX);
  const told = (category: Category, because: string) => ({ rule: name, category, because, tells: true });
  for (const condition of [...conditions, type]) {
    const category = categoryOfName(AWS_CONDITIONS, condition);
    if (category !== null) return told(category, `condition ${condition}`);
  }
  const byRule = categoryOfName(AWS_RULES, name);
  if (byRule !== null) return told(byRule, `rule ${name}`);
  const groupName = group.slice(group.lastIndexOf('#') + 1).slice(0, TEXT_LENGTH_MAX);
  const byGroup = categoryOfName(AWS_GROUPS, groupName);
  if (byGroup !== null) return told(byGroup, `rule group ${groupName}`);
  if (AWS_IP_SET.name.test(name)) return told(AWS_IP_SET.category, 'an IP set by its name');
  const isManaged = group.includes('AWSManaged') || type === 'MANAGED_RULE_GROUP';
  return {
    rule: name,
    category: isManaged ? AWS_MANAGED_RULE : CUSTOM_RULE,
    because: isManaged ? 'a managed rule' : 'an own rule',
    // Of a managed rule it is at least known that it looked for attacks.
    tells: isManaged && group !== '',
  };
}

const TEXT_LENGTH_MAX = 128;

/** `awswaf:managed:aws:core-rule-set:CrossSiteScripting_Body`: the group, and the rule behind it. */
function judgeLabel(value: unknown): Told[] {
  const label = asText(asObject(value)?.name).slice(0, 2 * TEXT_LENGTH_MAX);
  const [, managed, , group = '', ...rest] = label.split(':');
  if (managed !== 'managed') return [];
  const category = categoryOfName(AWS_RULES, rest.at(-1) ?? '') ?? categoryOfName(AWS_GROUPS, group);
  return category === null
    ? []
    : [{ rule: rest.at(-1) ?? group, category, because: `label ${label}`, tells: true }];
}
