/** Log lines on their way to a file descriptor: buffered, written in the background, and bounded. */
import { hostname } from 'node:os';
import { pid } from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import sonicBoom, { type SonicBoom } from 'sonic-boom';

/** What a slow reader may be behind. Beyond it, access lines are dropped and counted; requests never wait for the log. */
const ACCESS_BYTES_MAX = 4 * 1_048_576;
/** The same for warnings and errors: years of them, unless the disk that takes the log is full. */
const BUFFER_BYTES_MAX = 16 * 1_048_576;
/** Lines are written together: one system call for some 80 of them. */
const BATCH_CHARACTERS = 16_384;
/** A pipe takes this much at once (PIPE_BUF): in batches of this size, lines of several processes never mix. */
const SHARED_BATCH_CHARACTERS = 3_500;
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
  readonly #batchCharacters: number;
  #batch: string[] = [];
  #batchLength = 0;
  /** Handed to the destination, and not written yet. */
  #pendingBytes = 0;
  #dropped = 0;
  /** The last write failed. */
  #failed = false;

  /** `isShared`: other processes write to the same descriptor. */
  constructor(fd: number, now: () => number, isShared = false) {
    this.#now = now;
    this.#batchCharacters = isShared ? SHARED_BATCH_CHARACTERS : BATCH_CHARACTERS;
    this.#destination = new sonicBoom.SonicBoom({ fd, sync: false, maxWrite: this.#batchCharacters });
    this.#destination.on('write', (bytes: number) => {
      this.#failed = false;
      this.#pendingBytes -= bytes;
      if (this.#dropped > 0 && this.#pendingBytes < ACCESS_BYTES_MAX / 2) this.#reportDropped();
    });
    // A log that cannot be written must not stop the service. The next line tries again.
    this.#destination.on('error', () => {
      this.#failed = true;
    });
    setInterval(() => this.#handOver(), FLUSH_MS).unref();
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
    this.#handOver();
    this.#destination.flushSync();
  }

  /** Resolves when all that is pending is written, or cannot be. */
  async flush(): Promise<void> {
    this.#handOver();
    while (this.#pendingBytes > 0 && !this.#failed) await sleep(1);
  }

  #write(line: string, level: number): void {
    if (this.#pendingBytes > (level < WARN ? ACCESS_BYTES_MAX : BUFFER_BYTES_MAX)) {
      this.#dropped++;
      return;
    }
    this.#batch.push(line);
    this.#batchLength += line.length;
    if (level >= WARN || this.#batchLength >= this.#batchCharacters) this.#handOver();
  }

  #handOver(): void {
    if (this.#batch.length === 0) return;
    const text = this.#batch.join('');
    this.#batch = [];
    this.#batchLength = 0;
    this.#pendingBytes += Buffer.byteLength(text);
    this.#destination.write(text);
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
