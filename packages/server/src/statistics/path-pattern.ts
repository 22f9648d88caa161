/** Paths whose parts vary: `/article/42` and `/article/43` are `/article/*`. */

const HEX = '[0-9A-Fa-f]';
/** A UUID, a number, or long hex. Without look-around, because Coraza has none. */
const VARYING = `(?:${HEX}{8}(?:-${HEX}{4}){3}-${HEX}{12}|[0-9]+|${HEX}{16,})`;
/** A whole word, and no percent-encoded character. */
const VARYING_WORD = new RegExp(`(?<![0-9A-Za-z%])${VARYING}(?![0-9A-Za-z])`, 'g');
/** Most paths have none, and this is much faster. */
const MAY_VARY = new RegExp(`[0-9*]|${HEX}{16}`);

/** The path with `*` for each part that varies. */
export function pathPattern(path: string): string {
  return MAY_VARY.test(path) ? path.replaceAll('*', '%2A').replace(VARYING_WORD, '*') : path;
}

/**
 * A regular expression for the paths of a pattern, in printable ASCII without quotes, spaces, and backslashes other than those of
 * escapes. ModSecurity 2 matches paths as they were sent, ModSecurity 3 and Coraza decode them first.
 */
export function patternExpression(pattern: string): string {
  const parts = pattern.split('*').map((part) => part.replace(/%[0-9A-Fa-f]{2}|./gsu, partExpression));
  return parts.join(VARYING);
}

function partExpression(part: string): string {
  if (part.length < 3 || !part.startsWith('%')) return literalExpression(part);
  const byte = part.slice(1).toLowerCase();
  const digits = byte.replace(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`);
  return `(?:\\x25${digits}|\\x${byte})`;
}

/** One or more characters of a regular expression that match this text. */
export function literalExpression(text: string): string {
  return Array.from(Buffer.from(text), (byte) => {
    const character = String.fromCharCode(byte);
    if (/[0-9A-Za-z/_-]/.test(character)) return character;
    return character === '.' ? '\\.' : `\\x${byte.toString(16).padStart(2, '0')}`;
  }).join('');
}
