import { canonicalRequest, signedHeaders } from './canonical-request.ts';

export const ALGORITHM = 'SDK-HMAC-SHA256';

export interface SignableRequest {
  method: string;
  /** Absolute URL. A `+` in the query is a plus; the fragment is ignored, as `fetch` does not send it. */
  url: string;
  /** All of these are signed, so leave out what a proxy may change. */
  headers?: Readonly<Record<string, string>> | undefined;
  body?: string | Uint8Array | undefined;
}

export interface AccessKey {
  /** The access key ID (AK). */
  access: string;
  /** The secret access key (SK). */
  secret: string;
}

export interface SignOptions {
  /**
   * The time of the signature in milliseconds since the epoch. The service rejects a time that is off by more than 15
   * minutes, so correct it here if the clock of the machine is wrong.
   * @default Date.now
   */
  now?: (() => number) | undefined;
}

export interface SignedFetchOptions extends SignOptions {
  /** Sends the signed requests. @default globalThis.fetch */
  fetch?: typeof fetch | undefined;
}

/** A type and not an interface, so that it is assignable to a record of headers. */
export type SignatureHeaders = { 'X-Sdk-Date': string; Authorization: string };

/** Resolves to the headers to add to the request. They replace headers of the same name. */
export async function sign(
  request: SignableRequest,
  key: AccessKey,
  { now = Date.now }: SignOptions = {},
): Promise<SignatureHeaders> {
  checkKey(key);
  const url = new URL(request.url);
  const date = sdkDate(now());
  const headers = headersToSign(request, url, date);
  const canonical = canonicalRequest({
    method: request.method,
    path: url.pathname,
    query: url.search.slice(1),
    headers,
    bodyHash: headers['x-sdk-content-sha256'] ?? (await sha256Hex(request.body ?? '')),
  });
  const signed = await signature(key.secret, stringToSign(date, await sha256Hex(canonical)));
  return { 'X-Sdk-Date': date, Authorization: authorization(key.access, signedHeaders(headers), signed) };
}

/**
 * Returns a function to use like `fetch` that signs every request. A body is read into memory first, because the
 * signature covers it.
 */
export function signedFetch(key: AccessKey, options: SignedFetchOptions = {}): typeof fetch {
  checkKey(key);
  return async (input, init) => {
    const request = new Request(input, init);
    const { method, url } = request;
    const body = new Uint8Array(await request.clone().arrayBuffer());
    const signature = await sign(
      { method, url, headers: Object.fromEntries(request.headers), body },
      key,
      options,
    );
    for (const [name, value] of Object.entries(signature)) request.headers.set(name, value);
    return (options.fetch ?? fetch)(request);
  };
}

function checkKey({ access, secret }: AccessKey): void {
  const empty = access === '' ? 'access' : secret === '' ? 'secret' : null;
  if (empty !== null) throw new TypeError(`The access key is incomplete: ${empty} is empty.`);
}

/** Includes the host: otherwise the request could be replayed to another server. */
function headersToSign(request: SignableRequest, url: URL, date: string): Record<string, string> {
  const headers = new Headers(request.headers);
  if (!headers.has('host')) headers.set('host', url.host);
  headers.delete('authorization');
  headers.set('x-sdk-date', date);
  return Object.fromEntries(headers);
}

/** The value of the `X-Sdk-Date` header, `YYYYMMDDTHHMMSSZ`, for a time in milliseconds since the epoch. */
export function sdkDate(time: number): string {
  return new Date(time).toISOString().replace(/[-:]|\.[0-9]{3}/g, '');
}

/** The text to sign. `requestHash` is the hex SHA-256 of the canonical request. */
export function stringToSign(date: string, requestHash: string): string {
  return [ALGORITHM, date, requestHash].join('\n');
}

/** The value of the `Authorization` header. */
export function authorization(access: string, signedHeaders: string, signature: string): string {
  return `${ALGORITHM} Access=${access}, SignedHeaders=${signedHeaders}, Signature=${signature}`;
}

const utf8 = new TextEncoder();

/** Hex HMAC-SHA256 of the string to sign. */
export async function signature(secret: string, stringToSign: string): Promise<string> {
  const subtle = webCrypto();
  const hmac = { name: 'HMAC', hash: 'SHA-256' };
  const key = await subtle.importKey('raw', utf8.encode(secret), hmac, false, ['sign']);
  return hex(await subtle.sign('HMAC', key, utf8.encode(stringToSign)));
}

export async function sha256Hex(content: string | Uint8Array): Promise<string> {
  // Web Crypto rejects bytes in shared memory, so they are copied.
  const bytes = typeof content === 'string' ? utf8.encode(content) : new Uint8Array(content);
  return hex(await webCrypto().digest('SHA-256', bytes));
}

/** Node.js and browsers both have Web Crypto, but browsers hide it on pages without TLS. */
function webCrypto() {
  const { subtle } = globalThis.crypto;
  if (!subtle)
    throw new Error('Web Crypto is missing: browsers provide it on https pages and localhost only.');
  return subtle;
}

function hex(buffer: ArrayBuffer): string {
  return Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
