/** Cross-origin requests (CORS) of web pages, from the origins that the operator allows. Never with cookies. */
import type { FastifyReply, FastifyRequest } from 'fastify';

/** The longest time that Chromium accepts. */
const PREFLIGHT_MAX_AGE_S = 7_200;

/**
 * Allows the response if the origin is allowed. Returns whether the request was a preflight, which is then answered. The
 * console is left out: only its own pages use its routes.
 */
export function allowOrigin(
  origins: ReadonlySet<string>,
  { headers, method, url, routeOptions }: FastifyRequest,
  reply: FastifyReply,
): boolean {
  const { origin } = headers;
  // The path of the route: that of the URL may be percent-encoded.
  const isConsole = (routeOptions.url ?? url).startsWith('/console');
  if (origin === undefined || !origins.has(origin) || isConsole) return false;
  // Not those of Fastify, which `sendBytes` bypasses.
  reply.raw.setHeader('Access-Control-Allow-Origin', origin);
  reply.raw.setHeader('Vary', 'Origin');
  // Without cookies, `*` means all headers.
  reply.raw.setHeader('Access-Control-Expose-Headers', '*');
  if (method !== 'OPTIONS' || headers['access-control-request-method'] === undefined) return false;
  reply
    .code(204)
    .header('Access-Control-Allow-Methods', 'GET, HEAD, POST, PUT, PATCH, DELETE')
    // `*` would not include Authorization.
    .header('Access-Control-Allow-Headers', headers['access-control-request-headers'] ?? '')
    .header('Access-Control-Max-Age', String(PREFLIGHT_MAX_AGE_S))
    .send();
  return true;
}
