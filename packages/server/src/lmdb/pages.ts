/**
 * Checks the pages of an LMDB file without mapping it. LMDB trusts its pages: a truncated file ends the process with
 * SIGBUS, a damaged page number with SIGSEGV. So a file is checked before it is opened, and `verify` walks all of it.
 * The layout is that of lmdb-js 3 (data version 2), little endian.
 */
import { closeSync, fstatSync, openSync, readSync } from 'node:fs';

/** The file must not be opened. */
export class DamagedFile extends Error {}

export interface PageProblem {
  table: string;
  /** The page, as text. */
  key: string;
  problem: string;
}

interface Meta {
  fileBytes: number;
  pageBytes: number;
  lastPage: number;
  transaction: number;
  free: number;
  main: number;
}

const MAGIC = 0xbeefc0de;
const DATA_VERSION = 2;
const PAGE_HEADER_BYTES = 24;
const NODE_HEADER_BYTES = 8;
const BRANCH = 0x01;
const LEAF = 0x02;
const OVERFLOW = 0x04;
const BIG_DATA = 0x01;
const SUB_DATABASE = 0x02;
/** The root of an empty tree. */
const NO_PAGE = 0xffff_ffff_ffff_ffffn;

/** More levels than a tree of 2^48 pages has. Ends loops. */
const DEPTH_MAX = 32;

/** Throws DamagedFile for a file that would crash LMDB. An empty file passes: LMDB initializes it. */
export function checkDataFile(path: string): void {
  withFile(path, (fd) => {
    if (fstatSync(fd).size === 0) return;
    for (let attempt = 1; ; attempt++) {
      const meta = readMeta(fd);
      if (typeof meta === 'string') throw new DamagedFile(`${path} is damaged: ${meta}`);
      const bytes = (meta.lastPage + 1) * meta.pageBytes;
      if (meta.fileBytes >= bytes) return;
      // Freed pages at the end may never have been written, but pages in use must exist.
      if (![...walkTrees(fd, meta)].some(({ problem }) => problem === BEYOND_END)) return;
      const now = readMeta(fd);
      const isInUse = typeof now === 'object' && now.transaction !== meta.transaction;
      // Another process may have reused the pages in the meantime.
      if (isInUse && attempt < ATTEMPTS_MAX) continue;
      throw new DamagedFile(
        `${path} is truncated: it has ${meta.fileBytes} bytes, but its pages need ${bytes}`,
      );
    }
  });
}

const ATTEMPTS_MAX = 5;

/**
 * Lists damaged pages, and tables with other names than `tables`. If the file is in use, the caller must hold a read transaction, so that no page of its snapshot
 * is overwritten.
 */
export function pageProblems(
  path: string,
  tables: readonly string[] | null = null,
): { pages: number; problems: PageProblem[] } {
  return withFile(path, (fd) => {
    const meta = readMeta(fd);
    if (typeof meta === 'string')
      return { pages: 0, problems: [{ table: '', key: 'page 0', problem: meta }] };
    const problems: PageProblem[] = [];
    for (const problem of walkTrees(fd, meta, tables)) {
      problems.push(problem);
      if (problems.length === PROBLEMS_MAX) break;
    }
    return { pages: meta.lastPage + 1, problems };
  });
}

/** Whether LMDB can read all pages nevertheless: only a key has a wrong place. */
export function isReadable({ table, problem }: PageProblem): boolean {
  return table !== '' && /^has its entry \d+ out of order$/.test(problem);
}

/** A problem of the first two pages, without which LMDB cannot open the file. */
export function metaProblem(path: string): string | null {
  return withFile(path, (fd) => {
    const meta = readMeta(fd);
    return typeof meta === 'string' ? meta : null;
  });
}

/** The ID of the last commit. */
export function lastTransaction(path: string): number {
  return withFile(path, (fd) => {
    const meta = readMeta(fd);
    if (typeof meta === 'string') throw new DamagedFile(`${path} is damaged: ${meta}`);
    return meta.transaction;
  });
}

const PROBLEMS_MAX = 1_000;

const BEYOND_END = 'is beyond the end of the file';

function withFile<T>(path: string, action: (fd: number) => T): T {
  const fd = openSync(path, 'r');
  try {
    return action(fd);
  } finally {
    closeSync(fd);
  }
}

/** The newer of the two meta pages, or the problem. */
function readMeta(fd: number): Meta | string {
  const first = metaAt(fd, 0);
  const second = metaAt(fd, first?.pageBytes ?? 4_096);
  if (!first || !second) return 'the first two pages are not LMDB pages';
  // Measured last: a commit writes all other pages before these two.
  const fileBytes = fstatSync(fd).size;
  if (fileBytes < 2 * first.pageBytes || first.pageBytes !== second.pageBytes) {
    return 'the file is truncated within its first two pages';
  }
  return { ...(first.transaction >= second.transaction ? first : second), fileBytes };
}

function metaAt(fd: number, offset: number): Omit<Meta, 'fileBytes'> | undefined {
  const page = Buffer.alloc(160);
  if (readSync(fd, page, 0, page.length, offset) < page.length) return undefined;
  if (page.readUInt32LE(24) !== MAGIC || page.readUInt32LE(28) !== DATA_VERSION) return undefined;
  const pageBytes = page.readUInt32LE(48);
  if (pageBytes < 256 || pageBytes > 65_536 || (pageBytes & (pageBytes - 1)) !== 0) return undefined;
  return {
    pageBytes,
    free: pageNumber(page, 88),
    main: pageNumber(page, 136),
    lastPage: pageNumber(page, 144),
    transaction: pageNumber(page, 152),
  };
}

function pageNumber(bytes: Buffer, offset: number): number {
  const number = bytes.readBigUInt64LE(offset);
  return number === NO_PAGE ? -1 : Number(number);
}

function* walkTrees(fd: number, meta: Meta, tables: readonly string[] | null = null): Generator<PageProblem> {
  const seen = new Uint8Array(Math.ceil(meta.fileBytes / meta.pageBytes / 8) + 1);
  const at = { fd, meta, seen, tables, table: '' };
  yield* walk({ ...at, isSorted: false, flags: VALUES }, meta.free);
  yield* walk({ ...at, isSorted: true, flags: [SUB_DATABASE] }, meta.main);
}

interface Walk {
  fd: number;
  meta: Meta;
  /** A bit per page, to find pages that are used twice. */
  seen: Uint8Array;
  /** The tables that the file may have; null if any. A damaged name would look like a new, empty table. */
  tables: readonly string[] | null;
  table: string;
  /** False for the list of free pages, whose keys are numbers in another order. */
  isSorted: boolean;
  /** The flags that an entry may have: the main tree holds tables and nothing else. */
  flags: readonly number[];
}

const VALUES = [0, BIG_DATA];

/** `from` and `to` bound the keys, according to the branch above. */
function* walk(at: Walk, page: number, depth = 0, from?: Buffer, to?: Buffer): Generator<PageProblem> {
  if (page === -1) return;
  const { fd, table, meta, isSorted } = at;
  const wrong = (problem: string) => ({ table, key: `page ${page}`, problem });
  const claimError = claim(at, page, 1);
  if (claimError !== null) return yield wrong(claimError);
  const bytes = Buffer.alloc(meta.pageBytes);
  readSync(fd, bytes, 0, bytes.length, page * meta.pageBytes);
  const flags = bytes.readUInt16LE(18) & 0xff;
  const lower = bytes.readUInt16LE(20);
  const upper = bytes.readUInt16LE(22);
  const room = meta.pageBytes - PAGE_HEADER_BYTES;
  if (pageNumber(bytes, 0) !== page || (flags !== BRANCH && flags !== LEAF) || depth > DEPTH_MAX) {
    return yield wrong('is not the expected page');
  }
  if (lower % 2 !== 0 || lower > upper || upper > room || lower === 0)
    return yield wrong('has a damaged header');
  let previous: Buffer | undefined;
  for (let i = 0; i < lower / 2; i++) {
    const entry = entryAt(bytes, i);
    if (entry === undefined || entry.offset < PAGE_HEADER_BYTES + upper)
      return yield wrong(`has a damaged entry ${i}`);
    const { offset, key } = entry;
    const isFirstOfBranch = flags === BRANCH && i === 0;
    if (isSorted && !isFirstOfBranch) {
      const isInOrder =
        (previous === undefined || previous.compare(key) < 0) &&
        (from === undefined || from.compare(key) <= 0) &&
        (to === undefined || key.compare(to) < 0);
      if (!isInOrder) yield wrong(`has its ${flags === LEAF ? 'entry' : 'branch'} ${i} out of order`);
      // The keys of a branch bound those of the pages below.
      if (!isInOrder && flags === BRANCH) return;
      previous = key;
    }
    if (flags === BRANCH) {
      const next = i + 1 < lower / 2 ? entryAt(bytes, i + 1)?.key : to;
      yield* walk(at, bytes.readUIntLE(offset, 6), depth + 1, isFirstOfBranch ? from : key, next);
    } else {
      const problem = yield* walkEntry(at, bytes, offset, key, depth);
      if (problem !== null) yield wrong(`has a damaged entry ${i}: ${problem}`);
    }
  }
}

/** A value on overflow pages, or the root of a table. */
function* walkEntry(
  at: Walk,
  bytes: Buffer,
  offset: number,
  key: Buffer,
  depth: number,
): Generator<PageProblem, string | null> {
  const flags = bytes.readUInt16LE(offset + 4);
  const length = bytes.readUInt32LE(offset);
  const dataAt = offset + NODE_HEADER_BYTES + key.length;
  if (!at.flags.includes(flags)) return 'invalid flags';
  if ((flags & BIG_DATA) !== 0) {
    if (dataAt + 24 > bytes.length) return 'it ends outside of the page';
    const first = pageNumber(bytes, dataAt);
    const pages = pageNumber(bytes, dataAt + 16);
    const header = Buffer.alloc(PAGE_HEADER_BYTES);
    const claimError = claim(at, first, pages);
    if (claimError !== null) return `its value ${claimError}`;
    readSync(at.fd, header, 0, header.length, first * at.meta.pageBytes);
    const isRight = pageNumber(header, 0) === first && (header.readUInt16LE(18) & 0xff) === OVERFLOW;
    const isLong = length <= pages * at.meta.pageBytes - PAGE_HEADER_BYTES;
    return isRight && isLong ? null : 'its value is not on the expected page';
  }
  if (dataAt + length > bytes.length) return 'it ends outside of the page';
  if ((flags & SUB_DATABASE) !== 0) {
    if (length !== 48) return 'not a table';
    const table = key.toString('latin1').replace(/\0$/, '');
    if (at.tables?.includes(table) === false) return 'unknown table';
    yield* walk({ ...at, table, flags: VALUES }, pageNumber(bytes, dataAt + 40), depth + 1);
  }
  return null;
}

/** Undefined if it ends outside of the page. */
function entryAt(bytes: Buffer, i: number): { offset: number; key: Buffer } | undefined {
  const offset = PAGE_HEADER_BYTES + bytes.readUInt16LE(PAGE_HEADER_BYTES + 2 * i);
  const keyAt = offset + NODE_HEADER_BYTES;
  if (keyAt > bytes.length) return undefined;
  const end = keyAt + bytes.readUInt16LE(offset + 6);
  return end > bytes.length ? undefined : { offset, key: bytes.subarray(keyAt, end) };
}

/** Marks pages as used. Returns the problem if they cannot be. */
function claim({ meta, seen }: Walk, first: number, count: number): string | null {
  if (!(first >= 2 && count >= 1 && first + count - 1 <= meta.lastPage)) return 'has an invalid page number';
  if ((first + count) * meta.pageBytes > meta.fileBytes) return BEYOND_END;
  for (let page = first; page < first + count; page++) {
    const bit = 1 << (page % 8);
    if (((seen[page >> 3] ?? 0) & bit) !== 0) return 'is used twice';
    seen[page >> 3] = (seen[page >> 3] ?? 0) | bit;
  }
  return null;
}
