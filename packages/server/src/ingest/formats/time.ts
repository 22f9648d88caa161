/** `2026-07-01T12:00:00.123+08:00`: the offset is required, because a time without one is a guess. */
const ISO =
  /^(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2})(?::(\d{2})(?:[.,](\d{1,9}))?)?(?:([Zz])|([+-])(\d{2})(?::?(\d{2}))?)$/;

/** Whole milliseconds since the epoch, or ISO 8601 with an offset; null for anything else. */
export function parseTime(value: unknown): number | null {
  if (typeof value === 'number') return Number.isSafeInteger(value) ? value : null;
  return typeof value === 'string' ? parseIsoTime(value) : null;
}

function parseIsoTime(text: string): number | null {
  const match = ISO.exec(text);
  if (match === null) return null;
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = match
    .slice(1, 7)
    .map((digits) => Number(digits ?? 0));
  const offset_minutes = match[8]
    ? 0
    : (match[9] === '-' ? -1 : 1) * (Number(match[10]) * 60 + Number(match[11] ?? 0));
  if (Number(match[11] ?? 0) > 59) return null;
  const time = utcTime(year, month, day, hour, minute, second, milliseconds(match[7]));
  return time === null ? null : time - offset_minutes * 60_000;
}

/** Of a fraction of a second. Digits beyond the millisecond are cut, not rounded: an event must not move into the next point. */
export function milliseconds(fraction: string | undefined): number {
  return fraction === undefined ? 0 : Number(fraction.slice(0, 3).padEnd(3, '0'));
}

/** Null for a date or time of day that there is not: the 30th of February would become the 2nd of March. */
export function utcTime(
  year: number,
  month: number,
  day: number,
  hour: number,
  minute: number,
  second: number,
  millisecond = 0,
): number | null {
  if (!(hour <= 23 && minute <= 59 && second <= 59)) return null;
  const date = new Date(0);
  date.setUTCFullYear(year, month - 1, day);
  if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return null;
  return date.setUTCHours(hour, minute, second, millisecond);
}
