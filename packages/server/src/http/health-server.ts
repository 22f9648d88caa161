import { createServer, type Server } from 'node:http';
import type { FastifyInstance } from 'fastify';

const PATHS: readonly (string | undefined)[] = ['/healthz', '/readyz'];
/** A probe is a short request; one that takes longer is no probe. */
const TIMEOUT_MS = 5_000;
const CONNECTIONS_MAX = 100;

/**
 * Health checks on a listener of their own. Node.js accepts one connection per listener and turn of the event loop, so
 * that during a flood of new connections, probes on the main listener wait behind all of them.
 */
export function createHealthServer(app: FastifyInstance): Server {
  const server = createServer(
    { requestTimeout: TIMEOUT_MS, headersTimeout: TIMEOUT_MS },
    (request, response) => {
      if (PATHS.includes(request.url)) app.routing(request, response);
      else response.writeHead(404, { Connection: 'close' }).end();
    },
  );
  server.maxConnections = CONNECTIONS_MAX;
  return server;
}
