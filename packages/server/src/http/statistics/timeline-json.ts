/**
 * The bytes of a timeline's answer. Digits are written straight into a buffer: a day by minute is 91 KB of JSON,
 * and JSON.stringify of 2,880 small objects took longer than all else together (docs/decisions/0004). There are two
 * ways to write it: point by point, byte by byte, for any numbers; and by words of four bytes, which is five times
 * faster (docs/decisions/0012), for times of 13 digits, which are those from 2001 to 2286.
 */
import type { Timeline } from '../../statistics/statistics.ts';

/** `allocate` makes room for the answer: at least so many bytes. */
export function timelineJson(timeline: Timeline, allocate: Allocate = Buffer.allocUnsafe): Buffer {
  const { ends } = timeline;
  const [first = 0, last = 0] = [ends[0], ends[ends.length - 1]];
  const write = first >= 1e12 && last < 1e13 ? timelineByWords : timelineByBytes;
  return write(timeline, allocate);
}

export type Allocate = (bytes: number) => Buffer;

const HEAD = Buffer.from('{"requests":[');
const BETWEEN = Buffer.from('],"attacks":[');
const TAIL = Buffer.from(']}');
const TIME = Buffer.from('{"time":');
const NUM = Buffer.from(',"num":');

/** `{"time":` and `,"num":` with at most 16 digits each, and `},`. */
const POINT_BYTES_MAX = TIME.length + NUM.length + 2 * 16 + 2;

export function timelineByBytes(
  { ends, requests, attacks }: Timeline,
  allocate: Allocate = Buffer.allocUnsafe,
): Buffer {
  const room = HEAD.length + BETWEEN.length + TAIL.length + 2 * ends.length * POINT_BYTES_MAX;
  const bytes = allocate(room);
  let at = writeText(bytes, 0, HEAD);
  at = writeSeries(bytes, at, ends, requests);
  at = writeText(bytes, at, BETWEEN);
  at = writeSeries(bytes, at, ends, attacks);
  at = writeText(bytes, at, TAIL);
  return bytes.subarray(0, at);
}

function writeSeries(bytes: Buffer, start: number, ends: readonly number[], counts: Float64Array): number {
  let at = start;
  for (let i = 0; i < ends.length; i++) {
    if (i > 0) bytes[at++] = 0x2c;
    at = writeText(bytes, at, TIME);
    at = writeDigits(bytes, at, ends[i] ?? 0);
    at = writeText(bytes, at, NUM);
    at = writeDigits(bytes, at, counts[i] ?? 0);
    bytes[at++] = 0x7d;
  }
  return at;
}

/** A loop, because for a few bytes it is faster than a call of Buffer.copy. */
function writeText(bytes: Buffer, start: number, text: Buffer): number {
  let at = start;
  for (let i = 0; i < text.length; i++) bytes[at++] = text[i] ?? 0;
  return at;
}

const MILLION = 1_000_000;

/** A whole number from 0 to 2^53 - 1. Split in two, because integer arithmetic stops being fast beyond 2^31. */
export function writeDigits(bytes: Buffer, start: number, value: number): number {
  if (value < MILLION) return writeSmall(bytes, start, value);
  const high = Math.floor(value / MILLION);
  const at = writeDigits(bytes, start, high);
  let low = value - high * MILLION;
  for (let i = at + 5; i >= at; i--) {
    const rest = (low / 10) | 0;
    bytes[i] = 0x30 + low - rest * 10;
    low = rest;
  }
  return at + 6;
}

function writeSmall(bytes: Buffer, start: number, value: number): number {
  const end = start + digitsOf(value);
  let left = value;
  for (let i = end - 1; i >= start; i--) {
    const rest = (left / 10) | 0;
    bytes[i] = 0x30 + left - rest * 10;
    left = rest;
  }
  return end;
}

/** Of a number below a million. */
function digitsOf(value: number): number {
  return value < 10 ? 1 : value < 100 ? 2 : value < 1_000 ? 3 : value < 10_000 ? 4 : value < 100_000 ? 5 : 6;
}

/** `{"time":`, 13 digits and `,"num":` are seven words, whose first, second and last are always the same. */
const WORD_TI = word('{"ti');
const WORD_ME = word('me":');
const WORD_COMMA = word('0,"n');
const WORD_NUM = word('um":');
const WORD_ZERO = word('0},{');
const POINT_HEAD_BYTES = 28;
/** A point with a count of one digit: the head, the digit, and `},`. */
const EVEN_POINT_BYTES = POINT_HEAD_BYTES + 3;
const CLOSE = 0x2c7d; // `},`

/** Four digits as a word: `PADDED[7]` is `0007`, `SHORT[7]` is `7` and three bytes that the next text overwrites. */
const PADDED = Int32Array.from({ length: 10_000 }, (_, value) => word(String(value).padStart(4, '0')));
const SHORT = Int32Array.from({ length: 10_000 }, (_, value) => word(String(value).padEnd(4, ' ')));

/**
 * Every point ends with a comma, of which the last is then overwritten. Counts of one digit, as those of attacks mostly
 * are, make points of even length: a series of them is a copy of the other, with other digits in the same places.
 */
export function timelineByWords(
  { ends, requests, attacks }: Timeline,
  allocate: Allocate = Buffer.allocUnsafe,
): Buffer {
  const requestsMost = largest(requests);
  const attacksMost = largest(attacks);
  const points = 2 * POINT_HEAD_BYTES + String(requestsMost).length + String(attacksMost).length + 4;
  const bytes = allocate(HEAD.length + ends.length * points + BETWEEN.length + TAIL.length + 4);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const start = writeText(bytes, 0, HEAD);
  const end =
    requestsMost < 10
      ? writeEvenSeries(view, bytes, start, ends, requests)
      : writeUnevenSeries(view, bytes, start, ends, requests);
  let at = writeText(bytes, end - 1, BETWEEN);
  if (attacksMost >= 10) at = writeUnevenSeries(view, bytes, at, ends, attacks);
  else if (requestsMost >= 10) at = writeEvenSeries(view, bytes, at, ends, attacks);
  else {
    bytes.copyWithin(at, start, end - 1);
    at = writeEvenCounts(bytes, at, attacks);
  }
  at = writeText(bytes, at - 1, TAIL);
  return bytes.subarray(0, at);
}

function writeEvenSeries(
  view: DataView,
  bytes: Buffer,
  start: number,
  ends: readonly number[],
  counts: Float64Array,
): number {
  let at = start;
  for (let i = 0; i < ends.length; i++) {
    writePointHead(view, at, ends[i] ?? 0);
    view.setInt32(at + POINT_HEAD_BYTES, WORD_ZERO, true);
    at += EVEN_POINT_BYTES;
  }
  return writeEvenCounts(bytes, start, counts);
}

function writeEvenCounts(bytes: Buffer, start: number, counts: Float64Array): number {
  let at = start + POINT_HEAD_BYTES;
  for (let i = 0; i < counts.length; i++) {
    bytes[at] = 0x30 + (counts[i] ?? 0);
    at += EVEN_POINT_BYTES;
  }
  return at - POINT_HEAD_BYTES;
}

function writeUnevenSeries(
  view: DataView,
  bytes: Buffer,
  start: number,
  ends: readonly number[],
  counts: Float64Array,
): number {
  let at = start;
  for (let i = 0; i < ends.length; i++) {
    const count = counts[i] ?? 0;
    writePointHead(view, at, ends[i] ?? 0);
    at += POINT_HEAD_BYTES;
    if (count < 10_000) {
      view.setInt32(at, SHORT[count] ?? 0, true);
      at += digitsOf(count);
    } else at = writeDigits(bytes, at, count);
    view.setInt16(at, CLOSE, true);
    at += 2;
  }
  return at;
}

/** 13 digits are 4, 4, 4 and 1. */
function writePointHead(view: DataView, at: number, end: number): void {
  const high = Math.floor(end / 100_000);
  const low = end - high * 100_000;
  const first = (high / 10_000) | 0;
  const third = (low / 10) | 0;
  view.setInt32(at, WORD_TI, true);
  view.setInt32(at + 4, WORD_ME, true);
  view.setInt32(at + 8, PADDED[first] ?? 0, true);
  view.setInt32(at + 12, PADDED[high - first * 10_000] ?? 0, true);
  view.setInt32(at + 16, PADDED[third] ?? 0, true);
  view.setInt32(at + 20, WORD_COMMA + low - third * 10, true);
  view.setInt32(at + 24, WORD_NUM, true);
}

function largest(counts: Float64Array): number {
  let most = 0;
  for (let i = 0; i < counts.length; i++) {
    const count = counts[i] ?? 0;
    if (count > most) most = count;
  }
  return most;
}

/** Little endian, as it is written. */
function word(text: string): number {
  return Buffer.from(text).readInt32LE();
}
