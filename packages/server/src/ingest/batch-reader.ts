/** From log lines to records: parse, check the time, and count what is dropped, with a named reason. */
import { applyPrivacy, type Privacy } from '../attack-details.ts';
import { copyOf } from '../copy-of.ts';
import type { Category, DropReason } from '../event.ts';
import { dropExample } from '../secrets.ts';
import type { DropExample } from '../store/store.ts';
import { AccessLines } from './access-lines.ts';
import { LOG_KINDS, type LogRecord, type Parsed } from './formats/format.ts';
import { endsWithLineEnd, type Line, LineBlock, lineEnd, lineText } from './lines.ts';
import { PageCounts } from './page-counts.ts';
import { createReader, type LineReader } from './reader.ts';

/** Allows for wrong clocks and time zones. */
const FUTURE_MS_MAX = 24 * 3_600_000;

/** The first dropped lines are shown to the user, cut short. */
export const FIRST_DROPS_MAX = 10;
const DROP_EXCERPT_LENGTH_MAX = 200;

export interface Drop {
  /** If the record was complete only at the end of the lines: the last of them; 0 if that is unknown. */
  line: number;
  reason: DropReason;
  /** The line, or the start of a record of several lines; '' at the end of the lines. */
  text: string;
}

export interface TimeSpan {
  first: number;
  last: number;
}

/** The result of one batch of lines. */
export interface Outcome {
  accepted: number;
  dropped: Partial<Record<DropReason, number>>;
  first_drops: Drop[];
  /** The times of the first and the last of the events that are too old; absent if there are none. */
  old_times?: TimeSpan | undefined;
  /** The time of the first event that is in the future; absent if there is none. */
  future_time?: number | undefined;
  /** Whether a line that was dropped for another reason has a time that would count. */
  dropped_in_time?: boolean | undefined;
  /** Accepted records by format. A format whose records have wrong times only is present, with 0. */
  formats: Record<string, number>;
  /** What the records count, which can be more than one request or attack each. */
  requests: number;
  attacks: Partial<Record<Category, number>>;
  /** Attacks from logs of ModSecurity or Coraza whose request has no ID: another log of the same traffic counts them again. */
  without_id: number;
  /** Accepted records without a registered host: they count in the project's total only. */
  without_host: number;
  /** Those of `without_host` that name one: the project is at its limit of hosts, or registers none from logs. */
  unregistered_host: number;
}

/** Lines that have been parsed, but not counted yet. */
export interface ReadLines {
  records: LogRecord[];
  outcome: Outcome;
  /** The beginning of the first dropped line, by reason. Empty if client addresses are reduced or not kept. */
  examples: Partial<Record<DropReason, DropExample>>;
  /** The host names in the lines: one copy of each (ownCopy). */
  hosts: Map<string, string>;
  pages: PageCounts;
  /** The number of line ends if the lines were a LineBlock, otherwise 0. */
  lineEnds: number;
}

/**
 * Which pending records of the reader to count as well: all, those without a line for OPEN_MS_MAX (`aged`), all except
 * parts of lines, whose rest may come in the next request (`request`), or all except parts of lines and native blocks,
 * whose rest may still be written (`file`).
 */
type Flush = 'all' | 'aged' | 'request' | 'file' | 'nothing';

/** What affects the reading of lines besides the reader and the time. */
export interface ReadLimits extends Privacy {
  retentionMs: number;
  /** Earlier events are dropped, too: the store would not count them. */
  horizon?: number | undefined;
}

export class BatchReader {
  readonly #limits: ReadLimits;
  readonly now: () => number;

  constructor(limits: ReadLimits, now: () => number) {
    this.#limits = limits;
    this.now = now;
  }

  /** `linesBefore`: how many lines came before, for the number of records that end with an earlier line. */
  read(lines: Iterable<Line>, reader: LineReader, flush: Flush, linesBefore = 0): ReadLines {
    const steps = this.readInSteps(lines, reader, flush, linesBefore);
    for (;;) {
      const step = steps.next();
      if (step.done) return step.value;
    }
  }

  /** Like `read`, but yields after some lines, so that other work can run in between. */
  *readInSteps(
    lines: Iterable<Line>,
    reader: LineReader,
    flush: Flush,
    linesBefore = 0,
  ): Generator<void, ReadLines> {
    const now = this.now();
    const read: ReadLines = {
      records: [],
      outcome: emptyOutcome(),
      examples: {},
      hosts: new Map(),
      pages: new PageCounts(),
      lineEnds: 0,
    };
    let last = linesBefore;
    if (lines instanceof LineBlock) last = yield* this.#readBlock(lines, reader, read, now);
    else {
      for (const line of lines) {
        this.#readLine(line, reader, read, now);
        last = line.number;
      }
    }
    for (const parsed of flushed(reader, flush, now)) this.#add(read, parsed, last, '', now);
    return read;
  }

  /** Whether `read` with `aged` returns records even without new lines. */
  hasAged(reader: LineReader): boolean {
    const now = this.now();
    return reader.hasPending(now - OPEN_MS_MAX, now);
  }

  #readLine({ number, text }: Line, reader: LineReader, read: ReadLines, now: number): void {
    for (const parsed of reader.read(text, now)) this.#add(read, parsed, number, text ?? '', now);
  }

  /**
   * The same result as line by line, but most access lines are counted from their bytes, which is far faster. Returns the
   * number of the last line that is not blank.
   */
  *#readBlock(
    { bytes, first }: LineBlock,
    reader: LineReader,
    read: ReadLines,
    now: number,
  ): Generator<void, number> {
    const { records, outcome, hosts, pages } = read;
    const access = new AccessLines(bytes, records, {
      earliest: this.#earliest(now),
      latest: now + FUTURE_MS_MAX,
      host: reader.host,
      onHost(host) {
        // In the order of the lines, because the first hosts are registered and the first format is shown first.
        if (host !== undefined) hosts.set(host, host);
        outcome.formats.access ??= 0;
      },
      pages,
    });
    let others = 0;
    let last = first - 1;
    let stepLines = 0;
    let stepStart = 0;
    for (let start = 0; start < bytes.length; ) {
      if (++stepLines > STEP_LINES_MAX || start - stepStart > STEP_BYTES_MAX) {
        stepLines = 0;
        stepStart = start;
        yield;
      }
      const { taken } = access;
      if (reader.takesAccess()) start = access.take(start);
      if (access.taken > taken) last = first + access.taken + others - 1;
      if (start >= bytes.length) break;
      const end = lineEnd(bytes, start);
      const text = lineText(bytes, start, end);
      if (text.length > 0) {
        last = first + access.taken + others;
        this.#readLine({ number: last, text }, reader, read, now);
      }
      others++;
      start = end + 1;
    }
    access.end();
    if (access.taken > 0) outcome.formats.access = (outcome.formats.access ?? 0) + access.taken;
    outcome.requests += access.taken;
    // Counting them once more would take a sixth of the time of an access line.
    const lines = access.taken + others;
    read.lineEnds = lines > 0 && !endsWithLineEnd(bytes) ? lines - 1 : lines;
    return last;
  }

  #add(
    { records, outcome, examples, hosts, pages }: ReadLines,
    parsed: Parsed,
    line: number,
    lastLine: string,
    now: number,
  ): void {
    const reason = parsed.kind === 'dropped' ? parsed.reason : this.timeReason(parsed.record.time, now);
    const text = parsed.start ?? lastLine;
    if (reason !== null) {
      if (parsed.kind === 'record') {
        outcome.formats[parsed.format] ??= 0;
        if (reason === 'too_old') outcome.old_times = spanWith(outcome.old_times, parsed.record.time);
        else outcome.future_time ??= parsed.record.time;
      } else if (parsed.time !== undefined && this.timeReason(parsed.time, now) === null)
        outcome.dropped_in_time = true;
      outcome.dropped[reason] = (outcome.dropped[reason] ?? 0) + 1;
      if (text !== '' && this.keepsExamples())
        examples[reason] ??= { text: copyOf(dropExample(text)), time: now };
      // Copies: chunks that wait for a line in time keep them, and a substring would keep its whole line in memory.
      if (outcome.first_drops.length < FIRST_DROPS_MAX)
        outcome.first_drops.push({ line, reason, text: copyOf(text.slice(0, DROP_EXCERPT_LENGTH_MAX)) });
    } else if (parsed.kind === 'record') {
      const { record, format } = parsed;
      record.host = record.hostId === undefined ? ownCopy(record.host, hosts) : undefined;
      if (record.details !== undefined) applyPrivacy(record.details, this.#limits);
      const { status, page } = record;
      if (status !== undefined && page !== undefined) {
        pages.add({ ...record, status, page });
        record.page = undefined;
      }
      records.push(record);
      outcome.formats[format] = (outcome.formats[format] ?? 0) + 1;
      const { request, attack, count } = record;
      if (request) outcome.requests += count;
      if (attack === null) return;
      outcome.attacks[attack] = (outcome.attacks[attack] ?? 0) + count;
      // Only transactions have a decision: lines of `limit_req` and NAXSI never have an ID.
      const needsId = record.decision !== undefined && LOG_KINDS[format] !== undefined;
      if (record.flagged === undefined && needsId) outcome.without_id += count;
    }
  }

  /** Dropped lines contain client addresses, which cannot be removed reliably. */
  keepsExamples(): boolean {
    return (this.#limits.attackSources ?? 'full') === 'full';
  }

  /** Why a record with this time does not count. */
  timeReason(time: number, now: number): 'too_old' | 'in_future' | null {
    if (time < this.#earliest(now)) return 'too_old';
    return time > now + FUTURE_MS_MAX ? 'in_future' : null;
  }

  #earliest(now: number): number {
    const { retentionMs, horizon } = this.#limits;
    return Math.max(now - retentionMs, horizon ?? Number.NEGATIVE_INFINITY);
  }
}

/** How much of a file shows what it is. */
export const FIRST_BYTES = 65_536;
const FIRST_LINES = 100;

/** Whether a file is an error log, by its first bytes. */
export function isErrorLog(start: Buffer): boolean {
  const reader = createReader({ format: 'auto' });
  const lines = start.toString('latin1', 0, FIRST_BYTES).split('\n').slice(0, FIRST_LINES);
  const parsed = [...lines.flatMap((line) => reader.read(line, 0)), ...reader.flush()];
  return parsed.some(({ format }) => LOG_KINDS[format] === 'error log');
}

export function spanWith(span: TimeSpan | undefined, time: number): TimeSpan {
  return { first: Math.min(span?.first ?? time, time), last: Math.max(span?.last ?? time, time) };
}

/** How much is read between two `yield`s: a millisecond of work, unless one line takes longer. */
const STEP_LINES_MAX = 256;
const STEP_BYTES_MAX = 16_384;

/** While a file is followed, the lines of one request arrive within this time. */
const OPEN_MS_MAX = 400;

function flushed(reader: LineReader, flush: Flush, now: number): Parsed[] {
  switch (flush) {
    case 'all':
      return reader.flush();
    case 'aged':
      return reader.flush(now - OPEN_MS_MAX, { now });
    case 'request':
      return reader.flush(undefined, { partsBefore: now });
    case 'file':
      return reader.flush(undefined, {
        blocksBefore: Number.NEGATIVE_INFINITY,
        partsBefore: Number.NEGATIVE_INFINITY,
      });
    case 'nothing':
      return [];
  }
}

/** One copy of each host name. A substring would keep its whole line in memory; the copies save a fifth of the time. */
function ownCopy(host: string | undefined, copies: Map<string, string>): string | undefined {
  if (host === undefined) return undefined;
  const known = copies.get(host);
  if (known !== undefined) return known;
  const copy = copyOf(host);
  copies.set(copy, copy);
  return copy;
}

function emptyOutcome(): Outcome {
  return {
    accepted: 0,
    dropped: {},
    first_drops: [],
    formats: {},
    requests: 0,
    attacks: {},
    without_id: 0,
    without_host: 0,
    unregistered_host: 0,
  };
}
