/**
 * Parses access lines from their bytes: creating a string is most of the cost of a line (docs/decisions/0011). Accepts
 * only lines that reader.ts would certainly read as requests, and leaves all others to it.
 */
import { Words } from '../lines.ts';
import { CommonTimeParser } from './timestamps.ts';

/** `10/Dec/2025:09:25:32 +0000` */
const TIME_LENGTH = 26;

const TAB = 0x09;
const SPACE = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const DASH = 0x2d;
const SLASH = 0x2f;
const LESS_THAN = 0x3c;
const LETTER_T = 0x54;
const OPENING_BRACKET = 0x5b;
const CLOSING_BRACKET = 0x5d;

export class AccessBytes {
  readonly #words: Words;
  readonly #earliest: number;
  readonly #latest: number;
  readonly #commonTime = new CommonTimeParser();
  /** The last time as bytes: consecutive lines often have the same. */
  #lastTimeBytes: Words | null = null;
  #lastTime = 0;
  /** The time of the last parsed line. */
  time = 0;
  /** Where its virtual host ends; where the line begins if it has none. */
  hostEnd = 0;

  /** Lines with times outside of this range are not parsed. */
  constructor(words: Words, earliest: number, latest: number) {
    this.#words = words;
    this.#earliest = earliest;
    this.#latest = latest;
  }

  /** Sets `time` and `hostEnd`. False if the line must be parsed as text. */
  tryParse(start: number, end: number): boolean {
    const words = this.#words;
    const { bytes } = words;
    // The first byte excludes JSON, brackets and audit blocks, the fifth error logs.
    if (!canStartField(bytes[start] ?? 0) || bytes[start + 4] === SLASH) return false;
    // CloudFront: a tab after a date, or after seconds or milliseconds.
    if (bytes[start + 10] === TAB || bytes[start + 13] === TAB) return false;
    const client = words.find(SPACE, start, end, OPENING_BRACKET) + 1;
    // AWS load balancers: the second field is a date.
    if (client === 0 || (bytes[client + 10] === LETTER_T && bytes[client + 4] === DASH)) return false;
    let ident = words.find(SPACE, client, end, OPENING_BRACKET) + 1;
    if (ident === 0) return false;
    // The client may be a list of addresses from X-Forwarded-For.
    const isList = bytes[client - 2] === COMMA;
    while (!isList && bytes[ident - 2] === COMMA) {
      ident = words.find(SPACE, ident, end, OPENING_BRACKET) + 1;
      if (ident === 0) return false;
    }
    const opening = words.find(OPENING_BRACKET, ident, end, OPENING_BRACKET);
    const closing = opening + 1 + TIME_LENGTH;
    const isTime =
      opening !== -1 &&
      closing + 2 < end &&
      bytes[closing] === CLOSING_BRACKET &&
      bytes[closing + 1] === SPACE &&
      bytes[closing + 2] === QUOTE;
    if (!isTime || !this.#parseTime(opening + 1)) return false;
    // As virtualHost() in access.ts: a dash follows the second field instead of the first, and another field follows it.
    const isPlain = isDash(bytes, client);
    const isHost = !isList && !isPlain && isDash(bytes, ident) && ident + 2 < opening;
    // No wrapper has a dash as its second field; mayBeHost excludes those with a dash as the third.
    if (!isPlain && !isHost && mayBeWrapped(bytes, start, client)) return false;
    this.hostEnd = isHost ? client - 1 : start;
    return true;
  }

  #parseTime(at: number): boolean {
    if (this.#lastTimeBytes === null || !this.#words.equalsAt(this.#lastTimeBytes, at)) {
      const text = this.#words.bytes.subarray(at, at + TIME_LENGTH);
      const time = this.#commonTime.parseAt(text.toString('latin1'), 0);
      if (time === null || time < this.#earliest || time > this.#latest) return false;
      this.#lastTimeBytes = new Words(text);
      this.#lastTime = time;
    }
    this.time = this.#lastTime;
    return true;
  }
}

/** False for the start of `2026-07-01T12:00:00Z nginx: - ...` and `123 <165>1 - ...`, which unwrap.ts handles. */
export function mayBeHost(name: string): boolean {
  return !/^(?:\d+|\d{4}-\d\d-\d\dT.*)$/.test(name);
}

/** Digits, letters, and what else names and addresses may begin with: `_` and `:`. */
function canStartField(byte: number): boolean {
  return (
    byte >= 0x30 && byte <= 0x7a && byte !== LESS_THAN && byte !== OPENING_BRACKET && byte !== CLOSING_BRACKET
  );
}

/** `Nov 15 12:02:15 ...`, `web-1  | ...`, `2026-07-01T12:00:00Z ...`, `123 <165>...` */
function mayBeWrapped(bytes: Buffer, start: number, client: number): boolean {
  const next = bytes[client];
  return next === SPACE || next === LESS_THAN || bytes[start + 3] === SPACE || bytes[start + 10] === LETTER_T;
}

function isDash(bytes: Buffer, at: number): boolean {
  return bytes[at] === DASH && bytes[at + 1] === SPACE;
}
