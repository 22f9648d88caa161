/** AWS: logs of WAF, of Application Load Balancers and of CloudFront. Every line or object is a request. */
import { attackDetails, type RawRule } from '../../attack-details.ts';
import { type Classification, judgement } from '../categories/classify.ts';
import { CUSTOM_RULE } from '../categories/crs-table.ts';
import { AWS, categoryOfName } from '../categories/vendor-tables.ts';
import {
  dropped,
  field,
  hostOfUrl,
  type JsonFormat,
  objectField,
  type Reading,
  requestReading,
  requestRecord,
  restAfter,
  type TextFormat,
} from './format.ts';
import { isW3cHeader, readW3cHeader } from './iis.ts';
import { asArray, asObject, asText, type JsonObject, objectsOf } from './json.ts';
import { parseEpoch, parseTime } from './timestamps.ts';

export const awsWaf: JsonFormat = {
  name: 'aws-waf',
  traits: [objectField('httpRequest'), field('action'), field('webaclId'), field('timestamp')],
  recognizes: (fields) => fields.webaclId !== undefined && fields.httpRequest !== undefined,
  parse(fields) {
    const time = parseEpoch(fields.timestamp);
    if (time === null) return dropped('bad_time');
    const request = asObject(fields.httpRequest);
    const headers = objectsOf(request?.headers);
    const host = headerOf(headers, 'host') || asText(request?.host) || undefined;
    const record = requestRecord(time, host, {
      status: asText(fields.responseCodeSent),
      url: asText(request?.uri),
    });
    const matches = matchesOf(fields);
    const evidence = judgeMatches(matches, fields);
    const decisive = evidence.find(({ category }) => category !== null);
    if (decisive === undefined) return { kind: 'record', record };
    const action = asText(fields.action);
    const details = attackDetails({
      // CAPTCHA and CHALLENGE are logged as the action only if they stopped the request.
      blocked: action === '' ? undefined : action !== 'ALLOW' && action !== 'COUNT',
      source: asText(request?.clientIp),
      id: asText(request?.requestId),
      method: asText(request?.httpMethod),
      url: asText(request?.uri),
      query: asText(request?.args),
      status: asText(fields.responseCodeSent),
      userAgent: headerOf(headers, 'user-agent'),
      rule: decisive.rule,
      rules: matches.map(matchedRule),
      country: asText(request?.country),
    });
    return { kind: 'record', record: { ...record, attack: decisive.category, details, evidence } };
  },
};

/** `wanted` is in lower case. */
function headerOf(headers: readonly JsonObject[], wanted: string): string {
  for (const { name, value } of headers) {
    if (typeof name === 'string' && name.length === wanted.length && name.toLowerCase() === wanted) {
      return asText(value);
    }
  }
  return '';
}

/** AWS logs at most 100 labels, and few rules. */
const MATCHES_MAX = 100;
const NAME_LENGTH_MAX = 128;

interface Match {
  rule: string;
  group: string;
  type: string;
  conditions: readonly JsonObject[];
}

/** Rules that only count are matches, too. */
function matchesOf(fields: JsonObject): Match[] {
  const action = asText(fields.action);
  const terminating = action === '' || action === 'ALLOW' ? [] : terminatingMatches(fields);
  return [...terminating, ...countedMatches(fields)].slice(0, MATCHES_MAX);
}

/** AWS WAF logs what matched for SQL injection and XSS only. */
function matchedRule({ rule, conditions }: Match): RawRule {
  const [condition = {}] = conditions;
  const location = asText(condition.location);
  const name = asText(condition.matchedFieldName);
  return {
    id: rule,
    variable: name === '' ? location : `${location}:${name}`,
    value: asArray(condition.matchedData).slice(0, WORDS_MAX).map(asText).join(' '),
  };
}

/** More than are kept. */
const WORDS_MAX = 64;

/** Evidence that the request was an attack, strongest first; empty if it was none. */
function judgeMatches(matches: readonly Match[], fields: JsonObject): Classification[] {
  if (matches.length === 0) return [];
  const judged = matches.map((match) => ({ match, known: judgeKnown(match) }));
  const labels = asArray(fields.labels).slice(0, MATCHES_MAX).flatMap(judgeLabel);
  // Labels say more than the name of a rule that is not in the tables.
  return [
    ...judged.flatMap(({ known }) => known ?? []),
    ...labels,
    ...judged.flatMap(({ match, known }) => (known === null ? judgeOther(match) : [])),
  ];
}

function terminatingMatches(fields: JsonObject): Match[] {
  const inGroups = objectsOf(fields.ruleGroupList).flatMap((group) => matchOf(group.terminatingRule, group));
  const own = {
    rule: asText(fields.terminatingRuleId).slice(0, NAME_LENGTH_MAX),
    group: '',
    type: asText(fields.terminatingRuleType),
    conditions: objectsOf(fields.terminatingRuleMatchDetails),
  };
  return [...inGroups, own];
}

/** Rules with the action COUNT, and rules of a group that the operator set to count. */
function countedMatches(fields: JsonObject): Match[] {
  const own = asArray(fields.nonTerminatingMatchingRules).flatMap((rule) => matchOf(rule, null));
  const inGroups = objectsOf(fields.ruleGroupList).flatMap((group) =>
    [...asArray(group.nonTerminatingMatchingRules), ...asArray(group.excludedRules)].flatMap((rule) =>
      matchOf(rule, group),
    ),
  );
  return [...own, ...inGroups];
}

function matchOf(value: unknown, group: JsonObject | null): Match[] {
  const rule = asObject(value);
  if (rule === null) return [];
  const name = asText(rule.ruleId).slice(0, NAME_LENGTH_MAX);
  const conditions = objectsOf(rule.ruleMatchDetails);
  return [{ rule: name, group: asText(group?.ruleGroupId), type: '', conditions }];
}

/** Null for a rule that is neither in the tables nor in a managed group. */
function judgeKnown({ rule, group, type, conditions }: Match): Classification | null {
  for (const condition of [...conditions.map(({ conditionType }) => asText(conditionType)), type]) {
    const category = categoryOfName(AWS.conditions, condition);
    if (category !== null) return judgement(rule, category, `condition ${condition}`);
  }
  const byRule = categoryOfName(AWS.rules, rule);
  if (byRule !== null) return judgement(rule, byRule, `rule ${rule}`);
  const groupName = group.slice(group.lastIndexOf('#') + 1).slice(0, NAME_LENGTH_MAX);
  const byGroup = categoryOfName(AWS.groups, groupName);
  if (byGroup !== null) return judgement(rule, byGroup, `rule group ${groupName}`);
  if (AWS.ipSet.name.test(rule)) return judgement(rule, AWS.ipSet.category, 'an IP set by its name');
  // A rule of a managed group at least looked for attacks.
  return group.includes('AWSManaged') ? judgement(rule, AWS.managedRule, 'a managed rule') : null;
}

function judgeOther({ rule, type }: Match): Classification {
  return type === 'MANAGED_RULE_GROUP'
    ? judgement(rule, AWS.managedRule, 'a managed rule')
    : judgement(rule, CUSTOM_RULE, 'a custom rule');
}

/** `awswaf:managed:aws:core-rule-set:CrossSiteScripting_Body`: the group, then the rule. */
function judgeLabel(value: unknown): Classification[] {
  const label = asText(asObject(value)?.name).slice(0, 2 * NAME_LENGTH_MAX);
  const [, managed, , group = '', ...rest] = label.split(':');
  if (managed !== 'managed') return [];
  const rule = rest.at(-1) ?? group;
  const category = categoryOfName(AWS.rules, rest.at(-1) ?? '') ?? categoryOfName(AWS.groups, group);
  return category === null ? [] : [judgement(rule, category, `label ${label}`)];
}

/** Every line says whether AWS WAF refused the request. */
export const awsAlb: TextFormat = {
  name: 'aws-alb',
  traits: [
    ['type like https or h2 at its start', (line) => /^(?:https?|h2|grpcs|wss?) /.test(line)],
    ['time in ISO 8601 as its second field', (line) => /^\S+ \d{4}-\d{2}-\d{2}T\S+Z /.test(line)],
    ['quoted request with the whole URL', (line) => / "[A-Z-]+ \w+:\/\//.test(line)],
  ],
  recognizes: (line) => /^(?:https?|h2|grpcs|wss?) \d{4}-\d{2}-\d{2}T/.test(line),
  parse(line) {
    // The fields before the request. The client chooses none of them.
    const fields = line.split(' ', 12);
    const respondedAt = parseTime(fields[1]);
    if (respondedAt === null) return dropped('unknown_format');
    const rest = restAfter(line, fields);
    const [method, target] = rest.split(' ', 2);
    if (!method?.startsWith('"') || !target) return dropped('bad_record');
    // A request that is not HTTP: `"- http://shop.example.com:80- -"`.
    const url = method === '"-' && target.endsWith('-') ? target.slice(0, -1) : target;
    const [, id, domain, createdAt, actions = ''] = ALB_ACTIONS.exec(rest) ?? [];
    const time = parseTime(createdAt) ?? respondedAt;
    const [, , , , , , , , status, upstream, bytesIn, bytesOut] = fields;
    const response = { status, upstream, bytesIn, bytesOut, url };
    const record = requestRecord(time, hostOfUrl(url) ?? (domain === '-' ? undefined : domain), response);
    // `waf,forward`: AWS WAF let the request through. `waf` as the last action: it refused the request.
    if (!/(?:^|,)waf$/.test(actions)) return { kind: 'record', record };
    const details = attackDetails({
      blocked: true,
      source: fields[3],
      id,
      method: method.slice(1),
      url,
      status: fields[8],
      userAgent: ALB_USER_AGENT.exec(rest)?.[1],
    });
    const evidence = [judgement('waf', AWS.albRefused, 'AWS WAF refused the request')];
    return { kind: 'record', record: { ...record, attack: AWS.albRefused, details, evidence } };
  },
};

/** `"request" "user agent" `. */
const ALB_USER_AGENT = /^"[^"]*" "([^"]*)" /;

/**
 * `"trace ID" "domain" "certificate" priority time "actions"`. Not found by counting fields, which a client could shift with quotes
 * or backslashes in its user agent: the log never has an unescaped quote from a client.
 */
const ALB_ACTIONS =
  /(?: "(Root=[^"]*)")? "([^"]*)" "[^"]*" -?\d* ?(\d{4}-\d{2}-\d{2}T[\d:.]{8,18}Z) "([a-z\d,-]*)"/;

/** Standard log: columns separated by tabs and named by a `#Fields:` line. */
export const cloudfrontText: TextFormat = {
  name: 'cloudfront',
  traits: [
    ['tab between the columns', (line) => line.includes('\t')],
    ['date or timestamp as its first column', (line) => CLOUDFRONT_START.test(line)],
  ],
  recognizes: (line) => isW3cHeader(line) || CLOUDFRONT_START.test(line),
  parse(line, context) {
    if (isW3cHeader(line)) {
      readW3cHeader(line, context);
      return { kind: 'header' };
    }
    if (!line.includes('\t')) return dropped('unknown_format');
    const columns = context.columns ?? DEFAULT_COLUMNS;
    const values = line.split('\t', columns.length);
    return cloudfrontRequest((name) => values[columns.indexOf(name)] ?? '');
  },
};

export const cloudfrontJson: JsonFormat = {
  name: 'cloudfront',
  traits: [
    field('request', ['x-edge-request-id', 'x-edge-result-type']),
    field('time', ['date', 'timestamp(ms)', 'timestamp']),
  ],
  recognizes: (fields) => 'x-edge-request-id' in fields || 'x-edge-result-type' in fields,
  parse: (fields) => cloudfrontRequest((name) => asText(fields[name])),
};

/** A date, or seconds or milliseconds since the epoch, and a tab. */
const CLOUDFRONT_START = /^(?:\d{4}-\d{2}-\d{2}|\d{10}(?:\d{3})?)\t/;

/** The columns of lines before any `#Fields:` line: the order has never changed, and new columns come last. */
const DEFAULT_FIELDS =
  'date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) ' +
  'cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header';
const DEFAULT_COLUMNS = DEFAULT_FIELDS.split(' ');

function cloudfrontRequest(column: (name: string) => string): Reading {
  const time =
    parseTime(`${column('date')}T${column('time')}Z`) ??
    parseEpoch(column('timestamp(ms)')) ??
    parseEpoch(column('timestamp'));
  if (time === null) return dropped('bad_time');
  // The visitor's Host header; cs(Host) is the name of the distribution.
  const host = [column('x-host-header'), column('cs(Host)')].find((name) => name !== '' && name !== '-');
  return requestReading(time, host, {
    status: column('sc-status'),
    bytesIn: column('cs-bytes'),
    bytesOut: column('sc-bytes'),
    url: column('cs-uri-stem'),
  });
}
