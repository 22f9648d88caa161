import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openAuditFile } from '../audit/audit-file.ts';
import type { IdentityStore } from './identity-store.ts';
import { createKnownNetworks, networkOf } from './known-networks.ts';
import { openLmdbIdentity } from './lmdb-identity.ts';

const DAY_MS = 86_400_000;
const KEY = Buffer.alloc(32, 1);
const clock = { now: 0 };
let directory: string;
let store: IdentityStore;

beforeEach(async () => {
  clock.now = Date.UTC(2026, 6, 1);
  directory = mkdtempSync(join(tmpdir(), 'wafstat-known-'));
  store = openLmdbIdentity(join(directory, 'identity.mdb'), openAuditFile(null, Date.now));
  for (const id of ['alice', 'bob']) await putUser(id);
});
afterEach(async () => {
  await store.close();
  rmSync(directory, { recursive: true });
});

const USER = {
  domain_id: 'd',
  enabled: true,
  access: 'both',
  password_hash: '',
  created: 0,
  token_epoch: 0,
  roles: {},
} as const;
const putUser = (id: string) => store.change((write) => write.put('user', { ...USER, id, name: id }));
/** The known networks as another process reads them. */
const reopened = () => createKnownNetworks(store, KEY, () => clock.now);

/** Resolves when the entry is written. */
async function add(user: string, network: string): Promise<void> {
  const put = store.putKnownLogin;
  let written: Promise<void> = Promise.resolve();
  const watched: IdentityStore = {
    ...store,
    putKnownLogin: (...given) => {
      written = put(...given);
      return written;
    },
  };
  createKnownNetworks(watched, KEY, () => clock.now).add(user, network);
  await written;
}

test('a network is known to all processes for 90 days after the last login', async () => {
  expect(reopened().has('alice', '192.0.2.1')).toBe(false);
  await add('alice', '192.0.2.1');
  expect(reopened().has('alice', '192.0.2.1')).toBe(true);
  expect(reopened().has('alice', '192.0.2.2')).toBe(false);
  expect(reopened().has('bob', '192.0.2.1')).toBe(false);
  clock.now += 60 * DAY_MS;
  await add('alice', '192.0.2.1');
  clock.now += 90 * DAY_MS - 1;
  expect(reopened().has('alice', '192.0.2.1')).toBe(true);
  clock.now += 1;
  expect(reopened().has('alice', '192.0.2.1')).toBe(false);
});

test('the latest 32 networks of a user are known, until the user is deleted', async () => {
  for (let i = 0; i < 40; i++) {
    clock.now += 1;
    await add('alice', `192.0.2.${i}`);
  }
  const known = () => Array.from({ length: 40 }, (_, i) => reopened().has('alice', `192.0.2.${i}`));
  expect(known()).toEqual([...Array(8).fill(false), ...Array(32).fill(true)]);
  await store.change((write) => write.remove('user', { ...USER, id: 'alice', name: 'alice' }));
  expect(known()).toEqual(Array(40).fill(false));
  await add('alice', '192.0.2.1');
  expect(reopened().has('alice', '192.0.2.1')).toBe(false);
});

test('a network is known at once, even if the write fails, and the file contains no address', async () => {
  const failing = { ...store, putKnownLogin: () => Promise.reject(new Error('the disk is full')) };
  const networks = createKnownNetworks(failing, KEY, () => clock.now);
  networks.add('alice', '192.0.2.77');
  expect(networks.has('alice', '192.0.2.77')).toBe(true);
  await add('alice', '192.0.2.77');
  expect(readFileSync(join(directory, 'identity.mdb')).includes('192.0.2.77')).toBe(false);
});

test('an entry from more than a day in the future is ignored: the clock was set back', async () => {
  await add('alice', '192.0.2.1');
  clock.now -= DAY_MS;
  expect(reopened().has('alice', '192.0.2.1')).toBe(true);
  clock.now -= 1;
  expect(reopened().has('alice', '192.0.2.1')).toBe(false);
});

test('the network of an IPv6 address is its /64; IPv4-mapped addresses are IPv4', () => {
  expect(networkOf('2001:db8:1:2:3:4:5:6')).toBe('2001:db8:1:2::/64');
  expect(networkOf('2001:db8:1:2::6')).toBe('2001:db8:1:2::/64');
  expect(networkOf('2001:db8::6')).toBe('2001:db8:0:0::/64');
  expect(networkOf('::1')).toBe('0:0:0:0::/64');
  expect(networkOf('fe80::1%eth0')).toBe('fe80:0:0:0::/64');
  expect(networkOf('::ffff:192.0.2.1')).toBe('192.0.2.1');
  expect(networkOf('::ffff:c000:201')).toBe('192.0.2.1');
  expect(networkOf('192.0.2.1')).toBe('192.0.2.1');
});

test('two IPv6 addresses are in the same network if and only if they share their first 64 bits', () => {
  const group = fc.integer({ min: 0, max: 0xffff }).map((n) => n.toString(16));
  const half = fc.array(group, { minLength: 4, maxLength: 4 }).map((groups) => groups.join(':'));
  fc.assert(
    fc.property(half, half, half, half, (a, b, c, d) => {
      fc.pre(!a.startsWith('0:0:0:0') && !b.startsWith('0:0:0:0'));
      expect(networkOf(`${a}:${c}`)).toBe(networkOf(`${a}:${d}`));
      expect(networkOf(`${a}:${c}`) === networkOf(`${b}:${c}`)).toBe(a === b);
    }),
  );
});
