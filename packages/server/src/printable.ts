/**
 * Escapes control characters (including line ends), format characters (bidirectional overrides, zero-width characters),
 * lone surrogates and line separators as \\uXXXX: printed raw, they disguise names, reverse the rest of a line, or control
 * a terminal. JSON on one line stays valid and keeps its meaning.
 */
export function printable(text: string): string {
  // Nearly all text is printable ASCII.
  if (!/[^\x20-\x7e]/.test(text)) return text;
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu, (character) =>
    // Without the flag `u`, the dot matches one code unit.
    character.replace(/./gs, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`),
  );
}

/** A path for a command in a message: FILE if a shell would interpret the path. The message also names the path. */
export function pathInCommand(path: string): string {
  return /^[\p{L}\p{N}_@%+=:,./-]+$/u.test(path) ? path : 'FILE';
}
