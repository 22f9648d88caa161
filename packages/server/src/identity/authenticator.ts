/** The contract that the HTTP guard uses; implemented on the local store, and by lookups in a Keystone (remote/). */

import { hash, type KeyObject, timingSafeEqual } from 'node:crypto';
import type { LoginSource } from '../audit/audit-trail.ts';
import type { Domain, Project, Role, User } from './records.ts';
import type { BodyHash, PendingSignature, SignatureProblem, SignedRequest } from './signature.ts';
import type { Session } from './tokens.ts';

export interface Authenticator {
  checkToken(text: string): Promise<Caller | TokenRefusal>;
  checkSession(text: string): Promise<SignedIn | SessionRefusal>;
  /** First step of checking a signature, before the body is read: does the key exist, and may it be used? */
  admitKey(pending: Pick<PendingSignature, 'access'>): Promise<Caller | SignatureRefusal>;
  /** Second step, with the body. Null if the signature is valid. */
  checkSignature(
    request: SignedRequest,
    pending: PendingSignature,
    body: Uint8Array | BodyHash,
  ): Promise<SignatureRefusal | null>;
  /** Checks the secret of a client that cannot sign requests and sends it as a password. The audit trail has refusals. */
  checkSecret(access: string, secret: string, from: LoginSource): Promise<Caller | SignatureRefusal>;
  rolesInProject(caller: Caller, projectId: string): Promise<readonly Role[]>;
  /** The ID of the project with this name, if the credentials are for it. Undefined if that is not known. */
  projectNamed(caller: Caller, name: string): string | undefined;
}

/** An authenticated, enabled user whose access type permits this kind of request. */
export interface Caller {
  user: Pick<User, 'id' | 'name' | 'domain_id' | 'roles'>;
  /** The scope of the token. Access keys and sessions are unscoped: they work wherever the user has a role. */
  scope: { project: Pick<Project, 'id' | 'domain_id'> } | { domain: Pick<Domain, 'id'> } | 'unscoped';
  /** The token comes from an exchange, so the caller may not know the password. */
  isExchanged?: boolean;
}

export type TokenRefusal =
  | 'unknown'
  | 'expired'
  /** The clock of the service was set back. */
  | 'issued_in_future'
  | 'revoked'
  | 'user_gone'
  | 'user_disabled'
  | 'superseded'
  | 'scope_gone'
  | 'role_lost'
  /** Keystone gives no details. */
  | 'not_valid';

/** A user who is signed in to the console. */
export interface SignedIn {
  session: Session;
  user: User;
  domain: Domain;
}

export type SessionRefusal =
  | Exclude<TokenRefusal, 'scope_gone' | 'role_lost' | 'not_valid'>
  | 'programmatic_only';

export type SignatureRefusal =
  | { reason: 'unknown_key' | 'inactive_key' | 'wrong_secret' | 'user_disabled' | 'console_only' }
  | SignatureProblem;

/** Compares in constant time. */
export function sameSecret(given: string, secret: KeyObject): boolean {
  const digest = (text: string | Buffer) => Buffer.from(hash('sha256', text), 'hex');
  return timingSafeEqual(digest(given), digest(secret.export()));
}
