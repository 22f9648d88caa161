/** Compressed files and archives that are not read, by their first bytes: their content would be read as log lines. */
import { pathInCommand } from '../printable.ts';

/** What the input is, what to do first, and a command that prints the content of a file. */
const KINDS = {
  gzip: ['compressed with gzip', 'decompress it first', 'gzip -dc'],
  xz: ['compressed with xz', 'decompress it first', 'xz -dc'],
  bzip2: ['compressed with bzip2', 'decompress it first', 'bzip2 -dc'],
  zstd: ['compressed with zstd', 'decompress it first', 'zstd -dc'],
  zip: ['a zip archive', 'extract its files first', 'unzip -p'],
  tar: ['a tar archive', 'extract its files first', 'tar -xOf'],
} as const;

type Compression = keyof typeof KINDS;

/** The input is compressed, or an archive. Only gzip of plain text is decompressed. */
export class CompressedInput extends Error {
  /** `compressed with xz`, or `a tar archive`. */
  readonly what: string;
  readonly #first: string;
  readonly #command: string;

  constructor(compression: Compression) {
    const [what, first, command] = KINDS[compression];
    super(`the input is ${what}: ${first}`);
    this.what = what;
    this.#first = first;
    this.#command = command;
  }

  /** The command that passes the content of the file to the wafstat command. */
  pipe(file: string, command: string): string {
    return `'${this.#command} ${pathInCommand(file)} | wafstat ${command}'`;
  }

  /** What to do. `file` is null for standard input. */
  remedy(file: string | null, command: string): string {
    return file === null
      ? `standard input is ${this.what}: ${this.#first}`
      : `${file} is ${this.what}: use ${this.pipe(file, command)}`;
  }
}

/** How many bytes show what an input is. */
export const MAGIC_BYTES = 265;

/**
 * What the first bytes of an input show; null if it may be text. Each test includes bytes that text does not have, so that
 * a client cannot make a log look like an archive.
 */
export function compressionOf(start: Uint8Array): CompressedInput | null {
  const text = Buffer.from(start.subarray(0, MAGIC_BYTES)).toString('latin1');
  const isAt = (offset: number, ...magic: string[]) => magic.some((bytes) => text.startsWith(bytes, offset));
  if (isAt(0, '\x1f\x8b')) return new CompressedInput('gzip');
  if (isAt(0, '\xfd7zXZ\0')) return new CompressedInput('xz');
  if (isAt(0, 'BZh') && (isAt(4, '\x17rE8P\x90') || (isAt(4, '1AY&SY') && isAt(14, ...BELOW_8))))
    return new CompressedInput('bzip2');
  if (isAt(0, '\x28\xb5\x2f\xfd')) return new CompressedInput('zstd');
  if (isAt(0, 'PK\x03\x04', 'PK\x05\x06', 'PK\x07\x08')) return new CompressedInput('zip');
  if (isAt(257, 'ustar\0', 'ustar  \0')) return new CompressedInput('tar');
  return null;
}

/** A block of bzip2 begins with magic bytes, a checksum, a zero bit, and a number below 900,000 in 24 bits. */
const BELOW_8 = Array.from({ length: 8 }, (_, byte) => String.fromCharCode(byte));

/** Throws CompressedInput if these first bytes of an input show that it is not text. */
export function refuseCompressed(start: Uint8Array): void {
  const compressed = compressionOf(start);
  if (compressed !== null) throw compressed;
}
