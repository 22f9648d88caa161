/** Cross-origin requests (CORS) of web pages, from the origins that the operator allows. Never with cookies. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { TOKEN_REFUSAL_HEADER } from '../errors.ts';

const METHODS = 'GET, HEAD, POST, PUT, PATCH, DELETE';
/** What clients of the API send, besides headers that need no permission. */
const REQUEST_HEADERS = [
  'Authorization',
  'Cache-Control',
  'Content-Encoding',
  'Content-Type',
  'Idempotency-Key',
  'If-None-Match',
  'X-Auth-Token',
  'X-Project-Id',
  'X-Sdk-Content-Sha256',
  'X-Sdk-Date',
  'X-Subject-Token',
].join(', ');
const RESPONSE_HEADERS = [
  'ETag',
  'Retry-After',
  'Server-Timing',
  'Warning',
  'X-Request-Id',
  'X-Subject-Token',
  TOKEN_REFUSAL_HEADER,
].join(', ');
/** The longest time that Chromium accepts. */
const PREFLIGHT_MAX_AGE_S = 7_200;

/**
 * Allows the response if the origin is allowed. Returns whether the request was a preflight, which is then answered. The
 * console is left out: only its own pages use its routes.
 */
export function allowOrigin(
  origins: ReadonlySet<string>,
  { headers, method, url }: FastifyRequest,
  reply: FastifyReply,
): boolean {
  const { origin } = headers;
  if (origin === undefined || !origins.has(origin) || url.startsWith('/console')) return false;
  // Not those of Fastify, which `sendBytes` bypasses.
  reply.raw.setHeader('Access-Control-Allow-Origin', origin);
  reply.raw.setHeader('Vary', 'Origin');
  reply.raw.setHeader('Access-Control-Expose-Headers', RESPONSE_HEADERS);
  if (method !== 'OPTIONS' || headers['access-control-request-method'] === undefined) return false;
  reply
    .code(204)
    .header('Access-Control-Allow-Methods', METHODS)
    .header('Access-Control-Allow-Headers', REQUEST_HEADERS)
    .header('Access-Control-Max-Age', String(PREFLIGHT_MAX_AGE_S))
    .send();
  return true;
}
