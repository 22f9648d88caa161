/** The guard authenticates and authorizes every request before its handler runs. */
import type { FastifyRequest } from 'fastify';
import { requestShed } from '../../diagnostics.ts';
import { ApiError, type ErrorCode, retryLater, TOKEN_REFUSAL_HEADER } from '../../errors.ts';
import type { Authenticator, Caller, SignatureRefusal, TokenRefusal } from '../../identity/authenticator.ts';
import { type BodyHash, type PendingSignature, parseSignature } from '../../identity/signature.ts';
import { isLoopback } from '../../loopback.ts';
import { RateLimit } from '../../rate-limit.ts';
import { tooLarge } from '../ingest/uploads.ts';
import { checkId } from '../query.ts';
import { acceptsBasicReads, callerOf, pathParameter } from '../route.ts';
import { loginSource } from './actor.ts';
import { readCookie, SESSION_COOKIE, signedIn } from './session-cookie.ts';

/** The interface specification's limit for signed requests; larger bodies need a token. */
export const SIGNED_BODY_BYTES_MAX = 12 * 1_048_576;

const NO_BODY = Buffer.alloc(0);

declare module 'fastify' {
  interface FastifyRequest {
    /** Set on signed requests until the body has arrived. */
    pendingSignature: PendingSignature | null;
  }
}

interface GuardOptions {
  /** Requests per second for each user; 0 for no limit. */
  rateLimit: number;
  /** The largest body with a token, on routes that stream it. */
  bodyBytesMax: number;
  /** Whether reads accept access keys as HTTP Basic credentials. */
  basicReads: boolean;
  now: () => number;
}

export function createGuard(
  authenticator: Authenticator,
  { rateLimit, bodyBytesMax, basicReads, now }: GuardOptions,
) {
  const requests = rateLimit === 0 ? null : new RateLimit(rateLimit, 1_000 / rateLimit, now);
  return {
    verifySignature,
    checkAgain,
    /** Runs when the headers have arrived. The signature of a signed request is checked later. */
    async onHeaders(request: FastifyRequest): Promise<void> {
      const { allow, session, streamsBody = false } = request.routeOptions.config;
      const kind = credentialKind(request);
      // Fastify limits the bodies of all other routes.
      if (streamsBody)
        checkBodyLength(Number(request.headers['content-length'] ?? 0), kind === 'signature', bodyBytesMax);
      if (allow === undefined) return;
      if (session === 'optional' && readCookie(request, SESSION_COOKIE) === undefined) return;
      if (kind === 'signature') return signedCaller(authenticator, request, now);
      // Set before the checks, so that the access log names the user of a rejected request.
      try {
        request.caller = await unsignedCaller(request, kind);
      } catch (error) {
        throw basicReads ? withChallenge(error, request) : error;
      }
      await authorize(request);
    },
    /** Runs when the body has arrived. */
    async onBody(request: FastifyRequest): Promise<void> {
      // An empty body may arrive late, too.
      if (request.pendingSignature === null && request.body === undefined) return;
      const { allow, streamsBody } = request.routeOptions.config;
      if (allow === undefined || streamsBody) return;
      if (request.pendingSignature === null) return checkAgain(request);
      await verifySignature(request, Buffer.isBuffer(request.body) ? request.body : NO_BODY);
    },
  };

  async function unsignedCaller(request: FastifyRequest, kind = credentialKind(request)): Promise<Caller> {
    if (kind === 'token') return tokenCaller(authenticator, request, basicReads);
    if (kind === 'session') {
      request.signedIn = await signedIn(authenticator, request);
      return { user: request.signedIn.user, scope: 'unscoped' };
    }
    return kind === 'basic' ? basicCaller(authenticator, request) : basicReader(request);
  }

  /** The secret is in every request, so it must not cross the network unencrypted. */
  async function basicReader(request: FastifyRequest): Promise<Caller> {
    if (!basicReads)
      throw new ApiError('WAF.9001', 'Basic authentication is off here: send a token, or sign the request');
    if (!isConfidential(request)) {
      const advice = 'behind a proxy, start the service with --trust-proxy';
      throw new ApiError(
        'WAF.9002',
        `Basic authentication needs HTTPS, or a client on the same machine; ${advice}`,
      );
    }
    return basicCaller(authenticator, request);
  }

  async function verifySignature(request: FastifyRequest, body: Uint8Array | BodyHash): Promise<void> {
    const { pendingSignature } = request;
    if (pendingSignature === null) throw new Error('the request is not signed');
    const refusal = await authenticator.checkSignature(signedParts(request), pendingSignature, body);
    if (refusal !== null) throw signatureError(refusal);
    await authorize(request);
  }

  /** For unsigned requests: while the body was arriving, the credentials may have been revoked, or roles taken away. */
  async function checkAgain(request: FastifyRequest): Promise<void> {
    request.caller = await unsignedCaller(request);
    await checkRole(authenticator, request.caller, request, 'verified');
  }

  /** Call it only after authentication: otherwise anyone could use up another user's rate limit. */
  async function authorize(request: FastifyRequest): Promise<void> {
    const caller = callerOf(request);
    if (requests && !requests.take(caller.user.id)) {
      requestShed.publish('rate_limit');
      throw retryLater('WAF.3004', `more than ${rateLimit} requests per second: retry in 1 s`, 1);
    }
    await checkRole(authenticator, caller, request, 'verified');
  }
}

/** Only a caller whose credentials are verified learns what a name in the path means. */
async function checkRole(
  authenticator: Authenticator,
  caller: Caller,
  request: FastifyRequest,
  credentials: 'verified' | 'pending',
): Promise<void> {
  const { allow } = request.routeOptions.config;
  if (allow === undefined || allow === 'authenticated') return;
  const projectId = pathParameter(request, 'project_id');
  checkId('project_id', projectId);
  const { scope } = caller;
  const refused = (message: string) => {
    const id = credentials === 'verified' ? authenticator.projectNamed(caller, projectId) : undefined;
    const advice = `'${projectId}' is the name of a project: put its ID in the path, ${id}`;
    return new ApiError('WAF.9002', id === undefined ? message : advice);
  };
  if (scope !== 'unscoped') {
    if (!('project' in scope))
      throw new ApiError('WAF.9002', 'the token has no project: request one with auth.scope.project');
    if (scope.project.id !== projectId)
      throw refused('the credentials are for another project than the one in the path');
  }
  const roles = await authenticator.rolesInProject(caller, projectId);
  request.isAdmin = roles.includes('admin');
  if (!roles.includes(allow) && !request.isAdmin) throw refused(`missing role '${allow}' in this project`);
}

async function tokenCaller(
  authenticator: Authenticator,
  request: FastifyRequest,
  basicReads: boolean,
): Promise<Caller> {
  const token = request.headers['x-auth-token'];
  if (token === undefined) throw noCredentials(request, basicReads);
  // Node joins repeated headers with a comma, so it is always one string.
  const checked = await authenticator.checkToken(String(token));
  if (typeof checked === 'string')
    throw new ApiError('WAF.9001', TOKEN_REFUSALS[checked], { [TOKEN_REFUSAL_HEADER]: checked });
  return checked;
}

function noCredentials(request: FastifyRequest, basicReads: boolean): ApiError {
  const { method, routeOptions } = request;
  const acceptsBasic =
    routeOptions.config.basic || (basicReads && acceptsBasicReads(method, routeOptions.config));
  const ways =
    acceptsBasic && isConfidential(request)
      ? ', a signature in Authorization, or an access key ID and its secret as Basic credentials'
      : ' or a signature in Authorization';
  return new ApiError('WAF.9001', `the request has no credentials: send a token in X-Auth-Token${ways}`);
}

/** Sets the caller before the signature is verified, which needs the body. */
async function signedCaller(
  authenticator: Authenticator,
  request: FastifyRequest,
  now: () => number,
): Promise<void> {
  const parsed = parseSignature(signedParts(request), now());
  if (parsed.kind === 'malformed') throw new ApiError('WAF.9001', parsed.problem);
  const caller = await authenticator.admitKey(parsed.pending);
  if ('reason' in caller) throw signatureError(caller);
  request.caller = caller;
  request.pendingSignature = parsed.pending;
  // Large bodies are accepted only from keys that may send them.
  if (request.routeOptions.config.streamsBody) await checkRole(authenticator, caller, request, 'pending');
}

async function basicCaller(authenticator: Authenticator, request: FastifyRequest): Promise<Caller> {
  const { access, secret } = parseBasic(request);
  const caller = await authenticator.checkSecret(access, secret, loginSource(request));
  if (!('reason' in caller)) return caller;
  const { code, message } = signatureError(caller);
  const advice = 'Basic takes an access key ID and its secret, not a user name and password';
  throw new ApiError(code, caller.reason === 'unknown_key' ? `${message}: ${advice}` : message);
}

/** An access key ID has 20 characters, a secret 40; those of Keystone may be longer. */
const BASIC_LENGTH_MAX = 2_048;

function parseBasic({ headers }: FastifyRequest): { access: string; secret: string } {
  const { authorization = '' } = headers;
  const isShort = authorization.length <= BASIC_LENGTH_MAX;
  const [, encoded = ''] = (isShort && /^Basic +([A-Za-z0-9+/]+={0,2})$/i.exec(authorization)) || [];
  const text = Buffer.from(encoded, 'base64').toString('utf8');
  const colon = text.indexOf(':');
  if (colon < 1)
    throw new ApiError('WAF.9001', 'Authorization must be Basic with an access key ID and its secret');
  return { access: text.slice(0, colon), secret: text.slice(colon + 1) };
}

/**
 * How a request authenticates. A token that a program sends takes precedence over a signature, as in the other services of
 * the API family, and over what a browser sends by itself: a cookie, or the Basic credentials of a proxy in front.
 */
function credentialKind(request: FastifyRequest): 'token' | 'session' | 'signature' | 'basic' | 'basic-read' {
  const { headers, method, routeOptions } = request;
  const { session, basic } = routeOptions.config;
  const { authorization } = headers;
  if (session === 'only' || session === 'optional') return 'session';
  const isBasic = authorization !== undefined && /^Basic /i.test(authorization);
  if (headers['x-auth-token'] !== undefined) return 'token';
  if (basic && isBasic) return 'basic';
  if (authorization !== undefined && !isBasic) return 'signature';
  if (session === 'too' && readCookie(request, SESSION_COOKIE) !== undefined) return 'session';
  if (!isBasic) return 'token';
  return acceptsBasicReads(method, routeOptions.config) ? 'basic-read' : 'signature';
}

/** Whether the request may carry a secret: it was encrypted up to us or a trusted proxy, or it never left the machine. */
function isConfidential({ protocol, ip, raw, headers }: FastifyRequest): boolean {
  if (protocol === 'https') return true;
  // Behind a proxy on this machine that is not trusted, remote clients seem to be local.
  const isTrusted = ip !== raw.socket.remoteAddress;
  const isForwarded = !isTrusted && FORWARDED_HEADERS.some((name) => headers[name] !== undefined);
  return isLoopback(ip) && !isForwarded;
}

const FORWARDED_HEADERS = ['x-forwarded-for', 'x-forwarded-proto', 'x-real-ip', 'forwarded', 'via'];

/** Asks for Basic credentials. Browsers are not asked, because they would open a dialog in the console. */
function withChallenge(error: unknown, request: FastifyRequest): unknown {
  const { method, headers, routeOptions } = request;
  const isBrowser = headers['sec-fetch-mode'] !== undefined || headers['user-agent']?.startsWith('Mozilla/');
  const isAsked =
    acceptsBasicReads(method, routeOptions.config) &&
    headers['x-auth-token'] === undefined &&
    headers.cookie === undefined &&
    !isBrowser &&
    isConfidential(request);
  if (!isAsked || !(error instanceof ApiError) || error.status !== 401) return error;
  return new ApiError(error.code, error.message, {
    ...error.headers,
    'WWW-Authenticate': 'Basic realm="wafstat"',
  });
}

function signedParts({ method, raw, headers }: FastifyRequest) {
  return { method, url: raw.url ?? '', headers };
}

function checkBodyLength(bytes: number, signed: boolean, bodyBytesMax: number): void {
  if (signed && bytes > SIGNED_BODY_BYTES_MAX)
    throw tooLarge(SIGNED_BODY_BYTES_MAX, ', the limit of signed requests: send it with a token');
  if (!signed && bytes > bodyBytesMax) throw tooLarge(bodyBytesMax);
}

const TOKEN_REFUSALS: Readonly<Record<TokenRefusal, string>> = {
  unknown: 'this service did not issue the token in X-Auth-Token',
  expired: 'the token in X-Auth-Token has expired: request a new one',
  issued_in_future:
    'the token in X-Auth-Token was issued in the future, because the clock of the service was set back: request a new one',
  revoked: 'the token in X-Auth-Token has been revoked: request a new one',
  user_gone: 'the user of the token in X-Auth-Token has been deleted',
  user_disabled: 'the user of the token in X-Auth-Token is disabled',
  superseded:
    'the token in X-Auth-Token was issued before the password was changed or the user was disabled: request a new one',
  scope_gone: 'the project of the token in X-Auth-Token is disabled or deleted',
  role_lost: 'the user of the token in X-Auth-Token no longer has a role in its project',
  not_valid: 'Keystone rejects the token in X-Auth-Token',
};

export const CONSOLE_ONLY = 'This user only supports console access, not programmatic access.';

const SIGNATURE_ERRORS: Readonly<Record<SignatureRefusal['reason'], [ErrorCode, string]>> = {
  unknown_key: ['WAF.9001', 'unknown access key'],
  wrong_secret: ['WAF.9001', 'the secret access key is wrong'],
  inactive_key: ['WAF.9001', 'the access key is disabled'],
  user_disabled: ['WAF.9001', 'the user of the access key is disabled'],
  console_only: ['WAF.9002', CONSOLE_ONLY],
  body_differs: ['WAF.9001', 'X-Sdk-Content-Sha256 is not the SHA-256 of the body'],
  wrong_signature: ['WAF.9001', 'the signature is wrong'],
};

function signatureError(refusal: SignatureRefusal): ApiError {
  const [code, message] = SIGNATURE_ERRORS[refusal.reason];
  if (refusal.reason !== 'wrong_signature') return new ApiError(code, message);
  const canonical = refusal.canonicalRequest.replaceAll('\n', '|');
  return new ApiError(code, `${message}; the service computed it from this canonical request: ${canonical}`);
}
