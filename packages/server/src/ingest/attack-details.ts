import { isIP, SocketAddress } from 'node:net';
import type { AttackDetails } from '../event.ts';

/** What a log says, as it says it: attacker input. '' and undefined mean that it says nothing. */
export interface RawDetails {
  blocked?: boolean | undefined;
  source?: string | undefined;
  /** A path, with or without a query, or a whole URL. */
  url?: string | undefined;
  rule?: string | undefined;
  country?: string | undefined;
}

const URL_BYTES_MAX = 256;
const RULE_BYTES_MAX = 64;

/** Normalizes what a log says of an attack: fields that are malformed are left out, the others are bounded. */
export function attackDetails(raw: RawDetails): AttackDetails | undefined {
  const details: AttackDetails = {};
  if (raw.blocked !== undefined) details.blocked = raw.blocked;
  const source = canonicalAddress(raw.source);
  if (source !== undefined) details.source = source;
  const url = urlPath(raw.url);
  if (url !== undefined) details.url = url;
  if (raw.rule) details.rule = cutBytes(percentEncoded(raw.rule.slice(0, RULE_BYTES_MAX)), RULE_BYTES_MAX);
  if (raw.country && /^[A-Za-z]{2}$/.test(raw.country)) details.country = raw.country.toUpperCase();
  return Object.keys(details).length === 0 ? undefined : details;
}

/** One spelling for each address, so that it is counted under one key. A port or brackets are left out. */
function canonicalAddress(text: string | undefined): string | undefined {
  if (text === undefined || text.length > ADDRESS_LENGTH_MAX) return undefined;
  const address = /^(?:\[([^\]]+)\](?::\d+)?|(\d+\.\d+\.\d+\.\d+):\d+)$/.exec(text);
  const bare = address?.[1] ?? address?.[2] ?? text;
  const family = isIP(bare);
  if (family === 0 || bare.includes('%')) return undefined;
  if (family === 4) return cutBytes(bare, ADDRESS_LENGTH_MAX);
  const canonical = new SocketAddress({ address: bare, family: 'ipv6' }).address;
  // An IPv4 client of an IPv6 socket.
  return canonical.startsWith('::ffff:') && canonical.includes('.') ? canonical.slice(7) : canonical;
}

const ADDRESS_LENGTH_MAX = 64;

function urlPath(text: string | undefined): string | undefined {
  if (!text || text === '-') return undefined;
  // More than is kept even when every character has four bytes.
  const start = text.slice(0, 4 * URL_BYTES_MAX);
  const path = start.replace(/^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i, '').replace(/[?#].*$/s, '') || '/';
  return cutBytes(percentEncoded(path), URL_BYTES_MAX);
}

/** Control characters, characters that change the direction of text and lone surrogates, as %XX of UTF-8. */
function percentEncoded(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, (character) =>
    [...Buffer.from(character)]
      .map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`)
      .join(''),
  );
}

/** Always a copy: a part of a line would keep the whole line in memory. */
function cutBytes(text: string, bytesMax: number): string {
  const bytes = Buffer.from(text);
  let end = Math.min(bytes.length, bytesMax);
  while (end < bytes.length && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
  return bytes.toString('utf8', 0, end);
}
