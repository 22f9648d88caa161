const WHOLE = new Intl.NumberFormat('en');
const PERCENT = new Intl.NumberFormat('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const SMALL_PERCENT = new Intl.NumberFormat('en', { maximumSignificantDigits: 2 });

/** `1,234,567`. */
export function count(value: number): string {
  return WHOLE.format(value);
}

/** `12.3%`; small shares keep two digits, so that something is never shown as nothing. */
export function share(part: number, whole: number): string {
  const percent = whole === 0 ? 0 : (part / whole) * 100;
  return `${percent > 0 && percent < 0.1 ? SMALL_PERCENT.format(percent) : PERCENT.format(percent)}%`;
}
