/** A plain HTTP client of the service, without code of ours. */
import http from 'node:http';
import https from 'node:https';
import { connect } from 'node:net';

export interface Request {
  method?: string;
  headers?: http.OutgoingHttpHeaders;
  body?: string | Buffer;
  agent?: http.Agent;
  /** The certificate to trust. */
  ca?: string;
}

export interface Answer {
  status: number;
  headers: http.IncomingHttpHeaders;
  text: string;
  /** The local port: the same for two requests on one connection. */
  port: number | undefined;
}

/** Sends the path unchanged, byte for byte. */
export function call(address: string, path: string, request: Request = {}): Promise<Answer> {
  const { protocol, hostname, port } = new URL(address);
  const { method = 'GET', headers = {}, body, ...rest } = request;
  // Node.js sets no Content-Length for a GET.
  const length =
    body === undefined || 'Transfer-Encoding' in headers ? {} : { 'Content-Length': Buffer.byteLength(body) };
  const options = { ...rest, hostname, port, path, method, headers: { ...length, ...headers } };
  return new Promise((resolve, reject) => {
    const sent = (protocol === 'https:' ? https : http).request(options, (response) => {
      const callingPort = response.socket.localPort;
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        const text = Buffer.concat(chunks).toString('utf8');
        resolve({ status: response.statusCode ?? 0, headers: response.headers, text, port: callingPort });
      });
    });
    sent.on('error', reject);
    sent.end(body);
  });
}

/** Sends raw bytes and returns everything that the server sends until it closes the connection. */
export function sendRaw(address: string, bytes: string): Promise<string> {
  const { hostname, port } = new URL(address);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname, () => socket.write(bytes));
    let received = '';
    socket.setEncoding('utf8').on('data', (text: string) => {
      received += text;
    });
    socket.on('error', reject);
    socket.on('close', () => resolve(received));
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

export function askToken(address: string, body: unknown, request: Request = {}): Promise<Answer> {
  const headers = { 'Content-Type': 'application/json' };
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return call(address, '/v3/auth/tokens', { ...request, method: 'POST', headers, body: text });
}

/** A client with a token for the project. */
export async function login(address: string, account: Login, request: Request = {}): Promise<Api> {
  const { status, headers, text } = await askToken(address, tokenRequest(account), request);
  if (status !== 201) throw new Error(`no token: ${status} ${text}`);
  return new Api(address, account.project_id, String(headers['x-subject-token']));
}

/** A client with a token for the domain, which manages access keys. */
export async function loginToDomain(address: string, account: Login): Promise<Api> {
  const { auth } = tokenRequest(account);
  const body = { auth: { ...auth, scope: { domain: { name: account.domain } } } };
  const { status, headers, text } = await askToken(address, body);
  if (status !== 201) throw new Error(`no token: ${status} ${text}`);
  return new Api(address, account.project_id, String(headers['x-subject-token']));
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
  get(path: string, request: Request = {}): Promise<Answer> {
    const headers = { 'X-Auth-Token': this.token, ...request.headers };
    return call(this.address, `/v1/${this.project}/${path}`, { ...request, headers });
  }

  async getJson<T>(path: string): Promise<T> {
    const { status, text } = await this.get(path);
    if (status !== 200) throw new Error(`GET ${path.slice(0, 200)} answered ${status}: ${text}`);
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
