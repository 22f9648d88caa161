/** The calls of identity, handed on to the service that keeps it: a client that knows only us need not know that. */
import type { IncomingHttpHeaders } from 'node:http';
import { type Readable, Transform } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ApiError } from '../../errors.ts';
import type { RemoteIdentity } from '../../identity/remote/remote.ts';

const PATHS = ['/v3', '/v3/*', '/v3.0/*', '/identity', '/identity/*'];
/** Keystone's own limit is 112 KiB. Received whole before it is handed on, so that slow senders are ours alone. */
const BODY_BYTES_MAX = 131_072;
/** Lists of all that a Keystone knows, by an administrator, are the longest. */
const ANSWER_BYTES_MAX = 16 * 1_048_576;

/** They are about one connection, not about the call. */
const HOP_BY_HOP = [
  ...['connection', 'keep-alive', 'proxy-authenticate', 'proxy-authorization', 'proxy-connection'],
  ...['te', 'trailer', 'transfer-encoding', 'upgrade'],
];
/** We say these ourselves: of what others said only the trusted part stands in them. */
const SAID_BY_US = ['content-length', 'expect', 'forwarded', 'x-forwarded-host', 'x-forwarded-proto'];

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
  // Something on the way might follow the dots, and leave the identity service.
  if (/(?:^|\/)(?:\.|%2e){1,2}(?:[/?#;]|$)/i.test(path))
    throw new ApiError('WAF.4000', 'there is no such path');
  const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
  const answer = await identity.forward({
    method: request.method,
    path,
    headers: {
      ...endToEnd(request.headers, SAID_BY_US),
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
    identity.authentication.forgetToken(String(request.headers['x-subject-token']));
  // The request ID is ours: it is our log that has it.
  reply.code(answer.statusCode ?? 502).headers(endToEnd(answer.headers, ['x-request-id']));
  // Tokens and secrets pass through here, and a Keystone does not say so itself.
  reply.header('Cache-Control', 'no-store');
  const empty = request.method === 'HEAD' || answer.statusCode === 204 || answer.statusCode === 304;
  if (empty) answer.resume();
  return empty ? reply.send() : reply.send(limited(answer));
}

/** Without those that end here, by their own nature or because `Connection` names them. */
export function endToEnd(headers: IncomingHttpHeaders, except: readonly string[]): IncomingHttpHeaders {
  const named = String(headers.connection ?? '')
    .toLowerCase()
    .split(/[\s,]+/);
  const dropped = new Set([...HOP_BY_HOP, ...except, ...named]);
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !dropped.has(name)));
}

/** What is longer breaks off, which the caller sees. */
function limited(answer: Readable): Readable {
  let bytes = 0;
  const limit = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      bytes += chunk.length;
      if (bytes > ANSWER_BYTES_MAX)
        done(new Error(`the identity service answers more than ${ANSWER_BYTES_MAX} bytes`));
      else done(null, chunk);
    },
  });
  answer.on('error', (error) => limit.destroy(error));
  limit.on('close', () => answer.destroy());
  return answer.pipe(limit);
}
