/** A session of the console: like a token, but under a key of its own, so that neither is ever taken for the other. */
import { randomUUID } from 'node:crypto';
import { signedText } from './signed-text.ts';

/** A working day: who comes back tomorrow signs in again. */
export const SESSION_VALID_MS = 12 * 3_600_000;

export interface Session {
  id: string;
  user_id: string;
  /** The user's `token_epoch` at the time. */
  epoch: number;
  issued_at: number;
  expires_at: number;
}

export interface Sessions {
  issue(user: { id: string; token_epoch: number }, now: number): { text: string; session: Session };
  /** The session when the signature is ours, expired or not; null otherwise. */
  read(text: string): Session | null;
}

export function createSessions(key: Buffer): Sessions {
  const signed = signedText<Session>(key);
  return {
    issue(user, now) {
      const session: Session = {
        id: randomUUID(),
        user_id: user.id,
        epoch: user.token_epoch,
        issued_at: now,
        expires_at: now + SESSION_VALID_MS,
      };
      return { text: signed.write(session), session };
    },
    read(text) {
      const session = signed.read(text);
      // Cookies of earlier releases hold no issue time.
      return session && { ...session, issued_at: session.issued_at ?? session.expires_at - SESSION_VALID_MS };
    },
  };
}
