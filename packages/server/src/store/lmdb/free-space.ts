/** A watermark of free space: appends stop before the disk is full, so that revocations and deletions still find room. */
import { statfs } from 'node:fs/promises';
import { StoreNotWritable } from '../store.ts';

/** Kept free: room for thousands of changes of identity, and for other programs to go on. */
const RESERVED_BYTES_MAX = 64 * 1_048_576;
/** Of a small file system, this part. */
const RESERVED_SHARE = 0.05;
/** How old a measurement may be. */
const MEASURED_MS_MAX = 1_000;

export interface FileSystem {
  bsize: number;
  blocks: number;
  bavail: number;
}

export class FreeSpace {
  readonly #folder: string;
  readonly #measure: (folder: string) => Promise<FileSystem>;
  readonly #monotonicNow: () => number;
  #measured: { at: number; error: StoreNotWritable | null } | null = null;

  constructor(
    folder: string,
    measure: (folder: string) => Promise<FileSystem> = statfs,
    monotonicNow = () => performance.now(),
  ) {
    this.#folder = folder;
    this.#measure = measure;
    this.#monotonicNow = monotonicNow;
  }

  /** Rejects while less is free than is kept. */
  async check(): Promise<void> {
    const at = this.#monotonicNow();
    if (this.#measured === null || at - this.#measured.at >= MEASURED_MS_MAX) {
      this.#measured = { at, error: await this.#refusal() };
    }
    if (this.#measured.error !== null) throw this.#measured.error;
  }

  async #refusal(): Promise<StoreNotWritable | null> {
    const measured = await this.#measure(this.#folder).catch(() => null);
    // What the system does not tell is no reason to refuse.
    if (measured === null) return null;
    const { bsize, blocks, bavail } = measured;
    const reserved = Math.min(RESERVED_BYTES_MAX, Math.floor(RESERVED_SHARE * blocks * bsize));
    const free = bavail * bsize;
    if (free >= reserved) return null;
    return new StoreNotWritable(
      `${this.#folder} has ${free} bytes free, less than the ${reserved} that are kept free; nothing was counted`,
      'the disk is full',
    );
  }
}
