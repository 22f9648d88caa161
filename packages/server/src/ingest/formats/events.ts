/** wafstat's own event format, NDJSON: `{"time": .., "host": .., "request": true, "attack": "sqli", "count": 1}`. */
import { attackDetails, type RawRule } from '../../attack-details.ts';
import { type AttackDetails, EVENT_COUNT_MAX, ID_PATTERN, isCategory } from '../../event.ts';
import { dropped, field, type JsonFormat, type LogRecord, setResponse } from './format.ts';
import { asObject, type JsonObject } from './json.ts';
import { parseTime } from './timestamps.ts';

const OWN_FIELDS = ['host', 'host_id', 'request', 'attack', 'count'];

export const events: JsonFormat = {
  name: 'events',
  traits: [field('time'), field('event field besides the time', OWN_FIELDS)],
  // Many other logs have a `time`: it must be the only field, or next to one of ours.
  recognizes: (fields) =>
    fields.time !== undefined &&
    (OWN_FIELDS.some((name) => fields[name] !== undefined) || Object.keys(fields).length === 1),
  parse(fields) {
    const { time: rawTime, host, host_id, request = true, attack, count = 1 } = fields;
    const time = parseTime(rawTime);
    if (time === null) return dropped('bad_time');
    if (!isAbsent(host) && typeof host !== 'string') return dropped('bad_host');
    if (!isAbsent(host_id) && (typeof host_id !== 'string' || !ID_PATTERN.test(host_id)))
      return dropped('bad_host');
    if (typeof request !== 'boolean') return dropped('bad_request');
    if (!isAbsent(attack) && !isCategory(attack)) return dropped('bad_attack');
    if (typeof count !== 'number' || !Number.isInteger(count) || count < 1 || count > EVENT_COUNT_MAX) {
      return dropped('bad_count');
    }
    if (!request && isAbsent(attack)) return dropped('nothing_to_count');
    const details = detailsOf(fields);
    if (details === null) return dropped('bad_details');
    const record: LogRecord = {
      time,
      host: host ?? undefined,
      hostId: host_id ?? undefined,
      request,
      attack: attack ?? null,
      count,
      details: isAbsent(attack) ? undefined : details,
      evidence: undefined,
    };
    const { status, upstream_status: upstream, bytes_in: bytesIn, bytes_out: bytesOut, url } = fields;
    if (!isNumberOrAbsent(upstream) || !isNumberOrAbsent(bytesIn) || !isNumberOrAbsent(bytesOut))
      return dropped('bad_details');
    // Most events have none of these.
    const isSilent = isAbsent(status) && isAbsent(upstream) && isAbsent(bytesIn) && isAbsent(bytesOut);
    if (request && !isSilent) {
      setResponse(record, {
        status: isNumberOrAbsent(status) ? (status ?? undefined) : undefined,
        upstream: upstream ?? undefined,
        bytesIn: bytesIn ?? undefined,
        bytesOut: bytesOut ?? undefined,
        url: typeof url === 'string' ? url : undefined,
      });
    }
    return { kind: 'record', record };
  },
};

const TEXT_FIELDS = ['source', 'url', 'rule', 'country', 'id'] as const;
const NUMBER_FIELDS = ['status', 'score'] as const;

/** Null if a field is malformed: the sender must notice it. */
function detailsOf(fields: JsonObject): AttackDetails | undefined | null {
  const { blocked, rules, method, user_agent: userAgent } = fields;
  if (!isAbsent(blocked) && typeof blocked !== 'boolean') return null;
  // Most events have none of these, and what follows would take a quarter of the time of a line.
  const { source, url, rule, country, id, status, score } = fields;
  if ([source, url, rule, country, id, method, userAgent, status, score, rules].every(isAbsent))
    return isAbsent(blocked) ? undefined : { blocked };
  const texts = TEXT_FIELDS.filter((name) => !isAbsent(fields[name]));
  const numbers = NUMBER_FIELDS.filter((name) => !isAbsent(fields[name]));
  if (texts.some((name) => typeof fields[name] !== 'string' || fields[name] === '')) return null;
  if (numbers.some((name) => typeof fields[name] !== 'number')) return null;
  if (!isTextOrAbsent(method) || !isTextOrAbsent(userAgent)) return null;
  if (!isAbsent(rules) && !isRules(rules)) return null;
  const given = [...texts, ...numbers];
  const details = attackDetails({
    // Strings and numbers, checked above.
    ...Object.fromEntries(given.map((name) => [name, fields[name] as never])),
    blocked: blocked ?? undefined,
    method: method ?? undefined,
    userAgent: userAgent ?? undefined,
    rules: rules ?? undefined,
  });
  // Not `method` and `user_agent`, which clients choose: theirs must not make an attack disappear.
  return given.every((name) => details !== undefined && name in details) ? details : null;
}

/** `rules` may be empty. Only the first 32 are kept: an attack with more must not be dropped. */
function isRules(rules: unknown): rules is RawRule[] {
  return Array.isArray(rules) && rules.every(isRule);
}

function isRule(value: unknown): value is RawRule {
  const rule = asObject(value);
  return (
    typeof rule?.id === 'string' &&
    rule.id !== '' &&
    [rule.variable, rule.value, rule.severity].every(isTextOrAbsent)
  );
}

/** The details of an attack under the names of this format. */
export function eventFields({ query, userAgent, ...details }: AttackDetails) {
  const fields: Omit<AttackDetails, 'query' | 'userAgent'> & { user_agent?: string } = details;
  if (query !== undefined) fields.url = `${fields.url}?${query}`;
  if (userAgent !== undefined) fields.user_agent = userAgent;
  return fields;
}

function isTextOrAbsent(value: unknown): value is string | null | undefined {
  return isAbsent(value) || typeof value === 'string';
}

function isNumberOrAbsent(value: unknown): value is number | null | undefined {
  return isAbsent(value) || typeof value === 'number';
}

function isAbsent(value: unknown): value is null | undefined {
  return value === undefined || value === null;
}
