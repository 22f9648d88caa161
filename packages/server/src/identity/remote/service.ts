/** The identity service, asked with the token of a service user: single records of Keystone v3. */
import type { IncomingMessage, OutgoingHttpHeaders } from 'node:http';
import {
  IdentityBusy,
  IdentityNotUnderstood,
  IdentityRefusesUs,
  IdentityUnavailable,
} from '../unavailable.ts';
import { readSignIn } from './answers.ts';
import type { Transport } from './transport.ts';

/** A record takes a few hundred bytes; the roles of a user in many groups some thousand. */
const ANSWER_BYTES_MAX = 1_048_576;
/** Our token is renewed so long before it expires, so that none expires on the way. */
const RENEW_MS = 60_000;
/** When it is away or refuses us, nobody else waits to hear the same for so long. */
const AWAY_MS = 1_000;
/** There is no access key with this hash: who may be told that may be told about those that there are. */
const NO_KEY = '0'.repeat(64);

export interface ServiceUser {
  name: string;
  domain: string;
  password: string;
}

export interface IdentityService {
  /** What there is at a path; null when there is no such thing. */
  look(path: string, headers?: OutgoingHttpHeaders): Promise<unknown>;
  /** Rejects when the service does not answer, or not us. */
  check(): Promise<void>;
}

export function createIdentityService(
  transport: Transport,
  user: ServiceUser,
  now: () => number,
): IdentityService {
  let token: { text: string; renew: number } | null = null;
  let signingIn: Promise<string> | null = null;
  let failure: { error: IdentityUnavailable; at: number } | null = null;
  let checked: { result: Promise<unknown>; at: number } | null = null;

  async function signIn(): Promise<string> {
    const body = Buffer.from(JSON.stringify(tokenRequest(user)));
    const headers = { 'Content-Type': 'application/json', 'Content-Length': body.length };
    const answer = await transport.send({ method: 'POST', path: '/v3/auth/tokens?nocatalog', headers, body });
    const given = await jsonOf(answer);
    if (answer.statusCode === 401 || answer.statusCode === 403) {
      throw new IdentityRefusesUs(
        `the identity service gives the user '${user.name}' of the domain '${user.domain}' no token for the system: ` +
          'the password is wrong, or the user has no role there',
      );
    }
    const text = answer.headers['x-subject-token'];
    if (answer.statusCode !== 201 || typeof text !== 'string')
      throw notUnderstood(answer, 'POST /v3/auth/tokens');
    const { validMs } = readSignIn(given);
    token = { text, renew: now() + Math.max(validMs / 2, validMs - RENEW_MS) };
    return text;
  }

  function ownToken(): Promise<string> | string {
    if (token && now() < token.renew) return token.text;
    signingIn ??= signIn().finally(() => {
      signingIn = null;
    });
    return signingIn;
  }

  async function get(path: string, headers: OutgoingHttpHeaders) {
    const text = await ownToken();
    const answer = await transport.send({
      method: 'GET',
      path,
      headers: { ...headers, 'X-Auth-Token': text },
    });
    // Ours may have been revoked; another caller may have seen that already.
    if (answer.statusCode === 401 && token?.text === text) token = null;
    return { answer, body: await jsonOf(answer) };
  }

  async function look(path: string, headers: OutgoingHttpHeaders): Promise<unknown> {
    let { answer, body } = await get(path, headers);
    if (answer.statusCode === 401) ({ answer, body } = await get(path, headers));
    switch (answer.statusCode) {
      case 200:
        return body;
      // What a stranger made up need not even have the form of a token.
      case 400:
      case 404:
        return null;
      case 401:
      case 403:
        throw new IdentityRefusesUs(
          `the identity service does not let the user '${user.name}' look up who calls: the role is missing`,
        );
      default:
        throw notUnderstood(answer, `GET ${path}`);
    }
  }

  const service: IdentityService = {
    async look(path, headers = {}) {
      if (failure && Math.abs(now() - failure.at) < AWAY_MS) throw failure.error;
      try {
        const body = await look(path, headers);
        failure = null;
        return body;
      } catch (error) {
        const isOfThisCall = error instanceof IdentityBusy || error instanceof IdentityNotUnderstood;
        if (error instanceof IdentityUnavailable && !isOfThisCall) failure = { error, at: now() };
        throw error;
      }
    },
    async check() {
      if (!checked || Math.abs(now() - checked.at) >= AWAY_MS) {
        checked = { result: service.look(`/v3/credentials/${NO_KEY}`), at: now() };
      }
      await checked.result;
    },
  };
  return service;
}

async function jsonOf(answer: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > ANSWER_BYTES_MAX) throw new Error(`more than ${ANSWER_BYTES_MAX} bytes`);
      chunks.push(chunk);
    }
  } catch (error) {
    throw new IdentityUnavailable(
      `the answer of the identity service broke off: ${(error as Error).message}`,
    );
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch {
    // What it is follows from the status; where a body is needed, null is not enough.
    return null;
  }
}

/** The path holds no secret: tokens go in headers, access keys as hashes. */
function notUnderstood({ statusCode }: IncomingMessage, call: string): IdentityNotUnderstood {
  return new IdentityNotUnderstood(`the identity service answered ${statusCode} to ${call}`);
}

/** For the system as a whole, because callers come from all domains. */
function tokenRequest({ name, domain, password }: ServiceUser) {
  return {
    auth: {
      identity: { methods: ['password'], password: { user: { name, password, domain: { name: domain } } } },
      scope: { system: { all: true } },
    },
  };
}
