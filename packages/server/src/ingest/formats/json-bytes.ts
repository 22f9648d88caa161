/** The bytes of the JSON line that is being parsed, and where its values end. Validates them without creating values. */

/** Longer lines have long bodies, and JSON.parse is as fast there. */
export const LENGTH_MAX = 65_536;

/** Containers inside a value that is not wanted: each takes one bit of an integer. */
const DEPTH_MAX = 31;

export const QUOTE = 0x22;
const PLUS = 0x2b;
export const COMMA = 0x2c;
const DASH = 0x2d;
const DOT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
export const COLON = 0x3a;
export const OPENING_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
export const CLOSING_BRACKET = 0x5d;
const LETTER_E = 0x65;
const LETTER_U = 0x75;
export const OPENING_BRACE = 0x7b;
export const CLOSING_BRACE = 0x7d;
/** The difference between upper and lower case. */
const CASE = 0x20;

/** These characters in every byte of a word, to find the end of plain text four bytes at a time. */
const QUOTES = 0x22222222;
const BACKSLASHES = 0x5c5c5c5c;
/** Added to a byte up to 127, sets its high bit unless it was 0. */
const UNLESS_ZERO = 0x7f7f7f7f;
/** Added to a byte up to 127, sets its high bit unless it was a control character. */
const UNLESS_CONTROL = 0x60606060;
const HIGH_BITS = 0x80808080 | 0;

/** Bytes after the line that can be read without a check. */
const ZEROS = 32;

/** Enough for one more character of any length: so a line that is cut off still has more bytes than characters. */
const WRITTEN_MAX = LENGTH_MAX + 4;

/** The line that is being parsed, and only zeros after it, at which every loop ends. */
const MEMORY = Buffer.alloc(WRITTEN_MAX + ZEROS);
export const BYTES = new Uint8Array(MEMORY.buffer);
const VIEW = new DataView(MEMORY.buffer);
/** The bytes of MEMORY that may not be zero. */
let written = 0;

/** What functions that return an offset return to give up. */
export const UNUSUAL = -1;

/** Whether the line has as many bytes as characters: then all of them are ASCII, and offsets in both are the same. */
export function writeAscii(line: string): boolean {
  const before = written;
  written = MEMORY.write(line, 0, WRITTEN_MAX, 'utf8');
  // Otherwise, a loop that runs past the line would find an earlier one.
  if (written < before) BYTES.fill(0, written, before);
  return written === line.length;
}

/** Four bytes. */
export function wordAt(at: number): number {
  return VIEW.getInt32(at, true);
}

export function textBetween(start: number, end: number): string {
  return MEMORY.toString('latin1', start, end);
}

/** The offset after a value. A loop, because a value can be nested deeply. */
export function valueEnd(start: number): number {
  let depth = 0;
  /** The open containers, the innermost in the lowest bit: 1 for an object, 0 for a list. */
  let containers = 0;
  let at = start;
  for (;;) {
    const first = BYTES[at];
    if (first === QUOTE) {
      at = stringEnd(at + 1);
      if (at === UNUSUAL) return UNUSUAL;
    } else if (first === OPENING_BRACE || first === OPENING_BRACKET) {
      const isObject = first === OPENING_BRACE;
      if (BYTES[at + 1] === (isObject ? CLOSING_BRACE : CLOSING_BRACKET)) at += 2;
      else {
        if (++depth > DEPTH_MAX) return UNUSUAL;
        containers = (containers << 1) | (isObject ? 1 : 0);
        at = isObject ? nameEnd(at + 1) : at + 1;
        if (at === UNUSUAL) return UNUSUAL;
        continue;
      }
    } else {
      at = otherScalarEnd(at);
      if (at === UNUSUAL) return UNUSUAL;
    }
    while (depth > 0 && BYTES[at] !== COMMA) {
      if (BYTES[at++] !== ((containers & 1) === 1 ? CLOSING_BRACE : CLOSING_BRACKET)) return UNUSUAL;
      containers >>>= 1;
      depth--;
    }
    if (depth === 0) return at;
    at = (containers & 1) === 1 ? nameEnd(at + 1) : at + 1;
    if (at === UNUSUAL) return UNUSUAL;
  }
}

/** The offset after `"name":`. */
function nameEnd(start: number): number {
  if (BYTES[start] !== QUOTE) return UNUSUAL;
  const end = stringEnd(start + 1);
  return end !== UNUSUAL && BYTES[end] === COLON ? end + 1 : UNUSUAL;
}

/** The offset after the closing quote of a string whose text begins at `start`. */
export function stringEnd(start: number): number {
  let at = plainEnd(start);
  while (BYTES[at] === BACKSLASH) {
    at = escapeEnd(at + 1);
    if (at === UNUSUAL) return UNUSUAL;
    at = plainEnd(at);
  }
  return BYTES[at] === QUOTE ? at + 1 : UNUSUAL;
}

/** The offset of the next quote, backslash or control character. */
export function plainEnd(start: number): number {
  let at = start;
  for (;;) {
    const word = wordAt(at);
    const isPlain =
      ((word ^ QUOTES) + UNLESS_ZERO) &
      ((word ^ BACKSLASHES) + UNLESS_ZERO) &
      (word + UNLESS_CONTROL) &
      HIGH_BITS;
    if (isPlain !== HIGH_BITS) {
      const others = isPlain ^ HIGH_BITS;
      return at + ((31 - Math.clz32(others & -others)) >> 3);
    }
    at += 4;
  }
}

/** For each byte: whether it may follow a backslash, except `u`; and whether it is a hexadecimal digit. */
const IS_ESCAPED = bytesIn('"\\/bfnrt');
const IS_HEXADECIMAL = bytesIn('0123456789abcdefABCDEF');

function bytesIn(text: string): Uint8Array {
  const isIn = new Uint8Array(256);
  for (const byte of Buffer.from(text)) isIn[byte] = 1;
  return isIn;
}

function escapeEnd(start: number): number {
  const first = BYTES[start] ?? 0;
  if (first !== LETTER_U) return IS_ESCAPED[first] === 1 ? start + 1 : UNUSUAL;
  for (let i = 1; i <= 4; i++) if (IS_HEXADECIMAL[BYTES[start + i] ?? 0] === 0) return UNUSUAL;
  return start + 5;
}

/** The offset after a number, a boolean or null. */
function otherScalarEnd(start: number): number {
  const first = BYTES[start] ?? 0;
  if (first > NINE) return wordEnd(start);
  const integer = first === DASH ? start + 1 : start;
  let at = BYTES[integer] === ZERO ? integer + 1 : digitsEnd(integer);
  if (at !== UNUSUAL && BYTES[at] === DOT) at = digitsEnd(at + 1);
  if (at === UNUSUAL || ((BYTES[at] ?? 0) | CASE) !== LETTER_E) return at;
  const sign = BYTES[at + 1];
  return digitsEnd(sign === PLUS || sign === DASH ? at + 2 : at + 1);
}

const TRUE = Buffer.from('true').readInt32LE();
const NULL = Buffer.from('null').readInt32LE();
const FALS = Buffer.from('fals').readInt32LE();

function wordEnd(start: number): number {
  const word = wordAt(start);
  if (word === TRUE || word === NULL) return start + 4;
  return word === FALS && BYTES[start + 4] === LETTER_E ? start + 5 : UNUSUAL;
}

/** The offset after at least one digit. */
function digitsEnd(start: number): number {
  let at = start;
  while ((BYTES[at] ?? 0) >= ZERO && (BYTES[at] ?? 0) <= NINE) at++;
  return at === start ? UNUSUAL : at;
}
