/** Parses the time parameters of a query into a half-open range of milliseconds. */
import { ApiError, invalid } from '../errors.ts';
import type { Zone } from '../zone.ts';
import { DAY_MS, startOfDay } from './grid.ts';

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

export function parseRange(parameters: RangeParameters, zone: Zone, now: number): Range {
  if (parameters.recent !== undefined) return recentRange(parameters.recent, zone, now);
  const from = parseMilliseconds('from', parameters.from);
  const to = parseMilliseconds('to', parameters.to);
  const hint = looksLikeSeconds(from) || looksLikeSeconds(to) ? `; ${SECONDS_HINT}` : '';
  if (from > to) throw new ApiError('WAF.1025', `from (${from}) is after to (${to})${hint}`);
  if (to - from > RANGE_MS_MAX)
    throw new ApiError('WAF.1025', `from and to are more than ten years apart: query a shorter range${hint}`);
  return { from, to };
}

/** For ranges that are valid, but in 1970. */
export function rangeWarning({ from, to }: Range): string | null {
  return looksLikeSeconds(from) && looksLikeSeconds(to) ? SECONDS_HINT : null;
}

const SECONDS_HINT =
  'times of 10 digits look like seconds: from and to are milliseconds, so multiply by 1000';

/** Seconds since the epoch from 2001 to 2286, in milliseconds a time before May 1970. */
function looksLikeSeconds(time: number): boolean {
  return time >= 1e9 && time < 1e10;
}

function recentRange(recent: string, zone: Zone, now: number): Range {
  if (!Object.hasOwn(RECENT, recent)) {
    throw invalid('recent', recent, `must be one of ${RECENT_NAMES.join(', ')}`, 'WAF.1025');
  }
  // The check above guarantees the key.
  const days = RECENT[recent as keyof typeof RECENT];
  const today = Math.floor((now + zone.offsetAt(now)) / DAY_MS);
  return {
    from: startOfDay(today + days.first, zone),
    to: days.last === null ? now : startOfDay(today + days.last + 1, zone),
  };
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
