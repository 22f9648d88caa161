/**
 * A segment has the exact milliseconds that one append has counted in one minute, of all hosts:
 *
 *   segment = (host length record)*      `host` is the number of the host, `record` as in cells.ts
 *
 * Segments are never changed, so small appends stay cheap however much a minute has already.
 */
import { type Additions, mergeCells } from '../cells.ts';
import { RecordWriter } from '../record-bytes.ts';

export class SegmentWriter {
  readonly #writer = new RecordWriter();
  #parts: Uint8Array[] = [];

  add(host: number, additions: Additions): void {
    const record = mergeCells(undefined, additions, this.#writer);
    this.#parts.push(numbers(host, record.length), Uint8Array.from(record));
  }

  /** The segment of what was added since the last call. */
  take(): Buffer {
    const segment = Buffer.concat(this.#parts);
    this.#parts = [];
    return segment;
  }
}

function numbers(...values: number[]): Uint8Array {
  const bytes: number[] = [];
  for (const value of values) {
    let rest = value;
    for (; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest % 128) + 128);
    bytes.push(rest);
  }
  return Uint8Array.from(bytes);
}

/** The records in a segment. A host may have several. */
export function* readSegment(segment: Uint8Array): Generator<[host: number, record: Uint8Array]> {
  let at = 0;
  const number = () => {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = segment[at++];
      if (byte === undefined) throw new Error('a segment ends inside a number');
      value += (byte & 127) * scale;
      if (byte < 128) return value;
    }
  };
  while (at < segment.length) {
    const host = number();
    const length = number();
    yield [host, segment.subarray(at, at + length)];
    at += length;
  }
}
