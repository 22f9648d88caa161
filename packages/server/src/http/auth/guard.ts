/** Who calls, and may they: decided before anything else of a request is looked at. */
import type { FastifyRequest } from 'fastify';
import { ApiError } from '../../errors.ts';
import {
  type Authenticator,
  type Caller,
  isForSystem,
  type SignatureRefusal,
  type TokenRefusal,
} from '../../identity/authenticator.ts';
import type { Role } from '../../identity/records.ts';
import { type BodyHash, type Claim, parseClaim } from '../../identity/signature.ts';
import { type MaybePromise, mapMaybe } from '../../maybe-promise.ts';
import { sizeText, tooLarge } from '../ingest/uploads.ts';
import { checkProjectId } from '../query.ts';
import { callerOf } from '../route.ts';
import type { RateLimit } from './rate-limit.ts';
import { hasSession, sessionCaller } from './session-cookie.ts';

/** The interface specification's limit for signed requests; larger bodies come with a token. */
export const SIGNED_BODY_BYTES_MAX = 12 * 1_048_576;

const NO_BODY = Buffer.alloc(0);

type Allow = Role | 'anyone known';

declare module 'fastify' {
  interface FastifyRequest {
    /** Set on every route that asks for a role, and on those of identity that ask for anyone. */
    caller: Caller | null;
    /** What a signed request claims, and who may call, until its body is there to check it. */
    pendingSignature: { claim: Claim; allow: Allow } | null;
  }
  interface FastifyContextConfig {
    /** Who may call: a user with this role in the project of the path, anyone who is known, or (absent) everyone. */
    allow?: Allow;
    /** Whether a session of the console opens it: besides tokens and signatures, or instead of them. */
    session?: 'too' | 'only';
    /** Whether an access key may come as user and password, for log shippers that can sign nothing. */
    basic?: boolean;
    /** The handler receives the body itself, and then calls `verifySignature`. */
    streamsBody?: boolean;
  }
}

export interface Authenticate {
  /** When the headers are there. A signed request is let through to its body, and to no more. */
  onHeaders(request: FastifyRequest): MaybePromise<void>;
  /** When the body is there too. */
  onBody(request: FastifyRequest): MaybePromise<void>;
  /** Checks the pending signature of a request, now that its body is known. */
  verifySignature(request: FastifyRequest, body: Uint8Array | BodyHash): MaybePromise<void>;
}

export function createAuthenticate(
  authentication: Authenticator,
  rateLimit: RateLimit,
  pushBytesMax: number,
  now: () => number,
): Authenticate {
  return {
    verifySignature,
    onHeaders(request): MaybePromise<void> {
      const { allow, session, basic = false, streamsBody = false } = request.routeOptions.config;
      const withSecret = basic && /^Basic /i.test(request.headers.authorization ?? '');
      const signed = session !== 'only' && !withSecret && isSigned(request);
      // Of other routes Fastify knows the limit.
      if (streamsBody) checkBodyLength(Number(request.headers['content-length'] ?? 0), signed, pushBytesMax);
      if (allow === undefined) return;
      if (signed) return signedCaller(authentication, request, allow, now);
      const caller = withSecret
        ? secretCaller(authentication, request)
        : bySession(request, session)
          ? sessionCaller(authentication, request)
          : tokenCaller(authentication, request);
      return mapMaybe(caller, (known) => {
        // Kept for the log even if the request goes no further.
        request.caller = known;
        return authorize(request, allow);
      });
    },
    onBody(request): MaybePromise<void> {
      if (request.pendingSignature === null || request.routeOptions.config.streamsBody) return;
      return verifySignature(request, Buffer.isBuffer(request.body) ? request.body : NO_BODY);
    },
  };

  function verifySignature(request: FastifyRequest, body: Uint8Array | BodyHash): MaybePromise<void> {
    const { pendingSignature } = request;
    if (pendingSignature === null) throw new Error('the request is not signed');
    const { claim, allow } = pendingSignature;
    const checked = authentication.checkSignature(requestLine(request), claim, body);
    return mapMaybe(checked, (refusal) => {
      if (refusal !== null) throw signatureError(refusal);
      return authorize(request, allow);
    });
  }

  /** Only now is it certain who calls; before, a stranger could have used up the user's rate. */
  function authorize(request: FastifyRequest, allow: Allow): MaybePromise<void> {
    const caller = callerOf(request);
    // Who asks for others has their rate, which is not ours to know.
    if (!isForSystem(caller)) rateLimit(caller.user.id);
    return allow === 'anyone known' ? undefined : checkRole(authentication, caller, request, allow);
  }
}

function checkRole(
  authentication: Authenticator,
  caller: Caller,
  request: FastifyRequest,
  role: Role,
): MaybePromise<void> {
  const { project_id } = request.params as { project_id: string };
  checkProjectId(project_id);
  const { scope } = caller;
  if (scope !== 'wherever the user has a role') {
    if (!('project' in scope))
      throw new ApiError('WAF.9002', 'the token is not for a project, but this call needs one that is');
    if (scope.project.id !== project_id) {
      throw new ApiError('WAF.9002', 'the credentials are for another project than the one in the path');
    }
  }
  const roles = authentication.rolesInProject(caller, project_id);
  return mapMaybe(roles, (held) => demandRole(held, role));
}

function demandRole(roles: readonly Role[], role: Role): void {
  if (roles.length === 0) throw new ApiError('WAF.9002', 'the user has no role in the project of the path');
  if (!roles.includes(role) && !roles.includes('admin')) {
    throw new ApiError('WAF.9002', `the user has not the role '${role}' in this project`);
  }
}

function tokenCaller(authentication: Authenticator, request: FastifyRequest): MaybePromise<Caller> {
  const token = request.headers['x-auth-token'];
  if (token === undefined) {
    throw new ApiError(
      'WAF.9001',
      'the request has neither an X-Auth-Token header nor a signature in Authorization',
    );
  }
  // Node joins a repeated header of this kind with a comma, so it is always one string.
  return mapMaybe(authentication.checkToken(String(token)), accepted);
}

function accepted(check: Caller | TokenRefusal): Caller {
  if (typeof check === 'string') throw new ApiError('WAF.9001', TOKEN_REFUSALS[check]);
  return check;
}

/** Who the request says that it is from; whether it is shows when the body is there. */
function signedCaller(
  authentication: Authenticator,
  request: FastifyRequest,
  allow: Allow,
  now: () => number,
): MaybePromise<void> {
  const parsed = parseClaim(requestLine(request), now());
  if (parsed.kind === 'malformed') throw new ApiError('WAF.9001', parsed.problem);
  return mapMaybe(authentication.admitKey(parsed.claim), (caller) => {
    if ('reason' in caller) throw signatureError(caller);
    request.caller = caller;
    request.pendingSignature = { claim: parsed.claim, allow };
    // A large body is received only for a key that could send it.
    if (request.routeOptions.config.streamsBody && allow !== 'anyone known')
      return checkRole(authentication, caller, request, allow);
  });
}

async function secretCaller(authentication: Authenticator, request: FastifyRequest): Promise<Caller> {
  const [, encoded = ''] = (request.headers.authorization ?? '').split(' ');
  const text = Buffer.from(encoded, 'base64').toString('utf8');
  const colon = text.indexOf(':');
  const caller = await authentication.checkSecret(text.slice(0, colon), text.slice(colon + 1));
  if ('reason' in caller) throw signatureError(caller);
  return caller;
}

/** A request with both is judged by its token, which is what the other clients of the family's services do. */
function isSigned({ headers }: FastifyRequest): boolean {
  return headers['x-auth-token'] === undefined && headers.authorization !== undefined;
}

/** Credentials that a program sends on purpose win over a cookie that a browser sends by itself. */
function bySession(request: FastifyRequest, session: 'too' | 'only' | undefined): boolean {
  if (session === undefined) return false;
  return session === 'only' || (request.headers['x-auth-token'] === undefined && hasSession(request));
}

function requestLine({ method, raw, headers }: FastifyRequest) {
  return { method, url: raw.url ?? '', headers };
}

function checkBodyLength(bytes: number, signed: boolean, pushBytesMax: number): void {
  if (signed && bytes > SIGNED_BODY_BYTES_MAX) {
    throw new ApiError(
      'WAF.7001',
      `request body exceeds ${sizeText(SIGNED_BODY_BYTES_MAX)}, the limit of signed requests: send it with a token`,
    );
  }
  if (!signed && bytes > pushBytesMax) throw tooLarge(pushBytesMax);
}

const TOKEN_REFUSALS: Readonly<Record<TokenRefusal, string>> = {
  unknown: 'the token in X-Auth-Token is not one of this service',
  expired: 'the token in X-Auth-Token has expired',
  issued_in_future:
    'the token in X-Auth-Token was issued in the future, so the clock of the service was set back: get a new token',
  revoked: 'the token in X-Auth-Token has been revoked',
  user_gone: 'the user of the token in X-Auth-Token has been deleted',
  user_disabled: 'the user of the token in X-Auth-Token is disabled',
  superseded: 'the token in X-Auth-Token was issued before the password was changed or the user disabled',
  scope_gone: 'the project of the token in X-Auth-Token is disabled or deleted',
  role_lost: 'the user of the token in X-Auth-Token has no role in its project any more',
  not_valid: 'the identity service says that the token in X-Auth-Token is not valid',
};

export const CONSOLE_ONLY = 'This user only supports console access, not programmatic access.';

function signatureError(refusal: SignatureRefusal): ApiError {
  switch (refusal.reason) {
    case 'unknown_key':
      return new ApiError('WAF.9001', 'there is no such access key');
    case 'wrong_secret':
      return new ApiError('WAF.9001', 'the secret access key is wrong');
    case 'inactive_key':
      return new ApiError('WAF.9001', 'the access key is disabled');
    case 'user_disabled':
      return new ApiError('WAF.9001', 'the user of the access key is disabled');
    case 'console_only':
      return new ApiError('WAF.9002', CONSOLE_ONLY);
    case 'body_differs':
      return new ApiError('WAF.9001', 'X-Sdk-Content-Sha256 is not the hash of the body');
    case 'wrong_signature': {
      const canonical = refusal.canonicalRequest.replaceAll('\n', '|');
      return new ApiError(
        'WAF.9001',
        `the signature is wrong; the canonical request of the service is: ${canonical}`,
      );
    }
  }
}
