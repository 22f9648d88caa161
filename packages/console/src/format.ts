/** Numbers and times as text. Rounded numbers have their exact value in a tooltip. */
import { changesOnDay, dayOf, formatOffset, isStartOfDay, toLocal, type Zone } from './zone.ts';

const WHOLE = new Intl.NumberFormat('en');
const COMPACT = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 4 });
const ONE_DIGIT = new Intl.NumberFormat('en', { maximumFractionDigits: 1, minimumFractionDigits: 1 });
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const WEEKDAYS = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];

export function formatCount(n: number): string {
  return WHOLE.format(n);
}

/** `1 record`, `2,000 records`. */
export function plural(n: number, one: string, many = `${one}s`): string {
  return `${formatCount(n)} ${n === 1 ? one : many}`;
}

/** Exact up to six digits. */
export function compactCount(n: number): string {
  return n < 1_000_000 ? formatCount(n) : COMPACT.format(n);
}

/** For the axis of a chart. */
export function axisCount(n: number): string {
  return n < 10_000 ? formatCount(n) : COMPACT.format(n);
}

/** `12 MB`: decimal units, so that round numbers stay round. */
export function formatBytes(n: number): string {
  const unit = n < 1_000 ? 0 : Math.min(BYTE_UNITS.length - 1, Math.floor(Math.log10(n) / 3));
  const value = n / 1_000 ** unit;
  const text = value < 10 && unit > 0 ? ONE_DIGIT.format(value) : WHOLE.format(Math.round(value));
  return `${text.replace(/\.0$/, '')} ${BYTE_UNITS[unit]}`;
}

const BYTE_UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];

export function share(part: number, whole: number): string {
  if (whole === 0) return '–';
  const percent = (part / whole) * 100;
  if (percent > 0 && percent < 0.1) return '<0.1%';
  return `${ONE_DIGIT.format(percent)}%`;
}

export interface Change {
  text: string;
  /** `new`: there was none before. */
  direction: 'up' | 'down' | 'same' | 'new';
}

/** Relative change in percent, or as a factor if it is large. */
export function change(now: number, before: number): Change {
  if (now === before) return { text: 'no change', direction: 'same' };
  const direction = now > before ? 'up' : 'down';
  if (before === 0) return { text: 'none before', direction: 'new' };
  const factor = now / before;
  if (factor > 1_000) return { text: '>1,000×', direction };
  if (factor >= 10) return { text: `${Math.round(factor)}×`, direction };
  return { text: `${signed((factor - 1) * 100)}%`, direction };
}

/** Change of a rate, in percentage points: the difference of the two as they are shown. */
export function rateChange(now: number, before: number): Change {
  const points = (Math.round(now * 1_000) - Math.round(before * 1_000)) / 10;
  if (points === 0) return { text: 'no change', direction: 'same' };
  return { text: `${signed(points)} pp`, direction: points > 0 ? 'up' : 'down' };
}

function signed(n: number): string {
  return `${n < 0 ? '−' : '+'}${ONE_DIGIT.format(Math.abs(n))}`;
}

export function clock(time: number, zone: Zone): string {
  return new Date(toLocal(time, zone)).toISOString().slice(11, 16);
}

/** `10:05:12`. */
export function timeOfDay(time: number, zone: Zone): string {
  return new Date(toLocal(time, zone)).toISOString().slice(11, 19);
}

export function day(time: number, zone: Zone): string {
  const date = new Date(toLocal(time, zone));
  return `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}`;
}

/** `14 Nov`, with the year if it is not that of `now`. */
export function date(time: number, zone: Zone, now: number): string {
  const [year, current] = [time, now].map((one) => new Date(toLocal(one, zone)).getUTCFullYear());
  return year === current ? day(time, zone) : `${day(time, zone)} ${year}`;
}

function weekday(time: number, zone: Zone): string {
  return WEEKDAYS[new Date(toLocal(time, zone)).getUTCDay()] ?? '';
}

/** `10:05:12`, with the day if it is not that of `now`. */
export function shortTime(time: number, zone: Zone, now: number): string {
  const text = timeOfDay(time, zone);
  return dayOf(time, zone) === dayOf(now, zone) ? text : `${date(time, zone, now)}, ${text}`;
}

/** `14 Nov 2026, 10:05`, with seconds if they are not zero, or with milliseconds. */
export function formatTime(time: number, zone: Zone, hasMs = false): string {
  const text = new Date(toLocal(time, zone)).toISOString();
  const seconds = hasMs ? text.slice(16, 23) : text.slice(17, 23) === '00.000' ? '' : text.slice(16, 19);
  return `${day(time, zone)} ${text.slice(0, 4)}, ${text.slice(11, 16)}${seconds}`;
}

/**
 * `14 Nov, 10:05 – 10:10`; whole days without times. Years are named if they are not that of `now`. On a day with a clock
 * change, times have their offset: `25 Oct, 02:50 – 03:00 (+02:00)`.
 */
export function formatRange(from: number, to: number, zone: Zone, now = Math.max(from, to - 1)): string {
  const wholeDays = isStartOfDay(from, zone) && isStartOfDay(to, zone);
  // A day with a clock change does not have 24 hours.
  if (wholeDays && dayOf(to, zone) - dayOf(from, zone) === 1)
    return `${weekday(from, zone)}, ${date(from, zone, now)}`;
  if (wholeDays && to > from) return `${date(from, zone, now)} – ${date(to - 1, zone, now)}`;
  const start = `${date(from, zone, now)}, ${clock(from, zone)}`;
  const sameDay = dayOf(from, zone) === dayOf(to, zone);
  const end = `${sameDay ? '' : `${date(to, zone, now)}, `}${clock(to, zone)}`;
  const [before, after] = [from, to].map((time) => offsetMark(time, zone));
  return `${start}${sameDay && before === after ? '' : before} – ${end}${after}`;
}

function offsetMark(time: number, zone: Zone): string {
  return changesOnDay(time, zone) ? ` (${formatOffset(zone.offsetAt(time))})` : '';
}

/** `5 min`, `2 h`, `1 day`. */
export function duration(ms: number): string {
  const minutes = Math.round(ms / 60_000);
  if (minutes < 1) return `${Math.round(ms / 1_000)} s`;
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 1_440) return `${Math.round(minutes / 60)} h`;
  return plural(Math.round(minutes / 1_440), 'day');
}

/** `3 min ago`. */
export function ago(time: number, now: number): string {
  const seconds = Math.max(0, Math.round((now - time) / 1_000));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 2 * 86_400) return `${Math.floor(seconds / 3_600)} h ago`;
  return `${Math.floor(seconds / 86_400)} days ago`;
}

/** `Germany`, or the code if there is no such country. */
export function countryName(code: string): string {
  try {
    return new Intl.DisplayNames('en', { type: 'region' }).of(code) ?? code;
  } catch {
    return code;
  }
}

/** `30 days` or `36 hours`, of whole hours. */
export function exactDuration(ms: number): string {
  const hours = Math.round(ms / 3_600_000);
  return hours % 24 === 0 ? plural(hours / 24, 'day') : plural(hours, 'hour');
}
