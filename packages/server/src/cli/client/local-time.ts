/** Times as people write them, on the clock of a fixed offset. */

/** `2026-07-01 12:00`; `with: 'seconds'` adds them. */
export function dateTime(time: number, offsetMs: number, precision: 'minutes' | 'seconds'): string {
  return local(time, offsetMs)
    .slice(0, precision === 'minutes' ? 16 : 19)
    .replace('T', ' ');
}

/** `2026-07-01T12:00:00.000+08:00`. */
export function isoTime(time: number, offsetMs: number, timezone: string): string {
  return local(time, offsetMs).replace('Z', offsetMs === 0 ? 'Z' : timezone);
}

/** For the axis: `12:00`, or the day, `07-01`, where one begins. */
export function tickLabel(time: number, offsetMs: number): string {
  const text = local(time, offsetMs);
  return text.slice(11, 16) === '00:00' ? text.slice(5, 10) : text.slice(11, 16);
}

const UNITS = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
  ['second', 1_000],
] as const;

/** `20 minutes`, `1 hour 30 minutes`: the two largest units, which is all that a plot needs. */
export function lengthOfTime(time_ms: number): string {
  let rest = time_ms;
  const parts: string[] = [];
  for (const [name, unitMs] of UNITS) {
    const count = Math.floor(rest / unitMs);
    rest -= count * unitMs;
    if (count > 0) parts.push(`${count} ${name}${count === 1 ? '' : 's'}`);
  }
  return parts.length === 0 ? `${time_ms} ms` : parts.slice(0, 2).join(' ');
}

function local(time: number, offsetMs: number): string {
  return new Date(time + offsetMs).toISOString();
}
