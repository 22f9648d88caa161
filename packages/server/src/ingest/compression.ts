/** What an input is besides plain text, by its first bytes: otherwise its content would be read as log lines. */
import { pathInCommand } from '../printable.ts';

/** What the input is, what to do first, and a command that prints the content of a file. */
const KINDS = {
  gzip: ['compressed with gzip', 'decompress it first', 'gzip -dc'],
  xz: ['compressed with xz', 'decompress it first', 'xz -dc'],
  bzip2: ['compressed with bzip2', 'decompress it first', 'bzip2 -dc'],
  zstd: ['compressed with zstd', 'decompress it first', 'zstd -dc'],
  zip: ['a zip archive', 'extract its files first', 'unzip -p'],
  tar: ['a tar archive', 'extract its files first', 'tar -xOf'],
  utf16: ['text in UTF-16', 'convert it to UTF-8 first', 'iconv -f utf-16 -t utf-8'],
} as const;

type Compression = keyof typeof KINDS;

/**
 * Programs that decompress standard input, and their Debian packages. They check every checksum and bound their memory, read
 * any number of streams in a file, and are kept up to date with the system (docs/decisions/0001).
 */
export const DECOMPRESSORS: Partial<Record<Compression, { command: string[]; package: string }>> = {
  // The highest level, xz -9, takes 65 MiB.
  xz: { command: ['xz', '-dcq', '--memlimit-decompress=256MiB'], package: 'xz-utils' },
  bzip2: { command: ['bzip2', '-dcq'], package: 'bzip2' },
  // Refuses windows above 128 MiB.
  zstd: { command: ['zstd', '-dcq'], package: 'zstd' },
};

/** The input is compressed, an archive, or not in UTF-8. `decompress` reads some kinds. */
export class CompressedInput extends Error {
  /** `compressed with xz`, or `a tar archive`. */
  readonly what: string;
  readonly #kind: Compression;

  constructor(kind: Compression) {
    const [what, first] = KINDS[kind];
    super(`the input is ${what}: ${first}`);
    this.what = what;
    this.#kind = kind;
  }

  /** The command that passes the content of the file to the wafstat command. */
  pipe(file: string, command: string): string {
    return `'${KINDS[this.#kind][2]} ${pathInCommand(file)} | wafstat ${command}'`;
  }

  /** The command that counts a file that `follow` does not read. */
  ingest(file: string): string {
    return isRead(this.#kind)
      ? `'wafstat ingest ... ${pathInCommand(file)}'`
      : this.pipe(file, 'ingest ... -');
  }

  /** What to do. `file` is null for standard input. */
  remedy(file: string | null, command: string): string {
    return file === null
      ? `standard input is ${this.what}: ${KINDS[this.#kind][1]}`
      : `${file} is ${this.what}: use ${this.pipe(file, command)}`;
  }
}

/** How many bytes show what an input is. */
export const MAGIC_BYTES = 265;

/**
 * What the first bytes of an input show; null if it may be text. Each test includes bytes that text does not have, so that
 * a client cannot make a log look like an archive.
 */
export function kindOf(start: Uint8Array): Compression | null {
  const text = Buffer.from(start.subarray(0, MAGIC_BYTES)).toString('latin1');
  const isAt = (offset: number, ...magic: string[]) => magic.some((bytes) => text.startsWith(bytes, offset));
  if (isAt(0, '\x1f\x8b')) return 'gzip';
  if (isAt(0, '\xfd7zXZ\0')) return 'xz';
  if (isAt(0, 'BZh') && (isAt(4, '\x17rE8P\x90') || (isAt(4, '1AY&SY') && isAt(14, ...BELOW_8))))
    return 'bzip2';
  if (isAt(0, '\x28\xb5\x2f\xfd')) return 'zstd';
  if (isAt(0, 'PK\x03\x04', 'PK\x05\x06', 'PK\x07\x08')) return 'zip';
  if (isAt(257, 'ustar\0', 'ustar  \0')) return 'tar';
  // The byte order mark, which PowerShell writes.
  if (isAt(0, '\xff\xfe', '\xfe\xff')) return 'utf16';
  return null;
}

export function compressionOf(start: Uint8Array): CompressedInput | null {
  const kind = kindOf(start);
  return kind === null ? null : new CompressedInput(kind);
}

/** Whether `decompress` reads such an input. */
export function isRead(kind: Compression): boolean {
  return kind === 'gzip' || kind === 'utf16' || kind in DECOMPRESSORS;
}

/** A block of bzip2 begins with magic bytes, a checksum, a zero bit, and a number below 900,000 in 24 bits. */
const BELOW_8 = Array.from({ length: 8 }, (_, byte) => String.fromCharCode(byte));

/** Throws CompressedInput if these first bytes of an input show that it is not text. */
export function refuseCompressed(start: Uint8Array): void {
  const compressed = compressionOf(start);
  if (compressed !== null) throw compressed;
}

/** Why an input is not read as text: it is an archive, or has control characters that logs do not have. Null if it may be. */
export function notText(start: Buffer): string | null {
  const kind = kindOf(start);
  if (kind !== null) return isRead(kind) ? null : KINDS[kind][0];
  const text = start.subarray(endOfZeros(start));
  return text.some((byte) => byte < 7 || (byte > 13 && byte < 27)) ? 'binary' : null;
}

function endOfZeros(bytes: Buffer): number {
  const end = bytes.findIndex((byte) => byte !== 0);
  return end === -1 ? bytes.length : end;
}
