/** A line of JSON: one object, several without a line end between them, an array, or `{"records": [...]}`. */
import type { DropReason } from '../../event.ts';
import type { LocalZone } from './time-zone.ts';
import { parseAnyTime } from './timestamps.ts';

export type JsonObject = Readonly<Record<string, unknown>>;

interface JsonLine {
  values: readonly unknown[];
  /** What is wrong with the rest of the line; null if all of it was parsed. */
  broken: DropReason | null;
}

/** A megabyte has room for half a million empty objects, but only for a few thousand real ones. */
const VALUES_MAX = 10_000;

export function parseJsonLine(line: string): JsonLine {
  const value = tryParse(line);
  if (value !== undefined) return limited(recordsOf(value), null);
  if (isFragment(line)) return { values: [], broken: 'json_fragment' };
  const { values, broken } = parseObjects(line);
  return limited(values.flatMap(recordsOf), broken);
}

/** Whether a line is complete without its line end. Only JSON shows this: a text line that was cut may look like a whole one. */
export function isWholeJson(line: string): boolean {
  if (!line.startsWith('{') && !line.startsWith('[')) return false;
  const { broken } = parseJsonLine(line);
  return broken === null || broken === 'too_many_records';
}

/** The elements of an array, or of the only field of `{"records": [...]}`, Azure's envelope; otherwise the value itself. */
function recordsOf(value: unknown): readonly unknown[] {
  const records = Array.isArray(value) ? value : asObject(value)?.records;
  if (!Array.isArray(records) || records.length === 0) return [value];
  return records === value || Object.keys(asObject(value) ?? {}).length === 1 ? records : [value];
}

function limited(values: readonly unknown[], broken: DropReason | null): JsonLine {
  if (values.length <= VALUES_MAX) return { values, broken };
  return { values: values.slice(0, VALUES_MAX), broken: 'too_many_records' };
}

/** What JSON, with or without space before it, can begin with. */
const JSON_STARTS: ReadonlySet<number> = new Set(Buffer.from(' \t\n\r{["-0123456789tfn'));

/** Undefined for text that is not JSON. Most of it is recognized by its start: an exception takes 100 times as long. */
export function tryParse(text: string): unknown {
  if (!JSON_STARTS.has(text.charCodeAt(0)) || (text.length >= DEPTH_CHECK_LENGTH_MIN && isDeep(text)))
    return undefined;
  const { stackTraceLimit } = Error;
  // Recording the stack takes three quarters of the time of an exception.
  Error.stackTraceLimit = 0;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

/** Deeper than any log. `JSON.parse` takes 0.1 s for a megabyte of brackets. */
const DEPTH_MAX = 500;
/** Shorter text takes a few milliseconds at most, so most lines are not checked. */
const DEPTH_CHECK_LENGTH_MIN = 32_768;

function isDeep(text: string): boolean {
  let depth = 0;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      at = closingQuote(text, at + 1);
      if (at === -1) return false;
    } else if (code === OPEN || code === OPEN_ARRAY) {
      if (++depth > DEPTH_MAX) return true;
    } else if (code === CLOSE || code === CLOSE_ARRAY) depth--;
  }
  return false;
}

/** JSON pretty-printed over several lines. */
function isFragment(line: string): boolean {
  // Not with a pattern, which would search all of a long line for its end.
  const [first, last] = [line.charAt(0), line.charAt(line.length - 1)];
  return beginsWithJsonString(line) || ['}', ']'].includes(first) || ['{', '[', ','].includes(last);
}

/** A string in JSON is a key or a value, so that a colon follows it, or at most a comma. (`::1` is an address.) */
export function beginsWithJsonString(line: string): boolean {
  const end = line.startsWith('"') ? closingQuote(line, 1) : -1;
  return end !== -1 && /^\s*(?::(?!:)|,?$)/.test(line.slice(end + 1));
}

/** The first quote without a backslash that escapes it; -1 if there is none. */
export function closingQuote(line: string, from: number): number {
  for (let at = line.indexOf('"', from); at !== -1; at = line.indexOf('"', at + 1)) {
    let escapes = at;
    while (escapes > from && line.charCodeAt(escapes - 1) === BACKSLASH) escapes--;
    if ((at - escapes) % 2 === 0) return at;
  }
  return -1;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN = 0x7b;
const CLOSE = 0x7d;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;

/** Parses each object once, where its braces close, so that the time is linear for any line. */
function parseObjects(line: string): JsonLine {
  if (!/^\s*\{/.test(line)) return { values: [], broken: 'not_json' };
  const values: unknown[] = [];
  let start = 0;
  let depth = 0;
  let inString = false;
  for (let at = 0; at < line.length; at++) {
    const code = line.charCodeAt(at);
    if (inString) {
      if (code === BACKSLASH) at++;
      else if (code === QUOTE) inString = false;
    } else if (code === QUOTE) inString = true;
    else if (code === OPEN) depth++;
    else if (code === CLOSE && --depth <= 0) {
      const value = depth === 0 ? tryParse(line.slice(start, at + 1)) : undefined;
      if (value === undefined) break;
      if (values.length === VALUES_MAX) return { values, broken: 'too_many_records' };
      values.push(value);
      start = at + 1;
    }
  }
  const isComplete = values.length > 0 && line.slice(start).trim() === '';
  return { values, broken: isComplete ? null : 'not_json' };
}

export function asObject(value: unknown): JsonObject | null {
  // TypeScript does not narrow an object to a record of unknown.
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : null;
}

export function asArray(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

export function objectsOf(value: unknown): JsonObject[] {
  return asArray(value)
    .map(asObject)
    .filter((each) => each !== null);
}

/** '' for a missing value. Accepts numbers: engines differ in whether they quote an ID. */
export function asText(value: unknown): string {
  return typeof value === 'string' ? value : typeof value === 'number' ? String(value) : '';
}

/** Shortened, in lower case: vendors spell the same value in different ways. */
export function lowerText(value: unknown): string {
  return asText(value).slice(0, 128).toLowerCase();
}

/** The first of these fields that has a value. */
export function firstText(fields: JsonObject | null, names: readonly string[]): string | undefined {
  for (const name of names) {
    const value = fields?.[name];
    if (typeof value === 'string' && value !== '' && value !== '-') return value;
  }
  return undefined;
}

/** Like `firstText`, but accepts numbers. */
export function firstValue(fields: JsonObject | null, names: readonly string[]): string | undefined {
  const name = names.find((each) => asText(fields?.[each]) !== '');
  return name === undefined ? undefined : asText(fields?.[name]);
}

/** The time in the first of these fields that has a value. */
export function firstTime(fields: JsonObject, names: readonly string[], zone: LocalZone): number | null {
  const name = names.find((each) => asText(fields[each]) !== '');
  return name === undefined ? null : parseAnyTime(fields[name], zone);
}
