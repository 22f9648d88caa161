/** Which stretch of time is looked at, and which one it is compared with. */
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** `days` count local midnights, as `recent` of the API does; the others are simply long. */
export const PRESETS = {
  '1hour': { label: '1 h', title: 'Last hour', length_ms: HOUR_MS },
  '24hours': { label: '24 h', title: 'Last 24 hours', length_ms: DAY_MS },
  today: { label: 'Today', title: 'Today', days: 1 },
  yesterday: { label: 'Yesterday', title: 'Yesterday', days: 1 },
  '3days': { label: '3 d', title: 'Last 3 days', days: 3 },
  '7days': { label: '7 d', title: 'Last 7 days', days: 7 },
  '30days': { label: '30 d', title: 'Last 30 days', days: 30 },
} as const;

export type PresetName = keyof typeof PRESETS;
export const DEFAULT_PRESET: PresetName = '24hours';

export interface Range {
  from: number;
  to: number;
}

export type Span = { preset: PresetName } | Range;

export function rangeOf(span: Span, offsetMs: number, now: number): Range {
  if (!('preset' in span)) return span;
  const preset = PRESETS[span.preset];
  if ('length_ms' in preset) return { from: now - preset.length_ms, to: now };
  const midnight = Math.floor((now + offsetMs) / DAY_MS) * DAY_MS - offsetMs;
  if (span.preset === 'yesterday') return { from: midnight - DAY_MS, to: midnight };
  return { from: midnight - (preset.days - 1) * DAY_MS, to: now };
}

/**
 * The span before, of the same length. Whole days that are not over yet are held against the same hours of the days
 * before: half a day against the night before it would tell of the time of day and of nothing else.
 */
export function rangeBefore(span: Span, range: Range): Range {
  const preset = 'preset' in span ? PRESETS[span.preset] : null;
  const shift_ms = preset && 'days' in preset ? preset.days * DAY_MS : range.to - range.from;
  return { from: Math.max(0, range.from - shift_ms), to: Math.max(0, range.to - shift_ms) };
}

/** What the span before is, in words. */
export function nameOfBefore(span: Span): string {
  if (!('preset' in span)) return 'the span before';
  if (span.preset === 'today') return 'the same hours yesterday';
  if (span.preset === 'yesterday') return 'the day before';
  if (span.preset === '1hour') return 'the hour before';
  if (span.preset === '24hours') return 'the 24 hours before';
  return `the ${PRESETS[span.preset].days} days before`;
}

/** Whether it goes on while one looks. */
export function endsNow(span: Span): boolean {
  return 'preset' in span && span.preset !== 'yesterday';
}

export function isPreset(name: string | null): name is PresetName {
  return name !== null && Object.hasOwn(PRESETS, name);
}
