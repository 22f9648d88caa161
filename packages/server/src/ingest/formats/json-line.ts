/** A line of JSON: one object, an array of them, `{"records": [...]}`, or several one behind the other without a line end between them. */
import type { DropReason } from '../../event.ts';

export type JsonObject = Readonly<Record<string, unknown>>;

export interface JsonLine {
  values: readonly unknown[];
  /** What is wrong with the rest of the line, if there is one. */
  broken: DropReason | null;
}

/** A megabyte has room for half a million empty objects, and for some thousands of real ones. */
const VALUES_MAX = 10_000;

export function parseJsonLine(line: string): JsonLine {
  const value = parsed(line);
  if (value !== undefined) return bounded(recordsOf(value) ?? [value], null);
  if (isFragment(line)) return { values: [], broken: 'json_fragment' };
  const { values, broken } = parseObjects(line);
  return bounded(
    values.flatMap((each) => recordsOf(each) ?? [each]),
    broken,
  );
}

/** The records of an array, or of `{"records": [...]}`, in which Azure wraps them: with nothing beside it. */
function recordsOf(value: unknown): readonly unknown[] | null {
  const records = Array.isArray(value) ? value : asObject(value)?.records;
  if (!Array.isArray(records) || records.length === 0) return null;
  return records === value || Object.keys(asObject(value) ?? {}).length === 1 ? records : null;
}

function bounded(values: readonly unknown[], broken: DropReason | null): JsonLine {
  if (values.length <= VALUES_MAX) return { values, broken };
  return { values: values.slice(0, VALUES_MAX), broken: 'too_many_records' };
}

export function asObject(value: unknown): JsonObject | null {
  // A cast, because TypeScript does not take an object for a record of unknown.
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : null;
}

export function asArray(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** '' for what is not there. Numbers are taken too: engines differ in whether they quote an id. */
export function asText(value: unknown): string {
  return typeof value === 'string' ? value : typeof value === 'number' ? String(value) : '';
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** JSON printed over several lines: what it says stands in no line. */
function isFragment(line: string): boolean {
  return /^["}\]]/.test(line) || /[{[,]$/.test(line);
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const OPEN = 0x7b;
const CLOSE = 0x7d;

/** Each object is parsed once, where its braces close, so that the time stays linear for any line. */
function parseObjects(line: string): JsonLine {
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
      const value = depth === 0 ? parsed(line.slice(start, at + 1)) : undefined;
      if (value === undefined) break;
      if (values.length === VALUES_MAX) return { values, broken: 'too_many_records' };
      values.push(value);
      start = at + 1;
    }
  }
  const isWhole = values.length > 0 && line.slice(start).trim() === '';
  return { values, broken: isWhole ? null : 'not_json' };
}
