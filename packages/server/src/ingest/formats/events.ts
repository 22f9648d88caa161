/** The normal form as NDJSON: `{"time": ..., "host": ..., "request": true, "attack": "sqli", "count": 1}`. */
import { CATEGORIES, categoryNumber, type DropReason, EVENT_COUNT_MAX, ID_PATTERN } from '../../event.ts';
import type { Parsed } from './format.ts';
import { parseTime } from './time.ts';

export function parseEvent(line: string): Parsed {
  let fields: unknown;
  try {
    fields = JSON.parse(line);
  } catch {
    return dropped('not_json');
  }
  if (typeof fields !== 'object' || fields === null || Array.isArray(fields)) return dropped('not_an_object');
  const {
    time: rawTime,
    host,
    host_id,
    request = true,
    attack,
    count = 1,
  } = fields as Record<string, unknown>;

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
  return {
    kind: 'record',
    format: 'events',
    record: {
      time,
      host: absent(host) ? undefined : host,
      hostId: absent(host_id) ? undefined : host_id,
      request,
      attack: category === null ? null : (CATEGORIES[category] ?? null),
      count,
    },
  };
}

function absent(value: unknown): value is null | undefined {
  return value === undefined || value === null;
}

function dropped(reason: DropReason): Parsed {
  return { kind: 'dropped', reason, format: 'events' };
}
