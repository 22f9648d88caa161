/** The normal form as NDJSON: `{"time": ..., "host": ..., "request": true, "attack": "sqli", "count": 1}`. */
import {
  type AttackDetails,
  attackDetails,
  CATEGORIES,
  categoryNumber,
  EVENT_COUNT_MAX,
  ID_PATTERN,
} from '../../event.ts';
import { anyOf, dropped, type JsonFormat, type Reading } from './format.ts';
import type { JsonObject } from './json-line.ts';
import { parseTime } from './time.ts';

export const events: JsonFormat = {
  name: 'events',
  about: "wafstat's own form, one JSON object a line",
  traits: [
    anyOf('time', ['time']),
    anyOf('field of the normal form beside the time', ['host', 'host_id', 'request', 'attack', 'count']),
  ],
  recognizes: isEvent,
  parse: parseEvent,
};

/** Many other logs have a `time`: a field beside it must be ours, or there must be none. */
function isEvent(fields: JsonObject): boolean {
  if (fields.time === undefined) return false;
  const { host, host_id, request, attack, count } = fields;
  const isOurs = [host, host_id, request, attack, count].some((field) => field !== undefined);
  return isOurs || Object.keys(fields).length === 1;
}

function parseEvent(fields: JsonObject): Reading {
  const { time: rawTime, host, host_id, request = true, attack, count = 1 } = fields;
  const time = parseTime(rawTime);
  if (time === null) return dropped('bad_time');
  if (!absent(host) && typeof host !== 'string') return dropped('bad_host');
  if (!absent(host_id) && (typeof host_id !== 'string' || !ID_PATTERN.test(host_id)))
    return dropped('bad_host');
  if (typeof request !== 'boolean') return dropped('bad_request');
  const category = absent(attack) ? null : typeof attack === 'string' ? categoryNumber(attack) : undefined;
  if (category === undefined) return dropped('bad_attack');
  if (typeof count !== 'number' || !Number.isInteger(count) || count < 1 || count > EVENT_COUNT_MAX) {
    return dropped('bad_count');
  }
  if (!request && category === null) return dropped('nothing_to_count');
  const details = detailsOf(fields);
  if (details === null) return dropped('bad_details');
  return {
    kind: 'record',
    record: {
      time,
      host: absent(host) ? undefined : host,
      hostId: absent(host_id) ? undefined : host_id,
      request,
      attack: category === null ? null : (CATEGORIES[category] ?? null),
      count,
      details: category === null ? undefined : details,
      evidence: undefined,
    },
  };
}

/** Null when a field is malformed: whoever writes events must learn of it, instead of missing it in the counts. */
function detailsOf({ blocked, source, url, rule, country }: JsonObject): AttackDetails | undefined | null {
  if (!absent(blocked) && typeof blocked !== 'boolean') return null;
  const texts = { source, url, rule, country };
  const given = Object.entries(texts).filter(([, value]) => !absent(value));
  if (given.some(([, value]) => typeof value !== 'string' || value === '')) return null;
  // A cast, because the line before has looked at each value.
  const raw = Object.fromEntries(given) as Record<string, string>;
  const details = attackDetails({ ...raw, ...(absent(blocked) ? {} : { blocked }) });
  return given.every(([name]) => details !== undefined && name in details) ? details : null;
}

function absent(value: unknown): value is null | undefined {
  return value === undefined || value === null;
}
