/** A token says who was authenticated, for what, and until when, under our signature. It is not stored anywhere. */
import { randomUUID } from 'node:crypto';
import { signedText } from './signed-text.ts';

export const TOKEN_VALID_MS = 24 * 3_600_000;

/** What a token is good for: one project, a domain as a whole, which is not enough for the statistics, or the system. */
export type TokenScope = { project_id: string } | { domain_id: string } | { system: true };

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

export function createTokens(key: Buffer): Tokens {
  const signed = signedText<Token>(key);
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
      return { text: signed.write(token), token };
    },
    read: signed.read,
  };
}
