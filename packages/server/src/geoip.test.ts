import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { mmdbFile } from '../../../test/mmdb.ts';
import { eventually } from '../../../test/process.ts';
import { GeoIp } from './geoip.ts';

let directory: string;

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-geoip-'));
});

afterAll(() => rmSync(directory, { recursive: true }));

function write(name: string, content: Buffer | string): string {
  const path = join(directory, name);
  // Replaced as a whole, as update programs do.
  writeFileSync(`${path}.new`, content);
  renameSync(`${path}.new`, path);
  return path;
}

const COUNTRIES = mmdbFile({
  '192.0.2.0/24': { country: { iso_code: 'DE' } },
  '198.51.100.0/25': { country_code: 'FR', country: 'France' },
  '203.0.113.0/24': { continent: 'EU' },
  '2001:db8:1::/48': { country: { iso_code: 'NL' } },
});
const NETWORKS = mmdbFile(
  {
    '192.0.2.0/24': { autonomous_system_number: 64_500, autonomous_system_organization: 'Example Networks' },
    '198.51.100.0/24': { asn: 'AS64501', name: 'Other' },
    // The first bits of an IPv6 address.
    '32.1.13.0/24': { autonomous_system_number: 1 },
  },
  4,
);

test('countries and networks of addresses, from several files', () => {
  const geo = new GeoIp([write('countries.mmdb', COUNTRIES), write('networks.mmdb', NETWORKS)]);
  const place = (address: string) => [geo.country(address), geo.network(address)];
  expect(place('192.0.2.7')).toEqual(['DE', { id: 'AS64500', name: 'Example Networks' }]);
  expect(place('192.0.2.0/24')).toEqual(['DE', { id: 'AS64500', name: 'Example Networks' }]);
  expect(place('198.51.100.7')).toEqual(['FR', { id: 'AS64501', name: 'Other' }]);
  expect(place('198.51.100.200')).toEqual([undefined, { id: 'AS64501', name: 'Other' }]);
  expect(place('203.0.113.7')).toEqual([undefined, undefined]);
  expect(place('2001:db8:1:2::/64')).toEqual(['NL', undefined]);
  expect(place('2001:db8:2::1')).toEqual([undefined, undefined]);
  expect(place('not an address')).toEqual([undefined, undefined]);
});

describe('a file that is no MMDB file', () => {
  test.each([
    ['text', 'country,DE\n'.repeat(100)],
    ['nothing', ''],
    ['its first half', COUNTRIES.subarray(0, COUNTRIES.length / 2)],
  ])('is an error: %s', (_name, content) => {
    const path = write('bad.mmdb', content);
    expect(() => new GeoIp([path])).toThrow(`${path} is not a readable MMDB file (`);
  });
});

test('a replaced file is read again, and a bad one is reported', async () => {
  const path = write('replaced.mmdb', COUNTRIES);
  const geo = new GeoIp([path]);
  const messages: string[] = [];
  const log = {
    info: (text: string) => void messages.push(text),
    warn: (text: string) => void messages.push(text),
  };
  onTestFinished(geo.watch(log, 20));
  expect(geo.country('192.0.2.7')).toBe('DE');
  // The first look at the file is the one that others are compared with.
  await eventually(async () => {
    write('replaced.mmdb', 'no file');
    return messages.length > 0 || undefined;
  }, 'a warning');
  expect(messages[0]).toMatch(
    /^--geoip: .*replaced.mmdb is not a readable MMDB file .*; the old one stays in use$/,
  );
  expect(geo.country('192.0.2.7')).toBe('DE');
  write('replaced.mmdb', mmdbFile({ '192.0.2.0/24': { country: { iso_code: 'AT' } } }));
  await eventually(async () => geo.country('192.0.2.7') === 'AT' || undefined, 'the new file');
  expect(messages.at(-1)).toBe(`--geoip: the new file ${path} is in use`);
});
