/**
 * Every stored value begins with a checksum, so that a disk that changes bits is noticed instead of believed. The
 * highest bit of the first byte says that it is there: values of storage version 1 have none, and never begin with a
 * byte above 127.
 */
import { crc32 } from 'node:zlib';
import { StoreDamaged } from '../store.ts';

export const CHECKSUM_BYTES = 4;

const PRESENT = 0x8000_0000;

/** Fills in the first four bytes. The seed ties the value to its key: under another key it does not match. */
export function seal(value: Buffer, seed: number): Buffer {
  value.writeUInt32BE((crc32(value.subarray(CHECKSUM_BYTES), seed) | PRESENT) >>> 0, 0);
  return value;
}

export function hasChecksum(value: Uint8Array): boolean {
  return (value[0] ?? 0) > 127;
}

/**
 * The value without its checksum, or undefined when the two do not match. lmdb-js passes short values in a larger buffer
 * of its own, with a `length` that `subarray` heeds, and long ones as plain bytes of the mapped file.
 */
export function unseal(value: Uint8Array, seed: number): Uint8Array | undefined {
  if (value.length < CHECKSUM_BYTES) return undefined;
  const body = value.subarray(CHECKSUM_BYTES);
  const high = ((value[0] ?? 0) << 24) | ((value[1] ?? 0) << 16);
  const stored = high | ((value[2] ?? 0) << 8) | (value[3] ?? 0);
  return stored === (crc32(body, seed) | PRESENT) ? body : undefined;
}

/** JSON behind a checksum. Values of version 1 are JSON alone. */
export function checkedJson(table: string) {
  return {
    encode(value: unknown): Buffer {
      const text = JSON.stringify(value);
      const sealed = Buffer.allocUnsafe(CHECKSUM_BYTES + Buffer.byteLength(text));
      sealed.write(text, CHECKSUM_BYTES);
      return seal(sealed, 0);
    },
    decode(value: Uint8Array): unknown {
      const text = hasChecksum(value) ? unseal(value, 0) : value.subarray(0);
      if (text === undefined) throw new StoreDamaged(`a record of the table ${table} has a wrong checksum`);
      try {
        // A plain array of bytes would print its numbers.
        return JSON.parse(Buffer.isBuffer(text) ? text.toString() : Buffer.from(text).toString());
      } catch {
        throw new StoreDamaged(`a record of the table ${table} is not JSON`);
      }
    },
  };
}
