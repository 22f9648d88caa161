/**
 * Text with format characters (bidirectional overrides, zero-width ones), C1 controls and line separators written as
 * \\uXXXX: printed raw, they make one name look like another, turn the rest of a line around, or steer a terminal. JSON
 * stays valid and means the same.
 */
export function printable(text: string): string {
  // Nearly all text is ASCII, and then there is nothing to do.
  if (!/[\u007f-\uffff]/.test(text)) return text;
  return text.replace(/[\u007f-\u009f\p{Cf}\u2028\u2029]/gu, (character) =>
    Array.from({ length: character.length }, (_, i) => {
      return `\\u${character.charCodeAt(i).toString(16).padStart(4, '0')}`;
    }).join(''),
  );
}
