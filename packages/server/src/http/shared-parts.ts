/**
 * Bodies that consist of parts which many responses share, such as blocks of points. Three tricks (docs/decisions/0012):
 * - Parts are sent without joining them for each response. A new buffer of 91 KB takes 40 to 80 us, which would double the time
 *   of a request: the kernel maps its pages, and this much external memory triggers full garbage collections.
 * - Parts that many responses send in the same order are joined once (JoinedPart).
 * - Each part is compressed once. Assembling a gzip body from compressed parts takes 5 us instead of 660.
 */
import { setImmediate } from 'node:timers/promises';
import { constants, crc32, deflateRawSync } from 'node:zlib';

/** A part of a body, whose bytes never change. */
export interface Part {
  readonly length: number;
  /** The bytes, one buffer after the other. */
  readonly pieces: readonly Buffer[];
  /** Undefined until `deflate` was called. */
  readonly deflated: Deflated | undefined;
  deflate(): Deflated;
  /** The parts that are compressed separately. */
  readonly blocks: readonly Part[];
}

/** A piece of a raw deflate stream that ends at a byte boundary and refers to nothing before it. */
export interface Deflated {
  bytes: Buffer;
  crc: number;
  /** The factor that appends this part to the CRC of the bytes before it: x^(8 * length) modulo the polynomial. */
  shift: number;
}

export class BytesPart implements Part {
  readonly pieces: readonly Buffer[];
  readonly length: number;
  deflated: Deflated | undefined;

  constructor(bytes: Buffer) {
    this.pieces = [bytes];
    this.length = bytes.length;
  }

  get blocks(): Part[] {
    return [this];
  }

  deflate(): Deflated {
    this.deflated ??= deflatePieces(this.pieces);
    return this.deflated;
  }
}

/** Joined parts, in the forms that were needed so far. */
export interface Joined {
  pieces?: readonly Buffer[];
  deflated?: Deflated;
}

/** Parts that many responses send one after the other: joined, they are one piece to write. */
export class JoinedPart implements Part {
  readonly blocks: readonly Part[];
  readonly #joined: Joined;
  readonly length: number;

  /** `joined`: filled when it is first needed; it can be used again for the same parts. */
  constructor(parts: readonly Part[], joined: Joined) {
    this.blocks = parts;
    this.#joined = joined;
    let length = 0;
    for (const part of parts) length += part.length;
    this.length = length;
  }

  get pieces(): readonly Buffer[] {
    this.#joined.pieces ??= [Buffer.concat(this.blocks.flatMap(({ pieces }) => pieces))];
    return this.#joined.pieces;
  }

  get deflated(): Deflated | undefined {
    return this.#joined.deflated;
  }

  deflate(): Deflated {
    this.#joined.deflated ??= joinDeflated(this.blocks.map((part) => part.deflate()));
    return this.#joined.deflated;
  }
}

/** A string is a part that only this response has: ASCII, up to 65,535 characters. */
export class SharedParts {
  readonly #parts: readonly (Part | string)[];
  readonly length: number;

  constructor(parts: readonly (Part | string)[]) {
    this.#parts = parts;
    let length = 0;
    for (const part of parts) length += part.length;
    this.length = length;
  }

  plain(): Buffer[] {
    const pieces: Buffer[] = [];
    for (const part of this.#parts) {
      if (typeof part === 'string') pieces.push(Buffer.from(part, 'latin1'));
      else for (const piece of part.pieces) pieces.push(piece);
    }
    return pieces;
  }

  /** Whether `gzip` has nothing to compress. */
  get isDeflated(): boolean {
    return this.#parts.every((part) => typeof part === 'string' || part.deflated !== undefined);
  }

  /** Compresses parts that were not compressed before. */
  async deflate(): Promise<void> {
    let deflated = 0;
    for (const part of this.#parts) {
      if (typeof part === 'string' || part.deflated !== undefined) continue;
      for (const block of part.blocks) {
        if (block.deflated === undefined && ++deflated % DEFLATED_PER_TURN === 0) await setImmediate();
        block.deflate();
      }
      part.deflate();
    }
  }

  /** Strings are not compressed. Everything between two parts is one buffer, because each takes the HTTP server 0.6 us. */
  gzip(): Buffer[] {
    const pieces: Buffer[] = [];
    let between = GZIP_HEADER;
    let crc = 0;
    for (const part of this.#parts) {
      if (typeof part === 'string') {
        between += storedBlock(part);
        crc = crc32(part, crc);
        continue;
      }
      const { bytes, crc: ownCrc, shift } = part.deflate();
      if (between !== '') pieces.push(Buffer.from(between, 'latin1'));
      between = '';
      crc = appendCrc(crc, ownCrc, shift);
      pieces.push(bytes);
    }
    pieces.push(Buffer.from(between + LAST_BLOCK + littleEndian(crc) + littleEndian(this.length), 'latin1'));
    return pieces;
  }
}

/** How many new parts are compressed in one turn of the event loop: less than a millisecond of work. */
const DEFLATED_PER_TURN = 16;

/** Deflate, no name, no time, unknown operating system. Strings hold bytes as Latin-1. */
const GZIP_HEADER = '\x1f\x8b\x08\0\0\0\0\0\0\xff';
/** An empty stored block, marked as the last one. */
const LAST_BLOCK = '\x01\0\0\xff\xff';

/** A stored (uncompressed) block: the length of the text, its complement, and the text. */
function storedBlock(text: string): string {
  const { length } = text;
  if (length > STORED_BYTES_MAX) throw new Error(`a text of ${length} bytes is too long for one block`);
  return String.fromCharCode(0, length & 0xff, length >> 8, ~length & 0xff, (~length >> 8) & 0xff) + text;
}

/** The header has 16 bits for the length. */
const STORED_BYTES_MAX = 65_535;

function littleEndian(number: number): string {
  return String.fromCharCode(number & 0xff, (number >> 8) & 0xff, (number >> 16) & 0xff, number >>> 24);
}

const EMPTY = Buffer.alloc(0);

/** Takes 34 to 51 us for the 8 KB of a block. */
const DEFLATE = { level: 1, finishFlush: constants.Z_FULL_FLUSH };

export function deflatePieces(pieces: readonly Buffer[]): Deflated {
  const [first = EMPTY] = pieces;
  const bytes = pieces.length === 1 ? first : Buffer.concat(pieces);
  // Copied, because the result is a small slice that would keep a buffer of 16 KB alive.
  const deflated = deflateRawSync(bytes, DEFLATE);
  const copy = Buffer.allocUnsafeSlow(deflated.length);
  deflated.copy(copy);
  return { bytes: copy, crc: crc32(bytes), shift: powerOfX(8 * bytes.length) };
}

function joinDeflated(parts: readonly Deflated[]): Deflated {
  let crc = 0;
  let shift = powerOfX(0);
  for (const part of parts) {
    crc = appendCrc(crc, part.crc, part.shift);
    shift = multiply(shift, part.shift);
  }
  return { bytes: Buffer.concat(parts.map(({ bytes }) => bytes)), crc, shift };
}

/** The CRC of two texts, one after the other. */
function appendCrc(start: number, end: number, endShift: number): number {
  return (multiply(endShift, start) ^ end) >>> 0;
}

/** The polynomial of CRC-32. The highest bit of a polynomial is the coefficient of x^0. */
const CRC_POLYNOMIAL = 0xedb88320;

/** The product of two polynomials modulo that of the CRC, as in crc32_combine() of zlib. */
function multiply(a: number, b: number): number {
  let product = 0;
  let shifted = b;
  for (let bit = 31; bit >= 0; bit--) {
    if ((a >>> bit) & 1) product ^= shifted;
    shifted = shifted & 1 ? (shifted >>> 1) ^ CRC_POLYNOMIAL : shifted >>> 1;
  }
  return product;
}

function powerOfX(exponent: number): number {
  let power = 1 << 31;
  let square = 1 << 30;
  for (let rest = exponent; rest > 0; rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) power = multiply(power, square);
    square = multiply(square, square);
  }
  return power;
}
