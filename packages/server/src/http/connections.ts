/** Connections: limits, timeouts, broken requests, draining on shutdown, and the health listener. */
import { createServer, type Server as HttpServer, type IncomingMessage } from 'node:http';
import { Server, type Socket } from 'node:net';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import type { FastifyBaseLogger, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { requestShed } from '../diagnostics.ts';
import { malformed } from '../errors.ts';
import { serveInTurn } from '../pipelining.ts';
import { afterRunning } from '../running-time.ts';
import { failureBody } from './failures.ts';

declare module 'fastify' {
  interface FastifyInstance {
    /** The service is about to stop: readiness fails. */
    draining: boolean;
    /** Responses carry `Connection: close`. */
    stopping: boolean;
  }
}

export const TIMEOUTS = {
  /** How long the headers of a request may take. */
  headersMs: 10_000,
  /** How long a whole request may take, unless it is a push (ingest/uploads.ts). */
  requestMs: 60_000,
  /** Closes a connection on which no data moves during a request, for example because the client does not read. */
  stalledMs: 60_000,
  /** How long to read and ignore the rest of a body after the response: some clients read only after they have sent it. */
  ignoredBodyMs: 5_000,
};

export type Timeouts = typeof TIMEOUTS;

/** 1,000 host IDs of 64 characters are 71 KB of URL; this leaves room for three times that. */
export const HEADER_BYTES_MAX = 262_144;
/** Browsers and proxies send some 30. Node.js silently ignores headers over its limit, also Content-Length: it keeps one more. */
export const HEADERS_MAX = 200;
/** About 30 KB of memory each, 300 MB in total. */
export const CONNECTIONS_MAX = 10_000;
/** Refused connections are logged at most this often. */
const REFUSED_LOG_MS = 60_000;
/** How long connections stay open for a last request after the listener has closed. Doubled if the process was stopped. */
const LAST_REQUESTS_MS = 250;

/** Connections over the limit are closed without a response, which would cost more than closing. */
export function limitConnections({ server, log }: FastifyInstance, max: number): void {
  let refused = 0;
  let loggedAt = Number.NEGATIVE_INFINITY;
  server.maxConnections = max;
  server.maxHeadersCount = HEADERS_MAX + 1;
  // Reading the address makes Node.js keep it: a client that resets the connection must not be anonymous in the audit trail.
  server.on('connection', (socket: Socket) => void socket.remoteAddress);
  server.on('secureConnection', (socket: Socket) => void socket.remoteAddress);
  server.on('drop', () => {
    refused++;
    requestShed.publish('connections');
    if (performance.now() - loggedAt < REFUSED_LOG_MS) return;
    log.warn(`refused ${refused} connections: ${max} are open (--max-connections)`);
    refused = 0;
    loggedAt = performance.now();
  });
}

/** Limits how long a request takes to arrive, unless it is a push, and how long its body continues after the response. */
export function limitArrival(
  request: FastifyRequest,
  reply: FastifyReply,
  { requestMs, ignoredBodyMs }: Timeouts,
): void {
  const { raw, server } = request;
  const { headers, socket } = raw;
  const hasBody = headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0';
  if (!hasBody && !hasTooManyHeaders(raw)) return;
  let timer: NodeJS.Timeout | undefined;
  const limit = (timeoutMs: number, end: () => void) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (!raw.complete) end();
    }, timeoutMs);
    timer.unref();
  };
  if (!request.routeOptions.config?.streamsBody) {
    const error = Object.assign(new Error(), { code: 'ERR_HTTP_REQUEST_TIMEOUT' });
    limit(requestMs, () => server.server.emit('clientError', error, socket));
  }
  reply.raw.once('finish', () => {
    if (raw.complete) return;
    raw.resume();
    limit(ignoredBodyMs, () => raw.destroy());
  });
  raw.once('close', () => clearTimeout(timer));
}

/** Node.js has ignored some of them. */
export function hasTooManyHeaders({ rawHeaders }: IncomingMessage): boolean {
  return rawHeaders.length > 2 * HEADERS_MAX;
}

/** Responds to bytes that never became a request: not HTTP, headers too long, or too slow. */
export function refuseBrokenRequest(
  error: Error & { code?: string },
  socket: Socket,
  requestId: string,
  log: FastifyBaseLogger,
): void {
  // Browsers open connections in advance, and would take a response for that to the next request. They repeat a request if the
  // connection closes.
  const isUnused = error.code === 'ERR_HTTP_REQUEST_TIMEOUT' && socket.bytesRead === 0;
  if (!socket.writable || error.code === 'ECONNRESET' || isUnused) {
    socket.destroy();
    return;
  }
  const message =
    error.code === 'HPE_HEADER_OVERFLOW'
      ? `the request line and headers are longer than ${HEADER_BYTES_MAX} bytes`
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? `the request took too long to arrive: send the headers within ${TIMEOUTS.headersMs / 1_000} s and the whole request within ${TIMEOUTS.requestMs / 1_000} s`
        : 'the request is not valid HTTP';
  log.info({ reqId: requestId, status: 400 }, message);
  const body = failureBody(malformed(message), false);
  // A client that does not close its side must not keep the descriptor.
  socket.once('finish', () => socket.destroy());
  socket.end(
    `HTTP/1.1 400 Bad Request\r\nContent-Type: application/json; charset=utf-8\r\nX-Request-Id: ${requestId}\r\n` +
      'X-Content-Type-Options: nosniff\r\n' +
      `Content-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`,
  );
}

/**
 * Drains the connections. Await it before `app.close()`, which closes connections before the listener. Readiness fails for
 * `delayMs`, then the listener closes, then each connection ends with its next response. In this order, no client opens a
 * connection that is reset. `othersHaveClosed` waits for other processes that listen on the same port.
 */
export async function drain(
  app: FastifyInstance,
  delayMs: number,
  othersHaveClosed: () => Promise<void> = async () => {},
): Promise<void> {
  app.draining = true;
  await sleep(delayMs);
  // Lets the event loop accept the connections that are waiting.
  await setImmediate();
  // Calls `close` of net, because that of http also closes connections whose next request is already on its way.
  Server.prototype.close.call(app.server);
  await othersHaveClosed();
  app.stopping = true;
  const open = await promisify(app.server.getConnections.bind(app.server))();
  if (open === 0) return;
  const startedAt = performance.now();
  await lastRequests();
  // The clients were stopped, too, if the machine was.
  if (performance.now() - startedAt > 2 * LAST_REQUESTS_MS) await lastRequests();
}

function lastRequests(): Promise<void> {
  return new Promise((resolve) => afterRunning(LAST_REQUESTS_MS, resolve));
}

const HEALTH_PATHS: readonly (string | undefined)[] = ['/healthz', '/readyz'];
const HEALTH_TIMEOUT_MS = 5_000;
const HEALTH_CONNECTIONS_MAX = 100;

/**
 * Health checks on a separate listener. Node.js accepts one connection per listener and event-loop turn, so during a
 * flood of new connections, probes on the main listener wait for all of them.
 */
export function createHealthServer(app: FastifyInstance): HttpServer {
  const server = createServer({ requestTimeout: HEALTH_TIMEOUT_MS, headersTimeout: HEALTH_TIMEOUT_MS });
  serveInTurn(server, (request, response) => {
    if (HEALTH_PATHS.includes(request.url)) app.routing(request, response);
    else response.writeHead(404, { Connection: 'close' }).end();
  });
  server.maxConnections = HEALTH_CONNECTIONS_MAX;
  return server;
}
