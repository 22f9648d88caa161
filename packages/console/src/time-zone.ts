/** Time zones are fixed offsets here, as in the API: `+08:00`, from -12:00 to +14:00. */

export function parseOffset(text: string): number | null {
  const match = /^([+-])(\d{2}):([0-5]\d)$/.exec(text);
  if (match === null) return null;
  const minutes = (match[1] === '-' ? -1 : 1) * (Number(match[2]) * 60 + Number(match[3]));
  return minutes >= -720 && minutes <= 840 ? minutes * 60_000 : null;
}

export function formatOffset(offsetMs: number): string {
  const minutes = Math.abs(offsetMs) / 60_000;
  return `${offsetMs < 0 ? '-' : '+'}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
}

/** What the clock of the browser shows now. Summer time of the past is not told apart. */
export function browserOffset(now: number): string {
  return formatOffset(-new Date(now).getTimezoneOffset() * 60_000);
}

/** Every quarter of an hour, which all time zones in use are a multiple of. */
export function allOffsets(): string[] {
  return Array.from({ length: 26 * 4 + 1 }, (_, i) => formatOffset((i * 15 - 720) * 60_000));
}

function two(n: number): string {
  return String(n).padStart(2, '0');
}
