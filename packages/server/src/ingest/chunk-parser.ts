/** Reads chunks in other threads: what goes in and out of a thread, as plain data. */
import { type AttackDetails, CATEGORIES, type Category, categoryNumber } from '../event.ts';
import { BatchReader, type ReadLimits, type ReadLines } from './batch-reader.ts';
import type { Overrides } from './categories/classify.ts';
import { type ChunkDigests, chunkDigests } from './checkpoints.ts';
import { type LogRecord, requestRecord } from './formats/format.ts';
import { compilePattern } from './formats/pattern.ts';
import { parseZone } from './formats/time-zone.ts';
import { countLineEnds, LineBlock } from './lines.ts';
import { createReader, type FormatName, type ReaderOptions } from './reader.ts';

/** Where the lines of a chunk are in its memory: after the rest of a line that was dropped for its length. */
export interface ChunkPlace {
  length: number;
  linesStart: number;
  /** The number of the first line in the chunk. */
  firstNumber: number;
}

/** The memory goes to the thread, and comes back with the result. */
export interface ChunkTask extends ChunkPlace {
  memory: ArrayBuffer;
  now: number;
  /** The ID of the chunk before; null if that chunk is the previous task. */
  after: string | null;
}

/** What a reader without a state makes of a chunk. */
export interface ParsedChunk extends ChunkPlace {
  memory: ArrayBuffer;
  lineEnds: number;
  digests: ChunkDigests;
  /** The state of the reader after the chunk. */
  readerState: string;
  records: PackedRecords;
  outcome: ReadLines['outcome'];
  examples: ReadLines['examples'];
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
  const { retentionMs, attackSources } = limits;
  return {
    limits: { retentionMs, attackSources },
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

  /** `after` is called when the lines have been read: the ID of the chunk before may not be known earlier. */
  parse({ memory, length, linesStart, firstNumber, now }: ChunkTask, after: () => string): ParsedChunk {
    this.#now = now;
    const bytes = Buffer.from(memory, 0, length);
    const reader = createReader(this.#options);
    const block = new LineBlock(bytes.subarray(linesStart), firstNumber);
    const { records, hosts, outcome, examples } = this.#reader.read(block, reader, 'nothing');
    return {
      memory,
      length,
      linesStart,
      firstNumber,
      lineEnds: countLineEnds(bytes),
      digests: chunkDigests(after(), bytes),
      readerState: reader.state(),
      records: packRecords(records, hosts),
      outcome,
      examples,
    };
  }
}

/** The lines that were read, with line numbers in the file. */
export function readLines({ records, outcome, examples }: ParsedChunk, linesBefore: number): ReadLines {
  for (const drop of outcome.first_drops) drop.line += linesBefore;
  const hosts = new Map(records.hosts.map((host) => [host, host]));
  return { records: unpackRecords(records), hosts, outcome, examples };
}

/**
 * Records as arrays, because objects take ten times as long to pass on. Access lines of one host and second share one
 * object, and are one entry.
 */
export interface PackedRecords {
  times: Float64Array;
  /** FIELDS for each entry. */
  fields: Int32Array;
  hosts: string[];
  hostIds: string[];
  details: AttackDetails[];
}

/** The fields of an entry: first the number of consecutive records that are this object. */
const REPEATS = 0;
/** The index in `hosts`; or ABSENT; or ABSENT - 1 - the index in `hostIds`. */
const HOST = 1;
/** REQUEST or 0, plus twice the code of the category. */
const COUNTED = 2;
const COUNT = 3;
/** The index in `details`, or ABSENT. */
const DETAILS = 4;
const FIELDS = 5;

const REQUEST = 1;
const ABSENT = -1;

function packRecords(records: readonly LogRecord[], hosts: ReadonlyMap<string, string>): PackedRecords {
  const runs = runsOf(records);
  const times = new Float64Array(runs.length);
  const fields = new Int32Array(FIELDS * runs.length);
  const hostNumbers = new Map([...hosts.keys()].map((host, number) => [host, number]));
  const hostIds: string[] = [];
  const details: AttackDetails[] = [];
  for (const [i, start] of runs.entries()) {
    // The index is within the length.
    const record = records[start] as LogRecord;
    times[i] = record.time;
    const at = FIELDS * i;
    fields[at + REPEATS] = (runs[i + 1] ?? records.length) - start;
    fields[at + HOST] = ABSENT;
    if (record.hostId !== undefined) fields[at + HOST] = ABSENT - hostIds.push(record.hostId);
    else if (record.host !== undefined) fields[at + HOST] = hostNumbers.get(record.host) ?? ABSENT;
    fields[at + COUNTED] = (record.request ? REQUEST : 0) + 2 * categoryCode(record.attack);
    fields[at + COUNT] = record.count;
    fields[at + DETAILS] = record.details === undefined ? ABSENT : details.push(record.details) - 1;
  }
  return { times, fields, hosts: [...hosts.keys()], hostIds, details };
}

function unpackRecords({ times, fields, hosts, hostIds, details }: PackedRecords): LogRecord[] {
  const records: LogRecord[] = [];
  for (let i = 0; i < times.length; i++) {
    const at = FIELDS * i;
    const host = fields[at + HOST] ?? ABSENT;
    const counted = fields[at + COUNTED] ?? 0;
    const detail = fields[at + DETAILS] ?? ABSENT;
    const record = requestRecord(times[i] ?? 0, hosts[host]);
    if (host < ABSENT) record.hostId = hostIds[ABSENT - 1 - host];
    record.request = (counted & REQUEST) !== 0;
    record.attack = categoryOf(counted >> 1);
    record.count = fields[at + COUNT] ?? 0;
    if (detail !== ABSENT) record.details = details[detail];
    for (let left = fields[at + REPEATS] ?? 0; left > 0; left--) records.push(record);
  }
  return records;
}

/** The offsets at which another object begins. */
function runsOf(records: readonly LogRecord[]): number[] {
  const starts: number[] = [];
  for (let i = 0; i < records.length; i++) if (i === 0 || records[i] !== records[i - 1]) starts.push(i);
  return starts;
}

function categoryCode(attack: Category | null): number {
  return attack === null ? 0 : 1 + (categoryNumber(attack) ?? 0);
}

function categoryOf(code: number): Category | null {
  return CATEGORIES[code - 1] ?? null;
}
