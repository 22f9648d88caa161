/** A buffered, bounded log stream that writes to a file descriptor in the background. */
import { hostname } from 'node:os';
import { pid } from 'node:process';
import { setTimeout as sleep } from 'node:timers/promises';
import sonicBoom, { type SonicBoom } from 'sonic-boom';

/** If a slow reader is further behind, access lines are dropped and counted. Requests never wait for the log. */
const ACCESS_BYTES_MAX = 4 * 1_048_576;
/** The same limit for warnings and errors, which they reach only if the disk of the log is full. */
const BUFFER_BYTES_MAX = 16 * 1_048_576;
/** One system call for about 80 lines. */
const BATCH_CHARACTERS = 16_384;
/** Less than PIPE_BUF, which a pipe writes atomically: lines of several processes never mix. */
const SHARED_BATCH_CHARACTERS = 3_500;
/** The longest time that a line waits for others. */
const FLUSH_MS = 100;
/** Level `warn` of pino. Lines of this level and above are kept, however slow the reader is. */
const WARN = 40;

/** pino sets `lastLevel` before each line of a stream that has this property. */
const PINO_METADATA: unique symbol = Symbol.for('pino.metadata');

export class LogStream {
  readonly [PINO_METADATA] = true;
  lastLevel = 0;
  readonly #destination: SonicBoom;
  readonly #now: () => number;
  readonly #batchCharacters: number;
  #batch: string[] = [];
  #batchLength = 0;
  /** Bytes handed to the destination and not written yet. */
  #pendingBytes = 0;
  #dropped = 0;
  /** Whether the last write failed. */
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

  /** Writes a line of pino, of the level in `lastLevel`. */
  write(line: string): void {
    this.#write(line, this.lastLevel);
  }

  /** Writes a line that is dropped if the reader is too slow. */
  writeAccess(line: string): void {
    this.#write(line, 0);
  }

  /** Writes all pending lines before it returns, for the end of the process. */
  flushSync(): void {
    this.#handOver();
    this.#destination.flushSync();
  }

  /** Resolves when all pending lines are written, or a write has failed. */
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
    const line = { level: WARN, time: this.#now(), pid, hostname: hostname(), msg };
    this.#write(`${JSON.stringify(line)}\n`, WARN);
  }
}
