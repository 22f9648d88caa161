/** Bytes of a file or stream, looked at before they are taken. */

/** A line may be this long; a longer one is dropped whole. */
export const LINE_BYTES_MAX = 1_048_576;

const NEWLINE = 0x0a;
const NUL = 0x00;
const CARRIAGE_RETURN = 0x0d;
const HASH_SIGN = 0x23;

/** More than is ever looked at, so that what is left of one look rarely has to be moved for the next. */
const BUFFER_BYTES = 4 * LINE_BYTES_MAX;

/** What it shows is good until the next look: the memory is used again, because new memory for all would take longer. */
export class ByteReader {
  readonly #chunks: AsyncIterator<Uint8Array>;
  #memory = Buffer.allocUnsafeSlow(0);
  #buffer: Buffer = this.#memory;
  #ended = false;
  /** Why the stream ended before its end. */
  failure: unknown = null;

  constructor(stream: AsyncIterable<Uint8Array>) {
    this.#chunks = stream[Symbol.asyncIterator]();
  }

  /** At least `bytes` of what comes next, or all that is left. */
  async peek(bytes: number): Promise<Buffer> {
    while (this.#buffer.length < bytes && !this.#ended) {
      const next = await this.#chunks.next().catch((error: unknown) => {
        // What came before it is good; whoever reads on to the end is told.
        this.failure = error;
        return { done: true } as const;
      });
      if (next.done) this.#ended = true;
      else this.#add(next.value);
    }
    return this.#buffer;
  }

  #add(chunk: Uint8Array): void {
    const left = this.#buffer.length;
    const length = left + chunk.length;
    const start = this.#buffer.byteOffset;
    let memory = this.#memory;
    if (start + length <= memory.length) {
      memory.set(chunk, start + left);
      this.#buffer = memory.subarray(start, start + length);
      return;
    }
    if (length > memory.length) memory = Buffer.allocUnsafeSlow(Math.max(BUFFER_BYTES, 2 * length));
    memory.set(this.#buffer, 0);
    memory.set(chunk, left);
    this.#memory = memory;
    this.#buffer = memory.subarray(0, length);
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

/**
 * Where the NUL bytes from here on end. A writer that keeps its position in a log that copytruncate has cut leaves a
 * hole in front of its next line, as long as the log was: it belongs to no line.
 */
export function endOfHole(bytes: Buffer, from: number, end = bytes.length): number {
  let at = from;
  if (bytes[at] !== NUL) return at;
  // A hole can have gigabytes: compared many bytes at a time, they take a tenth of the time.
  const step = ZEROS.length;
  while (at + step <= end && bytes.compare(ZEROS, 0, step, at, at + step) === 0) at += step;
  while (at < end && bytes[at] === NUL) at++;
  return at;
}

const ZEROS = Buffer.alloc(16_384);

/** A header line is shorter than this: the column names of CloudFront take some 500 bytes. */
const HEADER_LINE_BYTES_MAX = 4_096;

/**
 * Where the first line that tells files apart begins: behind holes, blank lines and header lines like `#Version: 1.0`,
 * with which every file of a log can begin. A header line without an end is not passed: `hasContent` is false then.
 */
export function contentStart(bytes: Buffer): number {
  let at = 0;
  for (;;) {
    at = endOfHole(bytes, at);
    if (bytes[at] === NEWLINE || bytes[at] === CARRIAGE_RETURN) at++;
    else if (bytes[at] !== HASH_SIGN) return at;
    else {
      const newline = bytes.subarray(at, at + HEADER_LINE_BYTES_MAX).indexOf(NEWLINE);
      if (newline === -1) return at;
      at += newline + 1;
    }
  }
}

/** Whether there is a line that tells files apart, or the beginning of one. */
export function hasContent(bytes: Buffer): boolean {
  const rest = bytes.subarray(contentStart(bytes));
  return rest.length > 0 && (rest[0] !== HASH_SIGN || rest.length >= HEADER_LINE_BYTES_MAX);
}

/** Whether bytes that follow stand inside a line: `before` says whether these did. A hole begins no line. */
export function endsInsideLine(bytes: Buffer, before: boolean): boolean {
  if (endOfHole(bytes, 0) === bytes.length) return before;
  let end = bytes.length;
  while (bytes[end - 1] === NUL) end--;
  return bytes[end - 1] !== NEWLINE;
}

/** Where the line that this place is in ends: at its line end, or where the bytes do. */
export function lineEnd(bytes: Buffer, from: number): number {
  const newline = bytes.indexOf(NEWLINE, from);
  return newline === -1 ? bytes.length : newline;
}

/** The lines of a block, without their ends; blank ones are left out, but counted. */
export function* splitLines(block: Buffer, firstNumber: number): Generator<{ number: number; text: string }> {
  let number = firstNumber;
  for (let start = 0; start < block.length; number++) {
    const end = lineEnd(block, start);
    const text = lineText(block, start, end);
    if (text.length > 0) yield { number, text };
    start = end + 1;
  }
}

/** A part of a long line in a log of Kubernetes: space at its end is in the middle of the line. */
const CRI_PART = /^\d{4}-\S{15,30} std(?:out|err) P[ :]/;

/** Without a hole in front of the line. */
export function lineText(block: Buffer, start: number, end: number): string {
  const text = block.toString('utf8', endOfHole(block, start, end), end);
  const trimmed = text.trim();
  return trimmed.length < text.length && CRI_PART.test(text) ? text : trimmed;
}

/** Lines that stand together in memory: to be read one by one, or many at once (access-lines.ts). */
export class LineBlock implements Iterable<{ number: number; text: string }> {
  readonly bytes: Buffer;
  /** The number of the first line. */
  readonly first: number;

  constructor(bytes: Buffer, first: number) {
    this.bytes = bytes;
    this.first = first;
  }

  [Symbol.iterator](): Generator<{ number: number; text: string }> {
    return splitLines(this.bytes, this.first);
  }
}

export function countLineEnds(bytes: Buffer): number {
  let lines = 0;
  for (let at = bytes.indexOf(NEWLINE); at !== -1; at = bytes.indexOf(NEWLINE, at + 1)) lines++;
  return lines;
}
