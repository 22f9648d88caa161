/** A network that fails: passes connections on, and cuts them at random places, also between a deed and its answer. */

import type { AddressInfo } from 'node:net';
import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

export interface FlakyProxy {
  url: string;
  /** How often it has cut a connection. */
  cuts(): number;
  /** From now on, nothing fails. */
  behave(): void;
  stop(): Promise<void>;
}

/** `trouble`: what part of the chunks that pass ends their connection, from 0 to 1. */
export async function flakyProxy(target: string, trouble: number, random: () => number): Promise<FlakyProxy> {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  let cuts = 0;
  let fails = true;
  const server = createServer((near) => {
    const far = connect(Number(port), hostname);
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on('error', () => {}).on('close', () => sockets.delete(socket));
    }
    const cut = () => {
      cuts++;
      near.destroy();
      // The server may go on for a while with what it has got.
      setTimeout(() => far.destroy(), 20 * random());
    };
    near.on('data', (chunk) => {
      if (fails && random() < trouble / 2) {
        // A request of which only a part arrives.
        far.write(chunk.subarray(0, Math.floor(chunk.length * random())));
        cut();
      } else far.write(chunk);
    });
    far.on('data', (chunk) => {
      // A deed that was done, of which nobody hears.
      if (fails && random() < trouble) cut();
      else near.write(chunk);
    });
    near.on('close', () => far.end());
    far.on('close', () => near.end());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cuts: () => cuts,
    behave() {
      fails = false;
    },
    async stop() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await sleep(0);
    },
  };
}
