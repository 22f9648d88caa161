/** The master key, the keys derived from it, access key pairs and their encryption, and password hashes. */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import { closeSync, fsyncSync, linkSync, openSync, rmSync, writeSync } from 'node:fs';

const KEY_BYTES = 32;

/** `origin` is for the error message, which must not contain the text itself. */
export function parseMasterKey(text: string, origin: string): Buffer {
  const key = Buffer.from(text.trim(), 'base64');
  if (key.length !== KEY_BYTES)
    throw new Error(`${origin} must hold a master key: ${KEY_BYTES} bytes in base64`);
  return key;
}

export function generatePassword(): string {
  return randomBytes(18).toString('base64url');
}

export function generateMasterKey(): Buffer {
  return randomBytes(KEY_BYTES);
}

/** Keeps a file that exists: a new key would make everything encrypted with the old one unreadable. */
export function createMasterKey(path: string): void {
  const unfinished = `${path}.${randomBytes(4).toString('hex')}`;
  const file = openSync(unfinished, 'wx', 0o600);
  try {
    writeSync(file, `${generateMasterKey().toString('base64')}\n`);
    fsyncSync(file);
    linkSync(unfinished, path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    closeSync(file);
    rmSync(unfinished);
  }
}

/** One key per purpose, so that a leak of one does not affect the others. */
export function deriveKey(
  masterKey: Buffer,
  purpose: 'tokens' | 'sessions' | 'access keys' | 'known logins' | 'devices' | 'alerts' | 'mark',
): Buffer {
  return Buffer.from(hkdfSync('sha256', masterKey, '', `wafstat ${purpose}`, KEY_BYTES));
}

/** Stored with the records, to recognise the key. */
export function masterKeyFingerprint(masterKey: Buffer): string {
  return deriveKey(masterKey, 'mark').toString('base64');
}

const ALGORITHM = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

export type SecretCipher = ReturnType<typeof createSecretCipher>;

/** The access key ID is authenticated too, so that nobody can swap the secrets of two keys. */
export function createSecretCipher(key: Buffer) {
  return {
    encrypt(access: string, secret: string): string {
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv(ALGORITHM, key, nonce).setAAD(Buffer.from(access));
      const encrypted = Buffer.concat([cipher.update(secret, 'utf8'), cipher.final()]);
      return Buffer.concat([nonce, cipher.getAuthTag(), encrypted]).toString('base64');
    },
    decrypt(access: string, text: string): string {
      const bytes = Buffer.from(text, 'base64');
      const nonce = bytes.subarray(0, NONCE_BYTES);
      const tag = bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES);
      const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES });
      decipher.setAAD(Buffer.from(access)).setAuthTag(tag);
      return (
        decipher.update(bytes.subarray(NONCE_BYTES + TAG_BYTES), undefined, 'utf8') + decipher.final('utf8')
      );
    },
  };
}

export function generateKeyPair(): { access: string; secret: string } {
  const capitals = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789';
  return {
    access: randomText(20, capitals),
    secret: randomText(40, `${capitals}abcdefghijklmnopqrstuvwxyz`),
  };
}

/** All characters are equally likely: bytes that would favour some are skipped. */
function randomText(length: number, alphabet: string): string {
  const fair = 256 - (256 % alphabet.length);
  let text = '';
  while (text.length < length) {
    for (const byte of randomBytes(length))
      if (byte < fair && text.length < length) text += alphabet[byte % alphabet.length];
  }
  return text;
}

/** argon2id (the library's default), with the memory and passes that OWASP recommends: about 20 ms on one core. */
const ARGON2_COST = { memoryCost: 19_456, timeCost: 2, parallelism: 1 };

/** The shortest password that NIST SP 800-63B allows. */
export const PASSWORD_LENGTH_MIN = 8;
/** Longer passwords only cost memory. */
export const PASSWORD_LENGTH_MAX = 1_024;

/** Loaded on first use, because most commands check no password. */
const argon2 = () => import('@node-rs/argon2');

export type Passwords = ReturnType<typeof createPasswords>;

const hash = async (password: string): Promise<string> => (await argon2()).hash(password, ARGON2_COST);

/** One per process, because hashing takes as long as a login. Computed on first use: most commands check no password. */
let dummyHash: Promise<string> | null = null;

export function createPasswords() {
  return {
    hash,
    /** Takes the same time whether the user exists or not. */
    async verify(storedHash: string | undefined, password: string): Promise<boolean> {
      // Computed in both cases, so that the first unknown user takes no longer than a known one.
      dummyHash ??= hash('no user has this password');
      const fallback = await dummyHash;
      const { verify } = await argon2();
      const matches = await verify(storedHash ?? fallback, password);
      return matches && storedHash !== undefined;
    },
  };
}
