/** A host name from a log is attacker input: brought into one form, bounded, and never trusted to be a name at all. */

import { isIPv6 } from 'node:net';

/** The longest name DNS allows. */
const HOSTNAME_LENGTH_MAX = 253;

/** The name under which a host is registered, or null for what cannot be one: such traffic is without a registered host. */
export function normalHostname(text: string): string | null {
  const name = withoutPort(text.trim()).toLowerCase().replace(/\.$/, '');
  if (name.length === 0 || name.length > HOSTNAME_LENGTH_MAX) return null;
  // Control characters and spaces never stand in a Host header; lone surrogates could not be stored as they are; format
  // characters (bidirectional overrides, zero-width ones) make one name look like another, and DNS has none of them.
  if (/[\p{Cc}\p{Cf}\p{Z}\p{Cs}]/u.test(name)) return null;
  return name.includes(':') && !isIPv6(name.replace(/^\[(.*)\]$/, '$1')) ? null : name;
}

/** `example.com:8080` and `[2001:db8::1]:443`; a bare IPv6 address has more than one colon and no port. */
function withoutPort(name: string): string {
  const match = /^(\[[^\]]*\]|[^:]*):[0-9]{0,5}$/.exec(name);
  return match?.[1] ?? name;
}
