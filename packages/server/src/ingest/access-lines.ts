/**
 * Counts the access lines of a block by host and second from their bytes: creating a string is most of the cost of a line
 * (docs/decisions/0011). Takes only lines that reader.ts would certainly read as requests, and leaves all others to it.
 */
import { BYTES_MAX, PAGE_CODES } from '../event.ts';
import { HEAD_LENGTH_MAX } from './formats/access.ts';
import { type LogRecord, REQUEST_LENGTH_MAX, requestRecord } from './formats/format.ts';
import { COMMON_TIME_LENGTH, CommonTimeParser } from './formats/timestamps.ts';
import { lineEnd, Words } from './lines.ts';
import type { PageCounts, Paths } from './page-counts.ts';

const TAB = 0x09;
const HASH = 0x23;
const QUESTION_MARK = 0x3f;
const SPACE = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const DASH = 0x2d;
const SLASH = 0x2f;
const COLON = 0x3a;
const LESS_THAN = 0x3c;
const LETTER_T = 0x54;
const OPENING_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSING_BRACKET = 0x5d;

interface AccessLinesOptions {
  /** Lines with times outside this range are not taken. */
  earliest: number;
  latest: number;
  /** The host of lines that name none. */
  host: string | undefined;
  /** Called at the first line of a host. */
  onHost(host: string | undefined): void;
  pages: PageCounts;
}

/** Lines of one host within one second. */
interface HostLines {
  /** Where the first of them begins, with the name if they have one. */
  start: number;
  nameLength: number;
  host: string | undefined;
  time: number;
  /** Response codes, 0 for none, and how many lines have each. */
  codes: number[];
  counts: number[];
  bytesOut: number;
  /** The lists that got its last pages, by the position of the code in PAGE_CODES. */
  pages: (Paths | undefined)[];
}

export class AccessLines {
  readonly #words: Words;
  readonly #options: AccessLinesOptions;
  #hostless: HostLines | null = null;
  /** Lines by the hash of the host name. If several names have the same hash, only the first is here. */
  readonly #hosts = new Map<number, HostLines>();
  readonly #records: LogRecord[];
  readonly #commonTime = new CommonTimeParser();
  /** The time of the last parsed line, and its offset: consecutive lines often have the same time. */
  #time = Number.NaN;
  #timeAt = -1;
  /** Where the virtual host of the last parsed line begins and ends. Equal if it has none. */
  #hostStart = 0;
  #hostEnd = 0;
  /** The response code of the last parsed line, 0 for none; what was sent; and its request line. */
  #status = 0;
  #bytesOut = 0;
  #requestStart = 0;
  #requestEnd = 0;
  /** The number of lines taken. */
  taken = 0;

  /** Adds one record to `records` for the lines of one host and second. */
  constructor(bytes: Buffer, records: LogRecord[], options: AccessLinesOptions) {
    this.#words = new Words(bytes);
    this.#records = records;
    this.#options = options;
  }

  /** Takes lines up to the first that is not certainly an access line, and returns the offset of that line. */
  take(start: number): number {
    const { bytes } = this.#words;
    let at = start;
    while (at < bytes.length) {
      const end = lineEnd(bytes, at);
      if (!this.#tryParse(at, end)) break;
      const isHostless = this.#hostStart === this.#hostEnd;
      const lines = isHostless ? this.#linesWithoutHost() : this.#linesOf(this.#hostStart, this.#hostEnd);
      if (lines === null) break;
      if (lines.time !== this.#time) {
        this.#flush(lines);
        lines.time = this.#time;
      }
      this.#count(lines);
      this.taken++;
      at = end + 1;
    }
    return at;
  }

  #count(lines: HostLines): void {
    const { codes, counts } = lines;
    const status = this.#status;
    let i = 0;
    while (i < codes.length && codes[i] !== status) i++;
    if (i === codes.length) {
      codes.push(status);
      counts.push(1);
    } else counts[i] = (counts[i] ?? 0) + 1;
    lines.bytesOut += this.#bytesOut;
    if (status >= FIRST_PAGE_CODE && PAGE_CODES.includes(status)) this.#countPage(lines);
  }

  /** As `requestUrl` and `pageOf` of the formats. */
  #countPage(lines: HostLines): void {
    const { bytes } = this.#words;
    const end = Math.min(this.#requestEnd, this.#requestStart + REQUEST_LENGTH_MAX);
    let start = this.#requestStart;
    while (start < end && bytes[start] !== SPACE) start++;
    start++;
    let at = start;
    while (at < end && bytes[at] !== SPACE && bytes[at] !== QUESTION_MARK && bytes[at] !== HASH) at++;
    if (at <= start) return;
    const { pages } = this.#options;
    const list = PAGE_CODES.indexOf(this.#status);
    const paths = pages.open(lines.pages[list], lines.time, lines.host, undefined, this.#status);
    lines.pages[list] = paths;
    pages.addTo(paths, bytes.toString('latin1', start, at), 1);
  }

  /** Must be called after the last line. */
  end(): void {
    if (this.#hostless !== null) this.#flush(this.#hostless);
    for (const lines of this.#hosts.values()) this.#flush(lines);
  }

  /** Sets what is known about the line. False if the line must be parsed as text. */
  #tryParse(lineStart: number, end: number): boolean {
    const words = this.#words;
    const { bytes } = words;
    const start = bytes[lineStart] === QUOTE ? this.#afterQuoted(lineStart, end) : lineStart;
    if (start === -1) return false;
    // The first byte excludes JSON, brackets and audit blocks, the fifth error logs.
    if (!canStartField(bytes[start] ?? 0) || bytes[start + 4] === SLASH) return false;
    // CloudFront: a tab after a date, or after seconds or milliseconds.
    if (bytes[start + 10] === TAB || bytes[start + 13] === TAB) return false;
    // IIS: a space after a date.
    if (bytes[start + 10] === SPACE && bytes[start + 4] === DASH && bytes[start + 7] === DASH) return false;
    const client = words.wordEnd(start, end) + 1;
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
    const closing = opening + 1 + COMMON_TIME_LENGTH;
    const isTime =
      opening !== -1 &&
      closing + 2 < Math.min(end, lineStart + HEAD_LENGTH_MAX) &&
      bytes[closing] === CLOSING_BRACKET &&
      bytes[closing + 1] === SPACE &&
      bytes[closing + 2] === QUOTE;
    if (!isTime || !this.#parseTime(opening + 1) || !this.#parseResponse(closing + 3, end)) return false;
    // Like virtualHost() in access.ts: a dash follows the second field instead of the first, and another field follows it.
    const isPlain = isDash(bytes, client);
    const isHost = !isList && !isPlain && isDash(bytes, ident) && ident + 2 < opening;
    // No wrapper has a dash as its second field; mayBeHost excludes those with a dash as the third.
    if (!isPlain && !isHost && mayBeWrapped(bytes, start, client)) return false;
    // The name of a host is checked once, not in every line (#linesOf).
    if (!isHost && words.find(SPACE, start, end, OPENING_BRACKET) !== client - 1) return false;
    this.#hostStart = start;
    this.#hostEnd = isHost ? client - 1 : start;
    return true;
  }

  /** Where the line continues after a quoted header, or -1. A colon may follow a key of JSON; `::1` is an address. */
  #afterQuoted(start: number, end: number): number {
    const { bytes } = this.#words;
    const after = this.#words.find(QUOTE, start + 1, end, BACKSLASH) + 2;
    if (after === 1 || after >= end || bytes[after - 1] !== SPACE) return -1;
    return bytes[after] === COLON && bytes[after + 1] !== COLON ? -1 : after;
  }

  #parseTime(at: number): boolean {
    if (this.#timeAt !== -1 && this.#words.isSame(at, this.#timeAt, COMMON_TIME_LENGTH)) return true;
    const bytes = this.#words.bytes.subarray(at, at + COMMON_TIME_LENGTH);
    const time = this.#commonTime.parseAt(bytes.toString('latin1'), 0);
    if (time === null || time < this.#options.earliest || time > this.#options.latest) return false;
    this.#timeAt = at;
    this.#time = time;
    return true;
  }

  /** `start`: after the opening quote of the request. As `responseOf` of access.ts; false if that must find its end. */
  #parseResponse(start: number, end: number): boolean {
    const { bytes } = this.#words;
    let quote = this.#words.find(QUOTE, start, end, BACKSLASH);
    if (quote === -1) quote = closingQuote(bytes, start, end);
    if (quote === -1) return false;
    this.#requestStart = start;
    this.#requestEnd = quote;
    this.#status = 0;
    this.#bytesOut = 0;
    const hundreds = digitAt(bytes, quote + 2);
    const tens = digitAt(bytes, quote + 3);
    const ones = digitAt(bytes, quote + 4);
    if (quote + 5 > end || bytes[quote + 1] !== SPACE) return true;
    if (hundreds < 0 || tens < 0 || ones < 0) return bytes[quote + 2] !== DASH;
    if (quote + 5 < end && (bytes[quote + 5] ?? 0) > SPACE) return isAscii(bytes, quote + 5);
    if (hundreds >= 1 && hundreds <= 5) this.#status = 100 * hundreds + 10 * tens + ones;
    if (bytes[quote + 5] !== SPACE) return true;
    let at = quote + 6;
    let sent = 0;
    for (; at < end; at++) {
      const digit = digitAt(bytes, at);
      if (digit < 0) break;
      sent = 10 * sent + digit;
    }
    if (at < end && (bytes[at] ?? 0) > SPACE) return isAscii(bytes, at);
    if (at - quote - 6 <= BYTES_DIGITS_MAX && sent <= BYTES_MAX) this.#bytesOut = sent;
    return true;
  }

  #flush(lines: HostLines): void {
    const { time, host, codes, counts } = lines;
    if (codes.length === 0) return;
    const record = requestRecord(time, host);
    let count = counts[0] ?? 0;
    if (codes.length > 1) {
      const others: number[] = [];
      for (let i = 1; i < codes.length; i++) {
        others.push(codes[i] ?? 0, counts[i] ?? 0);
        count += counts[i] ?? 0;
      }
      record.otherCodes = others;
    }
    record.count = count;
    record.recordCount = count;
    if (codes[0] !== 0) record.status = codes[0];
    if (lines.bytesOut > 0) record.bytesOut = lines.bytesOut;
    this.#records.push(record);
    codes.length = 0;
    counts.length = 0;
    lines.bytesOut = 0;
  }

  #linesWithoutHost(): HostLines {
    this.#hostless ??= this.#open(0, 0, this.#options.host);
    return this.#hostless;
  }

  /**
   * Null for a host whose hash collides with that of another (by chance, or because an attacker wants to slow us down), or
   * whose name may be the beginning of a wrapper: checked here, once per host and not per line.
   */
  #linesOf(start: number, end: number): HostLines | null {
    const { hash } = this.#words;
    const known = this.#hosts.get(hash);
    if (known !== undefined) {
      const isSame = known.nameLength === end - start && this.#words.isSame(known.start, start, end - start);
      return isSame ? known : null;
    }
    const text = this.#words.bytes.toString('latin1', start, end);
    if (!mayBeHost(text)) return null;
    const lines = this.#open(start, end - start, text);
    this.#hosts.set(hash, lines);
    return lines;
  }

  #open(start: number, nameLength: number, host: string | undefined): HostLines {
    this.#options.onHost(host);
    return {
      start,
      nameLength,
      host,
      time: this.#time,
      codes: [],
      counts: [],
      bytesOut: 0,
      pages: [],
    };
  }
}

/** False for the start of `2026-07-01T12:00:00Z nginx: - ...` and `123 <165>1 - ...`, which unwrap.ts handles. */
function mayBeHost(name: string): boolean {
  return /^[!-Z\\-~]+$/.test(name) && !/^(?:\d+|\d{4}-\d\d-\d\dT.*)$/.test(name);
}

/** Names and addresses begin with a digit, a letter, `_` or `:`. */
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

const BYTES_DIGITS_MAX = 13;
const FIRST_PAGE_CODE = Math.min(...PAGE_CODES);

/** As `closingQuote` of json.ts: any client can send what servers escape. -1 also after a byte that is not ASCII. */
function closingQuote(bytes: Buffer, start: number, end: number): number {
  for (let at = start; at < end && isAscii(bytes, at); at++) {
    if (bytes[at] === QUOTE) return at;
    if (bytes[at] === BACKSLASH && !isAscii(bytes, ++at)) return -1;
  }
  return -1;
}

/** False for a byte that may belong to space at the end of the line. */
function isAscii(bytes: Buffer, at: number): boolean {
  return (bytes[at] ?? 0) < 0x80;
}

/** Less than 0 or more than 9 if the byte is no digit. */
function digitAt(bytes: Buffer, at: number): number {
  const digit = (bytes[at] ?? 0) - 0x30;
  return digit > 9 ? -1 : digit;
}

function isDash(bytes: Buffer, at: number): boolean {
  return bytes[at] === DASH && bytes[at + 1] === SPACE;
}
