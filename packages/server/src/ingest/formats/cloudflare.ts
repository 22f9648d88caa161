/**
 * Cloudflare Logpush: `http_requests`, every request with what the firewall did, and `firewall_events`, one object for
 * each matched rule. Both may come in one stream: the Ray ID joins them.
 */
import { attackDetails, type Category } from '../../event.ts';
import type { Rule } from '../categories/classify.ts';
import {
  ATTACK_WORDS,
  CLOUDFLARE_MANAGED_RULE,
  CLOUDFLARE_SCORES,
  CLOUDFLARE_SOURCES,
  categoryOfName,
  categoryOfWords,
} from '../categories/vendor-tables.ts';
import { firstText, firstTime } from './access-json.ts';
import { anyOf, type Context, dropped, type JsonFormat, type Reading } from './format.ts';
import { asArray, asText, type JsonObject } from './json-line.ts';
import { crsRule, isCrsId, namedRule } from './vendor-rule.ts';

const TIMES = ['EdgeStartTimestamp', 'Datetime', 'EdgeEndTimestamp', 'Timestamp'];

export const cloudflare: JsonFormat = {
  name: 'cloudflare',
  about: 'Cloudflare Logpush: http_requests and firewall_events',
  traits: [
    anyOf('RayID', ['RayID']),
    anyOf('ClientRequestHost', ['ClientRequestHost']),
    anyOf('time', TIMES),
    anyOf('action', ['Action', 'SecurityAction', 'SecurityActions']),
  ],
  recognizes: (fields) =>
    'EdgeStartTimestamp' in fields ||
    'EdgeEndTimestamp' in fields ||
    ('Datetime' in fields && 'Action' in fields && ('Source' in fields || 'RayID' in fields)),
  parse: parseCloudflare,
};

function parseCloudflare(fields: JsonObject, { zone }: Context): Reading {
  const time = firstTime(fields, TIMES, zone);
  if (time === null) return dropped('bad_time');
  const isEvent = 'Action' in fields && !('EdgeStartTimestamp' in fields);
  const matches = (isEvent ? [eventMatch(fields)] : requestMatches(fields)).filter(isAttack);
  // A rule that lets a request through says nothing bad of it; its request is in the other dataset.
  if (isEvent && matches.length === 0) return dropped('not_an_attack');
  const id = asText(fields.RayID);
  const transaction = {
    id,
    time,
    host: firstText(fields, ['ClientRequestHost']),
    rules: matches.map((match) => ruleOf(match, fields)),
    details: detailsOf(fields, matches),
  };
  if (!isEvent) return { kind: 'transaction', transaction: { ...transaction, request: true } };
  return id === ''
    ? { kind: 'transaction', transaction }
    : { kind: 'hit', hit: { ...transaction, written: time, connection: '' } };
}

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
    action: lower(fields.Action),
    source: lower(fields.Source),
    rule: asText(fields.RuleID),
    description: asText(fields.Description),
  };
}

/** The arrays belong together, place by place. Names before 2023 are `FirewallMatches..`, still older ones `WAF..`. */
function requestMatches(fields: JsonObject): Match[] {
  const actions = arrayOf(fields, ['SecurityActions', 'FirewallMatchesActions']);
  const sources = arrayOf(fields, ['SecuritySources', 'FirewallMatchesSources']);
  const rules = arrayOf(fields, ['SecurityRuleIDs', 'FirewallMatchesRuleIDs']);
  const description = firstText(fields, ['SecurityRuleDescription', 'WAFRuleMessage']) ?? '';
  const rule = firstText(fields, ['SecurityRuleID', 'WAFRuleID']) ?? '';
  if (actions.length === 0) {
    const action = lower(fields.SecurityAction) || lower(fields.WAFAction);
    return [{ action, source: lower(sources[0]) || 'waf', rule, description }];
  }
  return actions.slice(0, MATCHES_MAX).map((action, i) => {
    const own = asText(rules[i]);
    const isDescribed = own === rule || actions.length === 1;
    return {
      action: lower(action),
      source: lower(sources[i]),
      rule: own || rule,
      description: isDescribed ? description : '',
    };
  });
}

function arrayOf(fields: JsonObject, names: readonly string[]): readonly unknown[] {
  for (const name of names) if (asArray(fields[name]).length > 0) return asArray(fields[name]);
  return [];
}

/** Cloudflare writes `managedChallenge` in one dataset and `managedchallenge` in the other. */
function lower(value: unknown): string {
  return asText(value).slice(0, TEXT_LENGTH_MAX).toLowerCase();
}

const TEXT_LENGTH_MAX = 128;

/** The rule let the request through, or the visitor has passed the challenge before. */
const PASSES = /^(?:|unknown|allow|skip|bypass|rewrite|[a-z]*(?:bypassed|skipped))$/;
/** The rule only watches, or the visitor passed the challenge with this request. */
const WATCHES = /^(?:log|simulate|[a-z]*solved)$/;

function isAttack({ action }: Match): boolean {
  return !PASSES.test(action);
}

function ruleOf({ source, rule, description }: Match, fields: JsonObject): Rule {
  const id = rule || source || 'cloudflare';
  const bySource = categoryOfName(CLOUDFLARE_SOURCES, source);
  if (bySource !== null) return namedRule(id, bySource, `source ${source}`);
  // `942100: SQL Injection Attack Detected via libinjection`: the managed rules that are taken over from CRS.
  const crs = /^(\d{6}): /.exec(description)?.[1] ?? '';
  if (isCrsId(crs)) return crsRule(crs);
  const byWords = categoryOfWords(ATTACK_WORDS, description);
  if (byWords !== null) return namedRule(id, byWords, `description ${description}`);
  const byScore = categoryOfScore(fields);
  if (byScore !== null) return namedRule(id, byScore, 'attack score');
  return namedRule(id, CLOUDFLARE_MANAGED_RULE, 'a managed rule');
}

/** The lowest score counts, if Cloudflare itself would call it an attack. 0: there is none. */
function categoryOfScore(fields: JsonObject): Category | null {
  let lowest = ATTACK_SCORE_MAX + 1;
  let found: Category | null = null;
  for (const { category, names } of CLOUDFLARE_SCORES) {
    for (const name of names) {
      const score = Number(fields[name]);
      if (score >= 1 && score < lowest) {
        lowest = score;
        found = category;
      }
    }
  }
  return found;
}

const ATTACK_SCORE_MAX = 20;

function detailsOf(fields: JsonObject, matches: readonly Match[]) {
  const country = asText(fields.ClientCountry);
  return attackDetails({
    blocked: matches.some(({ action }) => !WATCHES.test(action)),
    source: asText(fields.ClientIP),
    url: firstText(fields, ['ClientRequestPath', 'ClientRequestURI']),
    // Cloudflare's own codes for unknown countries and for Tor are no countries.
    country: /^xx$/i.test(country) ? undefined : country,
  });
}
