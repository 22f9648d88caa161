import { errorOf, type Fetch, field, jsonOf, send, unexpected } from './transport.ts';

export type RequestHeaders = Readonly<Record<string, string>>;

export interface OutgoingRequest {
  method: 'GET' | 'POST' | 'DELETE';
  url: string;
  headers: RequestHeaders;
  /** Undefined for a stream: sign those with the `signedFetch` of `@wafstat/signer`. */
  body?: string | Uint8Array | undefined;
}

export type Credentials = TokenCredentials | PasswordCredentials | CustomCredentials;

/** A token for the project. It is valid for 24 hours and is not renewed. */
export interface TokenCredentials {
  token: string;
}

/** The client gets a token, shares it among all calls, and renews it before it expires. */
export interface PasswordCredentials {
  user: string;
  password: string;
  /** The name of the user's domain. */
  domain: string;
  /** The identity service, with or without `/v3` at the end. @default the `url` of the client */
  identityUrl?: string | undefined;
}

/** Any other scheme: returns the headers that authorize a request. Called for every attempt. */
export interface CustomCredentials {
  authorize: (request: OutgoingRequest) => RequestHeaders | Promise<RequestHeaders>;
}

export interface Authorizer {
  headers(request: OutgoingRequest): RequestHeaders | Promise<RequestHeaders>;
  /** Called with headers that got a 401. If present, the call is authorized again and repeated once. */
  rejected?(headers: RequestHeaders): void;
}

export interface TokenSource {
  identityUrl: string;
  projectId: string;
  fetch: Fetch;
  timeoutMs: number;
  now: () => number;
}

export function authorizerOf(credentials: Credentials | undefined, source: TokenSource): Authorizer {
  if (credentials === undefined) return { headers: () => ({}) };
  if ('token' in credentials) return { headers: () => ({ 'X-Auth-Token': credentials.token }) };
  if ('authorize' in credentials) return { headers: credentials.authorize };
  return passwordAuthorizer(credentials, source);
}

/** How long before its expiry a token is renewed. Allows for requests under way and clocks that differ. */
const RENEWAL_MS_BEFORE = 5 * 60_000;
/** For a response without `expires_at`: the validity that the API specification promises. */
const VALIDITY_MS = 24 * 3_600_000;

interface Token {
  value: string;
  /** Milliseconds since the epoch. */
  expiresAt: number;
}

/** Concurrent calls wait for the same token. */
function passwordAuthorizer(credentials: PasswordCredentials, source: TokenSource): Authorizer {
  let token: Token | undefined;
  let pending: Promise<Token> | undefined;

  function isFresh(token: Token | undefined): token is Token {
    return token !== undefined && source.now() < token.expiresAt - RENEWAL_MS_BEFORE;
  }

  async function renew(): Promise<Token> {
    try {
      token = await requestToken(credentials, source);
      return token;
    } finally {
      pending = undefined;
    }
  }

  return {
    async headers() {
      if (isFresh(token)) return { 'X-Auth-Token': token.value };
      pending ??= renew();
      const { value } = await pending;
      return { 'X-Auth-Token': value };
    },
    // Of concurrent calls that were rejected, only the first finds its token still in use.
    rejected(headers) {
      if (headers['X-Auth-Token'] === token?.value) token = undefined;
    },
  };
}

/** Not retried: repeated attempts with a wrong password delay all logins of the user from this address. */
async function requestToken(credentials: PasswordCredentials, source: TokenSource): Promise<Token> {
  const { user, password, domain, identityUrl = source.identityUrl } = credentials;
  const auth = {
    identity: {
      methods: ['password'],
      password: { user: { name: user, password, domain: { name: domain } } },
    },
    scope: { project: { id: source.projectId } },
  };
  const response = await send(source.fetch, {
    method: 'POST',
    url: `${identityUrl.replace(/(\/v3)?\/*$/, '')}/v3/auth/tokens`,
    headers: { 'Content-Type': 'application/json', Accept: 'application/json' },
    body: JSON.stringify({ auth }),
    timeoutMs: source.timeoutMs,
  });
  if (response.status !== 201) throw errorOf(response);
  const value = response.headers.get('X-Subject-Token');
  if (value === null)
    throw unexpected(response, `The response to ${response.source} has no X-Subject-Token.`);
  const expiresAt = Date.parse(String(field(field(jsonOf(response), 'token'), 'expires_at')));
  return { value, expiresAt: Number.isNaN(expiresAt) ? source.now() + VALIDITY_MS : expiresAt };
}
