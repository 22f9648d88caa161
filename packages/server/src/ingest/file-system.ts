/** What `follow` needs of the file system. Simulations have one of their own (test/simulation). */
import { readSync } from 'node:fs';
import { open, readdir, realpath, stat } from 'node:fs/promises';

export interface FileSystem {
  /** For reading. */
  open(path: string): Promise<OpenFile>;
  stat(path: string): Promise<FileStats>;
  readdir(path: string): Promise<string[]>;
  realpath(path: string): Promise<string>;
  /** In the same turn, so that nothing changes between the read and what depends on it. Returns the number of bytes. */
  readSync(fd: number, buffer: Buffer, offset: number, length: number, position: number): number;
  /** The clock that file times come from. */
  now(): number;
}

/** What FileHandle of Node.js has of it. */
export interface OpenFile {
  readonly fd: number;
  /** Without a position (null), continues after the last such read. */
  read(
    buffer: Buffer,
    offset: number,
    length: number,
    position: number | null,
  ): Promise<{ bytesRead: number }>;
  stat(): Promise<FileStats>;
  close(): Promise<void>;
}

export interface FileStats {
  dev: number;
  ino: number;
  size: number;
  mtimeMs: number;
  ctimeMs: number;
  isFile(): boolean;
}

export const NODE_FILES: FileSystem = {
  open: (path) => open(path, 'r'),
  stat: (path) => stat(path),
  readdir: (path) => readdir(path),
  realpath: (path) => realpath(path),
  readSync,
  now: () => Date.now(),
};
