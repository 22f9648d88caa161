/** Text that is safe to print and to compare by eye. Attackers write logs, names and URLs. */

/**
 * Characters without a shape of their own: control and format characters (bidirectional overrides, zero-width
 * characters), lone surrogates, private and unassigned characters, all spaces but the usual one, fillers and variation
 * selectors. The last ones are visible by their properties, but have an empty shape.
 */
const INVISIBLE = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800\u{16FE4}\u{1D159}]|(?! )\p{Zs}/u;
const ALL_INVISIBLE = new RegExp(INVISIBLE, 'gu');
/** Nearly all text is printable ASCII, and this is much faster. */
export const NOT_PLAIN = /[^\x20-\x7e]/;

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

export function replaceInvisible(text: string, replacement: (character: string) => string): string {
  return NOT_PLAIN.test(text) ? text.replace(ALL_INVISIBLE, replacement) : text;
}

/** A path for a command in a message: FILE if a shell would interpret the path. The message also names the path. */
export function pathInCommand(path: string): string {
  return /^[\p{L}\p{N}_@%+=:,./-]+$/u.test(path) ? path : 'FILE';
}
