/** The files that the operands of a command stand for: directories with their files, and patterns that no shell has expanded. */
import { closeSync, openSync, readdirSync, readSync, type Stats, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { MAGIC_BYTES, notText } from './compression.ts';
import { nameKind } from './rotated-files.ts';

export interface InputFile {
  /** `-` is standard input. */
  path: string;
  /** 0 if it is unknown. */
  bytes: number;
  /** Neither a pipe nor standard input: it can be read again. */
  isRegular: boolean;
}

export interface Inputs {
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
    for (const path of isPattern ? matches(operand) : [operand]) addPath(path, 0, found, inputs);
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
): void {
  try {
    const stats = statSync(path);
    if (stats.isDirectory()) {
      if (depth === DEPTH_MAX) inputs.skipped.push({ path, what: `more than ${DEPTH_MAX} directories deep` });
      else addDirectory(path, depth + 1, found, inputs);
      return;
    }
    const what = depth === 0 ? null : whyNoLog(path, stats);
    if (what !== null) inputs.skipped.push({ path, what });
    else found.push({ path, bytes: stats.size, isRegular: stats.isFile(), mtimeMs: stats.mtimeMs });
  } catch (error) {
    inputs.problems.push({ path, code: (error as NodeJS.ErrnoException).code ?? 'unknown error' });
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
    // A link to a directory may lead back here.
    else if (entry.isSymbolicLink() && statSync(path, { throwIfNoEntry: false })?.isDirectory())
      inputs.skipped.push({ path, what: 'a link to a directory' });
    else addPath(path, depth, found, inputs);
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
  return /[*?[]/.test(operand) && statSync(operand, { throwIfNoEntry: false }) === undefined;
}

/** The paths that match a pattern with `*`, `?` and `[...]`, as in a shell: wildcards match no `/`, and no dot at the start. */
export function matches(pattern: string): string[] {
  const parent = dirname(pattern);
  const directories = isPatternOnly(parent) ? matches(parent) : [parent];
  const isMatch = nameMatcher(basename(pattern));
  const prefix =
    pattern.startsWith('./') || parent !== '.' ? (directory: string) => `${directory}/` : () => '';
  return directories.flatMap((directory) => {
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

/** The logs among the paths that match a pattern: without directories, compressed files, and rotated files of other logs. */
export function matchingLogs(pattern: string, followed: ReadonlySet<string>): string[] {
  const paths = matches(pattern).filter((path) => statSync(path, { throwIfNoEntry: false })?.isFile());
  const known = new Set([...paths, ...followed]);
  const isRotated = (path: string) =>
    [...known].some(
      (log) => dirname(log) === dirname(path) && nameKind(basename(path), basename(log)) === 'rotated',
    );
  return paths.filter((path) => !COMPRESSED_NAME.test(path) && !isRotated(path));
}
