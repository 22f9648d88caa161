import { hash, verify } from '@node-rs/argon2';

/** argon2id (the library's default), with the memory and passes that OWASP recommends: some 20 ms on one core. */
const COST = { memoryCost: 19_456, timeCost: 2, parallelism: 1 };

/** Longer passwords only cost memory. */
export const PASSWORD_LENGTH_MAX = 1_024;

export interface Passwords {
  hash(password: string): Promise<string>;
  /** Takes the same time whether there is such a user or not. */
  verify(storedHash: string | undefined, password: string): Promise<boolean>;
}

export function createPasswords(): Passwords {
  // Made when it is first needed: most commands check no password.
  let nobody: Promise<string> | null = null;
  return {
    hash: (password) => hash(password, COST),
    async verify(storedHash, password) {
      // Made in any case, so that the first unknown user takes no longer than a known one.
      nobody ??= hash('nobody has this password', COST);
      const nobodyHash = await nobody;
      const matches = await verify(storedHash ?? nobodyHash, password);
      return matches && storedHash !== undefined;
    },
  };
}
