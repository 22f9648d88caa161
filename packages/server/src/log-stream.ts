/** Log lines on their way to a file descriptor: buffered, written in the background, and bounded. */
import { hostname } from 'node:os';
import { pid } from 'node:process';
import sonicBoom, { type SonicBoom } from 'sonic-boom';

/** What a slow reader may be behind. Beyond it, access lines are dropped and counted; requests never wait for the log. */
const ACCESS_BYTES_MAX = 4 * 1_048_576;
/** The same for warnings and errors: years of them, unless the disk that takes the log is full. */
const BUFFER_BYTES_MAX = 16 * 1_048_576;
/** One system call for some 20 access lines. */
const WRITE_BYTES_MIN = 3_072;
/** A pipe takes this much at once (PIPE_BUF), so that lines of several workers never mix. */
const WRITE_BYTES_MAX = 4_096;
/** How long a line may wait for others. */
const FLUSH_MS = 100;
/** pino's number for `warn`: lines from this level on are kept however slow the reader is. */
const WARN = 40;

/** pino sets `lastLevel` before each line of a stream that has this mark. */
const PINO_METADATA: unique symbol = Symbol.for('pino.metadata');

export class LogStream {
  readonly [PINO_METADATA] = true;
  lastLevel = 0;
  readonly #destination: SonicBoom;
  readonly #now: () => number;
  #pendingBytes = 0;
  #dropped = 0;
  /** The last write failed. */
  #failed = false;

  constructor(fd: number, now: () => number) {
    this.#now = now;
    this.#destination = new sonicBoom.SonicBoom({
      fd,
      sync: false,
      minLength: WRITE_BYTES_MIN,
      maxWrite: WRITE_BYTES_MAX,
      periodicFlush: FLUSH_MS,
    });
    this.#destination.on('write', (bytes: number) => {
      this.#failed = false;
      this.#pendingBytes -= bytes;
      if (this.#dropped > 0 && this.#pendingBytes < ACCESS_BYTES_MAX / 2) this.#reportDropped();
    });
    // A log that cannot be written must not stop the service. The next line tries again.
    this.#destination.on('error', () => {
      this.#failed = true;
    });
  }

  /** A line of pino's, of the level in `lastLevel`. */
  write(line: string): void {
    this.#write(line, this.lastLevel);
  }

  /** A line that may be dropped when the reader is too slow. */
  writeAccess(line: string): void {
    this.#write(line, 0);
  }

  /** Writes all that is pending before it returns: for the end of the process. */
  flushSync(): void {
    this.#destination.flushSync();
  }

  /** Resolves when all that is pending is written, or cannot be. */
  async flush(): Promise<void> {
    // A flush during a write ends with that write, so what came later needs another one.
    while (this.#pendingBytes > 0 && !this.#failed) {
      await new Promise<void>((resolve) => this.#destination.flush(() => resolve()));
    }
  }

  #write(line: string, level: number): void {
    if (this.#pendingBytes > (level < WARN ? ACCESS_BYTES_MAX : BUFFER_BYTES_MAX)) {
      this.#dropped++;
      return;
    }
    this.#pendingBytes += Buffer.byteLength(line);
    this.#destination.write(line);
    if (level >= WARN) this.#destination.flush();
  }

  #reportDropped(): void {
    const msg = `dropped ${this.#dropped} log lines: the reader of the log is too slow`;
    this.#dropped = 0;
    this.#write(
      `${JSON.stringify({ level: WARN, time: this.#now(), pid, hostname: hostname(), msg })}\n`,
      WARN,
    );
  }
}
