/** The canonical request: the one form that signer and verifier bring a request to before they hash it. */
import { percentDecode, percentEncode, percentEncodeAscii } from './percent-encoding.ts';

export interface CanonicalParts {
  method: string;
  /** As on the request line, without the query. */
  path: string;
  /** As on the request line, without the `?`. */
  query: string;
  /** The signed headers, these and no others. */
  headers: Readonly<Record<string, string>>;
  /** Hex SHA-256 of the body, or the value of `X-Sdk-Content-Sha256` where that header is sent. */
  bodyHash: string;
}

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
  const pairs: Pair[] = [];
  for (const pair of query.split('&')) if (pair !== '') pairs.push(recodePair(pair));
  pairs.sort(comparePairs);
  let text = '';
  for (const { name, value } of pairs) text += `${text === '' ? '' : '&'}${name.encoded}=${value.encoded}`;
  return text;
}

/** One `name:value` line for each header, the last one ended by a newline too. */
export function canonicalHeaders(headers: Readonly<Record<string, string>>): string {
  return headerLines(sortedHeaders(headers));
}

export function signedHeaders(headers: Readonly<Record<string, string>>): string {
  return headerNames(sortedHeaders(headers));
}

function headerLines(sorted: readonly [name: string, value: string][]): string {
  let lines = '';
  for (const [name, value] of sorted)
    lines += `${name}:${name === 'host' ? withoutDefaultPort(value) : value}\n`;
  return lines;
}

function headerNames(sorted: readonly [name: string, value: string][]): string {
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
  // So is a list of IDs,
  if (/^[A-Za-z0-9\-_.~,]*$/.test(text)) return { encoded: text.replaceAll(',', '%2C'), bytes: text };
  // and other ASCII without a `%`: nothing to decode, and each character is a byte.
  if (/^[^%\u0080-\uffff]*$/.test(text)) return { encoded: percentEncodeAscii(text), bytes: text };
  const decoded = percentDecode(text);
  const bytes = Array.from(decoded, (byte) => String.fromCharCode(byte)).join('');
  return { encoded: percentEncode(decoded), bytes };
}

interface Pair {
  name: Recoded;
  value: Recoded;
}

function recodePair(pair: string): Pair {
  const equals = pair.indexOf('=');
  return equals < 0
    ? { name: recode(pair), value: recode('') }
    : { name: recode(pair.slice(0, equals)), value: recode(pair.slice(equals + 1)) };
}

function comparePairs(a: Pair, b: Pair): number {
  return compare(a.name.bytes, b.name.bytes) || compare(a.value.bytes, b.value.bytes);
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function sortedHeaders(headers: Readonly<Record<string, string>>): [name: string, value: string][] {
  return Object.entries(headers)
    .map(([name, value]): [string, string] => [name.toLowerCase(), value.trim()])
    .sort(([a], [b]) => compare(a, b));
}

/** Clients send `Host` with or without these ports for the same address, and sign it without. */
function withoutDefaultPort(host: string): string {
  return host.replace(/:(80|443)$/, '');
}
