/** A file or stream, counted once from beginning to end. */
import type { FollowedPath, NewLink, Store } from '../store/store.ts';
import {
  ByteReader,
  countLineEnds,
  endOfHole,
  endOfLine,
  hasContent,
  LINE_BYTES_MAX,
  LineBlock,
  lineText,
  wholeLines,
} from './blocks.ts';
import { CHUNK_BYTES_MAX, Checkpoints, type FileSource, firstLineHash } from './checkpoints.ts';
import type { Counted, Line, Outcome, Pipeline, ReadLines } from './pipeline.ts';
import { createReader, type LineReader, type ReaderOptions } from './reader.ts';

export interface FileIngest extends FileSource {
  reader: ReaderOptions;
}

export type FileProgress =
  | { kind: 'counted'; bytes: number; lines: number; outcome: Outcome }
  /** Counted by an earlier run. */
  | { kind: 'seen'; bytes: number; lines: number }
  /** The last line has no end and is no record: perhaps half written, so it is left for the next time. */
  | { kind: 'unfinished'; bytes: number; line: number };

/** Someone else is counting the same file at this moment. Nothing was counted twice; start over to see what is left. */
export class FileConflict extends Error {}

export interface FileOptions {
  /** A rotated file of a log that is followed: only if it was begun, or as a whole; a shorter copy is left alone. */
  rotated?: 'if begun' | 'whole';
  /** Called when the first line of a file that was not begun before is counted: what to store in the same transaction. */
  begin?: (firstLineHash: string) => FollowedPath;
  /** When it is aborted, what is under way is counted, and nothing more is read. */
  stop?: AbortSignal;
  /** Count each line as it comes, as from a pipe that is slow, instead of waiting for many. */
  eager?: boolean;
}

export async function* ingestFile(
  stream: AsyncIterable<Uint8Array>,
  ingest: FileIngest,
  store: Store,
  pipeline: Pipeline,
  options: FileOptions = {},
): AsyncGenerator<FileProgress> {
  const bytes = new ByteReader(stream);
  const trail = new Checkpoints(store, ingest);
  let reader = createReader(ingest.reader);
  let lines = 0;

  /** Reads the lines at once; the promise is for their being counted. */
  function count(
    piece: Buffer,
    pieceLines: Iterable<Line>,
    flush: 'all' | 'nothing',
  ): Promise<FileProgress> | null {
    const read = pipeline.read(pieceLines, reader, flush);
    if (piece.length === 0 && isEmpty(read)) return null;
    const { id, link } = trail.extend(piece, reader.state());
    // Holes and headers say nothing about the file.
    const begins = !begun && hasContent(piece);
    const followed = options.begin && begins ? { followed: options.begin(firstLineHash(piece)) } : {};
    begun ||= begins;
    // Should the append fail, nothing more is read, so it does no harm to go on as if it had succeeded.
    trail.advance(id, piece);
    const ends = countLineEnds(piece);
    lines += ends;
    bytes.take(piece.length);
    return inOrder(read, { id, link, ...followed }).then((counted): FileProgress => {
      if (counted.kind !== 'counted') throw new FileConflict('another process counts the same file');
      return { kind: 'counted', bytes: piece.length, lines: ends, outcome: counted.outcome };
    });
  }

  /**
   * Resolves the hosts of a batch only when the one before it has been handed to the store, which appends in the order
   * of the calls. A new host name takes longer to resolve than a known one, and the next batch would overtake it.
   */
  function inOrder(
    read: ReadLines,
    part: { id: string; link: NewLink; followed?: FollowedPath },
  ): Promise<Counted> {
    const batch = { project: ingest.project, source: ingest.source, ...part };
    const appending = appended.then(async () => {
      const events = await pipeline.resolve(read, ingest.project);
      // In an object, so that the next batch need not wait until this one is durable.
      return { counted: pipeline.append(read, events, batch) };
    });
    appended = appending;
    return appending.then(({ counted }) => counted);
  }

  /** The latest batch has been handed to the store. */
  let appended: Promise<unknown> = Promise.resolve();
  /** A rotated file that is still being compressed ends anywhere. The rest comes when it is whole. */
  const isCutOff = () => options.rotated !== undefined && bytes.failure !== null;
  let begun = false;
  let counting: Promise<FileProgress> | null = null;
  const peek = (n: number) => bytes.peek(n);
  const peekFirstLine = (n: number) => (options.eager ? bytes.peekLine(n) : bytes.peek(n));
  try {
    for (
      let known = await trail.known(peek, peekFirstLine);
      known;
      known = await trail.known(peek, peekFirstLine)
    ) {
      const ends = countLineEnds(known.bytes);
      lines += ends;
      bytes.take(known.bytes.length);
      reader = createReader(ingest.reader, known.readerState);
      begun ||= hasContent(known.bytes);
      yield { kind: 'seen', bytes: known.bytes.length, lines: ends };
    }
    if (options.rotated === 'if begun' && !begun) return;
    if (
      options.rotated &&
      trail.isShorterCopy((await bytes.peek(CHUNK_BYTES_MAX)).subarray(0, CHUNK_BYTES_MAX))
    )
      return;
    for (;;) {
      if (options.stop?.aborted) {
        if (counting) yield await counting;
        return;
      }
      const piece = nextPiece(
        options.eager ? await bytes.peekLine(CHUNK_BYTES_MAX) : await bytes.peek(CHUNK_BYTES_MAX),
        trail.insideLine,
        lines + 1,
        isCutOff() ? undefined : () => createReader(ingest.reader, reader.state()),
      );
      const last = piece.bytes.length === 0;
      // One piece is being committed while the next one is read: a third of the time, where the disk is slow.
      const next = count(piece.bytes, piece.lines, last && !isCutOff() ? 'all' : 'nothing');
      next?.catch(() => {});
      if (counting) yield await counting;
      counting = next;
      if (!last) continue;
      if (counting) yield await counting;
      if (bytes.failure) throw bytes.failure;
      if (piece.unfinished > 0) yield { kind: 'unfinished', bytes: piece.unfinished, line: lines + 1 };
      return;
    }
  } finally {
    await counting?.catch(() => {});
    await appended.catch(() => {});
    await bytes.close();
  }
}

/** Nothing that the store would have to know of. */
export function isEmpty({ records, outcome }: ReadLines): boolean {
  return records.length === 0 && Object.keys(outcome.dropped).length === 0;
}

export interface Piece {
  /** Empty at the end of the file. */
  bytes: Buffer;
  lines: Iterable<Line>;
  /** Bytes of a last line that is left for the next time. */
  unfinished: number;
}

/**
 * The next lines out of what can be seen. `atEnd` makes a reader with which a last line that has no end is tried; it
 * is absent while a file is followed, where the end may still come.
 */
export function nextPiece(
  visible: Buffer,
  insideLine: boolean,
  first: number,
  atEnd?: () => LineReader,
): Piece {
  const bytes = visible.subarray(0, LINE_BYTES_MAX);
  const whole = wholeLines(bytes);
  const last = bytes.length < LINE_BYTES_MAX;
  if (insideLine) {
    // The rest of a line that was counted, or dropped for its length, when its beginning was read.
    const rest = endOfLine(bytes);
    const piece = bytes.subarray(0, Math.max(rest, whole));
    return { bytes: piece, lines: new LineBlock(piece.subarray(rest), first + 1), unfinished: 0 };
  }
  if (whole > 0) {
    const piece = bytes.subarray(0, whole);
    return { bytes: piece, lines: new LineBlock(piece, first), unfinished: 0 };
  }
  const hole = endOfHole(bytes, 0);
  // Of any length: it goes by itself, so that the line behind it can be of any length that is allowed.
  if (!last && hole > 0) return { bytes: bytes.subarray(0, hole), lines: [], unfinished: 0 };
  if (!last) return { bytes, lines: [{ number: first, text: null }], unfinished: 0 };
  if (atEnd && isRecord(atEnd(), bytes)) return { bytes, lines: new LineBlock(bytes, first), unfinished: 0 };
  return { bytes: bytes.subarray(0, 0), lines: [], unfinished: bytes.length - hole };
}

function isRecord(reader: LineReader, line: Buffer): boolean {
  const text = lineText(line, 0, line.length);
  return (
    text.length > 0 && [...reader.read(text, 0), ...reader.flush()].some(({ kind }) => kind === 'record')
  );
}
