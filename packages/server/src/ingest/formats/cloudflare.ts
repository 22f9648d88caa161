/**
 * Cloudflare Logpush: `http_requests` has every request with the actions of the firewall, `firewall_events` one object
 * per matched rule. One stream may have both: the Ray ID joins them.
 */
import { queryOf, type RawDetails } from '../../attack-details.ts';
import type { Category } from '../../event.ts';
import type { Rule } from '../categories/classify.ts';
import { CLOUDFLARE, categoryOfName, categoryOfWords } from '../categories/vendor-tables.ts';
import { dropped, field, type JsonFormat, ruleMatch } from './format.ts';
import { asArray, asText, firstText, firstTime, type JsonObject, lowerText } from './json.ts';
import { crsRule, isCrsId, namedRule } from './rules.ts';

const TIMES = ['EdgeStartTimestamp', 'Datetime', 'EdgeEndTimestamp', 'Timestamp'];

export const cloudflare: JsonFormat = {
  name: 'cloudflare',
  traits: [
    field('RayID'),
    field('ClientRequestHost'),
    field('time', TIMES),
    field('action', ['Action', 'SecurityAction', 'SecurityActions']),
  ],
  recognizes: (fields) =>
    'EdgeStartTimestamp' in fields ||
    'EdgeEndTimestamp' in fields ||
    ('Datetime' in fields && 'Action' in fields && ('Source' in fields || 'RayID' in fields)),
  parse(fields, { zone }) {
    const time = firstTime(fields, TIMES, zone);
    if (time === null) return dropped('bad_time');
    const isEvent = 'Action' in fields && !('EdgeStartTimestamp' in fields);
    const matches = (isEvent ? [eventMatch(fields)] : requestMatches(fields)).filter(isAttack);
    // A rule that let the request through. The request itself is in the other dataset.
    if (isEvent && matches.length === 0) return dropped('not_an_attack', time);
    const transaction = {
      id: asText(fields.RayID),
      time,
      host: firstText(fields, ['ClientRequestHost']),
      rules: matches.map((match) => ruleOf(match, fields)),
      details: detailsOf(fields, matches),
    };
    if (isEvent) return ruleMatch(transaction);
    const response = {
      status: asText(fields.EdgeResponseStatus),
      upstream: 'OriginResponseStatus' in fields ? asText(fields.OriginResponseStatus) : undefined,
      bytesIn: asText(fields.ClientRequestBytes),
      bytesOut: asText(fields.EdgeResponseBytes),
      url: firstText(fields, ['ClientRequestPath', 'ClientRequestURI']),
    };
    return { kind: 'transaction', transaction: { ...transaction, request: true, response } };
  },
};

interface Match {
  action: string;
  source: string;
  rule: string;
  description: string;
}

/** More products than can match one request. */
const MATCHES_MAX = 32;

function eventMatch(fields: JsonObject): Match {
  return {
    action: lowerText(fields.Action),
    source: lowerText(fields.Source),
    rule: asText(fields.RuleID),
    description: asText(fields.Description),
  };
}

/** The arrays correspond by index. Before 2023 they were named `FirewallMatches..`, and earlier `WAF..`. */
function requestMatches(fields: JsonObject): Match[] {
  const actions = firstArray(fields, ['SecurityActions', 'FirewallMatchesActions']);
  const sources = firstArray(fields, ['SecuritySources', 'FirewallMatchesSources']);
  const rules = firstArray(fields, ['SecurityRuleIDs', 'FirewallMatchesRuleIDs']);
  const description = firstText(fields, ['SecurityRuleDescription', 'WAFRuleMessage']) ?? '';
  const rule = firstText(fields, ['SecurityRuleID', 'WAFRuleID']) ?? '';
  if (actions.length === 0) {
    const action = lowerText(fields.SecurityAction) || lowerText(fields.WAFAction);
    return [{ action, source: lowerText(sources[0]) || 'waf', rule, description }];
  }
  return actions.slice(0, MATCHES_MAX).map((action, i) => {
    const own = asText(rules[i]);
    const isDescribed = own === rule || actions.length === 1;
    return {
      action: lowerText(action),
      source: lowerText(sources[i]),
      rule: own || rule,
      description: isDescribed ? description : '',
    };
  });
}

function firstArray(fields: JsonObject, names: readonly string[]): readonly unknown[] {
  for (const name of names) if (asArray(fields[name]).length > 0) return asArray(fields[name]);
  return [];
}

/** The rule let the request through, or the visitor had passed the challenge before. */
const PASSES = /^(?:|unknown|allow|skip|bypass|rewrite|[a-z]*(?:bypassed|skipped))$/;
/** The rule only logs, or the visitor passed the challenge with this request. */
const LOG_ONLY = /^(?:log|simulate|[a-z]*solved)$/;

function isAttack({ action }: Match): boolean {
  return !PASSES.test(action);
}

function ruleOf({ source, rule, description }: Match, fields: JsonObject): Rule {
  const id = rule || source || 'cloudflare';
  const bySource = categoryOfName(CLOUDFLARE.sources, source);
  if (bySource !== null) return namedRule(id, bySource, `source ${source}`);
  // Managed rules from CRS: `942100: SQL Injection Attack Detected via libinjection`.
  const crs = /^(\d{6}): /.exec(description)?.[1] ?? '';
  if (isCrsId(crs)) return crsRule(crs);
  const byWords = categoryOfWords(CLOUDFLARE.words, description);
  if (byWords !== null) return namedRule(id, byWords, `description ${description}`);
  const byScore = categoryOfScore(fields);
  if (byScore !== null) return namedRule(id, byScore, 'attack score');
  return namedRule(id, CLOUDFLARE.managedRule, 'a managed rule');
}

/** Cloudflare calls a request with a score up to this an attack. */
const ATTACK_SCORE_MAX = 20;

/** The category with the lowest score. 0 means no score. */
function categoryOfScore(fields: JsonObject): Category | null {
  const scores = CLOUDFLARE.scores.flatMap(({ category, names }) =>
    names.map((name) => ({ category, score: Number(fields[name]) })),
  );
  const attacks = scores.filter(({ score }) => score >= 1 && score <= ATTACK_SCORE_MAX);
  return attacks.sort((one, other) => one.score - other.score)[0]?.category ?? null;
}

function detailsOf(fields: JsonObject, matches: readonly Match[]): RawDetails {
  const country = asText(fields.ClientCountry);
  return {
    blocked: matches.some(({ action }) => !LOG_ONLY.test(action)),
    source: asText(fields.ClientIP),
    method: asText(fields.ClientRequestMethod),
    url: firstText(fields, ['ClientRequestPath', 'ClientRequestURI']),
    query: firstText(fields, ['ClientRequestQuery']) ?? queryOf(asText(fields.ClientRequestURI)),
    status: asText(fields.EdgeResponseStatus),
    userAgent: asText(fields.ClientRequestUserAgent),
    // Cloudflare's code for an unknown country.
    country: /^xx$/i.test(country) ? undefined : country,
  };
}
