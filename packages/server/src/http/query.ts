/** Parses query strings by hand, so that every error names the parameter and its value (docs/decisions/0005). */
import { parse } from 'node:querystring';
import type { FastifyRequest } from 'fastify';
import { BoundedCache } from '../cache.ts';
import { ApiError, type ErrorCode, invalid, malformed } from '../errors.ts';
import { ID_PATTERN } from '../event.ts';
import { compilePattern, fitsPattern } from '../ingest/formats/pattern.ts';
import { parseZone } from '../ingest/formats/time-zone.ts';
import { FORMAT_NAMES } from '../ingest/reader.ts';
import { parseRange, parseTimezone, type Range } from '../statistics/range.ts';
import type { TimelineQuery } from '../statistics/timeline.ts';

export type RawQuery = Readonly<Record<string, string | string[] | undefined>>;

/** Called only where it is needed: cached responses are found by the URL as it is. */
export function queryOf({ url }: Pick<FastifyRequest, 'url'>): RawQuery {
  const mark = url.indexOf('?');
  return parse(mark === -1 ? '' : url.slice(mark + 1), undefined, undefined, { maxKeys: 0 });
}

export function parseTimelineQuery(query: RawQuery, now: number): Omit<TimelineQuery, 'project'> {
  const offsetMs = parseTimezone(single(query, 'timezone'));
  return { ...parseRange(rangeParameters(query), offsetMs, now), offsetMs, hosts: parseHosts(query) };
}

/** This call has no `timezone` of its own, except to tell which local days `recent` means. */
export function parseDistributionQuery(query: RawQuery, now: number): Range & Pick<TimelineQuery, 'hosts'> {
  const range = rangeParameters(query);
  const offsetMs = range.recent === undefined ? 0 : parseTimezone(single(query, 'timezone'));
  return { ...parseRange(range, offsetMs, now), hosts: parseHosts(query) };
}

/** More hosts or sources than most projects have, and a bound on the size of a response. */
export const LIST_LIMIT_MAX = 1_000;

export function parsePage(query: RawQuery): { offset: number; limit: number } {
  return {
    offset: parseWhole(query, 'offset', 0, 0, Number.MAX_SAFE_INTEGER),
    limit: parseWhole(query, 'limit', LIST_LIMIT_MAX, 1, LIST_LIMIT_MAX),
  };
}

/** A source name is a key in the store, and shown in lists. */
const SOURCE_NAME = /^[^\p{Cc}\p{Cs}]{1,128}$/u;

/** A time zone takes 0.4 ms to set up, and up to 200 kB of memory. */
const CACHED_MAX = 32;

/** Other names are rejected: a misspelled one would count lines under another source, or shift their times. */
const INGEST_NAMES = ['source', 'format', 'pattern', 'host', 'timezone', 'hosts'];

/** Caches time zones and patterns by their text. Neither holds state of a log: each reader has its own. */
export function ingestQueryParser() {
  const zoneOf = cached('timezone', parseZone);
  const patternOf = cached('pattern', compilePattern);
  return (query: RawQuery) => {
    const unknown = Object.keys(query).find((name) => !INGEST_NAMES.includes(name));
    if (unknown !== undefined) {
      throw malformed(`there is no parameter '${unknown.slice(0, 64)}': use ${INGEST_NAMES.join(', ')}`);
    }
    const source = single(query, 'source') ?? 'default';
    if (!SOURCE_NAME.test(source)) {
      throw malformed('source must have 1 to 128 characters and no control characters');
    }
    const format = parseOneOf(query, 'format', FORMAT_NAMES);
    const pattern = single(query, 'pattern');
    if (pattern !== undefined && !fitsPattern(format)) {
      throw malformed(`pattern is for access logs, but format is ${format}`);
    }
    // A `+` that the client did not percent-encode arrives as a space.
    const zone = single(query, 'timezone')?.replaceAll(' ', '+') ?? '+00:00';
    return {
      source,
      format,
      pattern: pattern === undefined ? undefined : patternOf(pattern),
      host: single(query, 'host'),
      zone: zoneOf(zone),
      hosts: parseOneOf(query, 'hosts', ['auto', 'registered'] as const),
    };
  };
}

function cached<T extends {}>(name: string, parse: (text: string) => T): (text: string) => T {
  const cache = new BoundedCache<string, T>({ entriesMax: CACHED_MAX });
  return (text) => {
    try {
      const value = cache.get(text) ?? parse(text);
      cache.set(text, value);
      return value;
    } catch (error) {
      throw invalid(name, text, (error as Error).message);
    }
  };
}

/** The first value is the default. */
function parseOneOf<T extends string>(query: RawQuery, name: string, values: readonly [T, ...T[]]): T {
  const text = single(query, name);
  const value = text === undefined ? values[0] : values.find((candidate) => candidate === text);
  if (value === undefined) throw invalid(name, text ?? '', `must be one of ${values.join(', ')}`);
  return value;
}

export function checkId(name: string, id: string): void {
  if (!ID_PATTERN.test(id)) throw invalid(name, id, 'an ID is 1 to 64 letters, digits, _ or -', 'WAF.1003');
}

function rangeParameters(query: RawQuery) {
  const recent = single(query, 'recent', 'WAF.1025');
  // `recent` overrides the other two, even if they are malformed.
  if (recent !== undefined) return { recent };
  return { from: single(query, 'from', 'WAF.1025'), to: single(query, 'to', 'WAF.1025') };
}

/** Misspelt names of the filter. Ignoring them would return the numbers of the whole project. */
const MISSPELT_HOSTS = /^(host|domain)(_?(id|name))?s?(\[\])?$/i;

/** `hosts[]` is how axios, jQuery and PHP send a list. */
function parseHosts({ hosts, 'hosts[]': list, ...others }: RawQuery): string[] | undefined {
  const misspelt = Object.keys(others).find((name) => MISSPELT_HOSTS.test(name));
  if (misspelt !== undefined)
    throw malformed(`there is no parameter '${misspelt}': use hosts, with the IDs of hosts`);
  if (hosts === undefined && list === undefined) return undefined;
  const ids = [hosts ?? [], list ?? []].flat().flatMap((value) => value.split(','));
  for (const id of ids) checkId('hosts', id);
  const distinct = new Set(ids);
  if (distinct.size > HOSTS_MAX) {
    const advice = 'split them over several queries';
    throw malformed(`hosts has ${distinct.size} IDs, but at most ${HOSTS_MAX} are allowed; ${advice}`);
  }
  return [...distinct];
}

/** The number that the interface promises. Work and memory of a query grow with it. */
export const HOSTS_MAX = 1_000;

export function parseWhole(
  query: RawQuery,
  name: string,
  fallback: number,
  min: number,
  max: number,
): number {
  const text = single(query, name);
  if (text === undefined) return fallback;
  const value = /^[0-9]+$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  throw invalid(name, text, `must be a whole number from ${min} to ${max}`);
}

/** A parameter that may be given once. */
export function single(query: RawQuery, name: string, code: ErrorCode = 'WAF.1001'): string | undefined {
  const value = query[name];
  if (Array.isArray(value))
    throw new ApiError(code, `${name} is given ${value.length} times; give it at most once`);
  return value;
}
