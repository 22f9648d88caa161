/** Text that is safe to print and to compare by eye. Attackers write logs, names and URLs. */
import { copyOf } from './copy-of.ts';

/**
 * Characters without a shape of their own: control and format characters (bidirectional overrides, zero-width
 * characters), lone surrogates, private and unassigned characters, all spaces but the usual one, fillers and variation
 * selectors. The last ones are visible by their properties, but have an empty shape.
 */
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800\u{16FE4}\u{1D159}]|(?! )\p{Zs}/u;
const ALL_INVISIBLE = new RegExp(INVISIBLE, 'gu');
/** Nearly all text is printable ASCII, and this is much faster. */
const NOT_PLAIN = /[^\x20-\x7e]/;

export function hasInvisible(text: string): boolean {
  return NOT_PLAIN.test(text) && INVISIBLE.test(text);
}

const SOURCE_NAME_LENGTH_MAX = 128;

/** The name of a log source is a key in the store, and shown in lists. */
export function isSourceName(text: string): boolean {
  return text.trim() !== '' && text.length <= SOURCE_NAME_LENGTH_MAX && !hasInvisible(text);
}

/**
 * Escapes invisible characters (including line ends) as \\uXXXX: printed raw, they disguise names, reverse the rest of a
 * line, or control a terminal. JSON on one line stays valid and keeps its meaning.
 */
export function printable(text: string): string {
  return replaceInvisible(text, (character) =>
    // Without the flag `u`, the dot matches one code unit.
    character.replace(/./gs, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
  );
}

function replaceInvisible(text: string, replacement: (character: string) => string): string {
  return NOT_PLAIN.test(text) ? text.replace(ALL_INVISIBLE, replacement) : text;
}

/** The beginning of a text, with invisible characters percent-encoded, cut after a whole character. Always a copy. */
export function printableStart(text: string, bytesMax: number): string {
  if (text.length <= bytesMax && !NOT_PLAIN.test(text)) return copyOf(text);
  // One more, so that a character that the slice cuts in half is beyond the limit.
  const encoded = replaceInvisible(text.slice(0, bytesMax + 1), percentEncoded);
  const bytes = Buffer.from(encoded);
  let end = Math.min(bytes.length, bytesMax);
  while (end < bytes.length && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
  return bytes.toString('utf8', 0, end);
}

function percentEncoded(character: string): string {
  const code = character.charCodeAt(0);
  // Line ends are frequent in bodies.
  if (code < 0x80) return `%${code < 16 ? '0' : ''}${code.toString(16).toUpperCase()}`;
  return Buffer.from(character).toString('hex').toUpperCase().replace(/../g, '%$&');
}

/** A path for a command in a message: FILE if a shell would interpret the path. The message also names the path. */
export function pathInCommand(path: string): string {
  return /^[\p{L}\p{N}_@%+=:,./-]+$/u.test(path) ? path : 'FILE';
}

const COUNT = new Intl.NumberFormat('en');

/** `1,240` */
export function number(count: number): string {
  return COUNT.format(count);
}

/** `1,240 attacks` */
export function plural(count: number, noun: string): string {
  return `${number(count)} ${noun}${count === 1 ? '' : 's'}`;
}
