/** A TCP connection on which the test decides what to send, and when. */
import { connect, type Socket } from 'node:net';
import { eventually, within } from './process.ts';

export class Connection {
  readonly #socket: Socket;
  readonly #closed: Promise<void>;
  received = '';

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding('utf8').on('data', (text: string) => {
      this.received += text;
    });
    // A reset shows as missing data.
    socket.on('error', () => {});
    this.#closed = new Promise((resolve) => socket.on('close', () => resolve()));
  }

  static open(address: string): Promise<Connection> {
    const { hostname, port } = new URL(address);
    return new Promise((resolve, reject) => {
      const socket = connect(Number(port), hostname);
      socket.once('error', reject);
      socket.once('connect', () => resolve(new Connection(socket)));
    });
  }

  send(text: string): void {
    this.#socket.write(text);
  }

  /** Waits until the server has sent this text. */
  async hears(text: string): Promise<void> {
    await eventually(() => {
      if (this.received.includes(text)) return true;
      if (this.#socket.closed)
        throw new Error(`the server closed without '${text}', after: ${this.received}`);
      return undefined;
    }, `'${text}' from the server`);
  }

  /** Waits until the server closes the connection, and returns everything it sent. */
  async rest(): Promise<string> {
    await within(60_000, this.#closed, () => `the end of a connection that heard: ${this.received}`);
    return this.received;
  }

  end(): void {
    this.#socket.destroy();
  }
}

/** Sends the headers of a token request; resolves when the server waits for the body. */
export async function beginTokenRequest(address: string, body: string): Promise<Connection> {
  const connection = await Connection.open(address);
  const length = Buffer.byteLength(body);
  connection.send(
    `POST /v3/auth/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: ${length}\r\nExpect: 100-continue\r\n\r\n`,
  );
  await connection.hears('100 Continue');
  return connection;
}

/** Waits until connections are refused. */
export async function stopsListening(address: string): Promise<void> {
  await eventually(async () => (await refuses(address)) || undefined, 'the end of listening');
}

async function refuses(address: string): Promise<boolean> {
  const connection = await Connection.open(address).catch(() => null);
  connection?.end();
  return connection === null;
}
