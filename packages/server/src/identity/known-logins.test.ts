import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createKnownLogins } from './known-logins.ts';
import { type IdentityStore, openIdentityStore } from './store.ts';

const DAY_MS = 86_400_000;
const KEY = Buffer.alloc(32, 1);
const clock = { now: 0 };
let folder: string;
let store: IdentityStore;

beforeEach(async () => {
  clock.now = Date.UTC(2026, 6, 1);
  folder = mkdtempSync(join(tmpdir(), 'wafstat-known-'));
  store = openIdentityStore(join(folder, 'identity.mdb'));
  for (const id of ['alice', 'bob']) await putUser(id);
});
afterEach(async () => {
  await store.close();
  rmSync(folder, { recursive: true });
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
const putUser = (id: string) => store.change((write) => write.putUser({ ...USER, id, name: id }));
/** As another process, or this one after a restart, sees them. */
const others = () => createKnownLogins(store, KEY, () => clock.now);

/** Adds, and waits until it is written. */
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
  createKnownLogins(watched, KEY, () => clock.now).add(user, network);
  await written;
}

test('a pair is known to all processes for 90 days after the last login', async () => {
  expect(others().has('alice', '192.0.2.1')).toBe(false);
  await add('alice', '192.0.2.1');
  expect(others().has('alice', '192.0.2.1')).toBe(true);
  expect(others().has('alice', '192.0.2.2')).toBe(false);
  expect(others().has('bob', '192.0.2.1')).toBe(false);
  clock.now += 60 * DAY_MS;
  await add('alice', '192.0.2.1');
  clock.now += 90 * DAY_MS - 1;
  expect(others().has('alice', '192.0.2.1')).toBe(true);
  clock.now += 1;
  expect(others().has('alice', '192.0.2.1')).toBe(false);
});

test('a user is known in 32 networks, the latest ones, and forgotten when deleted', async () => {
  for (let i = 0; i < 40; i++) {
    clock.now += 1;
    await add('alice', `192.0.2.${i}`);
  }
  const known = () => Array.from({ length: 40 }, (_, i) => others().has('alice', `192.0.2.${i}`));
  expect(known()).toEqual([...Array(8).fill(false), ...Array(32).fill(true)]);
  await store.change((write) => write.removeUser({ ...USER, id: 'alice', name: 'alice' }));
  expect(known()).toEqual(Array(40).fill(false));
  await add('alice', '192.0.2.1');
  expect(others().has('alice', '192.0.2.1')).toBe(false);
});

test('a pair is known at once, also when nothing can be written, and the file tells no address', async () => {
  const failing = { ...store, putKnownLogin: () => Promise.reject(new Error('the disk is full')) };
  const logins = createKnownLogins(failing, KEY, () => clock.now);
  logins.add('alice', '192.0.2.77');
  expect(logins.has('alice', '192.0.2.77')).toBe(true);
  await add('alice', '192.0.2.77');
  expect(readFileSync(join(folder, 'identity.mdb')).includes('192.0.2.77')).toBe(false);
});

test('an entry from more than a day in the future is none: the clock was set back', async () => {
  await add('alice', '192.0.2.1');
  clock.now -= DAY_MS;
  expect(others().has('alice', '192.0.2.1')).toBe(true);
  clock.now -= 1;
  expect(others().has('alice', '192.0.2.1')).toBe(false);
});
