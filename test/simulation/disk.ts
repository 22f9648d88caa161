/** A disk in memory, with inodes: what a process reads of it depends on what others do between two calls. */
import { basename, dirname } from 'node:path';
import type { FileStats, FileSystem, OpenFile } from '../../packages/server/src/ingest/file-system.ts';
import type { Line } from './ledger.ts';
import type { Scheduler, Task } from './scheduler.ts';

export class Inode {
  readonly ino: number;
  bytes = Buffer.alloc(0);
  mtimeMs = 0;
  ctimeMs = 0;
  links = 0;
  handles = 0;
  /** The whole lines that it has. */
  readonly lines = new Set<Line>();

  constructor(ino: number) {
    this.ino = ino;
  }

  get size(): number {
    return this.bytes.length;
  }
}

/** How often a read returns only some of the bytes, and how often a call fails for a reason that passes. */
const SHORT_READ_CHANCE = 0.15;
const ERROR_CHANCE = 0.005;
/** How often a list is read in two parts, so that a rename in between hides a file, or shows it twice. */
const SPLIT_LIST_CHANCE = 0.1;
const CALL_MS_MAX = 3;
/** After a read of some bytes, so that files change before the rest is read. */
const REST_MS_MAX = 500;

export class Disk {
  readonly #scheduler: Scheduler;
  readonly #now: () => number;
  readonly #readInPart: (path: string) => void;
  /** File times are multiples of this. */
  readonly #timeMs: number;
  readonly #names = new Map<string, Inode>();
  readonly #directoryTimesMs = new Map<string, number>();
  readonly #freeInos: number[] = [];
  #inos = 100;
  #fds = 10;
  readonly #opened = new Map<number, { inode: Inode; process: Task['process'] }>();
  /** Set while calls may fail. */
  isFailing = false;
  errors = 0;

  /** `readInPart` is called after a read that returned only some of the bytes. */
  constructor(scheduler: Scheduler, now: () => number, readInPart: (path: string) => void) {
    this.#scheduler = scheduler;
    this.#now = now;
    this.#readInPart = readInPart;
    this.#timeMs = scheduler.random.pick([1, 4, 1_000]);
  }

  find(path: string): Inode | undefined {
    return this.#names.get(path);
  }

  /** The paths of a directory. */
  list(directory: string): string[] {
    return [...this.#names.keys()].filter((path) => dirname(path) === directory).sort();
  }

  create(path: string): Inode {
    const reused = this.#scheduler.random.chance(0.7) ? this.#freeInos.pop() : undefined;
    const inode = new Inode(reused ?? ++this.#inos);
    this.#touch(inode);
    this.#link(path, inode);
    return inode;
  }

  append(inode: Inode, bytes: Buffer, at = inode.size): void {
    // Beyond the end, it leaves a hole.
    inode.bytes = Buffer.concat([inode.bytes, Buffer.alloc(at - inode.size), bytes]);
    this.#touch(inode);
  }

  truncate(inode: Inode): void {
    inode.bytes = Buffer.alloc(0);
    this.#forgetLines(inode);
    this.#touch(inode);
  }

  rename(from: string, to: string): void {
    const inode = this.#names.get(from);
    if (inode === undefined) return;
    this.#unlink(from);
    this.#link(to, inode);
    inode.ctimeMs = this.#time();
  }

  remove(path: string): void {
    const inode = this.#unlink(path);
    if (inode) this.#release(inode);
  }

  /** As gzip and `touch -r` do. */
  setTime(inode: Inode, mtimeMs: number): void {
    inode.mtimeMs = mtimeMs;
    inode.ctimeMs = this.#time();
  }

  /** The file system as a task sees it. */
  access(task: Task): FileSystem {
    const call = async (label: string, path: string, msMax = CALL_MS_MAX) => {
      const { random } = this.#scheduler;
      await this.#scheduler.pause(task, `${label} ${basename(path)}`, random.integer(0, msMax));
      if (!this.isFailing || !random.chance(ERROR_CHANCE)) return;
      this.errors++;
      throw failure('EIO', label, path);
    };
    const existing = (path: string, label: string): Inode => {
      const inode = this.#names.get(path);
      if (inode === undefined) throw failure('ENOENT', label, path);
      return inode;
    };
    return {
      open: async (path) => {
        await call('open', path);
        return this.#open(existing(path, 'open'), path, task, call);
      },
      stat: async (path) => {
        await call('stat', path);
        const timeMs = this.#directoryTimesMs.get(path);
        if (timeMs === undefined) return statsOf(existing(path, 'stat'));
        return { dev: 1, ino: 1, size: 0, mtimeMs: timeMs, ctimeMs: timeMs, isFile: () => false };
      },
      readdir: async (path) => {
        await call('readdir', path);
        const names = this.list(path);
        if (!this.#scheduler.random.chance(SPLIT_LIST_CHANCE)) return names.map((name) => basename(name));
        const first = names.slice(0, names.length / 2);
        await call('readdir', path);
        const second = this.list(path).filter((name) => name > (first.at(-1) ?? ''));
        return [...first, ...second].map((name) => basename(name));
      },
      realpath: async (path) => {
        await call('realpath', path);
        return path;
      },
      readSync: (fd, buffer, offset, length, position) =>
        copy(this.#inode(fd), buffer, offset, length, position),
      now: this.#now,
    };
  }

  /** Closes the files of a process that has ended. */
  closeFiles(process: Task['process']): void {
    for (const [fd, opened] of this.#opened) if (opened.process === process) this.#close(fd);
  }

  #open(
    inode: Inode,
    path: string,
    { process }: Task,
    call: (label: string, path: string, msMax?: number) => Promise<void>,
  ): OpenFile {
    const { random } = this.#scheduler;
    const fd = ++this.#fds;
    this.#opened.set(fd, { inode, process });
    inode.handles++;
    let next = 0;
    let isShort = false;
    return {
      fd,
      read: async (buffer, offset, length, position) => {
        await call('read', path, isShort ? REST_MS_MAX : undefined);
        const from = position ?? next;
        isShort = length > 1 && random.chance(SHORT_READ_CHANCE);
        const available = Math.min(length, Math.max(0, inode.size - from));
        const wanted = isShort && available > 1 ? random.integer(1, available) : length;
        const bytesRead = copy(inode, buffer, offset, wanted, from);
        if (position === null) next += bytesRead;
        if (bytesRead < available) this.#readInPart(path);
        return { bytesRead };
      },
      stat: async () => {
        await call('fstat', path);
        return statsOf(inode);
      },
      close: async () => this.#close(fd),
    };
  }

  #inode(fd: number): Inode {
    const opened = this.#opened.get(fd);
    if (opened === undefined) throw failure('EBADF', 'read', String(fd));
    return opened.inode;
  }

  #close(fd: number): void {
    const opened = this.#opened.get(fd);
    if (opened === undefined) return;
    this.#opened.delete(fd);
    opened.inode.handles--;
    this.#release(opened.inode);
  }

  #link(path: string, inode: Inode): void {
    const replaced = this.#unlink(path);
    inode.links++;
    this.#names.set(path, inode);
    this.#directoryTimesMs.set(dirname(path), this.#time());
    if (replaced) this.#release(replaced);
  }

  #unlink(path: string): Inode | undefined {
    const inode = this.#names.get(path);
    if (inode === undefined) return undefined;
    this.#names.delete(path);
    inode.links--;
    this.#directoryTimesMs.set(dirname(path), this.#time());
    return inode;
  }

  /** An inode without names lives as long as a process has it open. Then its number is used again. */
  #release(inode: Inode): void {
    if (inode.links > 0 || inode.handles > 0) return;
    this.#forgetLines(inode);
    this.#freeInos.push(inode.ino);
  }

  #forgetLines(inode: Inode): void {
    for (const line of inode.lines) line.copies--;
    inode.lines.clear();
  }

  #touch(inode: Inode): void {
    inode.mtimeMs = this.#time();
    inode.ctimeMs = inode.mtimeMs;
  }

  #time(): number {
    return Math.floor(this.#now() / this.#timeMs) * this.#timeMs;
  }
}

function copy({ bytes }: Inode, buffer: Buffer, offset: number, length: number, position: number): number {
  const from = Math.min(position, bytes.length);
  return bytes.copy(buffer, offset, from, from + length);
}

function statsOf({ ino, size, mtimeMs, ctimeMs }: Inode): FileStats {
  return { dev: 1, ino, size, mtimeMs, ctimeMs, isFile: () => true };
}

function failure(code: string, syscall: string, path: string): Error {
  return Object.assign(new Error(`${code}: ${syscall} '${path}'`), { code, syscall, path });
}
