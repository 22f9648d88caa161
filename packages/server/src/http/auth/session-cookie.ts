/** The session cookie of the console, which scripts cannot read and other sites cannot send. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ApiError, type ErrorCode } from '../../errors.ts';
import type { Authenticator, SessionRefusal, SignedIn } from '../../identity/authenticator.ts';
import type { NewSession, SignInRefusal } from '../../identity/local-authenticator.ts';
import { DEVICE_VALID_MS } from '../../identity/tokens.ts';
import { isLoopback } from '../../loopback.ts';

/** The defaults of console routes. Some routes replace `allow` with a role. */
export const SESSION_ONLY = { allow: 'authenticated', session: 'only', schema: { hide: true } } as const;

export const SESSION_COOKIE = 'wafstat_session';
/** Outlives the session, but grants no access. */
export const DEVICE_COOKIE = 'wafstat_device';
/** Browsers accept this prefix only on Secure cookies of the host itself, so no sibling host can set one. */
const SECURE_PREFIX = '__Host-';

export function cookieHeader(request: FastifyRequest, name: string, text: string, validMs: number): string {
  const [prefix, secure] = isSecure(request) ? [SECURE_PREFIX, '; Secure'] : ['', ''];
  const maxAgeS = Math.floor(validMs / 1_000);
  return `${prefix}${name}=${text}; Path=/; HttpOnly; SameSite=Strict; Max-Age=${maxAgeS}${secure}`;
}

export function sendSessionCookies(
  request: FastifyRequest,
  reply: FastifyReply,
  { text, device, session }: NewSession,
  now: number,
): void {
  reply.header('Set-Cookie', [
    cookieHeader(request, SESSION_COOKIE, text, session.expires_at - now),
    cookieHeader(request, DEVICE_COOKIE, device, DEVICE_VALID_MS),
  ]);
}

export function readCookie(request: FastifyRequest, name: string): string | undefined {
  const start = `${isSecure(request) ? SECURE_PREFIX : ''}${name}=`;
  const cookies = request.headers.cookie?.split(';') ?? [];
  const found = cookies.map((cookie) => cookie.trim()).find((cookie) => cookie.startsWith(start));
  return found?.slice(start.length) || undefined;
}

/**
 * Whether cookies are Secure: always, except on plain HTTP to loopback. On other addresses a proxy terminates TLS
 * (--insecure-http). Trusted proxies set `protocol` and `hostname`.
 */
function isSecure(request: FastifyRequest): boolean {
  return request.protocol === 'https' || !isLoopback(request.hostname);
}

/** On plain HTTP the browser would silently drop a Secure cookie. */
export function checkCookieSupport(request: FastifyRequest): void {
  const { origin } = request.headers;
  if (isSecure(request) && origin?.startsWith('http:')) {
    throw new ApiError(
      'WAF.9002',
      'signing in requires HTTPS: open the console with https://, or with http://localhost on the server itself',
    );
  }
}

/** Throws a 401 without a valid session, and a 403 if the request does not come from the console. */
export async function signedIn(authenticator: Authenticator, request: FastifyRequest): Promise<SignedIn> {
  if (request.method !== 'GET' && request.method !== 'HEAD') checkSentByConsole(request);
  const text = readCookie(request, SESSION_COOKIE);
  if (text === undefined) throw new ApiError('WAF.9001', 'not signed in');
  const checked = await authenticator.checkSession(text);
  if (typeof checked === 'string') throw new ApiError('WAF.9001', REFUSALS[checked]);
  return checked;
}

/**
 * Protects against cross-site requests should SameSite fail: other sites can neither set this header, since CORS is never
 * granted for the console, nor fake the origin.
 */
export function checkSentByConsole({ headers, host }: FastifyRequest): void {
  if (headers['x-wafstat-console'] === undefined) {
    throw new ApiError('WAF.9002', 'changes with a session require the header X-Wafstat-Console');
  }
  // Sec-Fetch-Site works even if a proxy changes the host name; older browsers send only Origin.
  const site = headers['sec-fetch-site'];
  const { origin } = headers;
  const isSameOrigin =
    site === undefined
      ? origin === undefined || (URL.canParse(origin) && new URL(origin).host === host)
      : site === 'same-origin';
  if (!isSameOrigin) throw new ApiError('WAF.9002', 'the request comes from a page of another origin');
}

export const SIGN_IN_ERRORS: Readonly<Record<SignInRefusal, [ErrorCode, string]>> = {
  wrong_credentials: ['WAF.9001', 'wrong user, domain or password'],
  user_disabled: ['WAF.9001', 'this user is disabled'],
  programmatic_only: ['WAF.9002', 'this user only supports programmatic access, not console access'],
};

const REFUSALS: Readonly<Record<SessionRefusal, string>> = {
  unknown: 'this service did not issue the session: sign in again',
  expired: 'the session has expired: sign in again',
  issued_in_future:
    'the session started in the future, because the clock of the service was set back: sign in again',
  revoked: 'the session has ended: sign in again',
  user_gone: 'the user of the session has been deleted',
  user_disabled: 'the user of the session is disabled',
  superseded: 'the password was changed or the user was disabled: sign in again',
  programmatic_only: 'this user only supports programmatic access, not console access',
};
