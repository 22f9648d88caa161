/** Writes small MMDB files, so that no data of others is in the repository. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { isIPv4 } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { GeoIp } from '../packages/server/src/geoip.ts';

type Value = string | number | { readonly [key: string]: Value };
/** The number of a node, an offset in the data, or nothing. */
type Target = { node: number } | { data: number } | null;

const SEPARATOR_BYTES = 16;
const MARKER = Buffer.from('abcdef4d61784d696e642e636f6d', 'hex');

/** `networks`: what the file says about each, like `{ '192.0.2.0/24': { country: { iso_code: 'DE' } } }`. None may overlap. */
export function mmdbFile(networks: Readonly<Record<string, Value>>, ipVersion: 4 | 6 = 6): Buffer {
  const nodes: [Target, Target][] = [[null, null]];
  const data: Buffer[] = [];
  for (const [network, value] of Object.entries(networks)) {
    const bits = bitsOf(network, ipVersion);
    const offset = Buffer.concat(data).length;
    data.push(encode(value));
    let node = 0;
    for (const [i, bit] of bits.entries()) {
      const targets = nodes[node] as [Target, Target];
      if (i === bits.length - 1) targets[bit] = { data: offset };
      else {
        const next = targets[bit] ?? { node: nodes.push([null, null]) - 1 };
        if (!('node' in next)) throw new Error(`${network} overlaps another network`);
        targets[bit] = next;
        node = next.node;
      }
    }
  }
  const tree = Buffer.alloc(nodes.length * 6);
  for (const [i, targets] of nodes.entries()) {
    for (const [side, target] of targets.entries()) {
      const empty = nodes.length;
      const record =
        target === null ? empty : 'node' in target ? target.node : empty + SEPARATOR_BYTES + target.data;
      tree.writeUIntBE(record, i * 6 + side * 3, 3);
    }
  }
  const metadata = encode({
    ...{ binary_format_major_version: 2, binary_format_minor_version: 0, build_epoch: 0 },
    ...{ database_type: 'Test', ip_version: ipVersion, node_count: nodes.length, record_size: 24 },
  });
  return Buffer.concat([tree, Buffer.alloc(SEPARATOR_BYTES), ...data, MARKER, metadata]);
}

/** What a service with such a file looks up. */
export function geoIpOf(networks: Parameters<typeof mmdbFile>[0]): GeoIp {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-mmdb-'));
  const path = join(directory, 'test.mmdb');
  writeFileSync(path, mmdbFile(networks));
  try {
    return new GeoIp([path]);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

/** In files of version 6, IPv4 addresses are in ::/96. */
function bitsOf(network: string, ipVersion: 4 | 6): (0 | 1)[] {
  const [address = '', length = ''] = network.split('/');
  const isFour = isIPv4(address);
  const groups = isFour ? address.split('.').map(Number) : groupsOf(address);
  const digits = groups.map((group) => group.toString(2).padStart(isFour ? 8 : 16, '0')).join('');
  const bits = (isFour && ipVersion === 6 ? '0'.repeat(96) : '') + digits.slice(0, Number(length));
  return Array.from(bits, (bit) => (bit === '1' ? 1 : 0));
}

/** Of an address with `::`. */
function groupsOf(address: string): number[] {
  const [before = [], after = []] = address.split('::').map((part) => part.split(':').filter(Boolean));
  const zeros = Array<string>(8 - before.length - after.length).fill('0');
  return [...before, ...zeros, ...after].map((group) => Number.parseInt(group, 16));
}

const [STRING, UINT32, MAP] = [2, 6, 7];

function encode(value: Value): Buffer {
  if (typeof value === 'string') {
    const bytes = Buffer.from(value);
    return Buffer.concat([control(STRING, bytes.length), bytes]);
  }
  if (typeof value === 'number') {
    const bytes = Buffer.alloc(4);
    bytes.writeUInt32BE(value);
    return Buffer.concat([control(UINT32, bytes.length), bytes]);
  }
  const entries = Object.entries(value);
  return Buffer.concat([control(MAP, entries.length), ...entries.flat().map(encode)]);
}

function control(type = 0, size = 0): Buffer {
  if (size >= 29 + 256) throw new Error('the value is too long');
  return size < 29 ? Buffer.of((type << 5) | size) : Buffer.of((type << 5) | 29, size - 29);
}
