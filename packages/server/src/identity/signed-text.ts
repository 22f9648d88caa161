/** A record under our signature, as one word that fits a header or a cookie. Whoever holds it can read it; only we can write it. */
import { createHmac, timingSafeEqual } from 'node:crypto';

export interface SignedText<T> {
  write(record: T): string;
  /** The record when the signature is ours; null otherwise. */
  read(text: string): T | null;
}

/** Nothing of ours is longer: more is refused before anything is computed. */
const LENGTH_MAX = 1_024;

/** The key is for one kind of record: that is what makes the type of what is read certain. */
export function signedText<T>(key: Buffer): SignedText<T> {
  const sign = (payload: string) => createHmac('sha256', key).update(payload).digest('base64url');
  return {
    write(record) {
      const payload = Buffer.from(JSON.stringify(record)).toString('base64url');
      return `${payload}.${sign(payload)}`;
    },
    read(text) {
      const dot = text.indexOf('.');
      if (dot === -1 || text.length > LENGTH_MAX) return null;
      const payload = text.slice(0, dot);
      const expected = Buffer.from(sign(payload));
      const given = Buffer.from(text.slice(dot + 1));
      if (given.length !== expected.length || !timingSafeEqual(given, expected)) return null;
      // Only we can have signed it, so it is what write() was given.
      return JSON.parse(Buffer.from(payload, 'base64url').toString()) as T;
    },
  };
}
