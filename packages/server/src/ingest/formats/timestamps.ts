/** The forms in which logs write times. Each parser returns milliseconds since the epoch, or null. */
import type { LocalZone } from './time-zone.ts';

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

const ISO =
  /^(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?(?:[Zz]|([+-])(\d{2})(?::?(\d{2}))?)$/;
const COMMON =
  /^(\d{2})\/([A-Z][a-z]{2})\/(\d{4}):(\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))? ([+-]{1,2}\d{2}[+-]?\d{2,4})$/;
const ASCTIME =
  /^[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))? (\d{4})$/;
const LOCAL = /^(\d{4})[-/](\d{2})[-/](\d{2})[T ](\d{2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?$/;
const NUMBER = /^\d{1,19}(?:\.\d{1,9})?$/;
const ANY_LENGTH_MAX = 64;

/** Whole milliseconds since the epoch, or ISO 8601 with an offset: without one, the time would be a guess. */
export function parseTime(value: unknown): number | null {
  if (typeof value === 'number') return Number.isSafeInteger(value) ? value : null;
  const match = typeof value === 'string' ? ISO.exec(value) : null;
  if (match === null) return null;
  const [, year, month, day, hour, minute, second, fraction, sign, offsetHours = 0, offsetMinutes = 0] =
    match;
  const utc = utcTime(year, month, day, hour, minute, second, fraction);
  const offsetMs = (Number(offsetHours) * 60 + Number(offsetMinutes)) * 60_000;
  if (utc === null || Number(offsetMinutes) > 59) return null;
  return sign === '-' ? utc + offsetMs : utc - offsetMs;
}

/** `10/Dec/2025:09:25:32 +0000`: access logs, and ModSecurity's native format. */
export function parseCommonTime(text: string): number | null {
  const match = COMMON.exec(text);
  if (match === null) return null;
  const [, day, month, year, hour, minute, second, fraction, zone = ''] = match;
  const utc = utcTime(year, monthNumber(month), day, hour, minute, second, fraction);
  const offset = zoneSeconds(zone);
  return utc === null || offset === null ? null : utc - offset * 1_000;
}

/** `Wed Dec 10 09:25:32 2025`, in local time: ModSecurity 3 in JSON, and Apache's error log. */
export function parseAsctime(text: string, zone: LocalZone): number | null {
  const match = ASCTIME.exec(text);
  if (match === null) return null;
  const [, month, day, hour, minute, second, fraction, year] = match;
  const local = utcTime(year, monthNumber(month), day, hour, minute, second, fraction);
  return local === null ? null : zone.toUtc(local);
}

/** `2025/12/10 09:25:32` or with dashes, in local time: nginx's error log, and Caddy's on a terminal. */
export function parseLocalTime(text: string, zone: LocalZone): number | null {
  const match = LOCAL.exec(text);
  if (match === null) return null;
  const [, year, month, day, hour, minute, second, fraction] = match;
  const local = utcTime(year, month, day, hour, minute, second, fraction);
  return local === null ? null : zone.toUtc(local);
}

/** Seconds, milliseconds, microseconds or nanoseconds since the epoch: the size tells which. */
export function parseEpoch(value: unknown): number | null {
  const number =
    typeof value === 'number' ? value : typeof value === 'string' && NUMBER.test(value) ? +value : Number.NaN;
  if (!(number >= 0 && number < 1e20)) return null;
  if (number < 1e11) return Math.floor(number * 1_000 + 1e-3);
  if (number < 1e14) return Math.floor(number);
  return Math.floor(number / (number < 1e17 ? 1e3 : 1e6));
}

/** Any of these forms except asctime. */
export function parseAnyTime(value: unknown, zone: LocalZone): number | null {
  if (typeof value !== 'string' || NUMBER.test(value)) return parseEpoch(value);
  if (value.length > ANY_LENGTH_MAX) return null;
  return (
    parseTime(value) ??
    parseLocalTime(value, zone) ??
    parseCommonTime(value.startsWith('[') ? value.slice(1, -1) : value)
  );
}

/**
 * The time in an ID like `176535873226.343451`: ModSecurity 3 writes the epoch second, then a random number. Better than
 * the local time next to it, which names no zone. Null for other IDs, which operators can configure.
 */
export function timeOfModsecurityId(id: string): number | null {
  return /^\d{11,13}\.\d{6}$/.test(id) ? Number(id.slice(0, 10)) * 1_000 : null;
}

type Digits = string | number | undefined;

/** Null for a date or time of day that does not exist: `Date` would turn 30 February into 2 March. */
export function utcTime(
  year: Digits,
  month: Digits,
  day: Digits,
  hour: Digits,
  minute: Digits,
  second: Digits = 0,
  fraction?: string,
): number | null {
  const monthIndex = Number(month) - 1;
  const date = Number(day);
  const h = Number(hour);
  const m = Number(minute);
  const s = Number(second);
  if (!(h <= 23 && m <= 59 && s <= 59)) return null;
  const time = new Date(0);
  time.setUTCFullYear(Number(year), monthIndex, date);
  if (time.getUTCMonth() !== monthIndex || time.getUTCDate() !== date) return null;
  return time.setUTCHours(h, m, s, milliseconds(fraction));
}

/** Cuts further digits instead of rounding, so that no event moves into the next point. */
export function milliseconds(fraction: string | undefined): number {
  return fraction === undefined ? 0 : Number(fraction.slice(0, 3).padEnd(3, '0'));
}

/** 0 if there is no such month. */
export function monthNumber(name = ''): number {
  return MONTHS.indexOf(name) + 1;
}

/**
 * Seconds east of UTC. ModSecurity 2 writes a second sign west of Greenwich (`--0400`), and in zones of half hours the
 * rest of the hour in seconds (`+051800`, `--03-1800`), where others write hours, minutes and seconds.
 */
function zoneSeconds(zone: string): number | null {
  const digits = zone.replace(/[+-]/g, '');
  const hours = Number(digits.slice(0, 2));
  const rest = Number(digits.slice(2));
  const inSeconds = digits.length > 4 && rest < 3_600 && rest % 900 === 0;
  const minutes = digits.length > 4 && !inSeconds ? Math.floor(rest / 100) : rest;
  if (!inSeconds && minutes > 59) return null;
  return (zone.startsWith('-') ? -1 : 1) * (hours * 3_600 + (inSeconds ? rest : minutes * 60));
}

/** `10/Dec/2025:09:25:32 +0000`: the minute ends at 17, the zone starts at 21. */
const MINUTE_LENGTH = 17;
const ZONE_AT = 21;
export const COMMON_TIME_LENGTH = 26;
const ZERO = 0x30;
const COLON = 0x3a;
const SPACE = 0x20;

/** parseCommonTime for lines in order: remembers the last minute and zone. */
export class CommonTimeParser {
  /** Null before the first time. */
  #minute: string | null = null;
  #zone = '';
  #minuteTime = 0;

  parseAt(line: string, at: number): number | null {
    const isKnown =
      this.#minute !== null && line.startsWith(this.#minute, at) && line.startsWith(this.#zone, at + ZONE_AT);
    if (!isKnown && !this.#parseMinute(line, at)) return null;
    const tens = line.charCodeAt(at + 18) - ZERO;
    const ones = line.charCodeAt(at + 19) - ZERO;
    const isValid =
      tens >= 0 &&
      tens <= 5 &&
      ones >= 0 &&
      ones <= 9 &&
      line.charCodeAt(at + MINUTE_LENGTH) === COLON &&
      line.charCodeAt(at + 20) === SPACE;
    return isValid ? this.#minuteTime + (tens * 10 + ones) * 1_000 : null;
  }

  #parseMinute(line: string, at: number): boolean {
    const minute = line.slice(at, at + MINUTE_LENGTH);
    const zone = line.slice(at + ZONE_AT, at + COMMON_TIME_LENGTH);
    const time = parseCommonTime(`${minute}:00 ${zone}`);
    if (time === null) return false;
    this.#minute = minute;
    this.#zone = zone;
    this.#minuteTime = time;
    return true;
  }
}
