/** The times that a log format can hold, alone or put together from several variables. */
import type { Context } from './format.ts';
import { type LocalZone, monthNumber } from './log-time.ts';
import type { PatternVariable } from './pattern-syntax.ts';
import { milliseconds, parseTime, utcTime } from './time.ts';

/** A variable that says when, or a part of it. */
export interface TimeVariable {
  /** Matches the whole value, at its place. */
  regex: RegExp;
  /** What each group of the expression is. */
  fields: readonly Field[];
  /** Apache can write the start of a request and its end: they are two times. */
  moment: 'begin' | 'end';
}

type Field =
  | 'common'
  | 'iso'
  | 'epochSeconds'
  | 'epochMillis'
  | 'epochMicros'
  | 'year'
  | 'century year'
  | 'month'
  | 'month name'
  | 'day'
  | 'hour'
  | 'hour of 12'
  | 'half'
  | 'minute'
  | 'second'
  | 'fraction'
  | 'offset'
  | 'zone name';

/** A value that was matched, and where. */
export interface TimeValue {
  variable: TimeVariable;
  start: number;
  end: number;
}

/** Null for a variable that is no time. Throws an Error for a time that cannot be read. */
export function nginxTime({ name }: PatternVariable): TimeVariable | null {
  if (name === 'time_local') return COMMON;
  if (name === 'time_iso8601')
    return variable('(\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}[+-]\\d{2}:\\d{2})', ['iso']);
  if (name === 'msec') return variable('(\\d{1,10})\\.(\\d{3})', ['epochSeconds', 'fraction']);
  return null;
}

export function apacheTime({ name, argument, spelled }: PatternVariable): TimeVariable | null {
  if (name !== 't') return null;
  const moment = argument.startsWith('end:') ? 'end' : 'begin';
  const form = argument.replace(/^(?:begin|end):/, '');
  if (form === '') return { ...BRACKETED, moment };
  const counted = COUNTED[form];
  if (counted !== undefined) return { ...variable(...counted), moment };
  const { pattern, fields } = strftime(form, spelled);
  return { ...variable(pattern, fields), moment };
}

/** The variables that give the time of a line together, or null when they do not. */
export function completeTime(variables: readonly TimeVariable[]): TimeVariable['moment'] | null {
  for (const moment of ['begin', 'end'] as const) {
    const fields = new Set(variables.flatMap((each) => (each.moment === moment ? each.fields : [])));
    const has = (...names: Field[]) => names.some((name) => fields.has(name));
    const isDate = has('year', 'century year') && has('month', 'month name') && has('day');
    const isClock = (has('hour') || (has('hour of 12') && has('half'))) && has('minute');
    if (has('common', 'iso', 'epochSeconds', 'epochMillis', 'epochMicros') || (isDate && isClock))
      return moment;
  }
  return null;
}

/** Milliseconds since the epoch, or null for a time that there is not. The most exact variable counts. */
export function readTime(
  line: string,
  values: readonly TimeValue[],
  { zone, clock }: Context,
): number | null {
  const [first] = values;
  const isCommon = values.length === 1 && first?.variable.fields[0] === 'common';
  if (isCommon && first !== undefined)
    return clock.read(line, first.end - (line[first.end - 1] === ']' ? 27 : 26));
  const found = new Map<Field, string>();
  for (const {
    variable: { regex, fields },
    start,
    end,
  } of values) {
    regex.lastIndex = 0;
    const groups = regex.exec(line.slice(start, end)) ?? [];
    fields.forEach((field, i) => {
      if (!found.has(field)) found.set(field, groups[i + 1] ?? '');
    });
  }
  const text = (field: Field) => found.get(field);
  const fraction = milliseconds(text('fraction'));
  const micros = text('epochMicros');
  if (micros !== undefined) return Math.floor(Number(micros) / 1_000);
  const millis = text('epochMillis');
  if (millis !== undefined) return Number(millis);
  const seconds = text('epochSeconds');
  if (seconds !== undefined) return Number(seconds) * 1_000 + fraction;
  const iso = text('iso');
  if (iso !== undefined) return added(parseTime(iso), fraction);
  const common = text('common');
  if (common !== undefined) return added(clock.read(common, 0), fraction);
  return fromFields(text, fraction, zone);
}

function fromFields(
  text: (field: Field) => string | undefined,
  fraction: number,
  zone: LocalZone,
): number | null {
  const number = (field: Field) => Number(text(field) ?? Number.NaN);
  const short = number('century year');
  const year = text('year') === undefined ? short + (short < 69 ? 2_000 : 1_900) : number('year');
  const month =
    text('month') === undefined ? monthNumber((text('month name') ?? '').slice(0, 3)) : number('month');
  const hour12 = (number('hour of 12') % 12) + (/p/i.test(text('half') ?? '') ? 12 : 0);
  const hour = text('hour') === undefined ? hour12 : number('hour');
  const utc = utcTime(year, month, number('day'), hour, number('minute'), Number(text('second') ?? 0));
  if (utc === null) return null;
  const offset = text('offset') ?? (/^(?:UTC|GMT|Z)$/.test(text('zone name') ?? '') ? '+0000' : undefined);
  if (offset === undefined) return zone.toUtc(utc + fraction);
  return added(parseTime(`1970-01-01T00:00${offset}`), utc + fraction);
}

function added(time: number | null, ms: number): number | null {
  return time === null ? null : time + ms;
}

function variable(pattern: string, fields: readonly Field[]): TimeVariable {
  return { regex: new RegExp(pattern, 'y'), fields, moment: 'begin' };
}

const STAMP = '(\\d{2}/[A-Z][a-z]{2}/\\d{4}:\\d{2}:\\d{2}:\\d{2} [+-]\\d{4})';
const COMMON = variable(STAMP, ['common']);
const BRACKETED = variable(`\\[${STAMP}\\]`, ['common']);

/** Of a fixed length, so that one can stand behind the other: so many digits they have from 2001 to 2286. */
const COUNTED: Readonly<Record<string, [string, Field[]]>> = {
  sec: ['(\\d{10})', ['epochSeconds']],
  msec: ['(\\d{13})', ['epochMillis']],
  usec: ['(\\d{16})', ['epochMicros']],
  msec_frac: ['(\\d{3})', ['fraction']],
  usec_frac: ['(\\d{6})', ['fraction']],
};

/** In the C locale, in which servers write their logs. */
const STRFTIME: Readonly<Record<string, [string, Field?]>> = {
  Y: ['(\\d{4})', 'year'],
  y: ['(\\d{2})', 'century year'],
  m: ['(\\d{2})', 'month'],
  b: ['([A-Z][a-z]{2})', 'month name'],
  h: ['([A-Z][a-z]{2})', 'month name'],
  B: ['([A-Z][a-z]{2,8})', 'month name'],
  d: ['(\\d{2})', 'day'],
  e: ['([ \\d]\\d)', 'day'],
  H: ['(\\d{2})', 'hour'],
  k: ['([ \\d]\\d)', 'hour'],
  I: ['(\\d{2})', 'hour of 12'],
  l: ['([ \\d]\\d)', 'hour of 12'],
  p: ['([AP]M)', 'half'],
  P: ['([ap]m)', 'half'],
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

function strftime(form: string, spelled: string): { pattern: string; fields: Field[] } {
  const fields: Field[] = [];
  const long = form.replace(/%([cDFRrTXx])/g, (_, letter: string) => STRFTIME_SHORTHANDS[letter] ?? '');
  const pattern = long.replace(/%(.)|[^%]+|%/gs, (text, letter: string | undefined) => {
    if (letter === undefined) return text.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
    const known = STRFTIME[letter];
    if (known === undefined) throw new Error(`${spelled} holds %${letter}, which wafstat cannot read`);
    if (known[1] !== undefined) fields.push(known[1]);
    return known[0];
  });
  return { pattern, fields };
}
