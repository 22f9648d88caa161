/** Tokens, console sessions and device cookies: signed records that the server does not store. Each kind has its own key. */
import { createHmac, randomUUID, timingSafeEqual } from 'node:crypto';
import type { User } from './records.ts';

export const TOKEN_VALID_MS = 24 * 3_600_000;
/** A working day. */
const SESSION_VALID_MS = 12 * 3_600_000;
export const DEVICE_VALID_MS = 90 * 86_400_000;

/** Longer texts are rejected before anything is computed. */
const TEXT_LENGTH_MAX = 1_024;

interface Issued {
  id: string;
  user_id: string;
  /** The user's `token_epoch` at the time. */
  epoch: number;
  issued_at: number;
}

export interface Session extends Issued {
  expires_at: number;
}

/** A token for a domain gives no access to statistics. */
export type TokenScope = { project_id: string } | { domain_id: string };
/** A token from an exchange contains the ID of the token of the login: revoking that one revokes them all. */
export type Token = TokenScope & Session & { login_id?: string };

type TokenOwner = Pick<User, 'id' | 'token_epoch'>;

export type Tokens = ReturnType<typeof createTokens>;

export function createTokens(key: Buffer) {
  const { write, read } = signedRecords<Token>(key);
  return {
    issue(user: TokenOwner, scope: TokenScope, now: number): { text: string; token: Token } {
      const token = { ...issued(user, now), ...scope, expires_at: now + TOKEN_VALID_MS };
      return { text: write(token), token };
    },
    /** A token of another scope that expires with the given one, or earlier. */
    exchange(given: Token, user: TokenOwner, scope: TokenScope, now: number): { text: string; token: Token } {
      const expires_at = Math.min(given.expires_at, now + TOKEN_VALID_MS);
      const token = { ...issued(user, now), ...scope, expires_at, login_id: given.login_id ?? given.id };
      return { text: write(token), token };
    },
    /** Returns expired tokens too; null unless the signature is valid. */
    read(text: string): Token | null {
      return read(text);
    },
  };
}

export type Sessions = ReturnType<typeof createSessions>;

export function createSessions(key: Buffer) {
  const { write, read } = signedRecords<Session>(key);
  return {
    issue: (user: TokenOwner, now: number): string =>
      write({ ...issued(user, now), expires_at: now + SESSION_VALID_MS }),
    /** Returns expired sessions too; null unless the signature is valid. */
    read,
  };
}

export type DeviceCookies = ReturnType<typeof createDeviceCookies>;

/**
 * Identifies a browser that a user has signed in with before, so that an attacker behind the same address does not delay
 * the user's logins. Grants no access: the password is still required.
 */
export function createDeviceCookies(key: Buffer) {
  const { write, read } = signedRecords<Issued>(key);
  return {
    issue: (user: TokenOwner, now: number): string => write(issued(user, now)),
    /** The ID of the device; null unless it belongs to this user and the password is still the same. */
    read(text: string, user: TokenOwner, now: number): string | null {
      const device = read(text);
      if (device === null || device.user_id !== user.id || device.epoch !== user.token_epoch) return null;
      return Math.abs(now - device.issued_at) < DEVICE_VALID_MS ? device.id : null;
    },
  };
}

function issued(user: TokenOwner, now: number): Issued {
  return { id: randomUUID(), user_id: user.id, epoch: user.token_epoch, issued_at: now };
}

function signedRecords<T>(key: Buffer) {
  const sign = (payload: string) => createHmac('sha256', key).update(payload).digest('base64url');
  return {
    write(record: T): string {
      const payload = Buffer.from(JSON.stringify(record)).toString('base64url');
      return `${payload}.${sign(payload)}`;
    },
    read(text: string): T | null {
      const dot = text.indexOf('.');
      if (dot === -1 || text.length > TEXT_LENGTH_MAX) return null;
      const payload = text.slice(0, dot);
      const expected = Buffer.from(sign(payload));
      const given = Buffer.from(text.slice(dot + 1));
      if (given.length !== expected.length || !timingSafeEqual(given, expected)) return null;
      // Only `write` signs with this key, so the record has its type.
      return JSON.parse(Buffer.from(payload, 'base64url').toString()) as T;
    },
  };
}
