/** The canonical request: the one form that signer and verifier bring a request to before they hash it. */
import { percentDecode, percentEncode, percentEncodeAscii } from './percent-encoding.ts';

export interface CanonicalParts {
  method: string;
  /** As on the request line, without the query. */
  path: string;
  /** As on the request line, without the `?`. */
  query: string;
  /** The signed headers, these and no others: by name, or as names with their values. */
  headers: Readonly<Record<string, string>> | readonly HeaderLine[];
  /** Hex SHA-256 of the body, or the value of `X-Sdk-Content-Sha256` where that header is sent. */
  bodyHash: string;
}

export type HeaderLine = readonly [name: string, value: string];

export function canonicalRequest({ method, path, query, headers, bodyHash }: CanonicalParts): string {
  const sorted = sortedHeaders(headers);
  const target = `${method.toUpperCase()}\n${canonicalPath(path)}\n${canonicalQuery(query)}`;
  return `${target}\n${headerLines(sorted)}\n${headerNames(sorted)}\n${bodyHash}`;
}

/** Each segment decoded and encoded again, so that every spelling of a path is one. Always ends in `/`. */
export function canonicalPath(path: string): string {
  // Nearly all paths are of this kind.
  const isPlain = /^[A-Za-z0-9\-_.~/]*$/.test(path);
  const encoded = isPlain
    ? path
    : path
        .split('/')
        .map((segment) => recode(segment).encoded)
        .join('/');
  return encoded.endsWith('/') ? encoded : `${encoded}/`;
}

/**
 * Sorted by name, then by value; repeated names all stay, and an empty value keeps its `=`. A `+` is a plus:
 * a verifier that also takes it for a space replaces it by `%20` before it calls this.
 */
export function canonicalQuery(query: string): string {
  return PLAIN_QUERY.test(query) ? plainQuery(query) : anyQuery(query);
}

/**
 * Names of letters, and values with nothing to encode but the commas of a list: nearly all queries are of this kind. Such
 * pairs sort as they stand, because `=` comes before every letter.
 */
const PLAIN_QUERY = /^[A-Za-z_]+=[A-Za-z0-9\-_.~,]*(?:&[A-Za-z_]+=[A-Za-z0-9\-_.~,]*)*$/;

/** In half the time of the general form, with ten hosts as with a thousand. */
function plainQuery(query: string): string {
  return query.split('&').sort().join('&').replaceAll(',', '%2C');
}

/** The general form. */
export function anyQuery(query: string): string {
  return query
    .split('&')
    .filter((pair) => pair !== '')
    .map(recodePair)
    .sort((a, b) => compare(a.name.bytes, b.name.bytes) || compare(a.value.bytes, b.value.bytes))
    .map(({ name, value }) => `${name.encoded}=${value.encoded}`)
    .join('&');
}

/** One `name:value` line for each header, the last one ended by a newline too. */
export function canonicalHeaders(headers: CanonicalParts['headers']): string {
  return headerLines(sortedHeaders(headers));
}

export function signedHeaders(headers: CanonicalParts['headers']): string {
  return headerNames(sortedHeaders(headers));
}

function headerLines(sorted: readonly HeaderLine[]): string {
  let lines = '';
  for (const [name, value] of sorted)
    lines += `${name}:${name === 'host' ? withoutDefaultPort(value) : value}\n`;
  return lines;
}

function headerNames(sorted: readonly HeaderLine[]): string {
  return sorted.map(([name]) => name).join(';');
}

interface Recoded {
  encoded: string;
  /** The decoded bytes, a character each: UTF-8 sorts by code point, JavaScript strings past U+FFFF do not. */
  bytes: string;
}

function recode(text: string): Recoded {
  // Nearly all text is of this kind, and a query may hold a thousand IDs.
  if (/^[A-Za-z0-9\-_.~]*$/.test(text)) return { encoded: text, bytes: text };
  // Other ASCII without a `%`: nothing to decode, and each character is a byte.
  if (/^[^%\u0080-\uffff]*$/.test(text)) return { encoded: percentEncodeAscii(text), bytes: text };
  const decoded = percentDecode(text);
  const bytes = Array.from(decoded, (byte) => String.fromCharCode(byte)).join('');
  return { encoded: percentEncode(decoded), bytes };
}

function recodePair(pair: string): { name: Recoded; value: Recoded } {
  const equals = pair.indexOf('=');
  return equals < 0
    ? { name: recode(pair), value: recode('') }
    : { name: recode(pair.slice(0, equals)), value: recode(pair.slice(equals + 1)) };
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function sortedHeaders(headers: CanonicalParts['headers']): HeaderLine[] {
  const lines: readonly HeaderLine[] = Array.isArray(headers) ? headers : Object.entries(headers);
  return lines
    .map(([name, value]): HeaderLine => [name.toLowerCase(), value.trim()])
    .sort(([a], [b]) => compare(a, b));
}

/** Clients send `Host` with or without these ports for the same address, and sign it without. */
function withoutDefaultPort(host: string): string {
  return host.replace(/:(80|443)$/, '');
}
