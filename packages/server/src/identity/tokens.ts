/** A token says who was authenticated, for what, and until when, under our signature. It is not stored anywhere. */
import { createHmac, randomUUID, timingSafeEqual } from 'node:crypto';

export const TOKEN_VALID_MS = 24 * 3_600_000;

/** What a token is good for: one project, or the domain as a whole, which is not enough for the statistics. */
export type TokenScope = { project_id: string } | { domain_id: string };

export type Token = TokenScope & {
  id: string;
  user_id: string;
  /** The user's `token_epoch` at the time. */
  epoch: number;
  issued_at: number;
  expires_at: number;
};

export interface Tokens {
  issue(
    user: { id: string; token_epoch: number },
    scope: TokenScope,
    now: number,
  ): { text: string; token: Token };
  /** The token when the signature is ours, expired or not; null otherwise. */
  read(text: string): Token | null;
}

/** No token of ours is longer: more is refused before anything is computed. */
const TOKEN_LENGTH_MAX = 1_024;

export function createTokens(key: Buffer): Tokens {
  const sign = (payload: string) => createHmac('sha256', key).update(payload).digest('base64url');
  return {
    issue(user, scope, now) {
      const token: Token = {
        id: randomUUID(),
        user_id: user.id,
        ...scope,
        epoch: user.token_epoch,
        issued_at: now,
        expires_at: now + TOKEN_VALID_MS,
      };
      const payload = Buffer.from(JSON.stringify(token)).toString('base64url');
      return { text: `${payload}.${sign(payload)}`, token };
    },
    read(text) {
      const dot = text.indexOf('.');
      if (dot === -1 || text.length > TOKEN_LENGTH_MAX) return null;
      const payload = text.slice(0, dot);
      const expected = Buffer.from(sign(payload));
      const given = Buffer.from(text.slice(dot + 1));
      if (given.length !== expected.length || !timingSafeEqual(given, expected)) return null;
      // Only we can have signed it, so it is what issue() wrote.
      return JSON.parse(Buffer.from(payload, 'base64url').toString()) as Token;
    },
  };
}
