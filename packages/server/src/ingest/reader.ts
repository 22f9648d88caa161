/** Parses log lines into records. Detects the format of each line, because one stream may mix formats. */
import type { DropReason } from '../event.ts';
import type { Overrides } from './categories/classify.ts';
import { access } from './formats/access.ts';
import {
  type Context,
  type LineRange,
  LOG_FORMATS,
  LOG_KINDS,
  type LogFormat,
  type Parsed,
  type Reading,
} from './formats/format.ts';
import { asObject, beginsWithJsonString, parseJsonLine } from './formats/json.ts';
import {
  addLine,
  blockStart,
  closeBlock,
  type NativeBlock,
  openBlock,
} from './formats/modsecurity-native.ts';
import type { Pattern } from './formats/pattern.ts';
import { JSON_FORMATS, nearestFormat, TEXT_FORMATS } from './formats/registry.ts';
import { fixedZone, type LocalZone, type ZoneState } from './formats/time-zone.ts';
import { CommonTimeParser } from './formats/timestamps.ts';
import { type OpenRequest, Transactions } from './formats/transactions.ts';
import { BARE, LAYERS_MAX, type PartsState, Unwrapper, type Wrapper } from './unwrap.ts';

export const FORMAT_NAMES = ['auto', ...LOG_FORMATS] as const;

export type FormatName = (typeof FORMAT_NAMES)[number];

export interface ReaderOptions {
  format: FormatName;
  /** The host for logs that do not name one. */
  host?: string | undefined;
  /** The time zone for logs that do not name one. UTC by default. */
  zone?: LocalZone | undefined;
  overrides?: Overrides | undefined;
  /** The format of access lines, as configured in the web server. No other lines are read. */
  pattern?: Pattern | undefined;
  /** Add hints and field values for `explain`. */
  explain?: boolean | undefined;
}

/** An upper bound: transactions and native blocks have limits, and parts of lines take at most 1 MiB, in base64. */
export const STATE_LENGTH_MAX = 8 * 1_048_576;

/** The lines of a native block are written at once: one without a new line for this long is incomplete. */
const BLOCK_MS_MAX = 60_000;

/** Native blocks open at the same time, in different streams of one log: a container has two streams. */
const BLOCKS_MAX = 8;

/** Native blocks inside others, in a mixed stream. A genuine one ends before the next begins. */
const INNER_BLOCKS_MAX = 4;

export function createReader(options: ReaderOptions, state = ''): LineReader {
  return new LineReader(options, state === '' ? {} : (JSON.parse(state) as State));
}

interface OpenBlock {
  block: NativeBlock;
  touched: number;
  /** For `explain`. */
  lines?: LineRange;
}

interface FlushOptions {
  /** Instead of `before`, for native blocks and parts of lines, whose rest may come later. */
  blocksBefore?: number;
  partsBefore?: number;
  now?: number;
}

/** Written by `state`. */
interface State {
  transactions?: OpenRequest[];
  blocks?: [key: string, OpenBlock][];
  columns?: readonly string[] | null;
  clock?: ZoneState | null;
  mixed?: boolean;
  parts?: PartsState;
}

/** Broken JSON in one wrapped line, each of which takes an exception: 10,000 would take 0.1 s. The rest is not parsed. */
const BROKEN_JSON_MAX = 1_000;

const DASH = 0x2d;

export class LineReader {
  /** The host of lines that name none. */
  readonly host: string | undefined;
  readonly #context: Context;
  readonly #textFormats;
  readonly #jsonFormats;
  /** False if a format is given: every line is parsed as that format. */
  readonly #recognize: boolean;
  readonly #native: boolean;
  readonly #access: boolean;
  readonly #explain: ((line: string, parsed: Parsed[]) => Parsed[]) | null;
  readonly #transactions: Transactions;
  readonly #unwrapper: Unwrapper;
  /** Open native blocks, oldest first. The key is the origin, plus the boundary for a block inside another. */
  readonly #blocks: Map<string, OpenBlock>;
  /** The stream has an error log, into which clients can write whole lines, so a boundary proves nothing. */
  #mixed: boolean;
  /** The number of the current line, for `explain`. */
  #number: number | undefined;
  /** How much broken JSON the current line has. */
  #brokenJson = 0;

  constructor(options: ReaderOptions, state: State) {
    const { format, host, zone: logZone = fixedZone(0), overrides = new Map(), pattern } = options;
    const isWanted = ({ name }: { name: LogFormat }) =>
      pattern === undefined && (format === 'auto' || name === format);
    this.#explain = options.explain ? (line, parsed) => explained(line, parsed, options) : null;
    this.host = host;
    const zone = logZone.startLog?.(state.clock ?? null) ?? logZone;
    this.#context = { zone, commonTime: new CommonTimeParser(), columns: state.columns ?? null };
    this.#textFormats = pattern ? [{ ...access, parse: pattern.parse }] : TEXT_FORMATS.filter(isWanted);
    this.#jsonFormats = JSON_FORMATS.filter(isWanted);
    this.#recognize = format === 'auto' && pattern === undefined;
    this.#native = isWanted({ name: 'modsecurity-native' });
    this.#access = isWanted({ name: 'access' });
    this.#transactions = new Transactions(overrides, state.transactions);
    this.#unwrapper = new Unwrapper(state.parts);
    this.#blocks = new Map(state.blocks);
    this.#mixed = state.mixed ?? false;
  }

  /**
   * The records and drops that this line completes: none, one, or several. `line` is null if it is too long. `number` is for
   * `explain`.
   */
  read(line: string | null, now: number, number?: number): Parsed[] {
    if (line === null) return [unknown('line_too_long')];
    this.#number = number;
    this.#brokenJson = 0;
    return this.#readWrapped(line, BARE, 0, now);
  }

  /** `layers`: the number of wrappers that were removed. */
  #readWrapped(line: string, origin: string, layers: number, now: number): Parsed[] {
    // Open blocks come first, because they contain request bodies, and a line in a body may look wrapped.
    if (this.#blocks.has(origin)) return this.#readBlock(line, origin, layers, now);
    return this.#readUnwrapped(line, origin, layers, now);
  }

  #readUnwrapped(line: string, origin: string, layers: number, now: number): Parsed[] {
    const inner = layers < LAYERS_MAX ? this.#unwrapper.unwrap(line, origin, now) : null;
    if (inner === null) return this.#readLine(line, origin, now);
    const parsed: Parsed[] = inner.dropped.map(unknown);
    for (const text of inner.lines) {
      if (text !== '') parsed.push(...this.#readWrapped(text, inner.origin, layers + 1, now));
    }
    const isEmpty = inner.lines.every((text) => text === '');
    if (inner.isGuess && parsed.every(hasNoFormat) && (parsed.length > 0 || isEmpty)) {
      const whole = this.#readLine(line, origin, now);
      // Empty: the line is part of a record that is not complete yet.
      // Strings of JSON that is printed over several lines look like CSV.
      if (whole.length === 0 || inner.wrapper === 'csv' || !whole.every(hasNoFormat)) return whole;
    }
    return parsed.map((each) => inWrapper(each, inner.wrapper));
  }

  #readLine(line: string, origin: string, now: number): Parsed[] {
    const first = line.charCodeAt(0);
    const block = first === DASH && this.#native ? openBlock(line) : null;
    if (block !== null) return this.#openBlock(block, origin, now);
    const isJson = this.#textFormats.length === 0 || looksLikeJson(line, first);
    const asJson = isJson && this.#jsonFormats.length > 0;
    const parsed = asJson ? this.#readJson(line, now) : this.#readText(line, now);
    return this.#explain === null ? parsed : this.#explain(line, parsed);
  }

  /** Returns pending records: all of them, or those without a new line since `before`. `now` is the time of the clock. */
  flush(before = Number.POSITIVE_INFINITY, options: FlushOptions = {}): Parsed[] {
    const { blocksBefore = before, partsBefore = before, now = Number.POSITIVE_INFINITY } = options;
    const unfinished = this.#unwrapper.flush(partsBefore - BLOCK_MS_MAX);
    const parsed = Array.from({ length: unfinished }, () => unknown('unfinished_record'));
    for (const [origin, { touched }] of this.#blocks) {
      if (touched < blocksBefore - BLOCK_MS_MAX) parsed.push(...this.#closeBlock(origin, before));
    }
    return [...parsed, ...this.#withHost(this.#transactions.flush(before, now))];
  }

  /** Whether `flush` returns anything. */
  hasPending(before: number, now = Number.POSITIVE_INFINITY): boolean {
    const blockBefore = before - BLOCK_MS_MAX;
    return (
      this.#transactions.hasPending(before, now) ||
      this.#unwrapper.hasPending(blockBefore) ||
      [...this.#blocks.values()].some(({ touched }) => touched < blockBefore)
    );
  }

  /** For `explain`: the first line that belongs to a pending record. */
  get firstPendingLine(): number {
    const blocks = [...this.#blocks.values()].map(({ lines }) => lines?.[0] ?? Number.POSITIVE_INFINITY);
    return Math.min(this.#transactions.firstPendingLine, ...blocks);
  }

  /** False while a native block is open: the next line may belong to it. */
  takesAccess(): boolean {
    return this.#access && !this.#blocks.has(BARE);
  }

  /** Whether later lines depend on earlier ones: `state` is not ''. */
  get hasState(): boolean {
    const { columns, zone } = this.#context;
    return (
      this.#mixed ||
      columns !== null ||
      this.#blocks.size > 0 ||
      this.#transactions.hasState ||
      this.#unwrapper.hasState ||
      (zone.state?.() ?? null) !== null
    );
  }

  /** Everything needed to continue in another process, at most STATE_LENGTH_MAX characters; '' if nothing is needed. */
  state(): string {
    if (!this.hasState) return '';
    const { columns, zone } = this.#context;
    const state: State = {
      transactions: this.#transactions.state(),
      blocks: [...this.#blocks],
      columns,
      clock: zone.state?.() ?? null,
      mixed: this.#mixed,
      parts: this.#unwrapper.state(),
    };
    return JSON.stringify(state);
  }

  #readText(line: string, now: number): Parsed[] {
    for (const format of this.#textFormats) {
      if (!this.#recognize || format.recognizes(line, this.#context)) {
        return this.#parsed(format.name, format.parse(line, this.#context), now);
      }
    }
    return [UNKNOWN];
  }

  #readJson(line: string, now: number): Parsed[] {
    if (this.#brokenJson === BROKEN_JSON_MAX) return [unknown('json_fragment')];
    const { values, broken } = parseJsonLine(line);
    if (broken !== null) this.#brokenJson++;
    if (broken !== null && !line.startsWith('"')) {
      // Clients choose the virtual host before an access line, which may have a brace. Servers escape quotes.
      const asText = this.#readText(line, now);
      if (!asText.every(hasNoFormat)) return asText;
    }
    // Most lines have one value, for which `flatMap` would take a fifth of the time of a short line.
    const parsed =
      values.length === 1
        ? this.#readValue(values[0], now)
        : values.flatMap((value) => this.#readValue(value, now));
    return broken === null ? parsed : [...parsed, unknown(broken)];
  }

  #readValue(value: unknown, now: number): Parsed[] {
    const fields = asObject(value);
    if (fields === null) return [unknown('not_an_object')];
    for (const format of this.#jsonFormats) {
      // A client that writes a line into an error log must not be able to count a million attacks with it.
      if (this.#recognize && this.#mixed && format.name === 'events') continue;
      if (!this.#recognize || format.recognizes(fields)) {
        return this.#parsed(format.name, format.parse(fields, this.#context), now);
      }
    }
    return [UNKNOWN];
  }

  /** Adds the line to the open blocks of its origin. In a mixed stream it may also be a line of another log. */
  #readBlock(line: string, origin: string, layers: number, now: number): Parsed[] {
    const parsed: Parsed[] = [];
    let isTaken = false;
    let isBoundary = false;
    for (const [key, open] of this.#blocks) {
      if (key !== origin && !isNested(key, origin)) continue;
      const { part } = open.block;
      const step = addLine(open.block, line);
      open.touched = now;
      if (open.lines && this.#number !== undefined && step !== 'lost')
        open.lines = [open.lines[0], this.#number];
      if (step !== 'open') parsed.push(...this.#closeBlock(key, now));
      if (step !== 'lost') isTaken = true;
      if (step === 'complete' || open.block.part !== part) isBoundary = true;
    }
    if (!isTaken) return [...parsed, ...this.#readWrapped(line, origin, layers, now)];
    if (!this.#mixed || isBoundary) return parsed;
    const other = this.#readUnwrapped(line, origin, layers, now);
    return [...parsed, ...other.filter((each) => !hasNoFormat(each))];
  }

  #openBlock(block: NativeBlock, origin: string, now: number): Parsed[] {
    const isInner = this.#blocks.has(origin);
    this.#blocks.set(isInner ? `${origin}\n${block.boundary}` : origin, {
      block,
      touched: now,
      ...(this.#number !== undefined && { lines: [this.#number, this.#number] }),
    });
    // Inner blocks do not evict outer ones: a client that writes boundaries into its body must not end its own block.
    const keys = [...this.#blocks.keys()].filter((key) => key.includes('\n') === isInner);
    const [oldest = BARE] = keys;
    return keys.length > (isInner ? INNER_BLOCKS_MAX : BLOCKS_MAX) ? this.#closeBlock(oldest, now) : [];
  }

  /** An inner block replaces the outer one that ends. */
  #closeBlock(key: string, now: number): Parsed[] {
    const open = this.#blocks.get(key);
    this.#blocks.delete(key);
    const inner = [...this.#blocks].find(([other]) => isNested(other, key));
    if (inner !== undefined) {
      this.#blocks.delete(inner[0]);
      this.#blocks.set(key, inner[1]);
    }
    if (open === undefined) return [];
    const { block, lines } = open;
    const parsed = this.#parsed('modsecurity-native', closeBlock(block), now);
    return parsed.map((each) => ({ ...each, start: blockStart(block), ...(lines && { lines }) }));
  }

  #parsed(format: LogFormat, reading: Reading, now: number): Parsed[] {
    if (reading.kind === 'dropped' && reading.reason === 'unknown_format') return [UNKNOWN];
    if (this.#native && !this.#mixed) this.#mixed = LOG_KINDS[format] === 'error log';
    return this.#withHost(this.#joined(format, reading, now));
  }

  #withHost(parsed: Parsed[]): Parsed[] {
    if (this.host === undefined) return parsed;
    for (const each of parsed) if (each.kind === 'record') each.record.host ??= this.host;
    return parsed;
  }

  /** Joins records of the same request. */
  #joined(format: LogFormat, reading: Reading, now: number): Parsed[] {
    switch (reading.kind) {
      case 'record':
        return [{ kind: 'record', record: reading.record, format }];
      case 'dropped':
        return [{ kind: 'dropped', reason: reading.reason, format, time: reading.time }];
      case 'header':
        return [];
      case 'transaction':
        return [this.#transactions.addComplete(format, reading.transaction)];
      case 'match':
        return this.#transactions.addMatch(format, reading.match, now, this.#number);
    }
  }
}

function explained(line: string, parsed: Parsed[], { format, pattern }: ReaderOptions): Parsed[] {
  if (pattern !== undefined) {
    const { fields, mismatch } = pattern.explain(line);
    return parsed.map((each) => ({ ...each, fields, hint: mismatch }));
  }
  // The parser of a given format may refuse the line for other reasons.
  const reasons: readonly DropReason[] = format === 'auto' ? ['unknown_format'] : REFUSALS;
  const isUnknown = (each: Parsed) => each.kind === 'dropped' && reasons.includes(each.reason);
  // Once per line: an array can contain thousands of records.
  const nearest = parsed.some(isUnknown) ? nearestFormat(line, format) : undefined;
  if (nearest === undefined) return parsed;
  return parsed.map((each) => {
    if (each.kind !== 'dropped' || !isUnknown(each)) return each;
    const isTime = each.reason === 'unknown_format' || each.reason === 'bad_time';
    const lacks = nearest.lacks ?? (isTime ? 'valid date or time of day in it' : undefined);
    return lacks === undefined ? each : { ...each, hint: `nearest: ${nearest.name} (no ${lacks})` };
  });
}

const REFUSALS = ['unknown_format', 'bad_record', 'bad_time', 'not_json'] as const;

function unknown(reason: DropReason): Parsed {
  return { kind: 'dropped', reason, format: 'none' };
}

const UNKNOWN = unknown('unknown_format');

/** Whether the block with this key is inside another block of the origin. */
function isNested(key: string, origin: string): boolean {
  return key.length > origin.length && key.startsWith(origin) && key[origin.length] === '\n';
}

function hasNoFormat({ format }: Parsed): boolean {
  return format === 'none';
}

/** Returns a copy, because UNKNOWN is shared. */
function inWrapper(parsed: Parsed, wrapper: Wrapper | null): Parsed {
  if (wrapper === null) return parsed;
  return { ...parsed, wrapper: parsed.wrapper === undefined ? wrapper : `${parsed.wrapper} in ${wrapper}` };
}

/**
 * JSON, or one line of JSON that is printed over several. A bracket may also begin a line of Apache's error log, or an
 * IPv6 address before an access line; a quote may also begin a header before an access line.
 */
function looksLikeJson(line: string, first: number): boolean {
  if (first === 0x7b || first === 0x7d || first === 0x5d) return true;
  if (first === 0x22) return beginsWithJsonString(line);
  return first === 0x5b && (line.length === 1 || /^\[\s*[{["\]]/.test(line));
}
