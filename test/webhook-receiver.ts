/** A receiver of webhooks that keeps what it gets. */
import { createServer, type IncomingHttpHeaders, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

export interface Message {
  headers: IncomingHttpHeaders;
  /** As it was sent, for the signature. */
  text: string;
  body: {
    alert: string;
    state: string;
    incident: string;
    since: number;
    attacks: number | null;
    text: string;
  };
}

export class WebhookReceiver {
  readonly messages: Message[] = [];
  /** Replace it to respond with an error, or not at all. */
  respond = (response: ServerResponse): void => void response.end();
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
    server.on('request', async (request, response) => {
      const body = await text(request);
      this.messages.push({ headers: request.headers, text: body, body: JSON.parse(body) });
      this.respond(response);
    });
  }

  static async start(): Promise<WebhookReceiver> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    return new WebhookReceiver(server);
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/hook`;
  }

  /** The distinct keys of an alert and state. */
  keys(alert: string, state: string): string[] {
    const found = this.messages.filter(({ body }) => body.alert === alert && body.state === state);
    return [...new Set(found.map(({ headers }) => String(headers['idempotency-key'])))];
  }

  stop(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}
