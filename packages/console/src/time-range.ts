/** The selected time range, and the previous range to compare with. */
import { dayOf, fromLocal, isStartOfDay, startOfDay, toLocal, type Zone } from './zone.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;

/** The longest range of the API. */
export const RANGE_DAYS_MAX = 3_653;

/**
 * Hours and days of `lengthMs` are counted back from now. Others are `days` of the calendar: of today, or of the week, which
 * begins on Monday. `previous` names the range to compare with, in a key figure.
 */
export const PRESETS = {
  '1hour': { label: '1 h', title: 'Last hour', previous: 'previous hour', lengthMs: HOUR_MS },
  '6hours': { label: '6 h', title: 'Last 6 hours', previous: 'previous 6 h', lengthMs: 6 * HOUR_MS },
  '24hours': { label: '24 h', title: 'Last 24 hours', previous: 'previous 24 h', lengthMs: DAY_MS },
  '7days': { label: '7 d', title: 'Last 7 days', previous: 'previous 7 d', lengthMs: 7 * DAY_MS },
  '30days': { label: '30 d', title: 'Last 30 days', previous: 'previous 30 d', lengthMs: 30 * DAY_MS },
  '90days': { label: '90 d', title: 'Last 90 days', previous: 'previous 90 d', lengthMs: 90 * DAY_MS },
  today: { label: 'Today', title: 'Today', previous: 'yesterday', days: 1 },
  yesterday: { label: 'Yesterday', title: 'Yesterday', previous: 'the day before', days: 1, isOver: true },
  thisweek: { label: 'This week', title: 'This week', previous: 'last week', days: 7 },
  lastweek: { label: 'Last week', title: 'Last week', previous: 'the week before', days: 7, isOver: true },
} as const;

export type PresetName = keyof typeof PRESETS;
export const DEFAULT_PRESET: PresetName = '24hours';

/** In milliseconds since the epoch; `to` is exclusive. */
export interface TimeRange {
  from: number;
  to: number;
}

export type SelectedRange = { preset: PresetName } | TimeRange;

export function resolveRange(selected: SelectedRange, zone: Zone, now: number): TimeRange {
  if (!('preset' in selected)) return selected;
  const preset = PRESETS[selected.preset];
  // Whole minutes: queries repeat within a minute, so that responses are cached, and points keep their boundaries.
  const end = Math.ceil(now / MINUTE_MS) * MINUTE_MS;
  if ('lengthMs' in preset) return { from: end - preset.lengthMs, to: end };
  const today = dayOf(now, zone);
  // 1 January 1970 was a Thursday.
  const first = preset.days === 7 ? today - ((today + 3) % 7) : today;
  if (!('isOver' in preset)) return { from: startOfDay(first, zone), to: end };
  return { from: startOfDay(first - preset.days, zone), to: startOfDay(first, zone) };
}

/** Why the range is not valid, or null. */
export function rangeProblem({ from, to }: TimeRange): string | null {
  if (!(from < to)) return 'The start must be before the end.';
  if (to - from > RANGE_DAYS_MAX * DAY_MS)
    return `Choose at most ${RANGE_DAYS_MAX.toLocaleString('en')} days.`;
  return null;
}

/** How far back the previous period is. Days are local: a clock change makes one of them longer or shorter. */
export type Shift = { days: number } | { lengthMs: number };

/** The range to compare with: the previous one, the same days of an earlier week, or one that begins on a date. */
export type Compared = 'previous' | 'week' | `${number}-${number}-${number}`;

export function parseCompared(text: string): Compared | null {
  if (text === 'previous' || text === 'week') return text;
  return /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(text)) ? (text as Compared) : null;
}

/**
 * Days that are not over are compared with the same hours of earlier days: a morning compared with the night before it
 * would only show the time of day.
 */
export function previousShift(
  selected: SelectedRange,
  range: TimeRange,
  zone: Zone,
  compared: Compared = 'previous',
): Shift {
  const days = wholeDays(selected, range, zone);
  const daysMin = days ?? Math.ceil((range.to - range.from) / DAY_MS);
  if (compared === 'week') return { days: Math.ceil(daysMin / 7) * 7 };
  if (compared !== 'previous') {
    const wanted = dayOf(range.from, zone) - Date.parse(compared) / DAY_MS;
    // A period that overlaps with the range, or follows it, would count the same events twice.
    if (wanted >= daysMin) return { days: wanted };
  }
  return days === null ? { lengthMs: range.to - range.from } : { days };
}

/** The last day whose period ends before the range begins, as `2026-11-10`. */
export function lastComparedDay(selected: SelectedRange, range: TimeRange, zone: Zone): string {
  const days = wholeDays(selected, range, zone) ?? Math.ceil((range.to - range.from) / DAY_MS);
  return new Date((dayOf(range.from, zone) - days) * DAY_MS).toISOString().slice(0, 10);
}

export function previousRange(range: TimeRange, shift: Shift, zone: Zone): TimeRange {
  return { from: timeBefore(range.from, shift, zone), to: timeBefore(range.to, shift, zone) };
}

/** The same time of the previous period: the same time of an earlier day if it is days back. */
export function timeBefore(time: number, shift: Shift, zone: Zone): number {
  if ('lengthMs' in shift) return Math.max(0, time - shift.lengthMs);
  const { days } = shift;
  // On days when the clock skips 0:00, the day begins later, so subtracting 24 hours would miss its start.
  if (isStartOfDay(time, zone)) return Math.max(0, startOfDay(dayOf(time, zone) - days, zone));
  return Math.max(0, fromLocal(toLocal(time, zone) - days * DAY_MS, zone));
}

/** The edges of the same points in the previous period. A point whose time the clock skips there is empty. */
export function edgesBefore(edges: readonly number[], shift: Shift, zone: Zone): number[] {
  const before = edges.map((edge) => timeBefore(edge, shift, zone));
  for (let i = before.length - 2; i >= 0; i--) {
    before[i] = Math.min(before[i] ?? 0, before[i + 1] ?? 0);
  }
  return before;
}

/** The range one period earlier or later. Null if it would be in the future. Whole local days stay whole local days. */
export function shiftedRange(
  selected: SelectedRange,
  zone: Zone,
  steps: -1 | 1,
  now: number,
): TimeRange | null {
  const range = resolveRange(selected, zone, now);
  const days = wholeDays(selected, range, zone);
  const first = dayOf(range.from, zone) + steps * (days ?? 0);
  const lengthMs = range.to - range.from;
  const shifted =
    days === null
      ? { from: range.from + steps * lengthMs, to: range.to + steps * lengthMs }
      : { from: startOfDay(first, zone), to: startOfDay(first + days, zone) };
  return shifted.from < 0 || shifted.from >= now ? null : shifted;
}

/** How many local days the range has, with today as a whole day. Null: it does not have whole days. */
function wholeDays(selected: SelectedRange, { from, to }: TimeRange, zone: Zone): number | null {
  const preset = 'preset' in selected ? PRESETS[selected.preset] : null;
  if (preset !== null) return 'days' in preset ? preset.days : null;
  return isStartOfDay(from, zone) && isStartOfDay(to, zone) ? dayOf(to, zone) - dayOf(from, zone) : null;
}

/** Whether the range is compared with one that ends at the same time of an earlier day, because today is not over. */
export function endsToday(selected: SelectedRange): boolean {
  return endsNow(selected) && 'preset' in selected && 'days' in PRESETS[selected.preset];
}

/** Completes "vs". */
export function previousRangeName(
  selected: SelectedRange,
  range: TimeRange,
  zone: Zone,
  compared: Compared,
): string {
  const shift = previousShift(selected, range, zone, compared);
  if (compared === 'week' && 'days' in shift)
    return shift.days === 7 ? 'a week earlier' : `${shift.days / 7} weeks earlier`;
  if (compared !== 'previous') return compared;
  return 'preset' in selected ? PRESETS[selected.preset].previous : 'previous period';
}

/** Whether new events can still arrive in the range. */
export function endsNow(selected: SelectedRange): boolean {
  return 'preset' in selected && !('isOver' in PRESETS[selected.preset]);
}

export function isPreset(name: string | null): name is PresetName {
  return name !== null && Object.hasOwn(PRESETS, name);
}
