/** Bytes of a file or stream, looked at before they are taken. */

/** A line may be this long; a longer one is dropped whole. */
export const LINE_BYTES_MAX = 1_048_576;

const NEWLINE = 0x0a;

export class ByteReader {
  readonly #chunks: AsyncIterator<Uint8Array>;
  #buffer: Buffer = Buffer.alloc(0);
  #ended = false;
  /** Why the stream ended before its end. */
  failure: unknown = null;

  constructor(stream: AsyncIterable<Uint8Array>) {
    this.#chunks = stream[Symbol.asyncIterator]();
  }

  /** At least `bytes` of what comes next, or all that is left. */
  async peek(bytes: number): Promise<Buffer> {
    if (this.#buffer.length >= bytes || this.#ended) return this.#buffer;
    const parts: Uint8Array[] = [this.#buffer];
    let length = this.#buffer.length;
    while (length < bytes) {
      const next = await this.#chunks.next().catch((error: unknown) => {
        // What came before it is good; whoever reads on to the end is told.
        this.failure = error;
        return { done: true } as const;
      });
      if (next.done) {
        this.#ended = true;
        break;
      }
      parts.push(next.value);
      length += next.value.length;
    }
    this.#buffer = Buffer.concat(parts, length);
    return this.#buffer;
  }

  /** At least one whole line of what comes next, or `bytes`, or all that is left. */
  async peekLine(bytes: number): Promise<Buffer> {
    while (this.#buffer.length < bytes && !this.#ended && !this.#buffer.includes(NEWLINE)) {
      await this.peek(this.#buffer.length + 1);
    }
    return this.#buffer;
  }

  take(bytes: number): void {
    this.#buffer = this.#buffer.subarray(bytes);
  }

  /** Lets go of the stream, for a reader that stops before its end. */
  async close(): Promise<void> {
    await this.#chunks.return?.();
  }
}

/** How many of the bytes are whole lines: up to and with the last line end. */
export function wholeLines(bytes: Buffer): number {
  return bytes.lastIndexOf(NEWLINE) + 1;
}

/** Where the rest of a line that began earlier ends; the next line starts there. */
export function endOfLine(bytes: Buffer): number {
  const newline = bytes.indexOf(NEWLINE);
  return newline === -1 ? bytes.length : newline + 1;
}

export function endsLine(bytes: Buffer): boolean {
  return bytes[bytes.length - 1] === NEWLINE;
}

/** The lines of a block, without their ends; blank ones are left out, but counted. */
export function* splitLines(block: Buffer, firstNumber: number): Generator<{ number: number; text: string }> {
  let number = firstNumber;
  for (let start = 0; start < block.length; number++) {
    const newline = block.indexOf(NEWLINE, start);
    const end = newline === -1 ? block.length : newline;
    const text = block.toString('utf8', start, end).trim();
    if (text.length > 0) yield { number, text };
    start = end + 1;
  }
}

export function countLineEnds(bytes: Buffer): number {
  let lines = 0;
  for (let at = bytes.indexOf(NEWLINE); at !== -1; at = bytes.indexOf(NEWLINE, at + 1)) lines++;
  return lines;
}
