/** Google Cloud load balancers with Cloud Armor: every object is a request with the verdicts of the security policies. */
import type { Rule } from '../categories/classify.ts';
import { CUSTOM_RULE } from '../categories/crs-table.ts';
import { CLOUD_ARMOR, categoryOfName } from '../categories/vendor-tables.ts';
import { dropped, field, hostOfUrl, type JsonFormat, objectField } from './format.ts';
import { asArray, asObject, asText, firstText, type JsonObject } from './json.ts';
import { crsRule, isCrsId, namedRule } from './rules.ts';
import { parseAnyTime } from './timestamps.ts';

export const cloudArmor: JsonFormat = {
  name: 'cloud-armor',
  traits: [
    objectField('httpRequest'),
    objectField('jsonPayload'),
    field('timestamp'),
    ['resource.type of a load balancer, or security policy', isLoadBalancer],
  ],
  recognizes: isLoadBalancer,
  parse(fields, { zone }) {
    const time = parseAnyTime(fields.timestamp, zone);
    if (time === null) return dropped('bad_time');
    const payload = asObject(fields.jsonPayload) ?? {};
    const httpRequest = asObject(fields.httpRequest);
    const requestData = asObject(payload.securityPolicyRequestData);
    const url = asText(httpRequest?.requestUrl);
    const matched = POLICIES.flatMap(({ name, isEnforced }) => {
      const policy = asObject(payload[name]);
      return policy !== null && isAttack(policy) ? [{ policy, isEnforced }] : [];
    });
    const details = {
      blocked: matched.some(({ isEnforced }) => isEnforced),
      // Not userIpInfo: Cloud Armor takes it from a header, which a client can write unless a rule checks the sender.
      source: firstText(payload, ['remoteIp']) ?? firstText(httpRequest, ['remoteIp']),
      id: asText(fields.insertId),
      method: asText(httpRequest?.requestMethod),
      url,
      status: asText(httpRequest?.status),
      userAgent: asText(httpRequest?.userAgent),
      country: asText(asObject(requestData?.remoteIpInfo)?.regionCode),
    };
    const rules = matched.flatMap(({ policy }) => rulesOf(policy).map((rule) => withMatch(rule, policy)));
    const response = {
      status: asText(httpRequest?.status),
      bytesIn: asText(httpRequest?.requestSize),
      bytesOut: asText(httpRequest?.responseSize),
      url,
    };
    return {
      kind: 'transaction',
      transaction: { id: '', time, host: hostOfUrl(url), rules, details, request: true, response },
    };
  },
};

/** Edge policies first. Policies in preview mode do not affect requests. */
const POLICIES = [
  { name: 'enforcedEdgeSecurityPolicy', isEnforced: true },
  { name: 'enforcedSecurityPolicy', isEnforced: true },
  { name: 'previewEdgeSecurityPolicy', isEnforced: false },
  { name: 'previewSecurityPolicy', isEnforced: false },
] as const;

function isLoadBalancer(fields: JsonObject): boolean {
  const payload = asObject(fields.jsonPayload);
  if (payload === null || asObject(fields.httpRequest) === null) return false;
  return (
    asText(payload['@type']).endsWith('.LoadBalancerLogEntry') ||
    asText(asObject(fields.resource)?.type).endsWith('load_balancer') ||
    POLICIES.some(({ name }) => name in payload)
  );
}

/** Denied, redirected (including to a CAPTCHA), or over a rate limit. */
function isAttack(policy: JsonObject): boolean {
  const outcome = asText(policy.outcome);
  return outcome === 'DENY' || outcome === 'REDIRECT' || isLimited(policy);
}

/** RATE_LIMIT_THRESHOLD_EXCEED or BAN_THRESHOLD_EXCEED; otherwise the outcome is .._CONFORM. */
function isLimited(policy: JsonObject): boolean {
  return asText(asObject(policy.rateLimitAction)?.outcome).includes('EXCEED');
}

/** A request matches only a few. */
const EXPRESSIONS_MAX = 32;
const NAME_LENGTH_MAX = 128;
const MATCHES = ['threatIntelligence', 'addressGroup', 'adaptiveProtection'];

function rulesOf(policy: JsonObject): Rule[] {
  const name = `${asText(policy.name)}/${asText(policy.priority)}`;
  if (isLimited(policy)) return [matchRule(name, 'rateLimitAction')];
  const expressions = asArray(policy.preconfiguredExprIds).slice(0, EXPRESSIONS_MAX).map(asText);
  if (expressions.length > 0) return expressions.map(expressionRule);
  const match = MATCHES.find((each) => asObject(policy[each]) !== null);
  return [matchRule(name, match ?? asText(policy.configuredAction))];
}

/** Only with verbose logging. */
function withMatch(rule: Rule, policy: JsonObject): Rule {
  const name = asText(policy.matchedFieldName);
  const type = asText(policy.matchedFieldType);
  return {
    ...rule,
    variable: name === '' ? type : `${type}:${name}`,
    value: asText(policy.matchedFieldValue),
  };
}

function matchRule(name: string, match: string): Rule {
  const category = categoryOfName(CLOUD_ARMOR.matches, match);
  return category === null
    ? namedRule(name, CUSTOM_RULE, 'a custom rule')
    : namedRule(name, category, match.slice(0, NAME_LENGTH_MAX));
}

/** `owasp-crs-v030301-id942100-sqli` */
function expressionRule(expression: string): Rule {
  const name = expression.slice(0, NAME_LENGTH_MAX);
  const [, id = '', kind = ''] = /-(id\d+)-([a-z-]+)$/.exec(name) ?? [];
  const number = id.slice(2);
  if (isCrsId(number)) return crsRule(number);
  const known = categoryOfName(CLOUD_ARMOR.expressions, id) ?? categoryOfName(CLOUD_ARMOR.expressions, kind);
  return namedRule(name, known ?? CLOUD_ARMOR.managedRule, `expression ${name}`);
}
