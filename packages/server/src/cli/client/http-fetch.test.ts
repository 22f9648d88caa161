import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { expect, onTestFinished, test } from 'vitest';
import { httpFetch } from './http-fetch.ts';

/** A server that sends these bytes to each connection, whatever the request is. */
async function serverThatSends(...response: (string | Buffer)[]): Promise<string> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', () => {
      for (const part of response) socket.write(part);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  // A server that listens on a port has an address of this form.
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}

const reasonOf = (url: string) =>
  httpFetch(url, {}).then(
    () => 'none',
    (error: Error) => (error.cause as Error).message,
  );

test('a response that switches protocols is an error', async () => {
  const url = await serverThatSends(
    'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n',
  );
  expect(await reasonOf(url)).toBe('the server switched protocols (status 101)');
});

const TOO_LONG = 'the response is longer than 64 MiB';

test.each([
  ['br', (body: Buffer) => brotliCompressSync(body, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } })],
  ['gzip', (body: Buffer) => gzipSync(body)],
] as const)('a response that %s expands beyond the limit is an error', async (coding, compress) => {
  const body = compress(Buffer.alloc(65 * 1_048_576));
  const head = `HTTP/1.1 200 OK\r\nContent-Encoding: ${coding}\r\nContent-Length: ${body.length}\r\n\r\n`;
  expect(await reasonOf(await serverThatSends(head, body))).toBe(TOO_LONG);
});

test('a response without an end is an error', async () => {
  const url = await serverThatSends('HTTP/1.1 200 OK\r\n\r\n', Buffer.alloc(65 * 1_048_576));
  expect(await reasonOf(url)).toBe(TOO_LONG);
});
