/** A log: its writer, and how it is rotated. */
import { dirname } from 'node:path';
import { gzipSync } from 'node:zlib';
import type { FileIngest } from '../../packages/server/src/ingest/file.ts';
import type { Random } from '../random.ts';
import type { Disk, Inode } from './disk.ts';
import type { Line } from './ledger.ts';

interface Rotation {
  by: 'rename' | 'copytruncate';
  names: 'numbered' | 'dated' | 'dated before the extension';
  compress: 'at once' | 'at the next rotation' | 'never';
  /** How many rotated files are kept. */
  keep: number;
}

/** A writer that has written so much is restarted: holes of any length would take most of the time. */
const RESTART_BYTES = 4_000_000;

interface NewLine {
  line: Line;
  text: string;
}

/** Waits in virtual time. */
type Wait = (label: string, ms: number) => Promise<void>;

export class Log {
  readonly path: string;
  readonly ingest: FileIngest;
  readonly rotation: Rotation;
  /** Its lines have the time of the system clock, not that of a machine with the right one. */
  readonly isLocal: boolean;
  /** Its lines are so long that chunks become full. */
  readonly padding: number;
  readonly #disk: Disk;
  readonly #random: Random;
  readonly #now: () => number;
  /** What the writer has open. */
  #file: Inode;
  /** After truncation, such a writer leaves a hole. */
  readonly #keepsOffset: boolean;
  #offset = 0;
  #isRotating = false;
  /** How many files the writer has begun. */
  #files = 0;
  #isInLine = false;

  constructor(path: string, ingest: FileIngest, disk: Disk, random: Random, now: () => number) {
    this.path = path;
    this.ingest = ingest;
    this.#disk = disk;
    this.#random = random;
    this.#now = now;
    this.isLocal = random.chance(0.5);
    this.padding = random.chance(0.2) ? 60_000 : 0;
    this.rotation = {
      by: random.chance(0.6) ? 'rename' : 'copytruncate',
      names: random.pick(['numbered', 'dated', 'dated before the extension']),
      compress: this.padding > 0 ? 'never' : random.pick(['at once', 'at the next rotation', 'never']),
      keep: random.integer(2, 5),
    };
    this.#keepsOffset = this.rotation.by === 'copytruncate' && random.chance(0.3);
    this.#file = disk.create(path);
  }

  /** Whether the writer, and everything that renames or copies the log, is at rest. */
  get isQuiet(): boolean {
    return !this.#isRotating && !this.#isInLine;
  }

  /** Sometimes, part of a line is written later. */
  async write(createLines: () => readonly NewLine[], wait: Wait): Promise<void> {
    if (this.#isInLine) return;
    this.#isInLine = true;
    const file = this.#file;
    for (const { line, text } of createLines()) {
      const bytes = Buffer.from(`${text}\n`);
      const first = this.rotation.by === 'rename' && this.#random.chance(0.1) ? 1 : 0;
      const split = first * this.#random.integer(1, bytes.length - 1);
      if (split > 0) {
        this.#append(file, bytes.subarray(0, split));
        await wait('writes part of a line', this.#random.integer(0, 1_000));
      }
      this.#writeLine(file, line, bytes.subarray(split));
    }
    this.#isInLine = false;
  }

  /** `bytes`: those of the line that are not written yet. */
  #writeLine(file: Inode, line: Line, bytes: Buffer): void {
    this.#append(file, bytes);
    line.file = this.#files;
    addLine(file, line);
  }

  #append(file: Inode, bytes: Buffer): void {
    const at = this.#keepsOffset && this.#offset < RESTART_BYTES ? this.#offset : file.size;
    this.#disk.append(file, bytes, at);
    this.#offset = at + bytes.length;
  }

  /** Returns whether it has rotated the log. `createLines`: what is written at once to a truncated log. */
  async rotate(wait: Wait, createLines: () => readonly NewLine[]): Promise<boolean> {
    if (!this.isQuiet) return false;
    this.#isRotating = true;
    const pause = () => wait('rotates', this.#random.chance(0.8) ? this.#random.integer(0, 20) : 3_000);
    const before = this.rotatedPaths();
    const target = this.#nextName();
    if (this.rotation.names === 'numbered') await this.#shift(pause);
    const expired = this.rotatedPaths().slice(0, -this.rotation.keep);
    for (const path of expired) this.#disk.remove(path);
    await pause();
    if (this.rotation.by === 'rename') await this.#rename(target, wait);
    else await this.#copy(target, pause, createLines);
    const newest = this.rotation.names === 'numbered' ? `${this.path}.2` : before.at(-1);
    const compressed = { 'at once': target, 'at the next rotation': newest, never: undefined };
    await this.#compress(compressed[this.rotation.compress], pause);
    this.#isRotating = false;
    return true;
  }

  /** The rotated files, oldest first. */
  rotatedPaths(): string[] {
    const paths = this.#disk
      .list(dirname(this.path))
      .filter((path) => path !== this.path && !path.endsWith('.bak'));
    if (this.rotation.names !== 'numbered') return paths;
    const number = (path: string) => Number(/\.(\d+)(?:\.gz)?$/.exec(path)?.[1]);
    return paths.sort((a, b) => number(b) - number(a));
  }

  #nextName(): string {
    const digits = new Date(this.#now()).toISOString().replace(/\D/g, '').slice(0, 17);
    const date = `${digits.slice(0, 8)}-${digits.slice(8)}`;
    if (this.rotation.names === 'numbered') return `${this.path}.1`;
    return this.rotation.names === 'dated'
      ? `${this.path}-${date}`
      : this.path.replace(/\.log$/, `-${date}.log`);
  }

  async #shift(pause: () => Promise<void>): Promise<void> {
    for (const path of this.rotatedPaths()) {
      const [, stem = '', number = '', gz = ''] = /^(.*\.)(\d+)(\.gz)?$/.exec(path) ?? [];
      this.#disk.rename(path, `${stem}${Number(number) + 1}${gz}`);
      await pause();
    }
  }

  /** The writer continues in the renamed file until it opens the new one. */
  async #rename(target: string, wait: Wait): Promise<void> {
    this.#disk.rename(this.path, target);
    if (this.#random.chance(0.5)) await wait('rotates', this.#random.integer(0, 2_000));
    if (this.#random.chance(0.7)) this.#disk.create(this.path);
    await wait('reopens its log', this.#random.chance(0.7) ? this.#random.integer(0, 50) : 30_000);
    while (this.#isInLine) await wait('reopens its log', 100);
    this.#file = this.#disk.find(this.path) ?? this.#disk.create(this.path);
    this.#offset = this.#file.size;
    this.#files++;
  }

  async #copy(
    target: string,
    pause: () => Promise<void>,
    createLines: () => readonly NewLine[],
  ): Promise<void> {
    const live = this.#file;
    await this.#fill(this.#disk.create(target), live, () => live.bytes, pause);
    const { size } = live;
    this.#truncate(live);
    this.#files++;
    // Its length does not show that it was truncated.
    if (this.padding === 0 && this.#random.chance(0.6))
      while (live.size <= size)
        for (const { line, text } of createLines()) this.#writeLine(live, line, Buffer.from(`${text}\n`));
  }

  async #compress(path: string | undefined, pause: () => Promise<void>): Promise<void> {
    const plain = path === undefined || path.endsWith('.gz') ? undefined : this.#disk.find(path);
    if (path === undefined || plain === undefined) return;
    const bytes = gzipSync(plain.bytes);
    const compressed = this.#disk.create(`${path}.gz`);
    await this.#fill(compressed, { lines: new Set(plain.lines) }, () => bytes, pause);
    this.#disk.setTime(compressed, plain.mtimeMs);
    await pause();
    this.#disk.remove(path);
  }

  /** Copies in parts: in between, others see a file that is too short. */
  async #fill(
    file: Inode,
    { lines }: Pick<Inode, 'lines'>,
    bytes: () => Buffer,
    pause: () => Promise<void>,
  ): Promise<void> {
    for (let parts = this.#random.integer(1, 3); parts > 0; parts--) {
      const end = file.size + Math.floor((bytes().length - file.size) / parts);
      this.#disk.append(file, bytes().subarray(file.size, end));
      if (parts === 1) for (const line of lines) addLine(file, line);
      await pause();
    }
  }

  /** Lines that were not copied are lost, and nobody can know which. */
  #truncate(file: Inode): void {
    for (const line of file.lines)
      if (line.copies === 1 && line.expected === 'counted') line.expected = 'either';
    this.#disk.truncate(file);
  }

  /** Someone empties the log. If `follow` has counted lines of it, it warns. */
  empty(): void {
    if (!this.isQuiet) return;
    const isKnown = [...this.#file.lines].some(({ isFollowed }) => isFollowed);
    if (isKnown) this.#disk.truncate(this.#file);
    else this.#truncate(this.#file);
  }

  /** Someone truncates the log and writes the same lines again. */
  refill(): void {
    if (!this.isQuiet) return;
    const bytes = Buffer.from(this.#file.bytes);
    const lines = [...this.#file.lines];
    for (const line of lines) line.copies++;
    this.#disk.truncate(this.#file);
    this.#disk.append(this.#file, bytes);
    for (const line of lines) this.#file.lines.add(line);
  }

  /** Someone copies a file, under a name that rotation does not give. */
  backUp(): void {
    const path = this.#random.pick([this.path, ...this.rotatedPaths()]);
    const original = this.#disk.find(path);
    if (!original || path.endsWith('.gz')) return;
    const copy = this.#disk.create(`${this.path}.bak`);
    this.#disk.append(copy, Buffer.from(original.bytes));
  }

  removeOldest(): void {
    const [oldest] = this.rotatedPaths();
    if (oldest !== undefined && !this.#isRotating) this.#disk.remove(oldest);
  }
}

function addLine(file: Inode, line: Line): void {
  if (file.lines.has(line)) return;
  file.lines.add(line);
  line.copies++;
}
