/** wafstat's own event format, NDJSON: `{"time": .., "host": .., "request": true, "attack": "sqli", "count": 1}`. */
import { type AttackDetails, attackDetails, EVENT_COUNT_MAX, ID_PATTERN, isCategory } from '../../event.ts';
import { dropped, field, type JsonFormat } from './format.ts';
import type { JsonObject } from './json.ts';
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
    return {
      kind: 'record',
      record: {
        time,
        host: host ?? undefined,
        hostId: host_id ?? undefined,
        request,
        attack: attack ?? null,
        count,
        details: isAbsent(attack) ? undefined : details,
        evidence: undefined,
      },
    };
  },
};

/** Null if a field is malformed: the sender must notice it. */
function detailsOf({ blocked, source, url, rule, country }: JsonObject): AttackDetails | undefined | null {
  if (!isAbsent(blocked) && typeof blocked !== 'boolean') return null;
  // Most events have none of these, and what follows would take a quarter of the time of a line.
  if (isAbsent(source) && isAbsent(url) && isAbsent(rule) && isAbsent(country))
    return isAbsent(blocked) ? undefined : { blocked };
  const given = Object.entries({ source, url, rule, country }).filter(([, value]) => !isAbsent(value));
  if (given.some(([, value]) => typeof value !== 'string' || value === '')) return null;
  // All values are strings, checked above.
  const raw = Object.fromEntries(given) as Record<string, string>;
  const details = attackDetails({ ...raw, blocked: blocked ?? undefined });
  return given.every(([name]) => details !== undefined && name in details) ? details : null;
}

function isAbsent(value: unknown): value is null | undefined {
  return value === undefined || value === null;
}
