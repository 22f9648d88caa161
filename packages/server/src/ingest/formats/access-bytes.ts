/**
 * Access lines told from their bytes: to make a string of each line is most of what one costs. Only a line that
 * reader.ts would take for a request with certainty is told here, and any other is left to it.
 */
import { Words } from '../lines.ts';
import { LogClock } from './log-clock.ts';

/** `10/Dec/2025:09:25:32 +0000` */
const STAMP_LENGTH = 26;

const TAB = 0x09;
const SPACE = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const LESS = 0x3c;
const DASH = 0x2d;
const SLASH = 0x2f;
const LETTER_T = 0x54;
const OPENING = 0x5b;
const CLOSING = 0x5d;

export class AccessBytes {
  readonly #words: Words;
  readonly #earliest: number;
  readonly #latest: number;
  readonly #clock = new LogClock();
  /** The last time as it was written: the same in many lines one after the other. */
  #stamp: Words | null = null;
  #stampTime = 0;
  /** Of the line that was told last. */
  time = 0;
  /** Where the virtual host in front of it ends; when there is none, where the line begins. */
  hostEnd = 0;

  /** Lines of times outside of these are not told. */
  constructor(words: Words, earliest: number, latest: number) {
    this.#words = words;
    this.#earliest = earliest;
    this.#latest = latest;
  }

  /** Whether the line at this place is an access line, and can be told. */
  tell(start: number, end: number): boolean {
    const words = this.#words;
    const { bytes } = words;
    // Lines of other logs: by their first character JSON, brackets and audit blocks, by their fifth error logs.
    if (!beginsField(bytes[start] ?? 0) || bytes[start + 4] === SLASH) return false;
    // By the tab behind a date or a count of seconds or milliseconds, CloudFront.
    if (bytes[start + 10] === TAB || bytes[start + 13] === TAB) return false;
    const client = words.find(SPACE, start, end, OPENING) + 1;
    // By the date in the second place, load balancers of AWS.
    if (client === 0 || (bytes[client + 10] === LETTER_T && bytes[client + 4] === DASH)) return false;
    let ident = words.find(SPACE, client, end, OPENING) + 1;
    if (ident === 0) return false;
    // Addresses out of X-Forwarded-For, in the place of the client.
    const isList = bytes[client - 2] === COMMA;
    while (!isList && bytes[ident - 2] === COMMA) {
      ident = words.find(SPACE, ident, end, OPENING) + 1;
      if (ident === 0) return false;
    }
    const opening = words.find(OPENING, ident, end, OPENING);
    const closing = opening + 1 + STAMP_LENGTH;
    const isTime =
      opening !== -1 &&
      closing + 2 < end &&
      bytes[closing] === CLOSING &&
      bytes[closing + 1] === SPACE &&
      bytes[closing + 2] === QUOTE;
    if (!isTime || !this.#readTime(opening + 1)) return false;
    // As in access.ts: the dash does not follow the first field but the client, and another field follows it.
    const isPlain = isDash(bytes, client);
    const isHost = !isList && !isPlain && isDash(bytes, ident) && ident + 2 < opening;
    // No wrapper has a dash in the second place; mayBeHost recognizes those with a dash in the third.
    if (!isPlain && !isHost && mayBeWrapped(bytes, start, client)) return false;
    this.hostEnd = isHost ? client - 1 : start;
    return true;
  }

  #readTime(at: number): boolean {
    if (this.#stamp === null || !this.#words.equalsAt(this.#stamp, at)) {
      const text = this.#words.bytes.subarray(at, at + STAMP_LENGTH);
      const time = this.#clock.read(text.toString('latin1'), 0);
      if (time === null || time < this.#earliest || time > this.#latest) return false;
      this.#stamp = new Words(text);
      this.#stampTime = time;
    }
    this.time = this.#stampTime;
    return true;
  }
}

/** Not of `2026-07-01T12:00:00Z nginx: - ...` or `123 <165>1 - ...`, which unwrap.ts knows. */
export function mayBeHost(name: string): boolean {
  return !/^(?:\d+|\d{4}-\d\d-\d\dT.*)$/.test(name);
}

/** From the digits to the letters, with what names and addresses may begin with between them: `_` and `:`. */
function beginsField(byte: number): boolean {
  return byte >= 0x30 && byte <= 0x7a && byte !== LESS && byte !== OPENING && byte !== CLOSING;
}

/** `Nov 15 12:02:15 ...`, `web-1  | ...`, `2026-07-01T12:00:00Z ...`, `123 <165>...`: unwrap.ts knows what it is. */
function mayBeWrapped(bytes: Buffer, start: number, client: number): boolean {
  const next = bytes[client];
  return next === SPACE || next === LESS || bytes[start + 3] === SPACE || bytes[start + 10] === LETTER_T;
}

function isDash(bytes: Buffer, at: number): boolean {
  return bytes[at] === DASH && bytes[at + 1] === SPACE;
}
