/** Plain HTTP clients and TCP connections, without code of the client package. */
import http from 'node:http';
import https from 'node:https';
import { connect, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { checkDocumented } from './documented.ts';
import { eventually, within } from './process.ts';

export interface Request {
  method?: string;
  headers?: http.OutgoingHttpHeaders;
  body?: string | Buffer;
  agent?: http.Agent;
  /** The certificate to trust. */
  ca?: string;
}

export interface HttpResponse {
  status: number;
  headers: http.IncomingHttpHeaders;
  text: string;
  /** The local port: the same for two requests on one connection. */
  port: number | undefined;
}

/** Sends the path unchanged, byte for byte. Fails if the response differs from its documentation. */
export function call(address: string, path: string, request: Request = {}): Promise<HttpResponse> {
  const { protocol, hostname, port } = new URL(address);
  const { method = 'GET', headers = {}, body, ...rest } = request;
  // Node.js sets no Content-Length for a GET.
  const length =
    body === undefined || 'Transfer-Encoding' in headers ? {} : { 'Content-Length': Buffer.byteLength(body) };
  const options = { ...rest, hostname, port, path, method, headers: { ...length, ...headers } };
  return new Promise((resolve, reject) => {
    const sent = (protocol === 'https:' ? https : http).request(options, (response) => {
      const { statusCode: status = 0, headers, socket } = response;
      const { localPort } = socket;
      text(response)
        .then((body) => {
          const isJson = headers['content-type']?.startsWith('application/json') ?? status !== 200;
          // Some tests call a Keystone, which names the request ID differently.
          if (isJson && headers['x-request-id'] && !headers['content-encoding'])
            checkDocumented(method, path, status, body);
          return { status, headers, text: body, port: localPort };
        })
        .then(resolve, reject);
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

/** The request body of the specification. */
export function tokenRequest({ user, password, domain, project_id }: Login) {
  return {
    auth: {
      identity: {
        methods: ['password'],
        password: { user: { name: user, password, domain: { name: domain } } },
      },
      scope: { project: { id: project_id } },
    },
  };
}

export interface Login {
  user: string;
  password: string;
  domain: string;
  project_id: string;
}

export function requestToken(address: string, body: unknown, request: Request = {}): Promise<HttpResponse> {
  const headers = { 'Content-Type': 'application/json' };
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return call(address, '/v3/auth/tokens', { ...request, method: 'POST', headers, body: text });
}

/** A client with a token for the project. */
export async function login(address: string, account: Login, request: Request = {}): Promise<Api> {
  return new Api(address, account.project_id, await newToken(address, tokenRequest(account), request));
}

/** A client with a token for the domain, which manages access keys. */
export async function loginToDomain(address: string, account: Login): Promise<Api> {
  const { auth } = tokenRequest(account);
  const body = { auth: { ...auth, scope: { domain: { name: account.domain } } } };
  return new Api(address, account.project_id, await newToken(address, body));
}

/** A token; fails if the service does not issue one. */
export async function newToken(address: string, body: unknown, request: Request = {}): Promise<string> {
  const { status, headers, text } = await requestToken(address, body, request);
  if (status !== 201) throw new Error(`no token: ${status} ${text}`);
  return String(headers['x-subject-token']);
}

export interface Point {
  time: number;
  num: number;
}

export interface Timeline {
  requests: Point[];
  attacks: Point[];
}

export type Distribution = Record<string, number>;

const SHED = 'the service is overloaded';

export class Api {
  readonly address: string;
  readonly project: string;
  readonly token: string;

  constructor(address: string, project: string, token: string) {
    this.address = address;
    this.project = project;
    this.token = token;
  }

  /** `path` follows the project in the URL. */
  get(path: string, request: Request = {}): Promise<HttpResponse> {
    const headers = { 'X-Auth-Token': this.token, ...request.headers };
    return call(this.address, `/v1/${this.project}/${path}`, { ...request, headers });
  }

  /** Retries a query that is shed, as clients do: the service sheds queries that waited while the machine paused. */
  query(path: string): Promise<HttpResponse> {
    return eventually(
      async () => {
        const response = await this.get(path);
        return response.status === 503 && response.text.includes(SHED) ? undefined : response;
      },
      `a response to ${path.slice(0, 200)}`,
    );
  }

  async getJson<T>(path: string): Promise<T> {
    const { status, text } = await this.query(path);
    if (status !== 200) throw new Error(`GET ${path.slice(0, 200)} returned ${status}: ${text}`);
    return JSON.parse(text);
  }

  timeline(query: string): Promise<Timeline> {
    return this.getJson(`waf/event/timeline?${query}`);
  }

  distribution(query: string): Promise<Distribution> {
    return this.getJson(`waf/event/attack/type?${query}`);
  }

  /** The IDs of the project's hosts by name. */
  async hostIds(): Promise<Map<string, string>> {
    const { items } = await this.getJson<{ items: { id: string; hostname: string }[] }>('waf/instance');
    return new Map(items.map(({ id, hostname }) => [hostname, id]));
  }
}

export function sum(counts: readonly Point[] | Distribution): number {
  const numbers = Array.isArray(counts) ? counts.map(({ num }: Point) => num) : Object.values(counts);
  return numbers.reduce((total, n) => total + n, 0);
}

/** A TCP connection on which the test decides what to send, and when. */
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
  async receives(text: string): Promise<void> {
    await eventually(() => {
      if (this.received.includes(text)) return true;
      if (this.#socket.closed)
        throw new Error(`the server closed the connection without '${text}', after: ${this.received}`);
      return undefined;
    }, `'${text}' from the server`);
  }

  /** Waits until the server closes the connection, and returns everything it sent. */
  async readToEnd(): Promise<string> {
    await within(60_000, this.#closed, () => `the end of a connection that received: ${this.received}`);
    return this.received;
  }

  end(): void {
    this.#socket.destroy();
  }
}

/** Sends raw bytes and returns everything that the server sends until it closes the connection. */
export async function sendRaw(address: string, bytes: string): Promise<string> {
  const connection = await Connection.open(address);
  connection.send(bytes);
  return connection.readToEnd();
}

/** Exchanges a token for another one: a login would check the password, which takes long on a busy machine. */
export function exchangeRequest({ token, project }: Api) {
  return {
    auth: { identity: { methods: ['token'], token: { id: token } }, scope: { project: { id: project } } },
  };
}

/** Sends the headers of a token request; resolves when the server waits for the body. */
export async function beginTokenRequest(address: string, body: string): Promise<Connection> {
  const connection = await Connection.open(address);
  const length = Buffer.byteLength(body);
  connection.send(
    `POST /v3/auth/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: ${length}\r\nExpect: 100-continue\r\n\r\n`,
  );
  await connection.receives('100 Continue');
  return connection;
}

/** Waits until connections are refused. */
export async function stopsListening(address: string): Promise<void> {
  await eventually(async () => {
    const connection = await Connection.open(address).catch(() => null);
    connection?.end();
    return connection === null || undefined;
  }, 'the end of listening');
}
