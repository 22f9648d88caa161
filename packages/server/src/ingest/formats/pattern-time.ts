/** Times in patterns: a single variable, or several that give date and time together. */
import type { Context } from './format.ts';
import type { PatternVariable } from './pattern-syntax.ts';
import type { LocalZone } from './time-zone.ts';
import { COMMON_TIME_LENGTH, milliseconds, monthNumber, parseTime, utcTime } from './timestamps.ts';

/** A variable for the time, or for a part of it. */
export interface TimeVariable {
  /** Sticky; matches the whole value. */
  regex: RegExp;
  /** The meaning of each group. */
  fields: readonly TimeField[];
  /** Apache can log the start of a request and its end: two different times. */
  moment: 'begin' | 'end';
}

type TimeField =
  | 'common'
  | 'iso'
  | 'epochSeconds'
  | 'epochMillis'
  | 'epochMicros'
  | 'year'
  | 'two-digit year'
  | 'month'
  | 'month name'
  | 'day'
  | 'hour'
  | '12-hour'
  | 'am/pm'
  | 'minute'
  | 'second'
  | 'fraction'
  | 'offset'
  | 'zone name';

/** Where a value was matched. */
interface TimeValue {
  variable: TimeVariable;
  start: number;
  end: number;
}

/** Null for a variable that is not a time. */
export function nginxTime({ name }: PatternVariable): TimeVariable | null {
  if (name === 'time_local') return COMMON;
  if (name === 'time_iso8601')
    return variable('(\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}[+-]\\d{2}:\\d{2})', ['iso']);
  if (name === 'msec') return variable('(\\d{1,10})\\.(\\d{3})', ['epochSeconds', 'fraction']);
  return null;
}

/** Null for a variable that is not a time. Throws an Error for a time that cannot be read. */
export function apacheTime({ name, argument, spelled }: PatternVariable): TimeVariable | null {
  if (name !== 't') return null;
  const moment = argument.startsWith('end:') ? 'end' : 'begin';
  const form = argument.replace(/^(?:begin|end):/, '');
  if (form === '') return { ...BRACKETED, moment };
  const epoch = EPOCH_FORMS[form];
  if (epoch !== undefined) return { ...variable(...epoch), moment };
  const { pattern, fields } = strftime(form, spelled);
  return { ...variable(pattern, fields), moment };
}

/** The moment for which the variables give date and time, or null if there is none. */
export function completeTime(variables: readonly TimeVariable[]): TimeVariable['moment'] | null {
  for (const moment of ['begin', 'end'] as const) {
    const fields = new Set(variables.flatMap((each) => (each.moment === moment ? each.fields : [])));
    const has = (...names: TimeField[]) => names.some((name) => fields.has(name));
    const hasDate = has('year', 'two-digit year') && has('month', 'month name') && has('day');
    const hasClock = (has('hour') || (has('12-hour') && has('am/pm'))) && has('minute');
    if (has('common', 'iso', 'epochSeconds', 'epochMillis', 'epochMicros') || (hasDate && hasClock))
      return moment;
  }
  return null;
}

/** Milliseconds since the epoch, or null for a time that does not exist. The most exact variable counts. */
export function readTime(
  line: string,
  values: readonly TimeValue[],
  { zone, commonTime }: Context,
): number | null {
  const [first] = values;
  const isCommon = values.length === 1 && first?.variable.fields[0] === 'common';
  if (isCommon && first !== undefined)
    return commonTime.parseAt(line, first.end - COMMON_TIME_LENGTH - (line[first.end - 1] === ']' ? 1 : 0));
  const found = new Map<TimeField, string>();
  for (const { variable, start, end } of values) {
    variable.regex.lastIndex = 0;
    const groups = variable.regex.exec(line.slice(start, end)) ?? [];
    variable.fields.forEach((field, i) => {
      if (!found.has(field)) found.set(field, groups[i + 1] ?? '');
    });
  }
  const text = (field: TimeField) => found.get(field);
  const fractionMs = milliseconds(text('fraction'));
  const micros = text('epochMicros');
  if (micros !== undefined) return Math.floor(Number(micros) / 1_000);
  const millis = text('epochMillis');
  if (millis !== undefined) return Number(millis);
  const seconds = text('epochSeconds');
  if (seconds !== undefined) return Number(seconds) * 1_000 + fractionMs;
  const iso = text('iso');
  if (iso !== undefined) return sum(parseTime(iso), fractionMs);
  const common = text('common');
  if (common !== undefined) return sum(commonTime.parseAt(common, 0), fractionMs);
  return fromFields(text, zone);
}

function fromFields(text: (field: TimeField) => string | undefined, zone: LocalZone): number | null {
  const shortYear = Number(text('two-digit year'));
  const year = text('year') ?? shortYear + (shortYear < 69 ? 2_000 : 1_900);
  const month = text('month') ?? monthNumber(text('month name')?.slice(0, 3));
  const hour = text('hour') ?? (Number(text('12-hour')) % 12) + (/p/i.test(text('am/pm') ?? '') ? 12 : 0);
  const utc = utcTime(year, month, text('day'), hour, text('minute'), text('second'), text('fraction'));
  if (utc === null) return null;
  const isUtc = /^(?:UTC|GMT|Z)$/.test(text('zone name') ?? '');
  const offset = text('offset') ?? (isUtc ? '+0000' : undefined);
  return offset === undefined ? zone.toUtc(utc) : sum(parseTime(`1970-01-01T00:00${offset}`), utc);
}

function sum(time: number | null, ms: number): number | null {
  return time === null ? null : time + ms;
}

function variable(pattern: string, fields: readonly TimeField[]): TimeVariable {
  return { regex: new RegExp(pattern, 'y'), fields, moment: 'begin' };
}

const COMMON_TIME = '(\\d{2}/[A-Z][a-z]{2}/\\d{4}:\\d{2}:\\d{2}:\\d{2} [+-]\\d{4})';
const COMMON = variable(COMMON_TIME, ['common']);
const BRACKETED = variable(`\\[${COMMON_TIME}\\]`, ['common']);

/** These have the number of digits from 2001 to 2286: with a fixed length, one can directly follow another. */
const EPOCH_FORMS: Readonly<Record<string, [string, TimeField[]]>> = {
  sec: ['(\\d{10})', ['epochSeconds']],
  msec: ['(\\d{13})', ['epochMillis']],
  usec: ['(\\d{16})', ['epochMicros']],
  msec_frac: ['(\\d{3})', ['fraction']],
  usec_frac: ['(\\d{6})', ['fraction']],
};

/** Conversions in the C locale, which servers use for logs. */
const STRFTIME: Readonly<Record<string, [string, TimeField?]>> = {
  Y: ['(\\d{4})', 'year'],
  y: ['(\\d{2})', 'two-digit year'],
  m: ['(\\d{2})', 'month'],
  b: ['([A-Z][a-z]{2})', 'month name'],
  h: ['([A-Z][a-z]{2})', 'month name'],
  B: ['([A-Z][a-z]{2,8})', 'month name'],
  d: ['(\\d{2})', 'day'],
  e: ['([ \\d]\\d)', 'day'],
  H: ['(\\d{2})', 'hour'],
  k: ['([ \\d]\\d)', 'hour'],
  I: ['(\\d{2})', '12-hour'],
  l: ['([ \\d]\\d)', '12-hour'],
  p: ['([AP]M)', 'am/pm'],
  P: ['([ap]m)', 'am/pm'],
  M: ['(\\d{2})', 'minute'],
  S: ['(\\d{2})', 'second'],
  s: ['(\\d{10})', 'epochSeconds'],
  z: ['([+-]\\d{4})', 'offset'],
  Z: ['([A-Z]{1,6}|[+-]\\d{2,4})', 'zone name'],
  a: ['[A-Z][a-z]{2}'],
  A: ['[A-Z][a-z]{5,8}'],
  j: ['\\d{3}'],
  u: ['\\d'],
  w: ['\\d'],
  C: ['\\d{2}'],
  G: ['\\d{4}'],
  g: ['\\d{2}'],
  U: ['\\d{2}'],
  V: ['\\d{2}'],
  W: ['\\d{2}'],
  t: ['\\t'],
  '%': ['%'],
};

const STRFTIME_SHORTHANDS: Readonly<Record<string, string>> = {
  c: '%a %b %e %H:%M:%S %Y',
  D: '%m/%d/%y',
  F: '%Y-%m-%d',
  R: '%H:%M',
  r: '%I:%M:%S %p',
  T: '%H:%M:%S',
  X: '%H:%M:%S',
  x: '%m/%d/%y',
};

function strftime(form: string, spelled: string): { pattern: string; fields: TimeField[] } {
  const fields: TimeField[] = [];
  const long = form.replace(/%([cDFRrTXx])/g, (_, letter: string) => STRFTIME_SHORTHANDS[letter] ?? '');
  const pattern = long.replace(/%(.)|[^%]+|%/gs, (text, letter: string | undefined) => {
    if (letter === undefined) return text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
    const known = STRFTIME[letter];
    if (known === undefined) throw new Error(`${spelled} contains %${letter}, which is not supported`);
    if (known[1] !== undefined) fields.push(known[1]);
    return known[0];
  });
  return { pattern, fields };
}
