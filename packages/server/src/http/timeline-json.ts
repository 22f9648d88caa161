/**
 * The bytes of a timeline's answer. Digits are written straight into a buffer: a day by minute is 91 KB of JSON,
 * and JSON.stringify of 2,880 small objects took longer than all else together (docs/decisions/0004).
 */
import type { Timeline } from '../statistics/statistics.ts';

const HEAD = Buffer.from('{"requests":[');
const BETWEEN = Buffer.from('],"attacks":[');
const TAIL = Buffer.from(']}');
const TIME = Buffer.from('{"time":');
const NUM = Buffer.from(',"num":');

/** `{"time":` and `,"num":` with at most 16 digits each, and `},`. */
const POINT_BYTES_MAX = TIME.length + NUM.length + 2 * 16 + 2;

export function timelineJson({ ends, requests, attacks }: Timeline): Buffer {
  const room = HEAD.length + BETWEEN.length + TAIL.length + 2 * ends.length * POINT_BYTES_MAX;
  const bytes = Buffer.allocUnsafe(room);
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
  const end =
    start +
    (value < 10 ? 1 : value < 100 ? 2 : value < 1_000 ? 3 : value < 10_000 ? 4 : value < 100_000 ? 5 : 6);
  let left = value;
  for (let i = end - 1; i >= start; i--) {
    const rest = (left / 10) | 0;
    bytes[i] = 0x30 + left - rest * 10;
    left = rest;
  }
  return end;
}
