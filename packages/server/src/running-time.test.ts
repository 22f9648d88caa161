import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { expect, onTestFinished, test, vi } from 'vitest';
import { afterRunning } from './running-time.ts';

const stopProcess = (ms: number) => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);

test('the time ends, unless it is stopped', async () => {
  const ended: string[] = [];
  afterRunning(20, () => ended.push('first')).stop();
  await new Promise<void>((resolve) => afterRunning(20, () => resolve(void ended.push('second'))));
  expect(ended).toEqual(['second']);
});

/** A server and a connected client. `events` has the requests that the server has read. */
async function connected() {
  const server = createServer((_request, response) => response.end());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  const events: string[] = [];
  server.on('request', () => events.push('request'));
  const { port } = server.address() as AddressInfo;
  const socket = connect(port, '127.0.0.1');
  await Promise.all([once(socket, 'connect'), once(server, 'connection')]);
  onTestFinished(() => {
    socket.destroy();
    server.close();
  });
  return { events, send: () => socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n') };
}

test('what has arrived while the process was stopped is read before the time ends', async () => {
  const { events, send } = await connected();
  const ended = new Promise<void>((resolve) => afterRunning(200, () => resolve(void events.push('end'))));
  send();
  stopProcess(1_000);
  await ended;
  expect(events).toEqual(['request', 'end']);
});

test('also if the process was stopped in the last step', async () => {
  const { events, send } = await connected();
  const intervals = vi.spyOn(globalThis, 'setInterval');
  const ended = new Promise<void>((resolve) => afterRunning(600_000, () => resolve(void events.push('end'))));
  const step = intervals.mock.calls[0]?.[0] as () => void;
  intervals.mockRestore();
  for (let i = 1; i < 10; i++) step();
  setTimeout(() => {
    send();
    stopProcess(100);
    step();
  });
  await ended;
  expect(events).toEqual(['request', 'end']);
});
