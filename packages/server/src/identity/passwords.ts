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

export async function createPasswords(): Promise<Passwords> {
  const nobody = await hash('nobody has this password', COST);
  return {
    hash: (password) => hash(password, COST),
    async verify(storedHash, password) {
      const matches = await verify(storedHash ?? nobody, password);
      return matches && storedHash !== undefined;
    },
  };
}
