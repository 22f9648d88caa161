/** Pipelined requests and unread responses: bounds what clients that do not read make the service compute and keep. */
import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { requestShed } from './diagnostics.ts';

export const PIPELINE_LIMITS = {
  /** About 1,000 small requests. Few clients send a request before they have the response to the one before. */
  waitingBytesMax: 4_194_304,
  /** The same, of all connections. */
  waitingBytesTotal: 33_554_432,
  /** Responses that the system does not take yet, of all connections: 700 timelines of a day by minute. */
  unsentBytesTotal: 67_108_864,
  /** The largest lists have 16 MB: at least 54 KB/s. */
  unsentMs: 300_000,
};

/** The objects of a request that waits, in addition to its bytes. Measured: 3,600. */
const REQUEST_BYTES = 4_096;

interface WaitingRequests {
  count: number;
  bytes: number;
  /** How many bytes of the connection these and earlier requests had. */
  bytesRead: number;
}

/**
 * Node.js emits all requests of a connection as they arrive. Here a request starts when the response to the one before has
 * been sent, and pipelined requests start one per event-loop turn, so that others wait little for them.
 */
export function serveInTurn(server: Server, serve: RequestListener, limits = PIPELINE_LIMITS): void {
  const waiting = new Map<Socket, WaitingRequests>();
  let waitingBytes = 0;
  const ready: (() => void)[] = [];
  const limitUnsent = createUnsentLimit(limits);

  function startNext(): void {
    ready.shift()?.();
    if (ready.length > 0) setImmediate(startNext);
  }

  function firstWaiting(socket: Socket): WaitingRequests {
    const requests = { count: 0, bytes: 0, bytesRead: socket.bytesRead };
    waiting.set(socket, requests);
    return requests;
  }

  function release(socket: Socket, requests: WaitingRequests, bytes: number): void {
    requests.count--;
    requests.bytes -= bytes;
    waitingBytes -= bytes;
    if (requests.count === 0) waiting.delete(socket);
  }

  function wait(request: IncomingMessage, response: ServerResponse): void {
    const { socket } = request;
    // The rest of what was read before the connection was closed.
    if (socket.destroyed) return;
    const requests = waiting.get(socket) ?? firstWaiting(socket);
    const bytes = REQUEST_BYTES + socket.bytesRead - requests.bytesRead;
    requests.bytesRead = socket.bytesRead;
    requests.count++;
    requests.bytes += bytes;
    waitingBytes += bytes;
    const leave = () => {
      request.off('close', leave);
      response.off('socket', start);
      release(socket, requests, bytes);
    };
    const start = () => {
      leave();
      ready.push(() => {
        if (!socket.destroyed && !request.destroyed) serve(request, response);
      });
      if (ready.length === 1) setImmediate(startNext);
    };
    request.once('close', leave);
    response.once('socket', start);
    if (requests.bytes <= limits.waitingBytesMax && waitingBytes <= limits.waitingBytesTotal) return;
    requestShed.publish('pipelined');
    socket.destroy();
  }

  const receive: RequestListener = (request, response) => {
    response.on('prefinish', limitUnsent);
    if (response.socket === null) wait(request, response);
    else serve(request, response);
  };
  server.removeAllListeners('request');
  server.on('request', receive);
  // Node.js would respond without a body and a request ID.
  server.on('checkExpectation', receive);
}

/** Returns a listener for the end of each response. Over the limits, connections whose response ended first are closed. */
function createUnsentLimit({ unsentBytesTotal, unsentMs }: typeof PIPELINE_LIMITS) {
  /** The oldest first. */
  const unsent = new Map<Socket, { bytes: number; since: number }>();
  let total = 0;
  let isChecking = false;

  function remove(socket: Socket): void {
    total -= unsent.get(socket)?.bytes ?? 0;
    unsent.delete(socket);
  }

  function close(socket: Socket): void {
    requestShed.publish('unread');
    remove(socket);
    socket.destroy();
  }

  function checkLater(): void {
    if (!isChecking) setTimeout(closeLate, unsentMs / 10).unref();
    isChecking = true;
  }

  function closeLate(): void {
    const latest = performance.now() - unsentMs;
    for (const [socket, { since }] of unsent) if (since <= latest) close(socket);
    isChecking = false;
    if (unsent.size > 0) checkLater();
  }

  return function onEnd(this: ServerResponse): void {
    const { socket } = this;
    if (socket === null || socket.writableLength === 0) return;
    unsent.set(socket, { bytes: socket.writableLength, since: performance.now() });
    total += socket.writableLength;
    this.once('close', () => remove(socket));
    checkLater();
    for (const [oldest] of unsent) {
      if (total <= unsentBytesTotal || unsent.size === 1) return;
      close(oldest);
    }
  };
}
