/** A client for single records of Keystone v3, authenticated as a service user. */
import http from 'node:http';
import https from 'node:https';
import { afterRunning } from '../../running-time.ts';
import {
  IdentityUnavailable,
  ServiceUserRejected,
  TooManyIdentityCalls,
  UnexpectedIdentityResponse,
} from '../errors.ts';
import { readTokenLifetimeMs } from './keystone-responses.ts';

/** A record takes a few hundred bytes; the roles of a user in many groups a few thousand. */
const RESPONSE_BYTES_MAX = 1_048_576;
/** Renews the service user's token this long before it expires. */
const RENEW_MS = 60_000;
/** After a failure, other calls fail for this long without waiting for the service. */
const FAILURE_TTL_MS = 1_000;
/** No credential has this ID. If the service user can look it up, it can look up all others. */
const NO_CREDENTIAL_ID = '0'.repeat(64);

export interface ServiceUser {
  name: string;
  domain: string;
  password: string;
}

export type KeystoneClient = ReturnType<typeof createKeystoneClient>;

export function createKeystoneClient(transport: Transport, user: ServiceUser, now: () => number) {
  let token: { text: string; renewAt: number } | null = null;
  let pendingLogin: Promise<string> | null = null;
  let failure: { error: IdentityUnavailable; at: number } | null = null;
  let lastCheck: { result: Promise<unknown>; at: number } | null = null;

  const isRecent = ({ at }: { at: number }) => Math.abs(now() - at) < FAILURE_TTL_MS;

  async function logIn(): Promise<string> {
    const body = Buffer.from(JSON.stringify(tokenRequest(user)));
    const headers = { 'Content-Type': 'application/json', 'Content-Length': body.length };
    const path = '/v3/auth/tokens?nocatalog';
    const response = await transport.send({ method: 'POST', path, headers, body });
    const json = await readJson(response);
    if (response.statusCode === 401 || response.statusCode === 403) {
      throw new ServiceUserRejected(
        `Keystone rejects user '${user.name}' of domain '${user.domain}': ` +
          'the password is wrong, or the user has no role on the system',
      );
    }
    // From a wafstat, for example.
    if (response.statusCode === 400) {
      throw new ServiceUserRejected(
        'Keystone issues no tokens for the system: --identity-url must be the address of a Keystone v3',
      );
    }
    const text = response.headers['x-subject-token'];
    if (response.statusCode !== 201 || typeof text !== 'string')
      throw unexpectedStatus(response.statusCode, 'POST /v3/auth/tokens');
    const validMs = readTokenLifetimeMs(json);
    token = { text, renewAt: now() + Math.max(validMs / 2, validMs - RENEW_MS) };
    return text;
  }

  function currentToken(): Promise<string> | string {
    if (token && now() < token.renewAt) return token.text;
    pendingLogin ??= logIn().finally(() => {
      pendingLogin = null;
    });
    return pendingLogin;
  }

  async function send(path: string, headers: http.OutgoingHttpHeaders) {
    const text = await currentToken();
    const all = { ...headers, 'X-Auth-Token': text };
    const response = await transport.send({ method: 'GET', path, headers: all });
    // Another call may have replaced the token already.
    if (response.statusCode === 401 && token?.text === text) token = null;
    return { status: response.statusCode, body: await readJson(response) };
  }

  async function getBody(path: string, headers: http.OutgoingHttpHeaders): Promise<unknown> {
    let { status, body } = await send(path, headers);
    // The token may have been revoked.
    if (status === 401) ({ status, body } = await send(path, headers));
    switch (status) {
      case 200:
        return body;
      // 400: the text that a client sent as a token may not even look like one.
      case 400:
      case 404:
        return null;
      case 401:
      case 403:
        throw new ServiceUserRejected(
          `Keystone does not allow user '${user.name}' to look up callers: grant the required role`,
        );
      default:
        throw unexpectedStatus(status, `GET ${path}`);
    }
  }

  /** Resolves to null if there is no such record. */
  async function get<T>(
    path: string,
    read: (body: unknown) => T | null,
    headers: http.OutgoingHttpHeaders = {},
  ): Promise<T | null> {
    if (failure && isRecent(failure)) throw failure.error;
    let body: unknown;
    try {
      body = await getBody(path, headers);
      failure = null;
    } catch (error) {
      const concernsThisCall =
        error instanceof TooManyIdentityCalls || error instanceof UnexpectedIdentityResponse;
      if (error instanceof IdentityUnavailable && !concernsThisCall) failure = { error, at: now() };
      throw error;
    }
    return body === null ? null : read(body);
  }

  /** Rejects if the service does not respond, or rejects the service user. */
  async function check(): Promise<void> {
    if (!lastCheck || !isRecent(lastCheck))
      lastCheck = { result: get(`/v3/credentials/${NO_CREDENTIAL_ID}`, () => null), at: now() };
    await lastCheck.result;
  }

  return { get, check };
}

async function readJson(response: http.IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > RESPONSE_BYTES_MAX) throw new Error(`more than ${RESPONSE_BYTES_MAX} bytes`);
      chunks.push(chunk);
    }
  } catch (error) {
    throw new IdentityUnavailable(`the response of Keystone was cut off: ${(error as Error).message}`);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch {
    // The status decides; readers reject null where they need a body.
    return null;
  }
}

/** The path contains no secret: tokens are in headers, and access keys are hashed. */
function unexpectedStatus(status: number | undefined, call: string): UnexpectedIdentityResponse {
  return new UnexpectedIdentityResponse(`Keystone responded ${status} to ${call}`);
}

/** Requests a token with system scope, because callers come from all domains. */
function tokenRequest({ name, domain, password }: ServiceUser) {
  return {
    auth: {
      identity: { methods: ['password'], password: { user: { name, password, domain: { name: domain } } } },
      scope: { system: { all: true } },
    },
  };
}

interface Call {
  method: string;
  /** Relative to the base URL. */
  path: string;
  headers: http.OutgoingHttpHeaders;
  body?: Buffer;
}

interface TransportLimits {
  /** The timeout of a whole call, including the wait for a connection. */
  timeoutMs: number;
  /** Further calls are refused, so that requests do not pile up when the service is slow. */
  callsMax: number;
}

type Transport = ReturnType<typeof createTransport>;

export function createTransport(baseUrl: string, { timeoutMs, callsMax }: TransportLimits) {
  const base = new URL(baseUrl);
  const { request, Agent } = base.protocol === 'https:' ? https : http;
  const agent = new Agent({ keepAlive: true });
  let calls = 0;

  function sendOnce(call: Call, signal: AbortSignal): Promise<http.IncomingMessage> {
    return new Promise((resolve, reject) => {
      const path = `${base.pathname.replace(/\/$/, '')}${call.path}`;
      const { hostname, port } = base;
      const options = { agent, hostname: hostname.replace(/^\[|\]$/g, ''), port, path, signal };
      const sent = request({ ...options, method: call.method, headers: call.headers }, resolve);
      sent.on('error', (error: NodeJS.ErrnoException) => {
        // The service may have closed an idle connection just before it was reused.
        const mayRetry = sent.reusedSocket && error.code === 'ECONNRESET' && /^(GET|HEAD)$/.test(call.method);
        if (mayRetry && !signal.aborted) resolve(sendOnce(call, signal));
        else {
          const reason = signal.aborted ? `timed out after ${timeoutMs} ms` : (error.code ?? error.message);
          reject(new IdentityUnavailable(`no response from ${baseUrl}: ${reason}`));
        }
      });
      sent.end(call.body);
    });
  }

  return {
    /** Resolves when the headers have arrived; the timeout also covers the body. */
    async send(call: Call): Promise<http.IncomingMessage> {
      if (calls >= callsMax)
        throw new TooManyIdentityCalls(`${callsMax} calls to ${baseUrl} are in progress`);
      calls++;
      const limit = new AbortController();
      const timer = afterRunning(timeoutMs, () => limit.abort());
      const end = () => {
        timer.stop();
        calls--;
      };
      try {
        const response = await sendOnce(call, limit.signal);
        response.once('close', end);
        return response;
      } catch (error) {
        end();
        throw error;
      }
    },
    close: () => agent.destroy(),
  };
}
