/** The files that the operands of a command stand for: directories with their files, and patterns that no shell has expanded. */
import { closeSync, openSync, readdirSync, readSync, type Stats, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { MAGIC_BYTES, notText } from './compression.ts';
import { isRotatedName } from './rotated-files.ts';

export interface InputFile {
  /** `-` is standard input. */
  path: string;
  /** 0 if it is unknown. */
  bytes: number;
  /** Neither a pipe nor standard input: it can be read again. */
  isRegular: boolean;
}

interface Inputs {
  files: InputFile[];
  /** What cannot be read, with the code of the error. `EMPTY`: nothing matches the pattern, or the directory has no file. */
  problems: { path: string; code: string }[];
  /** What directories have besides logs. */
  skipped: { path: string; what: string }[];
}

/** Directories inside each other: deeper ones are links in a circle, or not logs. */
const DEPTH_MAX = 32;

/**
 * The files in the order of the operands. Those of a directory or a pattern are sorted by their time, oldest first, as
 * rotation leaves them.
 */
export function findInputs(operands: readonly string[]): Inputs {
  const inputs: Inputs = { files: [], problems: [], skipped: [] };
  for (const operand of operands) {
    if (operand === '-') {
      inputs.files.push({ path: operand, bytes: 0, isRegular: false });
      continue;
    }
    const found: (InputFile & { mtimeMs: number })[] = [];
    const isPattern = isPatternOnly(operand);
    for (const path of isPattern ? matches(operand) : [operand])
      addPath(path, isPattern ? 1 : 0, found, inputs);
    found.sort((a, b) => a.mtimeMs - b.mtimeMs || (a.path < b.path ? -1 : 1));
    inputs.files.push(...found.map(({ path, bytes, isRegular }) => ({ path, bytes, isRegular })));
    const isReported = inputs.problems.some(({ path }) => path.startsWith(operand));
    if (found.length === 0 && !isReported) inputs.problems.push({ path: operand, code: 'EMPTY' });
  }
  return inputs;
}

function addPath(
  path: string,
  depth: number,
  found: (InputFile & { mtimeMs: number })[],
  inputs: Inputs,
  isLink = false,
): void {
  try {
    const stats = statSync(path);
    if (stats.isDirectory()) {
      // It may lead back here.
      if (isLink) inputs.skipped.push({ path, what: 'a link to a directory' });
      else if (depth === DEPTH_MAX)
        inputs.skipped.push({ path, what: `more than ${DEPTH_MAX} directories deep` });
      else addDirectory(path, depth + 1, found, inputs);
      return;
    }
    const what = depth === 0 ? null : whyNoLog(path, stats);
    if (what !== null) inputs.skipped.push({ path, what });
    else found.push({ path, bytes: stats.size, isRegular: stats.isFile(), mtimeMs: stats.mtimeMs });
  } catch (error) {
    const { code = 'unknown error' } = error as NodeJS.ErrnoException;
    if (isLink && code === 'ELOOP') inputs.skipped.push({ path, what: 'a link that leads to itself' });
    else inputs.problems.push({ path, code });
  }
}

function addDirectory(
  directory: string,
  depth: number,
  found: (InputFile & { mtimeMs: number })[],
  inputs: Inputs,
): void {
  for (const entry of readdirSync(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (entry.name.startsWith('.')) inputs.skipped.push({ path, what: 'hidden' });
    else addPath(path, depth, found, inputs, entry.isSymbolicLink());
  }
}

/** Why a file in a directory is not read as a log; null if it may be one. */
function whyNoLog(path: string, stats: Stats): string | null {
  if (!stats.isFile()) return 'not a file';
  const start = Buffer.alloc(Math.min(stats.size, MAGIC_BYTES));
  const fd = openSync(path, 'r');
  try {
    return notText(start.subarray(0, readSync(fd, start, 0, start.length, 0)));
  } finally {
    closeSync(fd);
  }
}

/** Whether the operand is a pattern, and not the name of an existing file. */
export function isPatternOnly(operand: string): boolean {
  return /[*?[]/.test(operand) && statsOf(operand) === null;
}

/** Null if it does not exist, or cannot be reached. */
function statsOf(path: string): Stats | null {
  try {
    return statSync(path);
  } catch {
    return null;
  }
}

/** The paths that match a pattern with `*`, `?` and `[...]`, as in a shell: wildcards match no `/`, and no dot at the start. */
function matches(pattern: string, beforeReading: (directory: string) => void = () => {}): string[] {
  const parent = dirname(pattern);
  const directories = isPatternOnly(parent) ? matches(parent, beforeReading) : [parent];
  const isMatch = nameMatcher(basename(pattern));
  const prefix =
    pattern.startsWith('./') || parent !== '.' ? (directory: string) => `${directory}/` : () => '';
  return directories.flatMap((directory) => {
    beforeReading(directory);
    try {
      const names = readdirSync(directory).filter(isMatch).sort();
      return names.map((name) => (directory === '/' ? `/${name}` : `${prefix(directory)}${name}`));
    } catch {
      return [];
    }
  });
}

function nameMatcher(pattern: string): (name: string) => boolean {
  const source = pattern.replace(/\[[!^]?\]?[^\]]*\]|[*?]|[^*?[]+|\[/g, (part) => {
    if (part === '*') return '.*';
    if (part === '?') return '.';
    if (part.length > 2 && part.startsWith('[') && part.endsWith(']')) {
      const isNegated = /^\[[!^]/.test(part);
      return `[${isNegated ? '^' : ''}${part.slice(isNegated ? 2 : 1, -1).replace(/[\\\]^[]/g, '\\$&')}]`;
    }
    return part.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
  });
  const expression = new RegExp(`^${source}$`, 'su');
  return (name) => expression.test(name) && (pattern.startsWith('.') || !name.startsWith('.'));
}

const COMPRESSED_NAME = /\.(?:gz|xz|bz2|zst|lz4|lzma|br|zip|Z)$/;

/** A file that is added this soon after another change may leave the time of its directory as it is. */
const SETTLED_MS = 2_000;
/** A link may get its target, and a clock may be set: neither changes the time of the directory. */
const MATCHED_MS_MAX = 60_000;

/** The logs that match a pattern, for a caller that looks again and again. */
export class MatchingLogs {
  readonly #pattern: string;
  /** When the directories were changed, as of the latest look; 0 if they did not exist. */
  readonly #changes = new Map<string, number>();
  #lookedAt = Number.NEGATIVE_INFINITY;

  constructor(pattern: string) {
    this.#pattern = pattern;
  }

  /** Whether another look may find other logs. */
  mayDiffer(now: number): boolean {
    if (Math.abs(now - this.#lookedAt) > MATCHED_MS_MAX) return true;
    return [...this.#changes].some(
      ([directory, changedAt]) =>
        changedAt > this.#lookedAt - SETTLED_MS || changedAt !== changeOf(directory),
    );
  }

  /** Without directories, compressed files, and rotated files of other logs. `followed`: logs that may be gone now. */
  look(followed: ReadonlySet<string>, now: number): string[] {
    this.#lookedAt = now;
    this.#changes.clear();
    const note = (directory: string) => void this.#changes.set(directory, changeOf(directory));
    const found = matches(this.#pattern, note);
    const paths = new Set(found.filter((path) => statsOf(path)?.isFile()));
    const isRotated = (path: string) => {
      const name = basename(path);
      const directory = path.slice(0, -name.length);
      const isLog = (other: string) => paths.has(directory + other) || followed.has(directory + other);
      return isRotatedName(name, isLog);
    };
    return [...paths].filter((path) => !COMPRESSED_NAME.test(path) && !isRotated(path));
  }
}

const changeOf = (directory: string) => statsOf(directory)?.mtimeMs ?? 0;
