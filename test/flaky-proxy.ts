/** A TCP proxy that cuts connections at random, also between a completed request and its response, or corrupts responses. */
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

export interface FlakyProxy {
  url: string;
  /** How often it has cut a connection. */
  cuts(): number;
  /** Stops cutting connections, or begins again. */
  behave(isGood?: boolean): void;
  /** Keeps what the server sends, until `release`. Begins with the response to such a request, or at once. */
  hold(isFirst?: (chunk: Buffer) => boolean): void;
  release(): void;
  /** How many times the server has sent something since `hold`. */
  held(): number;
  /** Cuts a connection instead of sending such a response to such a request. */
  cutAt(isRequest: (chunk: Buffer) => boolean, isResponse: (chunk: Buffer) => boolean): void;
  /** Changes what the server sends, until it is called with null. */
  corrupt(change: ((chunk: Buffer) => Buffer) | null): void;
  stop(): Promise<void>;
}

/** `cutRate`: the share of chunks at which the connection is cut, from 0 to 1. */
export async function flakyProxy(target: string, cutRate: number, random: () => number): Promise<FlakyProxy> {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  let cuts = 0;
  let fails = true;
  let held: (() => void)[] | null = null;
  let isFirstHeld: ((chunk: Buffer) => boolean) | undefined;
  let corrupt: ((chunk: Buffer) => Buffer) | null = null;
  let isLastRequest: (chunk: Buffer) => boolean = () => false;
  let isLastResponse: (chunk: Buffer) => boolean = () => false;
  const server = createServer((near) => {
    const far = connect(Number(port), hostname);
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on('error', () => {}).on('close', () => sockets.delete(socket));
    }
    const cut = () => {
      cuts++;
      near.destroy();
      // The server may continue for a while with what it has received.
      setTimeout(() => far.destroy(), 20 * random());
    };
    let wasRequested = false;
    near.on('data', (chunk) => {
      wasRequested ||= isLastRequest(chunk);
      if (isFirstHeld?.(chunk)) held ??= [];
      if (fails && random() < cutRate / 2) {
        // Only a part of the request arrives.
        far.write(chunk.subarray(0, Math.floor(chunk.length * random())));
        cut();
      } else far.write(chunk);
    });
    far.on('data', (sent) => {
      const chunk = corrupt === null ? sent : corrupt(sent);
      // The request was executed, but its response is lost.
      if ((wasRequested && isLastResponse(chunk)) || (fails && random() < cutRate)) cut();
      else if (held) held.push(() => near.write(chunk));
      else near.write(chunk);
    });
    near.on('close', () => far.end());
    far.on('close', () => near.end());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cuts: () => cuts,
    behave(isGood = true) {
      fails = !isGood;
    },
    hold(isFirst) {
      isFirstHeld = isFirst;
      held = isFirst ? null : [];
    },
    release() {
      isFirstHeld = undefined;
      const waiting = held ?? [];
      held = null;
      for (const send of waiting) send();
    },
    held: () => held?.length ?? 0,
    cutAt(isRequest, isResponse) {
      isLastRequest = isRequest;
      isLastResponse = isResponse;
    },
    corrupt(change) {
      corrupt = change;
    },
    async stop() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await sleep(0);
    },
  };
}
