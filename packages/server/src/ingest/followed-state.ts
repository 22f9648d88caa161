/** What the store keeps about a followed path, and what of it is not stored yet. */
import type { FollowedFile, FollowedPath, Store } from '../store/store.ts';
import type { Identity, RotatedFile } from './rotated-files.ts';

export type FileVersion = Pick<RotatedFile, 'id' | 'mtimeMs' | 'bytes' | 'hasRotatedName'>;

export class FollowedState {
  readonly #store: Store;
  readonly #project: string;
  #stored: FollowedPath;
  current: FollowedPath;

  constructor(store: Store, project: string, stored: FollowedPath) {
    this.#store = store;
    this.#project = project;
    this.#stored = stored;
    this.current = stored;
  }

  /** What is known about a file that need not be read. */
  find(file: FileVersion, { hash, earlierHash }: Identity, isCompressed: boolean): FollowedFile | undefined {
    return this.current.files.find((known) => {
      if (known.first_line_hash !== hash && known.first_line_hash !== earlierHash) return false;
      // Anything but rotation can have made it: only the very same file is meant.
      if (known.state === 'other_name' && file.hasRotatedName) return false;
      const isSameTime = seconds(known.modified_ms) === seconds(file.mtimeMs);
      // Compression keeps the time, but not always the part of a second, and changes the length.
      if (isCompressed || known.state === 'left_alone') return isSameTime;
      return known.modified_ms === file.mtimeMs && known.bytes === file.bytes;
    });
  }

  /** A file that was left alone and may be this one: something was added, or compression did not keep the time. */
  findOlder(file: FileVersion, { hash }: Identity, isCompressed: boolean): FollowedFile | undefined {
    return this.current.files.find(
      ({ first_line_hash, state, bytes }) =>
        first_line_hash === hash && state === 'left_alone' && (isCompressed || file.bytes >= bytes),
    );
  }

  forget(file: FollowedFile): void {
    this.current = { ...this.current, files: this.current.files.filter((other) => other !== file) };
  }

  record(file: Pick<FileVersion, 'mtimeMs' | 'bytes'>, hash: string, state: FollowedFile['state']): void {
    const others = this.current.files.filter(
      ({ first_line_hash, modified_ms }) => first_line_hash !== hash || modified_ms !== file.mtimeMs,
    );
    this.current = { ...this.current, files: [...others, fileEntry(hash, state, file)] };
  }

  /** The state to store in the transaction of the batch that begins a file. */
  begin(hash: string, at: number): FollowedPath {
    const files = this.current.files.filter(({ first_line_hash }) => first_line_hash !== hash);
    this.current = { ...this.current, begun: { first_line_hash: hash, at }, files };
    return this.current;
  }

  /** Forgets finished files that are gone. Those left alone stay known: one may be missing in a list while it is renamed. */
  forgetAllBut(present: readonly { hash: string; mtimeMs: number }[]): void {
    const isPresent = (file: FollowedFile) =>
      present.some(
        ({ hash, mtimeMs }) =>
          hash === file.first_line_hash && seconds(mtimeMs) === seconds(file.modified_ms),
      );
    const files = this.current.files.filter((file) => file.state === 'left_alone' || isPresent(file));
    if (files.length < this.current.files.length) this.current = { ...this.current, files };
  }

  async save(): Promise<void> {
    const state = this.current;
    if (state === this.#stored) return;
    await this.#store.putFollowedPath(this.#project, state);
    this.#stored = state;
  }
}

export function fileEntry(
  hash: string,
  state: FollowedFile['state'],
  { mtimeMs, bytes }: Pick<FileVersion, 'mtimeMs' | 'bytes'>,
): FollowedFile {
  return { first_line_hash: hash, state, modified_ms: mtimeMs, bytes };
}

function seconds(timeMs: number): number {
  return Math.floor(timeMs / 1_000);
}
