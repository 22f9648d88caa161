/** Time zones: an IANA name, such as `Europe/Berlin`, or a fixed offset, as in the API. */

export interface Zone {
  /** `Europe/Berlin` or `+08:00`. */
  id: string;
  /** Local time minus UTC, in milliseconds. */
  offsetAt(time: number): number;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
/** No zone changes its clock at another time than a multiple of 15 minutes. */
const CHANGE_GRID_MS = 15 * MINUTE_MS;

/** Null if there is no such zone. */
export function parseZone(id: string): Zone | null {
  const offsetMs = parseOffset(id);
  if (offsetMs !== null) return fixedZone(offsetMs);
  // Browsers also know offsets that the API rejects, such as +15:00.
  return /^[+-]/.test(id) ? null : namedZone(id);
}

export function fixedZone(offsetMs: number): Zone {
  return { id: formatOffset(offsetMs), offsetAt: () => offsetMs };
}

export function browserZone(): Zone {
  return namedZone(Intl.DateTimeFormat().resolvedOptions().timeZone) ?? fixedZone(0);
}

function namedZone(id: string): Zone | null {
  try {
    const format = new Intl.DateTimeFormat('en', { timeZone: id, timeZoneName: 'longOffset' });
    const known = new Map<number, number>();
    const offsetAt = (time: number): number => {
      const slot = Math.floor(time / CHANGE_GRID_MS);
      const offset = known.get(slot) ?? readOffset(format, slot * CHANGE_GRID_MS);
      known.set(slot, offset);
      return offset;
    };
    return { id: format.resolvedOptions().timeZone, offsetAt };
  } catch {
    return null;
  }
}

function readOffset(format: Intl.DateTimeFormat, time: number): number {
  const name = format.formatToParts(time).find(({ type }) => type === 'timeZoneName')?.value ?? '';
  const [, sign, hours = '0', minutes = '0'] = /([+-])(\d{2}):(\d{2})/.exec(name) ?? [];
  return (sign === '-' ? -1 : 1) * (Number(hours) * 60 + Number(minutes)) * MINUTE_MS;
}

/** A time whose UTC fields are the local date and time. */
export function toLocal(time: number, zone: Zone): number {
  return time + zone.offsetAt(time);
}

/** The inverse of `toLocal`. Of a local time that occurs twice the earlier; one that is skipped is moved forward. */
export function fromLocal(local: number, zone: Zone): number {
  const before = local - zone.offsetAt(local - 24 * HOUR_MS);
  const after = local - zone.offsetAt(local + 24 * HOUR_MS);
  const found = [before, after].toSorted((a, b) => a - b).find((time) => toLocal(time, zone) === local);
  return found ?? Math.max(before, after);
}

/** The number of the local day, counted from 1 January 1970. */
export function dayOf(time: number, zone: Zone): number {
  return Math.floor(toLocal(time, zone) / (24 * HOUR_MS));
}

/** Midnight, or later where the clock skips midnight. */
export function startOfDay(day: number, zone: Zone): number {
  return fromLocal(day * 24 * HOUR_MS, zone);
}

export function isStartOfDay(time: number, zone: Zone): boolean {
  return time === startOfDay(dayOf(time, zone), zone);
}

/** Whether the clock changes on the local day of this time, so that a local time can be meant twice. */
export function changesOnDay(time: number, zone: Zone): boolean {
  const day = dayOf(time, zone);
  return zone.offsetAt(startOfDay(day, zone)) !== zone.offsetAt(startOfDay(day + 1, zone));
}

/** `UTC+02:00` at this time. */
export function offsetName(time: number, zone: Zone): string {
  return `UTC${formatOffset(zone.offsetAt(time))}`;
}

/** `Europe/Berlin (+02:00)` at this time, or `UTC+02:00` of a fixed offset. Zones can have more than one name. */
export function zoneName(time: number, zone: Zone, id = zone.id): string {
  const offset = formatOffset(zone.offsetAt(time));
  return parseOffset(id) === null ? `${id} (${offset})` : `UTC${offset}`;
}

/** The named zones that the browser knows: `Europe` has `Europe/Berlin`. */
export function zonesByRegion(): Map<string, string[]> {
  const regions = new Map<string, string[]>();
  for (const id of Intl.supportedValuesOf('timeZone')) {
    const region = id.split('/')[0] ?? id;
    regions.set(region, [...(regions.get(region) ?? []), id]);
  }
  return regions;
}

/** Offsets of the API: from -12:00 to +14:00. Null if the text is not one of them. */
export function parseOffset(text: string): number | null {
  const match = /^([+-])(\d{2}):([0-5]\d)$/.exec(text);
  if (match === null) return null;
  const minutes = (match[1] === '-' ? -1 : 1) * (Number(match[2]) * 60 + Number(match[3]));
  return minutes >= -720 && minutes <= 840 ? minutes * MINUTE_MS : null;
}

export function formatOffset(offsetMs: number): string {
  const minutes = Math.abs(offsetMs) / MINUTE_MS;
  return `${offsetMs < 0 ? '-' : '+'}${twoDigits(Math.floor(minutes / 60))}:${twoDigits(minutes % 60)}`;
}

/** All offsets in use are a multiple of 15 minutes. */
export function allOffsets(): string[] {
  return Array.from({ length: 26 * 4 + 1 }, (_, i) => formatOffset((i * 15 - 720) * MINUTE_MS));
}

function twoDigits(n: number): string {
  return String(n).padStart(2, '0');
}
