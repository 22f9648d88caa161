/** Sends bytes that are ready. `reply.send` would first find out what it was given, and offer it to every hook (0012). */
import type { FastifyReply } from 'fastify';

declare module 'fastify' {
  interface FastifyInstance {
    /** The service is about to stop: readiness fails. */
    draining: boolean;
    /** Responses carry `Connection: close`. */
    stopping: boolean;
  }
}

/** `headers`: names and values in turn. Without `bytes` there is no body, nor a length of one. */
export function sendBytes(
  reply: FastifyReply,
  status: number,
  headers: readonly string[],
  bytes?: Buffer,
): void {
  const sent = ['X-Request-Id', reply.request.id, 'X-Content-Type-Options', 'nosniff', ...headers];
  if (reply.server.stopping) sent.push('Connection', 'close');
  if (bytes !== undefined) sent.push('Content-Length', String(bytes.length));
  reply.raw.writeHead(status, sent);
  // From here on the reply is ours alone: should the line above throw, it is still the framework's, which says so.
  reply.hijack();
  reply.raw.end(reply.request.method === 'HEAD' ? undefined : bytes);
}
