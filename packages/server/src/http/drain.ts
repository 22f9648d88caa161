import { Server } from 'node:net';
import { setImmediate, setTimeout } from 'node:timers/promises';
import type { FastifyInstance } from 'fastify';

/** How long connections stay open for a last request once the service accepts no new ones. */
const LAST_REQUESTS_MS = 250;

/**
 * To be awaited before `app.close()`. Readiness fails first, for `delayMs`; then the listener closes; then connections
 * end with their next response. In this order no client opens a connection that nobody accepts, which would be reset.
 * `othersHaveClosed` waits for other processes that listen on the same port. (Fastify ends connections as soon as it closes, before the listener.)
 */
export async function drain(
  app: FastifyInstance,
  delayMs: number,
  othersHaveClosed: () => Promise<void> = async () => {},
): Promise<void> {
  app.draining = true;
  await setTimeout(delayMs);
  // Directly after the event loop has accepted the connections that were waiting.
  await setImmediate();
  // The method of net: that of http also closes connections on which the next request is already on its way.
  Server.prototype.close.call(app.server);
  await othersHaveClosed();
  app.stopping = true;
  if ((await openConnections(app.server)) > 0) await setTimeout(LAST_REQUESTS_MS);
}

function openConnections(server: Server): Promise<number> {
  return new Promise((resolve, reject) => {
    server.getConnections((error, count) => (error ? reject(error) : resolve(count)));
  });
}
