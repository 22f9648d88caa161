/** Access lines in a format given as in the server's configuration (`--pattern`). See docs/decisions/0018. */
import { requestUrl } from './access.ts';
import { type Context, dropped, type RawResponse, type Reading, requestReading } from './format.ts';
import {
  type Field,
  fieldOf,
  type PatternSyntax,
  parsePattern,
  RESPONSE_FIELDS,
  type ResponseField,
} from './pattern-syntax.ts';
import { completeTime, readTime, type TimeVariable } from './pattern-time.ts';

export interface Pattern {
  /** The text that `compilePattern` accepts. */
  readonly text: string;
  parse(line: string, context: Context): Reading;
  /** For `explain`: each variable with its value, and where the line stops matching. */
  explain(line: string): PatternFields;
}

export interface PatternFields {
  fields: readonly (readonly [name: string, value: string])[];
  /** Absent if the line matches. */
  mismatch?: string;
}

/** Nginx Proxy Manager has two formats: for proxied hosts, and for all others. */
const NAMED_PATTERNS: Readonly<Record<string, readonly string[]>> = {
  'nginx-proxy-manager': [
    '[$time_local] $upstream_cache_status $upstream_status $status - $request_method $scheme $host "$request_uri" [Client $remote_addr] [Length $body_bytes_sent] [Gzip $gzip_ratio] [Sent-to $server] "$http_user_agent" "$http_referer"',
    '[$time_local] $status - $request_method $scheme $host "$request_uri" [Client $remote_addr] [Length $body_bytes_sent] [Gzip $gzip_ratio] "$http_user_agent" "$http_referer"',
  ],
};

/** Throws an Error whose message says what is wrong with the pattern. */
export function compilePattern(text: string): Pattern {
  const named = Object.hasOwn(NAMED_PATTERNS, text) ? NAMED_PATTERNS[text] : undefined;
  const matchers = (named ?? [text]).map((each) => new Matcher(parsePattern(each)));
  return {
    text,
    parse(line, context) {
      for (const matcher of matchers) {
        const { ends, isComplete } = matcher.match(line);
        if (isComplete) return matcher.reading(line, ends, context);
      }
      return UNKNOWN;
    },
    explain(line) {
      const all = matchers.map((matcher) => matcher.explain(line));
      const found = all.find(({ mismatch }) => mismatch === undefined);
      return found ?? all.reduce((best, each) => (each.fields.length > best.fields.length ? each : best));
    },
  };
}

/** A pattern describes an access log, so it excludes all other formats. */
export function fitsPattern(format: string | undefined): boolean {
  return format === undefined || format === 'auto' || format === 'access';
}

const UNKNOWN = dropped('unknown_format');
const NO_ENDS = new Int32Array(0);

/** More than any configuration has. Bounds the recursion of a match. */
const VARIABLES_MAX = 64;

/** Where each value ends: for all fields, or for those before the first mismatch. */
interface Match {
  ends: Int32Array;
  isComplete: boolean;
}

/**
 * Tries values from the shortest to the longest. Each end of a value is tried only once, wherever the value began: what
 * follows has failed there. So the time is linear in the line for each variable, whatever a client sends.
 */
class Matcher {
  readonly #head: string;
  readonly #fields: readonly Field[];
  readonly #escaping: PatternSyntax['escaping'];
  /** Indexes of the fields that the record is built from. */
  readonly #times: readonly number[];
  readonly #hosts: readonly number[];
  /** What the values of some fields are. */
  readonly #responses: readonly (readonly [name: ResponseField, index: number])[];
  /** The last field that a line must have. */
  readonly #needed: number;
  /** Per field: where its value ends; -1 if unknown. This and the next are reused for each line. */
  readonly #ends: Int32Array;
  /** Per field: the first offset at which its end has not been tried. */
  readonly #untried: Int32Array;
  /** Per field, while values begin before it: the next literal, the next quote, the next character that ends a value. */
  readonly #literals: Int32Array;
  readonly #quotes: Int32Array;
  readonly #runEnds: Int32Array;
  /** The ends up to the last field that was tried. */
  #furthest = NO_ENDS;
  #line = '';
  /** After this field, the line may end anywhere. */
  #cutAfter = 0;

  constructor({ server, escaping, parts }: PatternSyntax) {
    const { head, fields } = fieldsOf(server, parts);
    this.#head = head;
    this.#fields = fields;
    this.#escaping = escaping;
    const moment = completeTime(fields.flatMap(({ time }) => time ?? []));
    if (moment === null) {
      throw new Error(
        'must contain the time: $time_local, $time_iso8601 or $msec for nginx, %t or %{...}t with date and time for Apache',
      );
    }
    const indexes = fields.map((_, i) => i);
    const rank = (i: number) => fields[i]?.hostRank ?? Number.POSITIVE_INFINITY;
    this.#times = indexes.filter((i) => fields[i]?.time?.moment === moment);
    this.#hosts = indexes.filter((i) => rank(i) < Number.POSITIVE_INFINITY).sort((a, b) => rank(a) - rank(b));
    this.#responses = RESPONSE_FIELDS.flatMap((name) => {
      const index = fields.findIndex(({ response }) => response === name);
      return index === -1 ? [] : [[name, index] as const];
    });
    this.#needed = Math.max(...this.#times, this.#hosts[0] ?? 0);
    this.#ends = new Int32Array(fields.length);
    this.#untried = new Int32Array(fields.length);
    this.#literals = new Int32Array(fields.length);
    this.#quotes = new Int32Array(fields.length);
    this.#runEnds = new Int32Array(fields.length);
  }

  match(line: string): Match {
    if (!line.startsWith(this.#head)) return { ends: NO_ENDS, isComplete: false };
    if (this.#matches(line, Number.POSITIVE_INFINITY)) return { ends: this.#ends, isComplete: true };
    const furthest = this.#furthest;
    // A line that was cut is still a request if it has time and host.
    if (this.#matches(line, this.#needed)) return { ends: this.#ends, isComplete: true };
    return { ends: furthest, isComplete: false };
  }

  reading(line: string, ends: Int32Array, context: Context): Reading {
    const times = this.#times.flatMap((i) => {
      const variable = this.#fields[i]?.time ?? null;
      return variable === null ? [] : [{ variable, start: this.#start(i, ends), end: ends[i] ?? 0 }];
    });
    const time = readTime(line, times, context);
    if (time === null) return dropped('bad_time');
    const textOf = (i: number) => ((ends[i] ?? -1) < 0 ? '' : this.#value(line, i, ends));
    const host = this.#hosts.map(textOf).find((name) => name !== '' && name !== '-');
    const { request, ...response } = Object.fromEntries(
      this.#responses.map(([name, i]) => [name, textOf(i)]),
    ) as RawResponse & { request?: string };
    return requestReading(
      time,
      host,
      request === undefined ? response : { url: requestUrl(request), ...response },
    );
  }

  explain(line: string): PatternFields {
    const { ends, isComplete } = this.match(line);
    const read = this.#fields.slice(0, ends.length).filter((_, i) => (ends[i] ?? -1) >= 0);
    const fields = read.map(({ name }, i) => [name, this.#value(line, i, ends)] as const);
    if (isComplete) return { fields };
    const isHead = line.startsWith(this.#head);
    const at = isHead ? this.#start(ends.length, ends) : 0;
    const field = this.#fields[ends.length];
    const wanted = isHead && field !== undefined ? expected(field) : JSON.stringify(this.#head);
    const found = at < line.length ? JSON.stringify(line.slice(at, at + 40)) : 'the end of the line';
    return { fields, mismatch: `expected ${wanted} from character ${at + 1} on, found ${found}` };
  }

  #value(line: string, i: number, ends: Int32Array): string {
    return line.slice(this.#start(i, ends), ends[i]);
  }

  /** A value begins where the text after the previous one ends. */
  #start(i: number, ends: Int32Array): number {
    return i === 0 ? this.#head.length : (ends[i - 1] ?? 0) + (this.#fields[i - 1]?.literal.length ?? 0);
  }

  #matches(line: string, cutAfter: number): boolean {
    this.#line = line;
    this.#cutAfter = cutAfter;
    this.#ends.fill(-1);
    this.#untried.fill(0);
    this.#literals.fill(-1);
    this.#quotes.fill(-1);
    this.#runEnds.fill(-1);
    this.#furthest = NO_ENDS;
    return this.#matchesFrom(0, this.#head.length);
  }

  /** Whether the fields from this index match the line from this offset. */
  #matchesFrom(index: number, start: number): boolean {
    const field = this.#fields[index];
    if (field === undefined) return start === this.#line.length;
    if (field.time !== null) return this.#matchesTime(field, field.time, index, start);
    const stop = this.#stopOf(field, index, start);
    const { literal } = field;
    if (literal === '') return start >= (this.#untried[index] ?? 0) && this.#endsAt(field, index, stop);
    for (;;) {
      const end = this.#nextLiteral(literal, index, Math.max(start, this.#untried[index] ?? 0));
      if (end > stop || end === this.#line.length) break;
      if (this.#endsAt(field, index, end)) return true;
    }
    // The line ends within the value, or within the text that follows it.
    const isCut = index > this.#cutAfter && literal.startsWith(this.#line.slice(stop));
    if (isCut) this.#ends[index] = stop;
    return isCut;
  }

  #matchesTime(field: Field, { regex }: TimeVariable, index: number, start: number): boolean {
    if (start < (this.#untried[index] ?? 0)) return false;
    this.#untried[index] = start + 1;
    regex.lastIndex = start;
    if (!regex.test(this.#line)) return false;
    const end = regex.lastIndex;
    return this.#line.startsWith(field.literal, end) && this.#endsAt(field, index, end);
  }

  #endsAt({ literal }: Field, index: number, end: number): boolean {
    this.#untried[index] = Math.max(end + 1, this.#untried[index] ?? 0);
    this.#ends[index] = end;
    if (this.#matchesFrom(index + 1, end + literal.length)) return true;
    const isFurther = index >= this.#furthest.length && index + 1 < this.#fields.length;
    if (isFurther) this.#furthest = this.#ends.slice(0, index + 1);
    this.#ends[index] = -1;
    return false;
  }

  /** The first offset from `start` whose character cannot be part of the value. */
  #stopOf({ kind, until }: Field, index: number, start: number): number {
    let stop = this.#line.length;
    if (this.#escaping === 'quotes') {
      if (start > (this.#quotes[index] ?? -1)) this.#quotes[index] = unescapedQuote(this.#line, start);
      stop = this.#quotes[index] ?? stop;
    }
    if (kind === 'text' && until === null) return stop;
    if (start > (this.#runEnds[index] ?? -1)) this.#runEnds[index] = endOfRun(this.#line, start, kind, until);
    return Math.min(stop, this.#runEnds[index] ?? stop);
  }

  /** The length of the line if there is none. */
  #nextLiteral(literal: string, index: number, start: number): number {
    if (start > (this.#literals[index] ?? -1)) {
      const at = this.#line.indexOf(literal, start);
      this.#literals[index] = at === -1 ? this.#line.length : at;
    }
    return this.#literals[index] ?? this.#line.length;
  }
}

function expected({ name, literal, kind }: Field): string {
  const value = kind === 'text' ? name : `${name} (a ${kind})`;
  return literal === ''
    ? `${value} up to the end of the line`
    : `${value} followed by ${JSON.stringify(literal)}`;
}

/** Servers write a quote in a value as `\"` or `\x22`, so an unescaped one is never part of it. */
function unescapedQuote(line: string, start: number): number {
  for (let at = line.indexOf('"', start); at !== -1; at = line.indexOf('"', at + 1)) {
    let backslashes = 0;
    while (at - 1 - backslashes >= start && line.charCodeAt(at - 1 - backslashes) === BACKSLASH)
      backslashes++;
    if (backslashes % 2 === 0) return at;
  }
  return line.length;
}

const BACKSLASH = 0x5c;

function endOfRun(line: string, start: number, kind: Field['kind'], until: string | null): number {
  for (let at = start; at < line.length; at++) {
    const code = line.charCodeAt(at);
    const belongs = kind === 'number' ? isOfNumber(code) : kind === 'text' || code > SPACE;
    if (!belongs || line[at] === until) return at;
  }
  return line.length;
}

const SPACE = 0x20;

/** Digits, `.` and `-`. */
function isOfNumber(code: number): boolean {
  return (code >= 0x30 && code <= 0x39) || code === 0x2e || code === 0x2d;
}

function fieldsOf(
  server: PatternSyntax['server'],
  parts: PatternSyntax['parts'],
): { head: string; fields: Field[] } {
  let head = '';
  const fields: Field[] = [];
  for (const part of parts) {
    const last = fields.at(-1);
    if ('literal' in part) {
      if (last === undefined) head = part.literal;
      else last.literal = part.literal;
      continue;
    }
    const field = fieldOf(server, part);
    if (last === undefined || last.literal !== '' || last.kind === 'time') fields.push(field);
    else join(last, field, fields);
  }
  if (fields.length > VARIABLES_MAX) throw new Error(`must have at most ${VARIABLES_MAX} variables`);
  // Lines are trimmed before they are matched.
  const last = fields.at(-1);
  if (last !== undefined) last.literal = last.literal.trimEnd();
  return { head: head.trimStart(), fields };
}

/** Two values with no text between them are one, unless one of them is the time or the host. */
function join(last: Field, next: Field, fields: Field[]): void {
  // `$host$request_uri`: the host ends where the path begins.
  const isAddress = last.hostRank !== null && /request_uri|uri$|%U/.test(next.name);
  if (isAddress) {
    last.until = '/';
    fields.push(next);
    return;
  }
  if (last.hostRank !== null || next.hostRank !== null || next.kind === 'time') {
    throw new Error(
      `must have text between ${last.name} and ${next.name}: otherwise it is unclear where one ends`,
    );
  }
  last.name += next.name;
  last.response = null;
  last.kind = 'text';
}
