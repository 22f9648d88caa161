/** Replaces @node-rs/argon2 in unit tests: the same hashes at the lowest cost. Black-box tests use the real cost. */
import { createRequire } from 'node:module';

// By `require`, because an import would get this file.
const argon2: typeof import('@node-rs/argon2') = createRequire(
  new URL('../packages/server/package.json', import.meta.url),
)('@node-rs/argon2');

export const { verify } = argon2;
export const hash: typeof argon2.hash = (password, options) =>
  argon2.hash(password, { ...options, memoryCost: 8, timeCost: 1 });
