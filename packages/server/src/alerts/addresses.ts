/** Which addresses webhooks may connect to. Whoever may add alerts must not reach the services inside the network. */
import { lookup } from 'node:dns';
import { BlockList, isIP, type LookupFunction } from 'node:net';

/** Two lists: of one list, Node.js also compares IPv4 addresses with the network of mapped addresses. */
const PRIVATE = { ipv4: new BlockList(), ipv6: new BlockList() };
for (const [network, bits] of [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['224.0.0.0', 3],
] as const)
  PRIVATE.ipv4.addSubnet(network, bits, 'ipv4');
for (const [network, bits] of [
  // Unspecified, loopback, and addresses that contain an IPv4 address: compatible, mapped, NAT64, Teredo, 6to4.
  // Unspecified, loopback, IPv4-mapped and IPv4-translated addresses.
  ['::', 64],
  ['64:ff9b::', 96],
  ['64:ff9b:1::', 48],
  ['2001::', 32],
  ['2002::', 16],
  // Unique local, link-local, site-local, multicast.
  ['fc00::', 7],
  ['fe80::', 10],
  ['fec0::', 10],
  ['ff00::', 8],
] as const)
  PRIVATE.ipv6.addSubnet(network, bits, 'ipv6');

/** Whether an address is not on the public internet. A zone such as `fe80::1%eth0` is link-local. */
export function isPrivateAddress(address: string): boolean {
  const family = isIP(address) === 4 ? 'ipv4' : 'ipv6';
  return address.includes('%') || PRIVATE[family].check(address, family);
}

class PrivateAddress extends Error {}

/** For connections: the address that is checked is the one that is used. Node.js does not call it for addresses. */
export const publicLookup: LookupFunction = (hostname, options, callback) => {
  lookup(hostname, { ...options, all: true }, (error, addresses) => {
    const [first] = addresses ?? [];
    const refused = addresses?.find(({ address }) => isPrivateAddress(address));
    if (error || first === undefined) return callback(error, '');
    if (refused) return callback(privateAddress(hostname, refused.address), '');
    if (options.all) return callback(null, addresses);
    return callback(null, first.address, first.family);
  });
};

/** Throws PrivateAddress if the host is an address, and private. */
export function checkLiteral(host: string): void {
  if (isIP(host) && isPrivateAddress(host)) throw privateAddress(host, host);
}

function privateAddress(host: string, address: string): PrivateAddress {
  // Without the address: readers see the message, and could look up internal names with it.
  const what = host === address ? address : `${host} resolves to an address that`;
  return new PrivateAddress(
    `${what} is a loopback, link-local or private address: use a public one, or --alert-allow-private`,
  );
}
