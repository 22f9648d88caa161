/**
 * Buffers that answers are written into, used again when they have been sent. Made anew each time, 91 KB a piece, they
 * had the garbage collector run several times a second, which took half of the processor time (docs/decisions/0012).
 */
import type { ServerResponse } from 'node:http';

/** 64 KB: below this Node.js has a pool of its own, or the cost does not show. */
const BYTES_MIN = 65_536;
/** As many as answers are under way at a time on a busy day: 4 MB of the common size. */
const FREE_MAX = 32;

export class ReplyBuffers {
  /** By size, which is a power of two. */
  readonly #free = new Map<number, Buffer[]>();

  /** Room for an answer, which must not be touched any more once the response is closed. */
  take(bytes: number, response: ServerResponse): Buffer {
    if (bytes < BYTES_MIN) return Buffer.allocUnsafe(bytes);
    const size = 2 ** Math.ceil(Math.log2(bytes));
    const free = this.#freeOf(size);
    const buffer = free.pop() ?? Buffer.allocUnsafeSlow(size);
    // Then all of it has been handed to the system, or the connection is gone.
    response.once('close', () => {
      if (free.length < FREE_MAX) free.push(buffer);
    });
    return buffer;
  }

  #freeOf(size: number): Buffer[] {
    let free = this.#free.get(size);
    if (free === undefined) {
      free = [];
      this.#free.set(size, free);
    }
    return free;
  }
}
