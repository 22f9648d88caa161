/**
 * Text with control characters (line ends among them), format characters (bidirectional overrides, zero-width ones), lone
 * surrogates and line separators written as \\uXXXX: printed raw, they make one name look like another, turn the rest of
 * a line around, or steer a terminal. JSON on one line stays valid and means the same.
 */
export function printable(text: string): string {
  // Nearly all text is printable ASCII, and then there is nothing to do.
  if (!/[^\x20-\x7e]/.test(text)) return text;
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu, (character) =>
    Array.from({ length: character.length }, (_, i) => {
      return `\\u${character.charCodeAt(i).toString(16).padStart(4, '0')}`;
    }).join(''),
  );
}
