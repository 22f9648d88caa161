import { canonicalRequest, signedHeaders } from './canonical-request.ts';
import { sha256Hex, signature } from './signature.ts';
import { authorization, sdkDate, stringToSign } from './string-to-sign.ts';

export interface SignableRequest {
  method: string;
  /** Absolute. What is signed is what `fetch` sends for it: a `+` in the query is a plus, a fragment is nothing. */
  url: string;
  /** All of these are signed, so leave out what a proxy on the way may change. */
  headers?: Readonly<Record<string, string>> | undefined;
  body?: string | Uint8Array | undefined;
}

export interface AccessKey {
  access: string;
  secret: string;
}

export interface SignOptions {
  /** Milliseconds since the epoch. A server refuses a clock that is off by more than 15 minutes. */
  now?: (() => number) | undefined;
}

/** A type and not an interface, so that it passes as any record of headers. */
export type SignatureHeaders = { 'X-Sdk-Date': string; Authorization: string };

/** Resolves to the headers to add to the request. They stand in for any of the same name that it has. */
export async function sign(
  request: SignableRequest,
  key: AccessKey,
  { now = Date.now }: SignOptions = {},
): Promise<SignatureHeaders> {
  if (key.access === '' || key.secret === '') throw new TypeError('The access key or its secret is empty.');
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

/** Those of the request, with the host: unsigned, a request could be sent on to another server. */
function headersToSign(request: SignableRequest, url: URL, date: string): Record<string, string> {
  const headers = new Headers(request.headers);
  if (!headers.has('host')) headers.set('host', url.host);
  headers.delete('authorization');
  headers.set('x-sdk-date', date);
  return Object.fromEntries(headers);
}
