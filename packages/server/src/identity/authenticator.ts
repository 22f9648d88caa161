/** What the HTTP side asks about a request. Answered from our own file, or by the identity service that we ask (remote/). */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { MaybePromise } from '../maybe-promise.ts';
import type { Domain, Project, Role, User } from './records.ts';
import type { Session } from './sessions.ts';
import type { BodyHash, Claim, SignatureCheck, SignedRequest } from './signature.ts';

export interface Authenticator {
  checkToken(text: string): MaybePromise<Caller | TokenRefusal>;
  checkSession(text: string): SignedIn | SessionRefusal;
  /** First half of checking a signature, before the body is read: is there such a key, and may it be used? */
  admitKey(claim: Pick<Claim, 'access'>): MaybePromise<Caller | SignatureRefusal>;
  /** Second half, with the body. */
  checkSignature(
    request: SignedRequest,
    claim: Claim,
    body: Uint8Array | BodyHash,
  ): MaybePromise<SignatureRefusal | null>;
  /** For log shippers that can sign nothing: the secret itself, as a password. Only ever asked for on the way in. */
  checkSecret(access: string, secret: string): Promise<Caller | SignatureRefusal>;
  /** The roles of a caller in a project, however the caller was authenticated. */
  rolesInProject(caller: Caller, projectId: string): MaybePromise<readonly Role[]>;
}

/** What is known of a user wherever the user is kept. */
export type CallerUser = Pick<User, 'id' | 'name' | 'domain_id' | 'roles'>;

/** Who calls: proven, enabled, and with the access (programmatic, or to the console) that the way they call needs. */
export interface Caller {
  user: CallerUser;
  /** What the token is scoped to; an access key or a session is good wherever its user has a role. */
  scope:
    | { project: Pick<Project, 'id' | 'domain_id'> }
    | { domain: Pick<Domain, 'id'> }
    | { system: true }
    | 'wherever the user has a role';
}

/** Only the role `identity` gets a token for it. */
export function isForSystem({ scope }: Caller): boolean {
  return typeof scope === 'object' && 'system' in scope;
}

export type TokenRefusal =
  | 'unknown'
  | 'expired'
  /** Issued in the future: the clock of the service was set back. */
  | 'issued_in_future'
  | 'revoked'
  | 'user_gone'
  | 'user_disabled'
  | 'superseded'
  | 'scope_gone'
  | 'role_lost'
  /** An identity service that is asked does not say more. */
  | 'not_valid';

/** Someone signed in to the console. */
export interface SignedIn {
  session: Session;
  user: User;
  domain: Domain;
}

export type SessionRefusal =
  | Exclude<TokenRefusal, 'scope_gone' | 'role_lost' | 'not_valid'>
  | 'programmatic_only';

export type SignatureRefusal =
  | {
      reason:
        | 'unknown_key'
        | 'inactive_key'
        | 'wrong_secret'
        | 'user_disabled'
        | 'console_only'
        | 'body_differs';
    }
  | { reason: 'wrong_signature'; canonicalRequest: string };

/** What is said of a check; null when it is right. */
export function signatureRefusal(check: SignatureCheck): SignatureRefusal | null {
  if (check.kind === 'right') return null;
  return check.kind === 'wrong'
    ? { reason: 'wrong_signature', canonicalRequest: check.canonicalRequest }
    : { reason: 'body_differs' };
}

/** In a time that says nothing about where they differ. */
export function sameSecret(given: string, secret: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(secret));
}
