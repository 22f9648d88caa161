/**
 * Serializes a timeline, four bytes at a time (docs/decisions/0012). A day by minute is 91 KB of JSON, which takes this
 * writer 40 to 120 us, string concatenation 400 us and JSON.stringify 1,200 us; the rest of the request takes 250 us.
 */
import type { Timeline } from '../../statistics/timeline.ts';

const HEAD = '{"requests":[';
const BETWEEN = '],"attacks":[';
const TAIL = ']}';

/** A point is `{"time":`, 13 digits, `,"num":`, the count and `},`: all but the count and the end are seven words. */
const POINT_HEAD_BYTES = 28;
const POINT_END_BYTES = 2;
const WORD_TI = word('{"ti');
const WORD_ME = word('me":');
const WORD_COMMA = word('0,"n');
const WORD_NUM = word('um":');
const POINT_END = 0x2c7d; // `},`

/** Four digits as a word: `PADDED[7]` is `0007`; `SHORT[7]` is `7` and three bytes that the next text overwrites. */
const PADDED = Int32Array.from({ length: 10_000 }, (_, value) => word(String(value).padStart(4, '0')));
const SHORT = Int32Array.from({ length: 10_000 }, (_, value) => word(String(value).padEnd(4, ' ')));

export function timelineJson(timeline: Timeline): Buffer {
  const { ends, requests, attacks } = timeline;
  const [first = 0, last = 0] = [ends[0], ends.at(-1)];
  // Times of 13 digits are those from 2001 to 2286.
  if (first < 1e12 || last >= 1e13) return stringify(timeline);
  const countsMax = Math.max(largest(requests), largest(attacks));
  const pointBytesMax = POINT_HEAD_BYTES + String(countsMax).length + POINT_END_BYTES;
  const bytes = Buffer.allocUnsafe(HEAD.length + BETWEEN.length + 2 * ends.length * pointBytesMax + 4);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const start = bytes.write(HEAD, 'latin1');
  // Each series ends with a comma, which the next text overwrites.
  const requestsEnd = writeSeries(view, start, ends, requests) - 1;
  const attacksStart = requestsEnd + bytes.write(BETWEEN, requestsEnd, 'latin1');
  let end: number;
  if (countsMax < 10) {
    // All points have the same length: copy the first series and replace the counts. This saves 7% of the request.
    bytes.copyWithin(attacksStart, start, requestsEnd);
    for (let i = 0, at = attacksStart + POINT_HEAD_BYTES; i < attacks.length; i++, at += pointBytesMax) {
      bytes[at] = 0x30 + (attacks[i] ?? 0);
    }
    end = attacksStart + requestsEnd - start;
  } else end = writeSeries(view, attacksStart, ends, attacks) - 1;
  return bytes.subarray(0, end + bytes.write(TAIL, end, 'latin1'));
}

function stringify({ ends, requests, attacks }: Timeline): Buffer {
  const series = (counts: Float64Array) => ends.map((time, i) => ({ time, num: counts[i] }));
  return Buffer.from(JSON.stringify({ requests: series(requests), attacks: series(attacks) }));
}

/** Returns the position after the last point. */
function writeSeries(view: DataView, start: number, ends: readonly number[], counts: Float64Array): number {
  let at = start;
  for (let i = 0; i < ends.length; i++) {
    writePointHead(view, at, ends[i] ?? 0);
    at = writeCount(view, at + POINT_HEAD_BYTES, counts[i] ?? 0);
    view.setInt16(at, POINT_END, true);
    at += POINT_END_BYTES;
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

/** A whole number below 2^53. Returns the position after it. */
function writeCount(view: DataView, at: number, count: number): number {
  if (count < 10_000) {
    view.setInt32(at, SHORT[count] ?? 0, true);
    return at + (count < 10 ? 1 : count < 100 ? 2 : count < 1_000 ? 3 : 4);
  }
  const high = Math.floor(count / 10_000);
  const end = writeCount(view, at, high);
  view.setInt32(end, PADDED[count - high * 10_000] ?? 0, true);
  return end + 4;
}

function largest(counts: Float64Array): number {
  let max = 0;
  for (let i = 0; i < counts.length; i++) max = Math.max(max, counts[i] ?? 0);
  return max;
}

/** Four ASCII characters, little endian, as it is written. A buffer for each would take 30 ms at start. */
function word(text: string): number {
  const byte = (i: number) => text.charCodeAt(i) << (8 * i);
  return byte(0) | byte(1) | byte(2) | byte(3);
}
