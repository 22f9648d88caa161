/** Counts a file or stream once, from beginning to end. */
import { reached } from '../rare-states.ts';
import type { FollowedPath, Store } from '../store/store.ts';
import type { Outcome, ReadLines } from './batch-reader.ts';
import { ByteReader } from './byte-stream.ts';
import { Checkpoints, type ChunkDigests, type FileSource } from './checkpoints.ts';
import { type ParsedChunk, readLines } from './chunk-parser.ts';
import type { Parsed } from './formats/format.ts';
import { isWholeJson } from './formats/json.ts';
import {
  CHUNK_BYTES_MAX,
  countLineEnds,
  cutLines,
  endOfHole,
  hasContent,
  LINE_BYTES_MAX,
  type Line,
  LineBlock,
  lineEndsBefore,
  lineText,
  wholeLinesLength,
} from './lines.ts';
import type { ChunkParsers } from './parser-threads.ts';
import { type Counted, DoubtedBatches, type NewBatch, type Pipeline } from './pipeline.ts';
import { PlainFile } from './plain-file.ts';
import { FileChunks, ReadAhead } from './read-ahead.ts';
import { createReader, type LineReader, type ReaderOptions } from './reader.ts';

export interface FileIngest extends FileSource {
  reader: ReaderOptions;
}

export type FileProgress =
  | { kind: 'counted'; bytes: number; lines: number; outcome: Outcome }
  /** An earlier run has counted these bytes. */
  | { kind: 'seen'; bytes: number; lines: number }
  /** The last line, or a record of several lines, may be half written. It is left for the next run. */
  | { kind: 'unfinished'; bytes: number; line: number };

/** Another process counts or writes the same file. Nothing was counted twice; a new run counts the rest. */
export class FileConflict extends Error {
  constructor(message: string) {
    super(message);
    reached('file.conflict');
  }
}

/**
 * How many batches may be under way, and how many records they may have. Chunks are committed while the next ones are
 * read, which saves a third of the time where the disk is slow; those that wait share a commit, which saves a tenth of the
 * work. No commit takes more records, and those of short events take 100 bytes each.
 */
const COUNTING_MAX = 8;
const COUNTING_RECORDS_MAX = 50_000;

export interface Turn {
  /** Resolves when the batches of the file before have been handed to the store. */
  before: Promise<unknown>;
  /** Called when those of this file have. Not called after an error: the file may be tried again. */
  finish(): void;
}

interface FileOptions {
  /** For a rotated file of a followed log: count it only if it was begun, or always. A shorter copy is skipped. */
  rotated?: 'if begun' | 'whole';
  /** Called when the first line of a new file is counted. The result is stored in the same transaction. */
  begin?: (firstLineHash: string) => FollowedPath;
  /** When aborted, batches under way are counted and nothing more is read. */
  stop?: AbortSignal;
  /**
   * For standard input: count each line as it arrives, instead of waiting for a full chunk. It cannot grow later, so a last
   * line without an end is counted if it has a record.
   */
  eager?: boolean;
  /** If other files are read at the same time: when it is the turn of this one to be counted. */
  turn?: Turn | undefined;
  /** Read chunks of a PlainFile in other threads where the result is the same. */
  parsers?: ChunkParsers | undefined;
  /** How many bytes are still to be read, including other files; 0 if unknown. */
  bytesLeft?: () => number;
}

/** If `stream` is a PlainFile, the threads read it themselves, and this function closes it at the end. */
export async function* ingestFile(
  stream: AsyncIterable<Uint8Array>,
  ingest: FileIngest,
  store: Store,
  pipeline: Pipeline,
  { rotated, begin, stop, eager = false, turn, parsers, bytesLeft = () => 0 }: FileOptions = {},
): AsyncGenerator<FileProgress> {
  const file = stream instanceof PlainFile ? stream : null;
  let bytes = new ByteReader(stream);
  /** The offset of the next bytes in the file. */
  let offset = 0;
  const checkpoints = new Checkpoints(store, ingest);
  const { project, source } = ingest;
  let reader = createReader(ingest.reader);
  let lines = 0;
  let isBegun = false;
  /** Resolves when the latest batch has been handed to the store. */
  let handedOver: Promise<unknown> = turn?.before ?? Promise.resolve();
  /** Batches under way, in order. */
  const counting: { records: number; counted: Promise<FileProgress> }[] = [];
  const batches = new DoubtedBatches(pipeline, project);
  let ahead: ReadAhead | null = null;
  /** The offset of the first chunk that `ahead` may take. */
  let aheadStart = 0;
  const peek = (n: number) => bytes.peek(n);
  const peekLine = (n: number) => (eager ? bytes.peekLine(n) : bytes.peek(n));
  /** A rotated file that is still being compressed ends anywhere. The rest is counted when it is complete. */
  const isCutOff = () => rotated !== undefined && bytes.failure !== null;
  /** Other files may be read while they are written. */
  const isComplete = eager || rotated !== undefined;
  const isWholeLine = (text: string) =>
    isWholeJson(text) ||
    (isComplete &&
      bytes.failure === null &&
      addsRecord(text, () => createReader(ingest.reader, reader.state())));

  /** The lines have been read by `reader`. Uses the bytes at once. */
  function count(chunk: Buffer | ChunkDigests, read: ReadLines, chunkLines: number): void {
    if (!checkpoints.isStartOf(chunk)) {
      reached('file.changed-while-opened');
      throw new FileConflict('the file has changed while it was opened');
    }
    const { id, link, summary } = checkpoints.extend(chunk, reader.state());
    const begins = !isBegun && summary.hasContent;
    isBegun ||= begins;
    // If the append fails, nothing more is read, so the position may already move on.
    checkpoints.advance(id);
    const chunkBytes = chunk.length;
    offset += chunkBytes;
    lines += chunkLines;
    batches.add(read, () => {
      const followed = begin && begins ? { followed: begin(summary.firstLineHash) } : {};
      const appending = appendInOrder(read, { project, source, id, link, ...followed });
      const counted = appending.then((result): FileProgress => {
        if (result.kind !== 'counted') throw new FileConflict('another process is counting the same file');
        return { kind: 'counted', bytes: chunkBytes, lines: chunkLines, outcome: result.outcome };
      });
      counted.catch(() => {});
      counting.push({ records: read.records.length, counted });
    });
  }

  /** Counts a chunk that another thread has read, without knowing the state of the reader before it. */
  async function countParsed(parsed: ParsedChunk, ahead: ReadAhead): Promise<void> {
    // Later bytes can extend a chunk only if it is the last one.
    if (!reader.hasState && ahead.hasNext) {
      if (parsed.readerState !== '') reader = createReader(ingest.reader, parsed.readerState);
      count(parsed.digests, readLines(parsed, lines), parsed.lineEnds);
      return;
    }
    if (reader.hasState) {
      // The lines may continue earlier ones.
      ahead.end();
      parsers?.pause();
    }
    const chunk = await ahead.bytesOf(parsed);
    const block = new LineBlock(chunk, lines + 1);
    count(chunk, pipeline.read(block, reader, 'nothing'), parsed.lineEnds);
  }

  function startReadingAhead(): ReadAhead | null {
    // Without a sample of its start, threads could not notice that the file changes.
    if (!parsers || !file?.start || checkpoints.insideLine) return null;
    const capacity = parsers.capacity(bytesLeft());
    if (capacity === 0) return null;
    aheadStart = offset;
    const chunks = new FileChunks(file, file.start, offset);
    return new ReadAhead(chunks, checkpoints, parsers, capacity, pipeline.now);
  }

  /** Waits for batches until few enough are under way, or for all. */
  async function* counted(wait: 'for some' | 'for all'): AsyncGenerator<FileProgress> {
    const isEnough = () => {
      if (wait === 'for all') return counting.length === 0;
      const records = counting.reduce((sum, batch) => sum + batch.records, 0);
      return counting.length <= 1 || (counting.length <= COUNTING_MAX && records <= COUNTING_RECORDS_MAX);
    };
    while (!isEnough()) {
      const first = counting.shift();
      if (first) yield await first.counted;
    }
  }

  /**
   * Resolves the hosts of a batch only when the batch before it has been handed to the store, which appends in the order
   * of the calls. A new host name takes longer to resolve than a known one, and the next batch would overtake it.
   */
  function appendInOrder(read: ReadLines, batch: NewBatch): Promise<Counted> {
    const appending = handedOver.then(async () => {
      const events = await pipeline.resolve(read, project);
      // In an object, so that the next batch need not wait until this one is durable.
      return { counted: pipeline.append(read, events, batch) };
    });
    handedOver = appending;
    return appending.then(({ counted }) => counted);
  }

  try {
    for (;;) {
      const known = await checkpoints.nextCounted(peek, peekLine);
      if (known === null) break;
      reached('file.resumed');
      const chunkLines = countLineEnds(known.bytes);
      lines += chunkLines;
      offset += known.bytes.length;
      bytes.take(known.bytes.length);
      reader = createReader(ingest.reader, known.readerState);
      isBegun ||= hasContent(known.bytes);
      yield { kind: 'seen', bytes: known.bytes.length, lines: chunkLines };
    }
    if (rotated === 'if begun' && !isBegun) return;
    if (rotated) {
      const rest = await bytes.peek(CHUNK_BYTES_MAX);
      if (checkpoints.isShorterCopy(rest.subarray(0, CHUNK_BYTES_MAX))) {
        reached('file.shorter-copy');
        return;
      }
    }
    for (;;) {
      if (stop?.aborted) {
        yield* counted('for all');
        return;
      }
      // Other threads do not know the lines before a chunk, so the reader must not need them.
      if (ahead === null && !eager && !reader.hasState) ahead = startReadingAhead();
      let parsed: ParsedChunk | null = null;
      try {
        parsed = (await ahead?.next()) ?? null;
      } catch (error) {
        // The chunks before it are counted, and reported.
        yield* counted('for all');
        throw error;
      }
      if (ahead && parsed) {
        await countParsed(parsed, ahead);
        yield* counted('for some');
        continue;
      }
      // Threads have read chunks, which `bytes` still has before it.
      if (ahead !== null && file !== null && offset > aheadStart) {
        await bytes.close();
        bytes = new ByteReader(file.from(offset));
      }
      ahead = null;
      const chunk = nextChunk(
        await peekLine(CHUNK_BYTES_MAX),
        checkpoints.insideLine,
        lines + 1,
        isCutOff() ? undefined : isWholeLine,
      );
      const isLast = chunk.bytes.length === 0;
      const pending = isComplete && bytes.failure === null ? 'all' : 'file';
      const read = pipeline.read(chunk.lines, reader, isLast && !isCutOff() ? pending : 'nothing', lines);
      if (!isLast || !isEmpty(read))
        count(chunk.bytes, read, lineEndsBefore(chunk.lines, chunk.bytes) + read.lineEnds);
      bytes.take(chunk.bytes.length);
      yield* counted('for some');
      if (!isLast) continue;
      if (isCutOff()) reached('file.cut-off');
      batches.end();
      if (turn) handedOver.then(turn.finish, () => {});
      yield* counted('for all');
      if (bytes.failure) throw bytes.failure;
      if (chunk.unfinishedBytes > 0) {
        reached('file.last-line-unfinished');
        yield { kind: 'unfinished', bytes: chunk.unfinishedBytes, line: lines + 1 };
      } else if (reader.hasPending(Number.POSITIVE_INFINITY))
        yield { kind: 'unfinished', bytes: 0, line: lines };
      return;
    }
  } finally {
    await ahead?.stop();
    await Promise.allSettled([...counting.map((batch) => batch.counted), handedOver]);
    await bytes.close();
    await file?.close();
  }
}

/** Whether there is nothing to append. */
export function isEmpty({ records, outcome }: ReadLines): boolean {
  return records.length === 0 && Object.keys(outcome.dropped).length === 0;
}

export interface FileChunk {
  /** Empty at the end of the file. */
  bytes: Buffer;
  lines: Iterable<Line>;
  /** The length of a last line that is left for the next run. */
  unfinishedBytes: number;
}

/**
 * The next lines of the bytes that are visible. `isWholeLine` decides whether to count a last line without an end; it is
 * absent while a file is followed, where the rest of the line may still arrive.
 */
export function nextChunk(
  visible: Buffer,
  insideLine: boolean,
  firstNumber: number,
  isWholeLine: (text: string) => boolean = () => false,
): FileChunk {
  const window = visible.subarray(0, LINE_BYTES_MAX);
  const wholeLines = wholeLinesLength(window);
  if (insideLine || wholeLines > 0 || window.length === LINE_BYTES_MAX)
    return { ...cutLines(window, wholeLines, insideLine, firstNumber), unfinishedBytes: 0 };
  const text = lineText(window, 0, window.length);
  if (text.length > 0 && isWholeLine(text))
    return { bytes: window, lines: new LineBlock(window, firstNumber), unfinishedBytes: 0 };
  return { bytes: window.subarray(0, 0), lines: [], unfinishedBytes: window.length - endOfHole(window, 0) };
}

/** Whether a last line without an end adds a record to those that are pending. Needs two readers in the same state. */
export function addsRecord(text: string, createTrialReader: () => LineReader): boolean {
  const isRecord = ({ kind }: Parsed) => kind === 'record';
  const trial = createTrialReader();
  if (trial.read(text, 0).some(isRecord)) return true;
  const pending = createTrialReader().flush().filter(isRecord).length;
  return trial.flush().filter(isRecord).length > pending;
}
