/**
 * A segment has the exact milliseconds that one append has counted in one minute, of all hosts:
 *
 *   segment = (host length record)*      `host` is the number of the host, `record` as in cells.ts
 *
 * Segments are never changed, so small appends stay cheap however much a minute has already.
 */
import { type Additions, mergeCells } from '../cells.ts';
import { NumberReader, type RecordWriter } from '../record-bytes.ts';

/** `hosts`: the number of each host, and what is added to it. The result is a view that the next call overwrites. */
export function writeSegment(
  hosts: Iterable<readonly [host: number, additions: Additions]>,
  writers: readonly [segment: RecordWriter, record: RecordWriter],
): Uint8Array {
  const [segment, writer] = writers;
  segment.clear();
  for (const [host, additions] of hosts) {
    const record = mergeCells(undefined, additions, writer);
    segment.number(host);
    segment.number(record.length);
    segment.copy(record, 0, record.length);
  }
  return segment.bytes();
}

/** The records in a segment. A host may have several. */
export function* readSegment(segment: Uint8Array): Generator<[host: number, record: Uint8Array]> {
  const reader = new NumberReader(segment);
  while (reader.at < segment.length) {
    const host = reader.number();
    const length = reader.number();
    yield [host, segment.subarray(reader.at, reader.at + length)];
    reader.at += length;
  }
}
