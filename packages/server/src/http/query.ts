/** The query string of the statistics calls, parsed once; every mistake is answered by the parameter's name. */
import { parse } from 'node:querystring';
import type { FastifyRequest } from 'fastify';
import { ApiError, type ErrorCode } from '../errors.ts';
import { ID_PATTERN } from '../event.ts';
import { compilePattern, fitsPattern, type Pattern } from '../ingest/formats/pattern.ts';
import { type LocalZone, parseZone } from '../ingest/formats/time-zone.ts';
import { FORMAT_NAMES, type FormatName } from '../ingest/reader.ts';
import { excerpt, parseRange, parseTimezone, type Range } from '../statistics/range.ts';

export type RawQuery = Readonly<Record<string, string | string[] | undefined>>;

/** Parsed only where it is needed: an answer that is remembered is found by the address as it stands. */
export function queryOf({ url }: Pick<FastifyRequest, 'url'>): RawQuery {
  const mark = url.indexOf('?');
  return parse(mark === -1 ? '' : url.slice(mark + 1), undefined, undefined, { maxKeys: 0 });
}

export interface TimelineQuery extends Range {
  offsetMs: number;
  hosts: string[] | undefined;
}

export function parseTimelineQuery(query: RawQuery, now: number): TimelineQuery {
  const offsetMs = parseTimezone(single(query, 'timezone', 'WAF.1001'));
  return { ...parseRange(rangeParameters(query), offsetMs, now), offsetMs, hosts: parseHosts(query.hosts) };
}

/** This call has no `timezone` of its own; where `recent` asks for local days, one may still come along. */
export function parseDistributionQuery(query: RawQuery, now: number): Omit<TimelineQuery, 'offsetMs'> {
  const range = rangeParameters(query);
  const offsetMs = range.recent === undefined ? 0 : parseTimezone(single(query, 'timezone', 'WAF.1001'));
  return { ...parseRange(range, offsetMs, now), hosts: parseHosts(query.hosts) };
}

export interface HostListQuery extends Page {
  /** A part of the name. */
  hostname: string;
}

/** More than most projects have hosts or sources, and a bound on the size of a response. */
const LIST_LIMIT_MAX = 1_000;

export interface Page {
  /** Items to leave out. */
  offset: number;
  /** Items to list at most. */
  limit: number;
}

export function parsePage(query: RawQuery): Page {
  return {
    offset: parseWhole(query, 'offset', 0, 0, Number.MAX_SAFE_INTEGER),
    limit: parseWhole(query, 'limit', LIST_LIMIT_MAX, 1, LIST_LIMIT_MAX),
  };
}

/** Pages of Keystone: `marker` is the ID of the last item of the page before. Without `limit` all are listed. */
export function parseMarkerPage(query: RawQuery): { limit: number | undefined; marker: string | undefined } {
  const limit = parseWhole(query, 'limit', 0, 1, LIST_LIMIT_MAX);
  return { limit: limit === 0 ? undefined : limit, marker: single(query, 'marker', 'WAF.1001') };
}

export function parseHostListQuery(query: RawQuery): HostListQuery {
  return {
    ...parsePage(query),
    hostname: single(query, 'hostname', 'WAF.1001') ?? '',
  };
}

export interface IngestQuery {
  source: string;
  format: FormatName;
  pattern: Pattern | undefined;
  host: string | undefined;
  zone: LocalZone;
  hosts: 'auto' | 'registered';
}

/** A source name is a key in the store and stands in lists. */
const SOURCE_NAME = /^[^\p{Cc}\p{Cs}]{1,128}$/u;

/** Zones and patterns that a parser remembers: a zone takes 0.4 ms to set up, and up to 200 kB for its days. */
const PARSED_MAX = 32;

/** Remembers zones and patterns by their text. Neither has the state of a log: a reader starts its own. */
export function ingestQueryParser(): (query: RawQuery) => IngestQuery {
  const zoneOf = remembered(parseZone);
  const patternOf = remembered(compilePattern);
  return (query) => parseIngestQuery(query, zoneOf, patternOf);
}

function remembered<T>(parse: (text: string) => T): (text: string) => T {
  const known = new Map<string, T>();
  return (text) => {
    const value = known.get(text) ?? parse(text);
    // The one that was used last comes last.
    known.delete(text);
    known.set(text, value);
    const [oldest = ''] = known.keys();
    if (known.size > PARSED_MAX) known.delete(oldest);
    return value;
  };
}

/** A misspelt name must not count lines under another source, or shift their times. */
const INGEST_NAMES = ['source', 'format', 'pattern', 'host', 'timezone', 'hosts'];

function parseIngestQuery(
  query: RawQuery,
  zoneOf: (text: string) => LocalZone,
  patternOf: (text: string) => Pattern,
): IngestQuery {
  const unknown = Object.keys(query).find((name) => !INGEST_NAMES.includes(name));
  if (unknown !== undefined) {
    throw new ApiError(
      'WAF.1001',
      `there is no parameter '${excerpt(unknown)}': use ${INGEST_NAMES.join(', ')}`,
    );
  }
  const source = single(query, 'source', 'WAF.1001') ?? 'default';
  if (!SOURCE_NAME.test(source)) {
    throw new ApiError('WAF.1001', 'source must have 1 to 128 characters and no control characters');
  }
  const format = parseOneOf(query, 'format', FORMAT_NAMES);
  return {
    source,
    format,
    pattern: parseLogPattern(single(query, 'pattern', 'WAF.1001'), format, patternOf),
    host: single(query, 'host', 'WAF.1001'),
    zone: parseLogZone(single(query, 'timezone', 'WAF.1001') ?? '+00:00', zoneOf),
    hosts: parseOneOf(query, 'hosts', ['auto', 'registered'] as const),
  };
}

function parseLogPattern(
  text: string | undefined,
  format: FormatName,
  patternOf: (text: string) => Pattern,
): Pattern | undefined {
  if (text === undefined) return undefined;
  if (!fitsPattern(format))
    throw new ApiError('WAF.1001', `pattern is for access logs, but format is ${format}`);
  try {
    return patternOf(text);
  } catch (error) {
    throw new ApiError('WAF.1001', `pattern is '${excerpt(text)}', but ${(error as Error).message}`);
  }
}

/** A `+` that the client did not percent-encode arrives as a space. */
function parseLogZone(text: string, zoneOf: (text: string) => LocalZone): LocalZone {
  try {
    return zoneOf(text.replaceAll(' ', '+'));
  } catch (error) {
    throw new ApiError('WAF.1001', `timezone is '${excerpt(text)}', but ${(error as Error).message}`);
  }
}

/** The first is the default. */
function parseOneOf<T extends string>(query: RawQuery, name: string, values: readonly [T, ...T[]]): T {
  const text = single(query, name, 'WAF.1001');
  const value = text === undefined ? values[0] : values.find((candidate) => candidate === text);
  if (value === undefined) {
    throw new ApiError(
      'WAF.1001',
      `${name} is '${excerpt(text ?? '')}', but must be one of ${values.join(', ')}`,
    );
  }
  return value;
}

export function checkProjectId(id: string): void {
  if (!ID_PATTERN.test(id)) throw malformedId('project_id', id);
}

function rangeParameters(query: RawQuery) {
  const recent = single(query, 'recent', 'WAF.1025');
  // `recent` wins over the other two, whatever they hold.
  if (recent !== undefined) return { recent };
  return { from: single(query, 'from', 'WAF.1025'), to: single(query, 'to', 'WAF.1025') };
}

function parseHosts(hosts: string | string[] | undefined): string[] | undefined {
  if (hosts === undefined) return undefined;
  const ids = [hosts].flat().flatMap((value) => value.split(','));
  for (const id of ids) if (!ID_PATTERN.test(id)) throw malformedId('hosts', id);
  const distinct = new Set(ids);
  if (distinct.size > HOSTS_MAX) {
    throw new ApiError(
      'WAF.1001',
      `hosts has ${distinct.size} IDs, but at most ${HOSTS_MAX} are allowed; split them over several queries`,
    );
  }
  return [...distinct];
}

/** As many as the interface promises. Work and memory of a query grow with them. */
export const HOSTS_MAX = 1_000;

function malformedId(name: string, id: string): ApiError {
  const rule = 'an ID is 1 to 64 letters, digits, _ or -';
  return new ApiError('WAF.1003', `${name} holds '${excerpt(id)}', but ${rule}`);
}

function parseWhole(query: RawQuery, name: string, fallback: number, min: number, max: number): number {
  const text = single(query, name, 'WAF.1001');
  if (text === undefined) return fallback;
  const value = /^[0-9]+$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  throw new ApiError(
    'WAF.1001',
    `${name} is '${excerpt(text)}', but must be a whole number from ${min} to ${max}`,
  );
}

function single(query: RawQuery, name: string, code: ErrorCode): string | undefined {
  const value = query[name];
  if (Array.isArray(value))
    throw new ApiError(code, `${name} is given ${value.length} times, but may be given once`);
  return value;
}
