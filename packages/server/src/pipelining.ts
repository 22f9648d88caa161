/** Pipelined requests and unread responses: bounds what clients that do not read make the service compute and keep. */
import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { requestShed } from './diagnostics.ts';
import { networkOf } from './event.ts';

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

/** What a connection keeps in memory. */
interface Held {
  network: string;
  bytes: number;
}

interface WaitingRequests extends Held {
  count: number;
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
    const requests = { network: clientOf(socket), count: 0, bytes: 0, bytesRead: socket.bytesRead };
    waiting.set(socket, requests);
    return requests;
  }

  function release(socket: Socket, requests: WaitingRequests, bytes: number): void {
    if (waiting.get(socket) !== requests) return;
    requests.count--;
    requests.bytes -= bytes;
    waitingBytes -= bytes;
    if (requests.count === 0) waiting.delete(socket);
  }

  function close(socket: Socket): void {
    requestShed.publish('pipelined');
    // At once: the requests close later, and until then more would be closed than necessary.
    waitingBytes -= waiting.get(socket)?.bytes ?? 0;
    waiting.delete(socket);
    socket.destroy();
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
    if (requests.bytes > limits.waitingBytesMax) close(socket);
    while (waitingBytes > limits.waitingBytesTotal) close(largest(waiting));
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

function clientOf({ remoteAddress = '' }: Socket): string {
  // An IPv4 client of an IPv6 listener has an address like ::ffff:192.0.2.1.
  return networkOf(remoteAddress.replace(/^::ffff:(?=.*\.)/, ''), { ipv4: 32, ipv6: 64 });
}

/**
 * The largest connection of the client that holds most: neither a newcomer nor a slow reader is closed because a stranger
 * opens many connections.
 */
function largest(connections: ReadonlyMap<Socket, Held>): Socket {
  const networks = new Map<string, number>();
  for (const { network, bytes } of connections.values())
    networks.set(network, (networks.get(network) ?? 0) + bytes);
  const most = Math.max(...networks.values());
  let found: [Socket, Held] | undefined;
  for (const connection of connections) {
    const [, { network, bytes }] = connection;
    if (networks.get(network) === most && bytes > (found?.[1].bytes ?? -1)) found = connection;
  }
  if (found === undefined) throw new Error('no connection holds anything');
  return found[0];
}

/** Returns a listener for the end of each response. Over the limits, connections that do not read are closed. */
function createUnsentLimit({ unsentBytesTotal, unsentMs }: typeof PIPELINE_LIMITS) {
  const unsent = new Map<Socket, Held & { since: number }>();
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

  /** Counts what clients have read since their responses ended. */
  function measure(): void {
    total = 0;
    for (const [socket, held] of unsent) {
      held.bytes = socket.writableLength;
      total += held.bytes;
    }
  }

  return function onEnd(this: ServerResponse): void {
    const { socket } = this;
    if (socket === null || socket.writableLength === 0) return;
    remove(socket);
    unsent.set(socket, { network: clientOf(socket), bytes: socket.writableLength, since: performance.now() });
    total += socket.writableLength;
    this.once('close', () => remove(socket));
    checkLater();
    if (total > unsentBytesTotal) measure();
    while (total > unsentBytesTotal && unsent.size > 1) close(largest(unsent));
  };
}
