/** The one secret that all others hang on, in a file that only its owner reads, beside the data it protects. */
import { hkdfSync, randomBytes } from 'node:crypto';
import { closeSync, fsyncSync, openSync, readFileSync, writeSync } from 'node:fs';

const KEY_BYTES = 32;

export function readMasterKey(path: string): Buffer {
  return parseMasterKey(readFileSync(path, 'utf8'), path);
}

/** `origin` is where the text came from, for the error message: the text itself must not be in it. */
export function parseMasterKey(text: string, origin: string): Buffer {
  const key = Buffer.from(text.trim(), 'base64');
  if (key.length !== KEY_BYTES)
    throw new Error(`${origin} does not hold a key of ${KEY_BYTES} bytes in base64`);
  return key;
}

/** Fails when there is one already: a new key would make everything under the old one unreadable. */
export function createMasterKey(path: string): void {
  const file = openSync(path, 'wx', 0o600);
  try {
    writeSync(file, `${randomBytes(KEY_BYTES).toString('base64')}\n`);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/** A key for one purpose, so that what leaks of one use says nothing about another. */
export function deriveKey(
  masterKey: Buffer,
  purpose: 'tokens' | 'sessions' | 'access keys' | 'known logins' | 'devices' | 'mark',
): Buffer {
  return Buffer.from(hkdfSync('sha256', masterKey, '', `wafstat ${purpose}`, KEY_BYTES));
}
