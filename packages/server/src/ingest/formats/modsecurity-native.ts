/** Native audit log of ModSecurity 2 and 3: a record is a block of lines, in parts from A to Z. */
import { RULES_MAX } from '../../attack-details.ts';
import type { Rule } from '../categories/classify.ts';
import { dropped, parseRequestLine, type Reading, type Trait } from './format.ts';
import { parseRuleText } from './rules.ts';
import { parseCommonTime } from './timestamps.ts';

/** An unfinished block. Part of the reader's state, so it is plain data, and small. */
export interface NativeBlock {
  /** `--622ca252-` or `---PImuTN3y---`. */
  boundary: string;
  part: string;
  id: string;
  time: number | null;
  /** Whether the Stopwatch line has given the milliseconds. */
  timed?: boolean;
  host: string | null;
  rules: Rule[];
  source?: string;
  method?: string;
  url?: string;
  userAgent?: string;
  /** From the first line of part F. */
  status?: string;
  /** Undefined before part H. */
  blocked?: boolean;
  /** The first line of part A, which shows a person which record it is. */
  head?: string;
  /** Characters so far, most of them not kept. */
  length: number;
}

/** Version 2 writes eight hexadecimal digits, version 3 eight letters and digits. */
const BOUNDARY = /^(--[0-9a-f]{8}-|---[A-Za-z0-9]{8}---)([A-Z])--$/;

/** ModSecurity limits request bodies to 12.5 MiB: a larger block has lost its end. */
const BLOCK_LENGTH_MAX = 16 * 1_048_576;
const TEXT_LENGTH_MAX = 256;
/** More than is kept of a URL, in case it names the host or has secrets. */
const URL_LENGTH_MAX = 1_024;

/** Headers and bodies as sent: they may hold anything, even the boundary of another block. */
const BODY_PARTS = 'CDEGIJ';

/** Only lines in a block, and those that open one, are recognized. */
export const NATIVE_TRAITS: readonly Trait<string>[] = [
  ['boundary like --622ca252-A--', (line) => /^--+[A-Za-z0-9]+-+[A-Z]--$/.test(line)],
  ['part A before it', () => false],
];

/** Null for a line that does not begin part A. */
export function openBlock(line: string): NativeBlock | null {
  const [, boundary = '', part] = BOUNDARY.exec(line) ?? [];
  if (part !== 'A') return null;
  return { boundary, part: 'A', id: '', time: null, host: null, rules: [], length: 0 };
}

/**
 * Adds the next line of the log. `lost`: the line does not belong to the block, whose end is missing. Engines write the
 * head right after the first boundary; without it, the boundary was text in another log.
 */
export function addLine(block: NativeBlock, line: string): 'open' | 'complete' | 'lost' {
  block.length += line.length + 1;
  if (block.part === 'A' && block.time === null) {
    readHead(block, line);
    return block.time === null ? 'lost' : 'open';
  }
  const [, boundary, part = ''] = line.length < 32 ? (BOUNDARY.exec(line) ?? []) : [];
  if (boundary === block.boundary && part !== 'A') {
    block.part = part;
    if (part === 'H') block.blocked ??= false;
    return part === 'Z' ? 'complete' : 'open';
  }
  const isNewBlock = part === 'A' && !BODY_PARTS.includes(block.part);
  if (isNewBlock || block.length > BLOCK_LENGTH_MAX) return 'lost';
  if (block.part === 'B') readHeader(block, line);
  else if (block.part === 'F') block.status ??= /^HTTP\/[\d.]+ (\d{3})/.exec(line)?.[1] ?? '';
  else if (block.part === 'H') readTrailer(block, line);
  return 'open';
}

export function closeBlock(block: NativeBlock): Reading {
  const { id, time, host, rules, part, ...rest } = block;
  if (time === null) return dropped('bad_record');
  if (part !== 'Z' && rules.length === 0) return dropped('unfinished_record');
  const { blocked, source, method, url, status, userAgent } = rest;
  const details = { blocked, source, method, url, status, userAgent };
  return { kind: 'transaction', transaction: { id, time, host: host ?? undefined, rules, details } };
}

/** How a block begins. */
export function blockStart({ boundary, head = '' }: NativeBlock): string {
  return `${boundary}A-- ${head}`.trimEnd();
}

/** `[01/May/2018:08:05:00 +0200] WugN3pjbflCiqw4yEJ3nggAAAAk 172.16.0.2 22387 192.168.0.1 80` */
function readHead(block: NativeBlock, line: string): void {
  const end = line.indexOf('] ');
  if (!line.startsWith('[') || end === -1) return;
  block.head = line.slice(0, TEXT_LENGTH_MAX);
  block.time = parseCommonTime(line.slice(1, end));
  const [id = '', source = ''] = line.slice(end + 2).split(' ', 2);
  block.id = id.slice(0, TEXT_LENGTH_MAX);
  block.source = source.slice(0, TEXT_LENGTH_MAX);
}

function readHeader(block: NativeBlock, line: string): void {
  if (block.url === undefined) {
    const { method = '', url = '' } = parseRequestLine(line);
    block.method = method.slice(0, TEXT_LENGTH_MAX);
    block.url = url.slice(0, URL_LENGTH_MAX);
    return;
  }
  if (block.host === null && /^host:/i.test(line)) {
    block.host = line.slice('host:'.length).trim().slice(0, TEXT_LENGTH_MAX);
  } else if (/^user-agent:/i.test(line)) {
    block.userAgent ??= line.slice('user-agent:'.length).trim().slice(0, TEXT_LENGTH_MAX);
  }
}

/** Version 2 writes `Message: ..` (and repeats it as `Apache-Error: ..`), version 3 `ModSecurity: ..`. */
function readTrailer(block: NativeBlock, line: string): void {
  if (line.startsWith('Action: Intercepted')) block.blocked = true;
  if (line.startsWith('Stopwatch')) readStopwatch(block, line);
  if (!line.startsWith('Message: ') && !line.startsWith('ModSecurity: ')) return;
  const found = parseRuleText(line);
  if (found === null) return;
  const { rule } = found;
  if (rule.denied) block.blocked = true;
  const known = block.rules.filter(
    ({ id, denied, file }) => id === rule.id && denied === rule.denied && (id !== '' || file === rule.file),
  );
  const isNewVariable = !known.some(({ variable }) => variable === rule.variable);
  // Rules that matched many variables must not displace others.
  if (isNewVariable && block.rules.length < (known.length === 0 ? 2 * RULES_MAX : RULES_MAX))
    block.rules.push(rule);
}

/** Part A has whole seconds, taken when the record was written; a larger difference means another clock. */
const STOPWATCH_MS_MAX = 2_000;

/** `Stopwatch: 1794709245730812 2632 (- - -)`, also `Stopwatch2:`, begins with the start of the request in microseconds. */
function readStopwatch(block: NativeBlock, line: string): void {
  const micros = /^Stopwatch2?: (\d{16}) /.exec(line)?.[1];
  if (micros === undefined || block.time === null) return;
  const time = Math.floor(Number(micros) / 1_000);
  // Only the first line counts: the second must not move the time further from part A.
  if (!block.timed && Math.abs(time - block.time) <= STOPWATCH_MS_MAX) {
    block.time = time;
    block.timed = true;
  }
}
