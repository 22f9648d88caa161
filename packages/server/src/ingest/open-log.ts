import { type FileHandle, open } from 'node:fs/promises';
import { pipeline, Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';

/** What one read costs besides does not show at this length. */
const READ_BYTES = 1_048_576;

/**
 * The bytes of a log file, unpacked when it is gzip, whatever its name says. A chunk is good until the next. An open
 * file is read from its start, and closed at the end.
 */
export function openLog(file: string | FileHandle): AsyncIterable<Uint8Array> {
  return unpacked(chunksOf(file));
}

/** One piece of memory for all chunks: new memory for each would cost more than reading them. */
async function* chunksOf(pathOrFile: string | FileHandle): AsyncGenerator<Uint8Array> {
  const file = typeof pathOrFile === 'string' ? await open(pathOrFile, 'r') : pathOrFile;
  try {
    const buffer = Buffer.allocUnsafeSlow(READ_BYTES);
    for (;;) {
      // Without a position, because it may be a pipe.
      const { bytesRead } = await file.read(buffer, 0, READ_BYTES, null);
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}

/** The same for a stream. */
export async function* unpacked(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const chunks = stream[Symbol.asyncIterator]();
  try {
    const first = await chunks.next();
    if (first.done) return;
    const isPacked = first.value[0] === 0x1f && first.value[1] === 0x8b;
    const all = (async function* () {
      // A packed chunk is asked for before the one before it is unpacked: each needs memory of its own.
      for (let next: IteratorResult<Uint8Array> = first; !next.done; next = await chunks.next())
        yield isPacked ? Uint8Array.from(next.value) : next.value;
    })();
    if (!isPacked) {
      yield* all;
      return;
    }
    const gunzip = createGunzip();
    // A failure of either ends the other, and is thrown where the bytes are asked for.
    pipeline(Readable.from(all), gunzip, () => {});
    yield* gunzip;
  } finally {
    await chunks.return?.();
  }
}
