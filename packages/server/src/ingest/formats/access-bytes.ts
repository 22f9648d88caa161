/**
 * Access lines told from their bytes: to make a string of each line is most of what one costs. Only a line that
 * reader.ts would take for a request with certainty is told here, and any other is left to it.
 */
import { Words } from '../words.ts';
import { LogClock } from './log-clock.ts';

/** `10/Dec/2025:09:25:32 +0000` */
const STAMP_LENGTH = 26;

const SPACE = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const LESS = 0x3c;
const CAPITAL_T = 0x54;
const DASH = 0x2d;
const SLASH = 0x2f;
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
    const client = words.find(SPACE, start, end, OPENING) + 1;
    if (client === 0) return false;
    const ident = words.find(SPACE, client, end, OPENING) + 1;
    if (ident === 0) return false;
    const opening = words.find(OPENING, ident, end, OPENING);
    const closing = opening + 1 + STAMP_LENGTH;
    const isTime =
      opening !== -1 &&
      closing + 2 < end &&
      bytes[closing] === CLOSING &&
      bytes[closing + 1] === SPACE &&
      bytes[closing + 2] === QUOTE;
    if (!isTime || !this.#readTime(opening + 1)) return false;
    // As in access.ts: when the dash is not in the second place but in the third, and there is a fourth.
    const isPlain = isDash(bytes, client);
    const isHost = !isPlain && isDash(bytes, ident) && ident + 2 < opening;
    if (!isPlain && mayBeWrapped(bytes, start, client, isHost)) return false;
    this.hostEnd = isHost && bytes[client - 2] !== COMMA ? client - 1 : start;
    return true;
  }

  #readTime(at: number): boolean {
    if (this.#stamp === null || !this.#words.holds(this.#stamp, at)) {
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

/** From the digits to the letters, with what names and addresses may begin with between them: `_` and `:`. */
function beginsField(byte: number): boolean {
  return byte >= 0x30 && byte <= 0x7a && byte !== LESS && byte !== OPENING && byte !== CLOSING;
}

/**
 * The prefixes of unwrap.ts, as far as they get here: no wrapper has a dash in the second place, and with one in the
 * third it is `2026-07-01T12:00:00Z nginx: -` or `123 <165>1 -`. The others are `Nov 15 12:02:15`, and two spaces as in
 * `web-1  | `. The reader decides; a host that looks like one of them only takes longer.
 */
function mayBeWrapped(bytes: Buffer, start: number, client: number, isHost: boolean): boolean {
  if (bytes[start + 4] === DASH && bytes[start + 10] === CAPITAL_T) return true;
  return bytes[client] === LESS || (!isHost && (bytes[client] === SPACE || bytes[start + 3] === SPACE));
}

function isDash(bytes: Buffer, at: number): boolean {
  return bytes[at] === DASH && bytes[at + 1] === SPACE;
}
