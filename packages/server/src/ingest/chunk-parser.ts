/** Reads chunks in other threads: what goes in and out of a thread, as plain data. */
import { CATEGORIES, type Category, categoryNumber } from '../event.ts';
import { BatchReader, type ReadLimits, type ReadLines } from './batch-reader.ts';
import type { Overrides } from './categories/classify.ts';
import { type ChunkDigests, chunkDigests } from './checkpoints.ts';
import { type LogRecord, requestRecord } from './formats/format.ts';
import { compilePattern } from './formats/pattern.ts';
import { parseZone } from './formats/time-zone.ts';
import { CHUNK_BYTES_MAX, endsWithLineEnd, LineBlock } from './lines.ts';
import { PageCounts, type PathLists } from './page-counts.ts';
import { fillSync, hasSample, type Sample } from './plain-file.ts';
import { createReader, type FormatName, type ReaderOptions } from './reader.ts';

/** Where a thread reads a chunk. */
export interface FilePart {
  fd: number;
  position: number;
  length: number;
  /** What the file must still have after the read. */
  start: Sample;
}

export interface ChunkTask {
  part: FilePart;
  now: number;
  /** The ID of the chunk before; null if that chunk is the previous task. */
  after: string | null;
}

/** What a reader without a state makes of a chunk. */
export interface ParsedChunk {
  part: FilePart;
  lineEnds: number;
  digests: ChunkDigests;
  /** The state of the reader after the chunk. */
  readerState: string;
  records: PackedRecords;
  outcome: ReadLines['outcome'];
  examples: ReadLines['examples'];
  pages: PathLists;
}

export interface ParserSetup {
  limits: ReadLimits;
  format: FormatName;
  host: string | undefined;
  zone: string | undefined;
  overrides: Overrides | undefined;
  pattern: string | undefined;
}

export function parserSetup(options: ReaderOptions, limits: ReadLimits): ParserSetup {
  const { format, host, zone, overrides, pattern } = options;
  const { retentionMs, horizon, attackSources, attackQueries, attackValues } = limits;
  return {
    limits: { retentionMs, horizon, attackSources, attackQueries, attackValues },
    format,
    host,
    zone: zone?.name,
    overrides,
    pattern: pattern?.text,
  };
}

export class ChunkParser {
  readonly #options: ReaderOptions;
  readonly #reader: BatchReader;
  #now = 0;
  /** Holds the bytes of a chunk. */
  readonly #memory = Buffer.allocUnsafeSlow(CHUNK_BYTES_MAX);

  constructor({ limits, format, host, zone, overrides, pattern }: ParserSetup) {
    this.#options = {
      format,
      host,
      zone: zone === undefined ? undefined : parseZone(zone),
      overrides,
      pattern: pattern === undefined ? undefined : compilePattern(pattern),
    };
    this.#reader = new BatchReader(limits, () => this.#now);
  }

  /**
   * Returns null if the file was seen to change. `after` is called when the lines have been read: the ID of the chunk
   * before may not be known earlier.
   */
  parse({ part, now }: ChunkTask, after: () => string): ParsedChunk | null {
    this.#now = now;
    const bytes = this.#readFile(part);
    if (bytes === null) return null;
    const reader = createReader(this.#options);
    const read = this.#reader.read(new LineBlock(bytes, 1), reader, 'nothing');
    return {
      part,
      lineEnds: read.lineEnds,
      digests: chunkDigests(after(), bytes),
      readerState: reader.state(),
      records: packRecords(read.records, read.hosts),
      outcome: read.outcome,
      examples: read.examples,
      pages: read.pages.lists,
    };
  }

  /**
   * Returns null if the file no longer has its start, or a line end where the chunk was cut. Other changes do no harm:
   * records and digests come from the bytes that are read here, so the checkpoint says what was counted.
   */
  #readFile({ fd, position, length, start }: FilePart): Buffer | null {
    const bytes = this.#memory.subarray(0, length);
    const isSame = fillSync(fd, position, bytes) && endsWithLineEnd(bytes) && hasSample(fd, start);
    return isSame ? bytes : null;
  }
}

/** The lines that were read, with line numbers in the file. */
export function readLines(parsed: ParsedChunk, linesBefore: number): ReadLines {
  const { records, outcome, examples, lineEnds, pages } = parsed;
  for (const drop of outcome.first_drops) drop.line += linesBefore;
  const hosts = new Map(records.hosts.map((host) => [host, host]));
  return {
    records: unpackRecords(records),
    hosts,
    outcome,
    examples,
    lineEnds,
    pages: new PageCounts(pages),
  };
}

/** Records as arrays, because objects take ten times as long to pass on. */
interface PackedRecords {
  /** NUMBERS for each entry: time, bytes in and out, or ABSENT. */
  numbers: Float64Array;
  /** FIELDS for each entry. */
  fields: Int32Array;
  hosts: string[];
  hostIds: string[];
  attacks: Attack[];
  /** Of all records, one after the other. */
  otherCodes: number[];
}

type Attack = Pick<LogRecord, 'details' | 'flagged'>;

/** The fields of an entry begin with the number of log records that it stands for, or ABSENT. */
const RECORD_COUNT = 0;
/** The index in `hosts`; or ABSENT; or ABSENT - 1 - the index in `hostIds`. */
const HOST = 1;
/** REQUEST or 0, plus twice the code of the category. */
const COUNTED = 2;
const COUNT = 3;
/** The index in `attacks`, or ABSENT. */
const ATTACK = 4;
/** Response codes, or ABSENT. */
const STATUS = 5;
const UPSTREAM = 6;
/** How many of `otherCodes` belong to the entry. */
const OTHER_CODES = 7;
const FIELDS = 8;
const NUMBERS = 3;

const REQUEST = 1;
const ABSENT = -1;

function packRecords(records: readonly LogRecord[], hosts: ReadonlyMap<string, string>): PackedRecords {
  const numbers = new Float64Array(NUMBERS * records.length);
  const fields = new Int32Array(FIELDS * records.length);
  const hostNumbers = new Map([...hosts.keys()].map((host, number) => [host, number]));
  const hostIds: string[] = [];
  const attacks: Attack[] = [];
  const otherCodes: number[] = [];
  for (const [i, record] of records.entries()) {
    numbers[NUMBERS * i] = record.time;
    numbers[NUMBERS * i + 1] = record.bytesIn ?? ABSENT;
    numbers[NUMBERS * i + 2] = record.bytesOut ?? ABSENT;
    const at = FIELDS * i;
    fields[at + RECORD_COUNT] = record.recordCount ?? ABSENT;
    fields[at + HOST] = ABSENT;
    if (record.hostId !== undefined) fields[at + HOST] = ABSENT - hostIds.push(record.hostId);
    else if (record.host !== undefined) fields[at + HOST] = hostNumbers.get(record.host) ?? ABSENT;
    fields[at + COUNTED] = (record.request ? REQUEST : 0) + 2 * categoryCode(record.attack);
    fields[at + COUNT] = record.count;
    fields[at + STATUS] = record.status ?? ABSENT;
    fields[at + UPSTREAM] = record.upstreamStatus ?? ABSENT;
    const { details, flagged, otherCodes: others = [] } = record;
    fields[at + OTHER_CODES] = others.length;
    otherCodes.push(...others);
    fields[at + ATTACK] =
      details === undefined && flagged === undefined ? ABSENT : attacks.push({ details, flagged }) - 1;
  }
  return { numbers, fields, hosts: [...hosts.keys()], hostIds, attacks, otherCodes };
}

function unpackRecords(packed: PackedRecords): LogRecord[] {
  const { numbers, fields, hosts, hostIds, attacks, otherCodes } = packed;
  const records: LogRecord[] = [];
  let codesAt = 0;
  for (let i = 0; i < numbers.length / NUMBERS; i++) {
    const at = FIELDS * i;
    const time = numbers[NUMBERS * i] ?? 0;
    const bytesIn = numbers[NUMBERS * i + 1];
    const bytesOut = numbers[NUMBERS * i + 2];
    const host = fields[at + HOST] ?? ABSENT;
    const counted = fields[at + COUNTED] ?? 0;
    const attack = fields[at + ATTACK] ?? ABSENT;
    const record = requestRecord(time, hosts[host]);
    if (host < ABSENT) record.hostId = hostIds[ABSENT - 1 - host];
    record.request = (counted & REQUEST) !== 0;
    record.attack = categoryOf(counted >> 1);
    record.count = fields[at + COUNT] ?? 0;
    const recordCount = fields[at + RECORD_COUNT] ?? ABSENT;
    if (recordCount !== ABSENT) record.recordCount = recordCount;
    const [status, upstream] = [fields[at + STATUS], fields[at + UPSTREAM]];
    if (status !== ABSENT) record.status = status;
    if (upstream !== ABSENT) record.upstreamStatus = upstream;
    const codes = fields[at + OTHER_CODES] ?? 0;
    if (codes > 0) record.otherCodes = otherCodes.slice(codesAt, codesAt + codes);
    codesAt += codes;
    if (bytesIn !== ABSENT) record.bytesIn = bytesIn;
    if (bytesOut !== ABSENT) record.bytesOut = bytesOut;
    if (attack !== ABSENT) Object.assign(record, attacks[attack]);
    records.push(record);
  }
  return records;
}

function categoryCode(attack: Category | null): number {
  return attack === null ? 0 : 1 + (categoryNumber(attack) ?? 0);
}

function categoryOf(code: number): Category | null {
  return CATEGORIES[code - 1] ?? null;
}
