/** Forwards identity requests to the identity service, so that clients need only one address. */
import type { IncomingHttpHeaders } from 'node:http';
import { pipeline, type Readable, Transform } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ApiError } from '../../errors.ts';
import type { RemoteIdentity } from '../../identity/remote/remote-identity.ts';

const PATHS = ['/v3', '/v3/*', '/v3.0/*', '/identity', '/identity/*'];
/** Keystone's own limit is 112 KiB. The body is read before it is forwarded, so that slow clients do not block Keystone. */
const BODY_BYTES_MAX = 131_072;
/** The longest responses are an administrator's lists of all users or projects. */
const RESPONSE_BYTES_MAX = 16 * 1_048_576;

const HOP_BY_HOP =
  'connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding upgrade';
/** Set by this process, from trusted values only. */
const OWN_HEADERS = ['content-length', 'expect', 'forwarded', 'x-forwarded-host', 'x-forwarded-proto'];

export function mountForwarding(app: FastifyInstance, identity: RemoteIdentity): void {
  for (const url of PATHS) {
    app.route({
      method: app.supportedMethods,
      url,
      schema: { hide: true },
      bodyLimit: BODY_BYTES_MAX,
      handler: (request, reply) => forward(identity, request, reply),
    });
  }
}

async function forward(
  identity: RemoteIdentity,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const path = request.raw.url ?? '';
  // A proxy might resolve the dots and leave the identity API.
  if (/(?:^|\/)(?:\.|%2e){1,2}(?:[/?#;]|$)/i.test(path))
    throw new ApiError('WAF.4000', 'paths with dot segments are not forwarded');
  const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
  const response = await identity.forward({
    method: request.method,
    path,
    headers: {
      ...endToEndHeaders(request.headers, OWN_HEADERS),
      'x-forwarded-for': [request.headers['x-forwarded-for'] ?? [], request.socket.remoteAddress ?? []]
        .flat()
        .join(', '),
      'x-forwarded-proto': request.protocol,
      'x-forwarded-host': request.host,
      ...(body.length > 0 || request.headers['content-length'] ? { 'content-length': body.length } : {}),
    },
    body,
  });
  if (request.method === 'DELETE')
    identity.authenticator.forgetToken(String(request.headers['x-subject-token']));
  // The log of this process has the request under its own ID.
  reply.code(response.statusCode ?? 502).headers(endToEndHeaders(response.headers, ['x-request-id']));
  // Responses contain tokens and secrets, and Keystone does not forbid caching them.
  reply.header('Cache-Control', 'no-store');
  const isEmpty = request.method === 'HEAD' || response.statusCode === 204 || response.statusCode === 304;
  if (isEmpty) response.resume();
  return isEmpty ? reply.send() : reply.send(limitBytes(response));
}

/** Removes hop-by-hop headers, including those that `Connection` names. */
export function endToEndHeaders(
  headers: IncomingHttpHeaders,
  except: readonly string[],
): IncomingHttpHeaders {
  const named = String(headers.connection ?? '')
    .toLowerCase()
    .split(/[\s,]+/);
  const dropped = new Set([...HOP_BY_HOP.split(' '), ...except, ...named]);
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !dropped.has(name)));
}

/** Cuts off longer responses, which the client notices. */
function limitBytes(response: Readable): Readable {
  let bytes = 0;
  const limit = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      if (bytes > RESPONSE_BYTES_MAX)
        done(new Error(`the response of the identity service exceeds ${RESPONSE_BYTES_MAX} bytes`));
      else done(null, chunk);
    },
  });
  // The error reaches the client as a response that ends early.
  return pipeline(response, limit, () => {});
}
