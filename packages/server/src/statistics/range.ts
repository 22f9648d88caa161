/** Parses the time parameters of a query into a half-open range of milliseconds. */
import { ApiError, invalid } from '../errors.ts';
import { wholeHours } from '../store/store.ts';

const DAY_MS = 24 * 3_600_000;

/** Ten years with leap days: far beyond any retention, and a bound of 3,654 points per timeline. */
export const RANGE_MS_MAX = 3_653 * DAY_MS;

/** The named ranges of the API family: first and last local day, relative to today. `null`: until now. */
const RECENT = {
  today: { first: 0, last: null },
  yesterday: { first: -1, last: -1 },
  '3days': { first: -2, last: null },
  '1week': { first: -6, last: null },
  '1month': { first: -29, last: null },
} as const;

export const RECENT_NAMES = Object.keys(RECENT);

export interface Range {
  from: number;
  to: number;
}

export interface RangeParameters {
  from?: string | undefined;
  to?: string | undefined;
  recent?: string | undefined;
}

export function parseRange(parameters: RangeParameters, offsetMs: number, now: number): Range {
  if (parameters.recent !== undefined) return recentRange(parameters.recent, offsetMs, now);
  const from = parseMilliseconds('from', parameters.from);
  const to = parseMilliseconds('to', parameters.to);
  if (from > to) throw new ApiError('WAF.1025', `from (${from}) is after to (${to})`);
  if (to - from > RANGE_MS_MAX)
    throw new ApiError('WAF.1025', 'from and to are more than ten years apart: query a shorter range');
  return { from, to };
}

function recentRange(recent: string, offsetMs: number, now: number): Range {
  if (!Object.hasOwn(RECENT, recent)) {
    throw invalid('recent', recent, `must be one of ${RECENT_NAMES.join(', ')}`, 'WAF.1025');
  }
  // The check above guarantees the key.
  const days = RECENT[recent as keyof typeof RECENT];
  const today = Math.floor((now + offsetMs) / DAY_MS) * DAY_MS - offsetMs;
  return {
    from: today + days.first * DAY_MS,
    to: days.last === null ? now : today + (days.last + 1) * DAY_MS,
  };
}

/** The whole hours that a range touches, none if it is empty. */
export function hoursOf({ from, to }: Range): Range {
  const hours = wholeHours({ from, to });
  return from === to ? { from: hours.from, to: hours.from } : hours;
}

function parseMilliseconds(name: 'from' | 'to', text: string | undefined): number {
  if (text === undefined)
    throw new ApiError(
      'WAF.1025',
      `${name} is required (milliseconds since the epoch), unless recent is given`,
    );
  const value = Number(text);
  if (!/^-?[0-9]+$/.test(text))
    throw invalid(name, text, 'must be an integer (milliseconds since the epoch)', 'WAF.1025');
  if (value >= 0 && value <= Number.MAX_SAFE_INTEGER) return value;
  throw invalid(name, text, `must be from 0 to ${Number.MAX_SAFE_INTEGER}`, 'WAF.1025');
}

/** The offset of `+HH:MM` or `-HH:MM` in milliseconds. */
export function parseTimezone(text: string | undefined): number {
  if (text === undefined) return 0;
  // A `+` that the client did not percent-encode arrives as a space.
  const match = /^([+\- ])([0-9]{2}):([0-5][0-9])$/.exec(text);
  const minutes = match
    ? (match[1] === '-' ? -1 : 1) * (Number(match[2]) * 60 + Number(match[3]))
    : Number.NaN;
  if (!(minutes >= -12 * 60 && minutes <= 14 * 60)) {
    throw invalid('timezone', text, 'must be an offset like +08:00, from -12:00 to +14:00');
  }
  return minutes * 60_000;
}
