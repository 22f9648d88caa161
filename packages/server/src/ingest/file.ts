/**
 * A file or stream, counted exactly once. It is cut into blocks of whole lines; the id of a block is a hash of all
 * bytes up to its end, and the store keeps the id with the counts. So a file is known by what it says, not by its
 * name: given again, whole or grown, after a crash or under another name, only what is new is counted.
 */
import { createHash } from 'node:crypto';
import type { BatchLink, Store } from '../store/store.ts';
import {
  ByteReader,
  countLineEnds,
  endOfLine,
  endsLine,
  LINE_BYTES_MAX,
  splitLines,
  wholeLines,
} from './blocks.ts';
import type { Parse } from './formats/format.ts';
import type { Line, Outcome, Pipeline } from './pipeline.ts';

/** About ten thousand lines: large enough to share the cost of a commit, small enough for a smooth progress bar. */
const BLOCK_BYTES_MAX = LINE_BYTES_MAX;

export interface FileIngest {
  project: string;
  source: { name: string; format: string };
  parse: Parse;
}

export type FileProgress =
  | { kind: 'counted'; bytes: number; lines: number; outcome: Outcome }
  /** Counted by an earlier run. */
  | { kind: 'seen'; bytes: number; lines: number }
  /** The last line has no end and is no record: perhaps half written, so it is left for the next time. */
  | { kind: 'unfinished'; bytes: number; line: number };

export async function* ingestFile(
  stream: AsyncIterable<Uint8Array>,
  ingest: FileIngest,
  store: Store,
  pipeline: Pipeline,
): AsyncGenerator<FileProgress> {
  const { project, source, parse } = ingest;
  const reader = new ByteReader(stream);
  const place: Place = { id: '', lines: 0, insideLine: false };
  try {
    for (;;) {
      const seen = await seenBlock(
        reader,
        await store.batchesAfter(project, source.name, place.id),
        place.id,
      );
      if (seen !== null) {
        yield { kind: 'seen', bytes: seen.length, lines: advance(place, reader, seen) };
        continue;
      }
      const block = await nextBlock(reader, place, parse);
      if (block.bytes.length === 0) {
        if (block.unfinished > 0)
          yield { kind: 'unfinished', bytes: block.unfinished, line: place.lines + 1 };
        return;
      }
      const after = place.id;
      const bytes = block.bytes.length;
      const lines = advance(place, reader, block.bytes);
      const batch = { project, source, id: place.id, link: { after, bytes } };
      yield { kind: 'counted', bytes, lines, outcome: await pipeline.count(block.lines, parse, batch) };
    }
  } finally {
    await reader.close();
  }
}

/** How far the file has been read. */
interface Place {
  /** Of the block that ends here. */
  id: string;
  /** Line ends so far. */
  lines: number;
  /** The line before this place has no end yet: what comes up to the next one belongs to it. */
  insideLine: boolean;
}

/** Takes the bytes of a block. Answers how many lines end in it. */
function advance(place: Place, reader: ByteReader, bytes: Buffer): number {
  const lines = countLineEnds(bytes);
  place.id = blockId(place.id, bytes);
  place.lines += lines;
  place.insideLine = !endsLine(bytes);
  reader.take(bytes.length);
  return lines;
}

/** The block that comes next in these bytes and was counted before, if there is one. */
async function seenBlock(
  reader: ByteReader,
  links: readonly BatchLink[],
  after: string,
): Promise<Buffer | null> {
  for (const link of links.toSorted((a, b) => b.bytes - a.bytes)) {
    const bytes = (await reader.peek(link.bytes)).subarray(0, link.bytes);
    if (bytes.length === link.bytes && blockId(after, bytes) === link.id) return bytes;
  }
  return null;
}

function blockId(after: string, bytes: Uint8Array): string {
  return createHash('sha256').update(after).update(bytes).digest('hex');
}

interface Block {
  /** Empty at the end of the file. */
  bytes: Buffer;
  lines: Iterable<Line>;
  /** Bytes of a last line that is left for the next time. */
  unfinished: number;
}

async function nextBlock(reader: ByteReader, place: Place, parse: Parse): Promise<Block> {
  const bytes = (await reader.peek(BLOCK_BYTES_MAX)).subarray(0, BLOCK_BYTES_MAX);
  const first = place.lines + 1;
  const whole = wholeLines(bytes);
  if (place.insideLine) {
    // The rest of a line that was counted, or dropped for its length, when its beginning was read.
    const rest = endOfLine(bytes);
    const block = bytes.subarray(0, Math.max(rest, whole));
    return { bytes: block, lines: splitLines(block.subarray(rest), first + 1), unfinished: 0 };
  }
  if (whole > 0) {
    const block = bytes.subarray(0, whole);
    return { bytes: block, lines: splitLines(block, first), unfinished: 0 };
  }
  if (bytes.length === BLOCK_BYTES_MAX)
    return { bytes, lines: [{ number: first, text: null }], unfinished: 0 };
  const finished = bytes.length > 0 && parse(bytes.toString('utf8').trim()).kind === 'record';
  if (finished) return { bytes, lines: splitLines(bytes, first), unfinished: 0 };
  return { bytes: bytes.subarray(0, 0), lines: [], unfinished: bytes.length };
}
