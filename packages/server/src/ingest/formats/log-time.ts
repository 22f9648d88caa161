/** The times of logs, in the forms that servers and firewalls write. Each answers milliseconds since the epoch, or null. */
import { milliseconds, parseTime, utcTime } from './time.ts';

/** The time zone of a log whose times name none. */
export interface LocalZone {
  /** Turns a local time, written as if it were UTC, into milliseconds since the epoch. */
  toUtc(localMs: number): number;
  /** A zone whose clock is set back reads times in the order of the lines, so each log has its own copy. */
  startLog?(state: ClockState | null): LocalZone;
  /** Plain data, to go on in another process; null when the next time can be read without it. */
  state?(): ClockState | null;
}

/** Where in an ambiguous hour a log is. */
export interface ClockState {
  /** When the clock was set back, in milliseconds since the epoch. */
  changeAt: number;
  /** The latest local time so far. */
  latest: number;
  /** Whether local time has jumped back. */
  isSecond: boolean;
}

export function fixedZone(offsetMinutes: number): LocalZone {
  return { toUtc: (localMs) => localMs - offsetMinutes * 60_000 };
}

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

const COMMON =
  /^(\d{2})\/([A-Z][a-z]{2})\/(\d{4}):(\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))? ([+-]{1,2}\d{2}[+-]?\d{2,4})$/;
const ASCTIME =
  /^[A-Z][a-z]{2} ([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))? (\d{4})$/;
const LOCAL = /^(\d{4})[-/](\d{2})[-/](\d{2})[T ](\d{2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?$/;
const NUMBER = /^\d{1,19}(?:\.\d{1,9})?$/;

/** `10/Dec/2025:09:25:32 +0000`, as in access logs and ModSecurity's native format. */
export function parseCommonTime(text: string): number | null {
  const match = COMMON.exec(text);
  if (match === null) return null;
  const [, day, month = '', year, hour, minute, second, fraction, zone = ''] = match;
  const utc = utcTime(+`${year}`, monthNumber(month), +`${day}`, +`${hour}`, +`${minute}`, +`${second}`);
  const offset_seconds = zoneSeconds(zone);
  return utc === null || offset_seconds === null
    ? null
    : utc + milliseconds(fraction) - offset_seconds * 1_000;
}

/** `Wed Dec 10 09:25:32 2025`, in local time: ModSecurity 3 in JSON, and Apache's error log. */
export function parseAsctime(text: string, zone: LocalZone): number | null {
  const match = ASCTIME.exec(text);
  if (match === null) return null;
  const [, month = '', day, hour, minute, second, fraction, year] = match;
  const utc = utcTime(+`${year}`, monthNumber(month), +`${day}`, +`${hour}`, +`${minute}`, +`${second}`);
  return utc === null ? null : zone.toUtc(utc + milliseconds(fraction));
}

/** `2025/12/10 09:25:32` or with dashes, in local time: nginx's error log, and Caddy's on a terminal. */
export function parseLocalTime(text: string, zone: LocalZone): number | null {
  const match = LOCAL.exec(text);
  if (match === null) return null;
  const [, year, month, day, hour, minute, second, fraction] = match;
  const utc = utcTime(+`${year}`, +`${month}`, +`${day}`, +`${hour}`, +`${minute}`, +`${second}`);
  return utc === null ? null : zone.toUtc(utc + milliseconds(fraction));
}

/** A count of seconds, milliseconds, microseconds or nanoseconds since the epoch, told apart by its size. */
export function parseEpoch(value: unknown): number | null {
  const number =
    typeof value === 'number' ? value : typeof value === 'string' && NUMBER.test(value) ? +value : Number.NaN;
  if (!(number >= 0 && number < 1e20)) return null;
  if (number < 1e11) return Math.floor(number * 1_000 + 1e-3);
  if (number < 1e14) return Math.floor(number);
  return Math.floor(number / (number < 1e17 ? 1e3 : 1e6));
}

/** Any of these forms, or ISO 8601. */
export function parseAnyTime(value: unknown, zone: LocalZone): number | null {
  if (typeof value !== 'string' || NUMBER.test(value)) return parseEpoch(value);
  if (value.length > TIME_LENGTH_MAX) return null;
  return (
    parseTime(value) ??
    parseLocalTime(value, zone) ??
    parseCommonTime(value.startsWith('[') ? value.slice(1, -1) : value)
  );
}

const TIME_LENGTH_MAX = 64;

export function monthNumber(name: string): number {
  return MONTHS.indexOf(name) + 1;
}

/**
 * Seconds east of UTC. ModSecurity 2 writes a second sign west of Greenwich (`--0400`), and in zones of half hours
 * the rest of the hour in seconds (`+051800`, `--03-1800`), where others write hours, minutes and seconds.
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
