import { createReadStream } from 'node:fs';
import { pipeline, Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';

/** The bytes of a log file, unpacked when it is gzip, whatever its name says. */
export function openLog(path: string): AsyncIterable<Uint8Array> {
  return unpacked(createReadStream(path, { highWaterMark: 1 << 20 }));
}

/** The same for a stream. */
export async function* unpacked(stream: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const chunks = stream[Symbol.asyncIterator]();
  try {
    const first = await chunks.next();
    if (first.done) return;
    const all = (async function* () {
      yield first.value;
      for (let next = await chunks.next(); !next.done; next = await chunks.next()) yield next.value;
    })();
    if (first.value[0] !== 0x1f || first.value[1] !== 0x8b) {
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
