/** How a session travels: a cookie that scripts cannot read and other sites cannot send. */
import type { FastifyRequest } from 'fastify';
import { ApiError } from '../../errors.ts';
import type { Authenticator, Caller, SessionRefusal, SignedIn } from '../../identity/authenticator.ts';
import { isLoopback } from '../../loopback.ts';

const SESSION = 'wafstat_session';
/** Outlives the session; grants no access. */
const DEVICE = 'wafstat_device';
/** Browsers accept the prefix only with Secure, for the whole site, and from this host alone: no sibling host can plant one. */
const SECURE_PREFIX = '__Host-';

export function sessionCookie(request: FastifyRequest, text: string, validMs: number): string {
  return setCookie(request, SESSION, text, validMs);
}

export function deviceCookie(request: FastifyRequest, text: string, validMs: number): string {
  return setCookie(request, DEVICE, text, validMs);
}

export function deviceText(request: FastifyRequest): string | undefined {
  return cookieText(request, DEVICE);
}

function setCookie(request: FastifyRequest, name: string, text: string, validMs: number): string {
  const [prefix, secure] = isSecure(request) ? [SECURE_PREFIX, '; Secure'] : ['', ''];
  const maxAgeS = Math.floor(validMs / 1_000);
  return `${prefix}${name}=${text}; Path=/; HttpOnly; SameSite=Strict; Max-Age=${maxAgeS}${secure}`;
}

/**
 * Whether the browser may keep a Secure cookie. Plain HTTP is for loopback; beyond it something in front does TLS
 * (--insecure-http). Behind a trusted proxy `protocol` and `hostname` are what the proxy says.
 */
function isSecure(request: FastifyRequest): boolean {
  return request.protocol === 'https' || !isLoopback(request.hostname);
}

/** A browser that is not on HTTPS would drop the cookie without a word. */
export function checkMayKeepCookie(request: FastifyRequest): void {
  const { origin } = request.headers;
  if (isSecure(request) && origin?.startsWith('http:')) {
    throw new ApiError(
      'WAF.9002',
      'signing in needs HTTPS, because the password and the session would travel in the clear: open the console with ' +
        'https://, or on the machine itself with http://localhost',
    );
  }
}

export function hasSession(request: FastifyRequest): boolean {
  return sessionText(request) !== undefined;
}

/** Who is signed in; a 401 when nobody is any more, and a 403 when the request is not one of the console's own. */
export function signedIn(authentication: Authenticator, request: FastifyRequest): SignedIn {
  if (request.method !== 'GET' && request.method !== 'HEAD') checkSentByConsole(request);
  const text = sessionText(request);
  if (text === undefined) throw new ApiError('WAF.9001', 'nobody is signed in');
  const checked = authentication.checkSession(text);
  if (typeof checked === 'string') throw new ApiError('WAF.9001', REFUSALS[checked]);
  return checked;
}

export function sessionCaller(authentication: Authenticator, request: FastifyRequest): Caller {
  return { user: signedIn(authentication, request).user, scope: 'wherever the user has a role' };
}

/**
 * SameSite keeps other sites from sending the cookie. Should that ever fail, they can neither set this header without
 * asking first (which is never granted), nor pretend to be of our origin.
 */
export function checkSentByConsole({ headers, host }: FastifyRequest): void {
  if (headers['x-wafstat-console'] === undefined) {
    throw new ApiError('WAF.9002', 'a request with a session that changes something needs X-Wafstat-Console');
  }
  // Browsers say themselves what the relation is, whatever a proxy makes of the host name; older ones only the origin.
  const site = headers['sec-fetch-site'];
  const { origin } = headers;
  const own =
    site === undefined
      ? origin === undefined || (URL.canParse(origin) && new URL(origin).host === host)
      : site === 'same-origin';
  if (!own) throw new ApiError('WAF.9002', 'the request comes from a page of another origin');
}

function sessionText(request: FastifyRequest): string | undefined {
  return cookieText(request, SESSION);
}

function cookieText(request: FastifyRequest, name: string): string | undefined {
  const start = `${isSecure(request) ? SECURE_PREFIX : ''}${name}=`;
  const cookies = request.headers.cookie?.split(';') ?? [];
  const ours = cookies.map((cookie) => cookie.trim()).find((cookie) => cookie.startsWith(start));
  return ours?.slice(start.length) || undefined;
}

const REFUSALS: Readonly<Record<SessionRefusal, string>> = {
  unknown: 'the session is not one of this service',
  expired: 'the session has expired: sign in again',
  issued_in_future:
    'the session began in the future, so the clock of the service was set back: sign in again',
  revoked: 'the session has been ended: sign in again',
  user_gone: 'the user of the session has been deleted',
  user_disabled: 'the user of the session is disabled',
  superseded: 'the password was changed, or the user was disabled for a time: sign in again',
  programmatic_only: 'this user only supports programmatic access, not console access',
};
