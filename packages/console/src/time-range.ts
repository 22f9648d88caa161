/** The selected time range, the previous range to compare with, and the time zone. */

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** The longest range of the API. */
export const RANGE_DAYS_MAX = 3_653;

/** `days` begin at local midnight, as `recent` of the API does. `previous` names the range to compare with. */
export const PRESETS = {
  '1hour': { label: '1 h', title: 'Last hour', previous: 'previous hour', lengthMs: HOUR_MS },
  '24hours': { label: '24 h', title: 'Last 24 hours', previous: 'previous 24 hours', lengthMs: DAY_MS },
  today: { label: 'Today', title: 'Today', previous: 'same time yesterday', days: 1 },
  yesterday: { label: 'Yesterday', title: 'Yesterday', previous: 'the day before', days: 1 },
  '3days': { label: '3 d', title: 'Last 3 days', previous: 'previous 3 days', days: 3 },
  '7days': { label: '7 d', title: 'Last 7 days', previous: 'previous 7 days', days: 7 },
  '30days': { label: '30 d', title: 'Last 30 days', previous: 'previous 30 days', days: 30 },
} as const;

export type PresetName = keyof typeof PRESETS;
export const DEFAULT_PRESET: PresetName = '24hours';

/** In milliseconds since the epoch; `to` is exclusive. */
export interface TimeRange {
  from: number;
  to: number;
}

export type SelectedRange = { preset: PresetName } | TimeRange;

export function resolveRange(selected: SelectedRange, offsetMs: number, now: number): TimeRange {
  if (!('preset' in selected)) return selected;
  const preset = PRESETS[selected.preset];
  if ('lengthMs' in preset) return { from: now - preset.lengthMs, to: now };
  const midnight = Math.floor((now + offsetMs) / DAY_MS) * DAY_MS - offsetMs;
  if (selected.preset === 'yesterday') return { from: midnight - DAY_MS, to: midnight };
  return { from: midnight - (preset.days - 1) * DAY_MS, to: now };
}

/** Why the range is not valid, or null. */
export function rangeProblem({ from, to }: TimeRange): string | null {
  if (!(from < to)) return 'The start must be before the end.';
  if (to - from > RANGE_DAYS_MAX * DAY_MS)
    return `Choose at most ${RANGE_DAYS_MAX.toLocaleString('en')} days.`;
  return null;
}

/**
 * Of the same length. Days that are not over are compared with the same hours of earlier days: a morning compared with the
 * night before it would only show the time of day.
 */
export function previousRange(selected: SelectedRange, range: TimeRange): TimeRange {
  const preset = 'preset' in selected ? PRESETS[selected.preset] : null;
  const shiftMs = preset && 'days' in preset ? preset.days * DAY_MS : range.to - range.from;
  return { from: Math.max(0, range.from - shiftMs), to: Math.max(0, range.to - shiftMs) };
}

/** Completes "vs". */
export function previousRangeName(selected: SelectedRange): string {
  return 'preset' in selected ? PRESETS[selected.preset].previous : 'previous period';
}

/** Whether new events can still arrive in the range. */
export function endsNow(selected: SelectedRange): boolean {
  return 'preset' in selected && selected.preset !== 'yesterday';
}

export function isPreset(name: string | null): name is PresetName {
  return name !== null && Object.hasOwn(PRESETS, name);
}

/** Time zones are fixed offsets, as in the API: from -12:00 to +14:00. Null if the text is not one of them. */
export function parseOffset(text: string): number | null {
  const match = /^([+-])(\d{2}):([0-5]\d)$/.exec(text);
  if (match === null) return null;
  const minutes = (match[1] === '-' ? -1 : 1) * (Number(match[2]) * 60 + Number(match[3]));
  return minutes >= -720 && minutes <= 840 ? minutes * 60_000 : null;
}

export function formatOffset(offsetMs: number): string {
  const minutes = Math.abs(offsetMs) / 60_000;
  return `${offsetMs < 0 ? '-' : '+'}${twoDigits(Math.floor(minutes / 60))}:${twoDigits(minutes % 60)}`;
}

/** The current offset of the browser. Daylight saving time at other times of the year is ignored. */
export function browserOffset(now: number): string {
  return formatOffset(-new Date(now).getTimezoneOffset() * 60_000);
}

/** All time zones in use are a multiple of 15 minutes. */
export function allOffsets(): string[] {
  return Array.from({ length: 26 * 4 + 1 }, (_, i) => formatOffset((i * 15 - 720) * 60_000));
}

function twoDigits(n: number): string {
  return String(n).padStart(2, '0');
}
