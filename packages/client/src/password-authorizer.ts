import { errorOf, field, jsonOf, unexpected } from './answer.ts';
import type { Authorize, RequestHeaders } from './authorize.ts';
import { type Fetch, send } from './send.ts';

export interface PasswordAuthorizerOptions {
  /** With or without the `/v3` at its end. */
  identityUrl: string;
  user: string;
  password: string;
  /** The name of the domain that the user belongs to. */
  domain: string;
  projectId: string;
  fetch?: Fetch | undefined;
  /** Milliseconds since the epoch. */
  now?: (() => number) | undefined;
}

/** How long before its end a token is no longer used: a request under way and clocks that differ need the time. */
export const RENEWAL_MS_BEFORE = 5 * 60_000;

/** The validity that the specification promises, for an answer that does not say when the token ends. */
const VALIDITY_MS = 24 * 3_600_000;

/** Gets a token when one is needed, and keeps it. Callers at the same time wait for the same token. */
export function passwordAuthorizer(options: PasswordAuthorizerOptions): Authorize {
  const now = options.now ?? Date.now;
  let token: Token | undefined;
  let requested: Promise<Token> | undefined;

  async function authorize(): Promise<RequestHeaders> {
    const { value } = await usableToken();
    return { 'X-Auth-Token': value };
  }

  async function usableToken(): Promise<Token> {
    if (token !== undefined && now() < token.end - RENEWAL_MS_BEFORE) return token;
    requested ??= renew();
    return requested;
  }

  async function renew(): Promise<Token> {
    try {
      token = await requestToken(options, now);
      return token;
    } finally {
      requested = undefined;
    }
  }

  /** Calls that were refused together each tell so; only the first finds the token still in use. */
  function refused(authorization: RequestHeaders): void {
    if (authorization['X-Auth-Token'] === token?.value) token = undefined;
  }

  return Object.assign(authorize, { refused });
}

interface Token {
  value: string;
  /** Milliseconds since the epoch. */
  end: number;
}

/** Not repeated when it fails: a wrong password, tried again and again, locks users out. */
async function requestToken(options: PasswordAuthorizerOptions, now: () => number): Promise<Token> {
  const answer = await send(options.fetch ?? fetch, {
    method: 'POST',
    url: `${options.identityUrl.replace(/(\/v3)?\/*$/, '')}/v3/auth/tokens`,
    headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
    body: JSON.stringify(tokenRequest(options)),
  });
  if (answer.status !== 201) throw errorOf(answer);
  const value = answer.headers.get('X-Subject-Token');
  if (value === null) throw unexpected(answer, `The answer to ${answer.source} has no X-Subject-Token.`);
  const end = Date.parse(String(field(field(jsonOf(answer), 'token'), 'expires_at')));
  return { value, end: Number.isNaN(end) ? now() + VALIDITY_MS : end };
}

function tokenRequest({ user, password, domain, projectId }: PasswordAuthorizerOptions) {
  return {
    auth: {
      identity: {
        methods: ['password'],
        password: { user: { name: user, password, domain: { name: domain } } },
      },
      scope: { project: { id: projectId } },
    },
  };
}
