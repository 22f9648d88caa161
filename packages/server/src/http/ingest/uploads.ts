/**
 * Receives request bodies of any length: no faster than they are counted, no slower than a minimum rate, and with a
 * memory limit for all uploads that is shared fairly between owners.
 */
import type { Readable } from 'node:stream';
import { ApiError, malformed, retryLater } from '../../errors.ts';

/** The most that one read returns. An upload reserves this much before it reads. */
export const READ_BYTES = 65_536;
/** An upload may be slower at first, and pause for as long as it was ahead of this rate. */
const RATE_BYTES_PER_S_MIN = 16_384;
const SLOW_MS_AT_FIRST = 10_000;
const SLOW_MS_MAX = 30_000;
/** How long an upload waits for room before it fails. */
const WAIT_MS_MAX = 20_000;

interface BudgetOptions {
  /** The limit of all uploads together. */
  bytesMax: number;
  /** How many owners may continue one upload over their share: each takes as much as is counted at once. */
  exceptionsMax: number;
}

/** An upload and its bytes in memory. */
export interface Upload {
  /** Must be awaited before each read. Throws ApiError if there is no room for too long. */
  room(): Promise<void>;
  /** Records the result of the read. */
  received(bytes: number): void;
  /** Records that bytes are no longer in memory. */
  counted(bytes: number): void;
  /** Must be called, however the upload ends. */
  close(): void;
}

interface Owner {
  bytes: number;
  uploads: number;
  /**
   * The upload that may exceed the share. Without it, uploads that together fill the share of their owner would wait for
   * each other forever, because none has enough bytes for a chunk.
   */
  exception: Upload | null;
  waiting: { upload: Upload; start(): void }[];
}

/**
 * Memory for bytes that are received and not yet counted. An owner may use as much as is left for others: one owner half
 * of the budget, two owners a third each. So there is always room for the next owner, however much the others send.
 */
export class UploadBudget {
  readonly #options: BudgetOptions;
  /** The owner that got room most recently comes last. */
  readonly #owners = new Map<string, Owner>();
  #bytes = 0;
  #exceptions = 0;

  constructor(options: BudgetOptions) {
    this.#options = options;
  }

  /** Bytes in use. */
  get bytes(): number {
    return this.#bytes;
  }

  open(name: string): Upload {
    const owner = this.#owners.get(name) ?? { bytes: 0, uploads: 0, exception: null, waiting: [] };
    this.#owners.set(name, owner);
    owner.uploads++;
    let bytes = 0;
    let reserved = 0;
    let isClosed = false;
    const upload: Upload = {
      room: async () => {
        const isFirst = owner.waiting.length === 0 || owner.exception === upload;
        if (!isFirst || !this.#admit(upload, owner)) await this.#wait(upload, owner);
        reserved = READ_BYTES;
      },
      received: (count) => {
        this.#add(owner, count - reserved);
        reserved = 0;
        bytes += count;
      },
      counted: (count) => {
        bytes -= count;
        this.#release(upload, owner, count);
      },
      close: () => {
        if (isClosed) return;
        isClosed = true;
        if (--owner.uploads === 0) this.#owners.delete(name);
        this.#release(upload, owner, bytes + reserved);
      },
    };
    return upload;
  }

  #add(owner: Owner, bytes: number): void {
    owner.bytes += bytes;
    this.#bytes += bytes;
  }

  #release(upload: Upload, owner: Owner, bytes: number): void {
    this.#add(owner, -bytes);
    if (owner.exception === upload) {
      owner.exception = null;
      this.#exceptions--;
    }
    this.#startWaiting();
  }

  #admit(upload: Upload, owner: Owner): boolean {
    const left = this.#options.bytesMax - this.#bytes;
    const hasRoom = READ_BYTES <= left && owner.bytes + READ_BYTES <= left;
    if (!hasRoom && owner.exception !== upload) {
      if (owner.exception !== null || this.#exceptions >= this.#options.exceptionsMax) return false;
      owner.exception = upload;
      this.#exceptions++;
    }
    this.#add(owner, READ_BYTES);
    return true;
  }

  #wait(upload: Upload, owner: Owner): Promise<void> {
    return new Promise((resolve, reject) => {
      const waiting = { upload, start: resolve };
      const timer = setTimeout(() => {
        owner.waiting.splice(owner.waiting.indexOf(waiting), 1);
        const message = `the service is busy: the upload waited ${WAIT_MS_MAX / 1_000} s for its turn`;
        reject(retryLater('WAF.5001', message, 5));
      }, WAIT_MS_MAX);
      waiting.start = () => {
        clearTimeout(timer);
        resolve();
      };
      owner.waiting.push(waiting);
    });
  }

  #startWaiting(): void {
    for (const [name, owner] of [...this.#owners]) {
      for (let next = owner.waiting[0]; next && this.#admit(next.upload, owner); next = owner.waiting[0]) {
        owner.waiting.shift();
        this.#owners.delete(name);
        this.#owners.set(name, owner);
        next.start();
      }
    }
  }
}

/** Yields a body as it arrives. Throws ApiError if it is too large or too slow, or if the client disconnects. */
export async function* receive(body: Readable, bytesMax: number): AsyncGenerator<Buffer> {
  let bytes = 0;
  let slowMs = SLOW_MS_AT_FIRST;
  for (;;) {
    const chunk: Buffer | null = body.read();
    if (chunk === null) {
      if (body.readableEnded) return;
      if (body.destroyed) throw malformed('the client closed the connection');
      const startedAt = performance.now();
      if ((await nextEvent(body, slowMs)) === 'timeout') throw tooSlow();
      slowMs -= performance.now() - startedAt;
      continue;
    }
    bytes += chunk.length;
    if (bytes > bytesMax) throw tooLarge(bytesMax);
    slowMs = Math.min(SLOW_MS_MAX, slowMs + (chunk.length / RATE_BYTES_PER_S_MIN) * 1_000);
    yield chunk;
  }
}

/** Resolves when there may be something to read, when the body has ended, or after the timeout. */
function nextEvent(body: Readable, timeoutMs: number): Promise<'event' | 'timeout'> {
  return new Promise((resolve) => {
    const end = (result: 'event' | 'timeout') => {
      clearTimeout(timer);
      for (const name of BODY_EVENTS) body.off(name, onEvent);
      resolve(result);
    };
    const onEvent = () => end('event');
    const timer = setTimeout(end, Math.max(0, timeoutMs), 'timeout');
    for (const name of BODY_EVENTS) body.on(name, onEvent);
  });
}

const BODY_EVENTS = ['readable', 'end', 'error', 'close'] as const;

function tooSlow(): ApiError {
  const rate = `${RATE_BYTES_PER_S_MIN / 1_024} KiB/s`;
  return malformed(`the upload is too slow: send at least ${rate}, or split it into smaller pushes`);
}

export function tooLarge(bytesMax: number, advice = ''): ApiError {
  return new ApiError('WAF.7001', `request body exceeds ${sizeText(bytesMax)}${advice}`);
}

/** Formats 65536 as `64 KiB`; sizes that are not a multiple of a unit stay in bytes. */
export function sizeText(bytes: number): string {
  for (const [unit, name] of UNITS) if (bytes >= unit && bytes % unit === 0) return `${bytes / unit} ${name}`;
  return `${bytes} bytes`;
}

const UNITS = [
  [1_073_741_824, 'GiB'],
  [1_048_576, 'MiB'],
  [1_024, 'KiB'],
] as const;
