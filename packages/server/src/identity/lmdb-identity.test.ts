import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { open } from 'lmdb';
import { describe, expect, test } from 'vitest';
import { identityConformance, REVOCATIONS_KEPT } from '../../../../test/identity-conformance.ts';
import { openAuditFile } from '../audit/audit-file.ts';
import { IdentityDamaged } from './errors.ts';
import { identityProblems, openLmdbIdentity, repairIdentity } from './lmdb-identity.ts';
import type { AccessKey, Domain, User } from './records.ts';

async function create(now: () => number) {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-identity-'));
  const audit = openAuditFile(directory, now);
  const another = async () => openLmdbIdentity(join(directory, 'identity.mdb'), audit, REVOCATIONS_KEPT);
  const store = await another();
  return {
    store,
    audit,
    another,
    async destroy() {
      await store.close();
      rmSync(directory, { recursive: true });
    },
  };
}

identityConformance('LMDB', create);

test('the first master key is the only one', async () => {
  const { store, another, destroy } = await create(Date.now);
  expect(await store.matchesMasterKey('a')).toBe(true);
  expect(await store.matchesMasterKey('b')).toBe(false);
  const other = await another();
  expect(await other.matchesMasterKey('a')).toBe(true);
  await other.close();
  await destroy();
});

describe('a flipped bit', () => {
  const user = { id: 'user0', domain_id: 'domain0', name: 'alice' } as User;
  const parts = ['user0', 'alice', 'domain0', 'shop', 'ACCESS', 'token0', 'fingerprint', '9000000000000'];

  /** A file with records, and the offsets of their parts in it, also in old versions of its pages. */
  async function createFile() {
    const directory = mkdtempSync(join(tmpdir(), 'wafstat-identity-'));
    const audit = openAuditFile(directory, Date.now);
    const original = join(directory, 'identity.mdb');
    const store = openLmdbIdentity(original, audit);
    await store.matchesMasterKey('fingerprint');
    await store.change((writer) => {
      writer.put('domain', { id: 'domain0', name: 'shop' } as Domain);
      writer.put('user', user);
      for (const id of ['user1', 'user2']) writer.put('user', { ...user, id, name: id });
      writer.putKey({ access: 'ACCESS', user_id: user.id } as AccessKey);
      writer.revoke({ id: 'token0', expires_at: 9_000_000_000_000 }, Date.now());
    });
    await store.close();
    expect(await identityProblems(original)).toEqual([]);
    const bytes = readFileSync(original);
    const damage = (name: string, offsets: readonly number[]) => {
      const path = join(directory, name);
      const damaged = Buffer.from(bytes);
      for (const offset of offsets) damaged[offset] = (damaged[offset] ?? 0) ^ 2;
      writeFileSync(path, damaged);
      return path;
    };
    const offsetsOf = (text: string) => occurrences(bytes, Buffer.from(text)).map((at) => at + 1);
    return { directory, audit, damage, offsetsOf };
  }

  test('in any record changes no result, verify finds it, and repair restores the record', async () => {
    const { directory, audit, damage, offsetsOf } = await createFile();
    const offsets = parts.flatMap(offsetsOf);
    expect(offsets.length).toBeGreaterThan(15);
    let found = 0;
    const expectRight = async (path: string) => {
      const opened = openLmdbIdentity(path, audit);
      expect(opened.byName('user', 'domain0', 'alice')).toEqual(user);
      expect([opened.get('user', 'user0'), opened.list('user').length]).toEqual([user, 3]);
      expect([opened.get('domain', 'domain0')?.name, opened.get('key', 'ACCESS')?.user_id]).toEqual([
        'shop',
        user.id,
      ]);
      expect([opened.keysOf('user0').length, opened.get('revoked', 'token0') !== undefined]).toEqual([
        1,
        true,
      ]);
      expect(await opened.matchesMasterKey('other')).toBe(false);
      await opened.close();
    };
    for (const [i, offset] of offsets.entries()) {
      const path = damage(`${i}.mdb`, [offset]);
      const problems = await identityProblems(path);
      // Old versions of pages are still in the file, and do not matter.
      if (problems.length > 0) found++;
      await expectRight(path);
      const { repairs, lost } = await repairIdentity(path);
      expect([repairs.length > 0, lost], `offset ${offset}`).toEqual([problems.length > 0, []]);
      expect(await identityProblems(path), `offset ${offset}`).toEqual([]);
      await expectRight(path);
    }
    expect(found).toBeGreaterThan(15);
    rmSync(directory, { recursive: true });
  });

  test('refuses a change of the record until the file is repaired', async () => {
    const { directory, audit, damage, offsetsOf } = await createFile();
    const offsets = offsetsOf('alice');
    let refused = 0;
    for (const [i, offset] of offsets.entries()) {
      const path = damage(`${i}.mdb`, [offset]);
      const isUser = (await identityProblems(path)).some(({ key }) => key.includes('user0'));
      const store = openLmdbIdentity(path, audit);
      const change = () => store.change((write) => write.remove('user', user));
      if (isUser) {
        refused++;
        await expect(change()).rejects.toThrow(IdentityDamaged);
        expect(store.get('user', 'user0')).toEqual(user);
        await repairIdentity(path);
      }
      await change();
      expect(store.get('user', 'user0')).toBeUndefined();
      await store.close();
      if (isUser) expect(await identityProblems(path)).toEqual([]);
    }
    expect(refused).toBe(2);
    rmSync(directory, { recursive: true });
  });

  test('in both copies of a record is an error, never a missing record, and repair changes nothing', async () => {
    const { directory, audit, damage, offsetsOf } = await createFile();
    for (const part of parts) {
      const path = damage(`${part}.mdb`, offsetsOf(part));
      const before = readFileSync(path);
      expect(() => openLmdbIdentity(path, audit), part).toThrow(IdentityDamaged);
      expect(await identityProblems(path)).not.toEqual([]);
      const { repairs, lost } = await repairIdentity(path);
      expect([repairs, lost[0]?.problem]).toEqual([
        [],
        'damaged in both tables: restore identity.mdb from a backup',
      ]);
      expect(readFileSync(path).equals(before)).toBe(true);
    }
    rmSync(directory, { recursive: true });
  });
});

test('a process that has missed more changes than the log has, or a large one, loads all records', async () => {
  const { store, another, destroy } = await create(Date.now);
  const other = await another();
  expect(other.list('user')).toEqual([]);
  const user = (i: number) => ({ id: `u${i}`, domain_id: 'd', name: `${i}` }) as User;
  await store.change((write) => {
    for (let i = 0; i < 1_500; i++) write.put('user', user(i));
  });
  expect(await other.refresh()).toBe(true);
  expect(other.list('user')).toHaveLength(1_500);
  for (let i = 0; i < 1_100; i++) await store.change((write) => write.remove('user', user(i)));
  await other.refresh();
  expect(other.list('user')).toHaveLength(400);
  expect(other.changes()).not.toBe(0);
  await other.close();
  await destroy();
});

test('a file of another format version is refused', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-identity-'));
  const path = join(directory, 'identity.mdb');
  const file = open({ path, noSubdir: true, maxDbs: 16, overlappingSync: false });
  file.openDB('meta', { encoding: 'json' }).putSync('version', 1);
  await file.close();
  const audit = openAuditFile(directory, Date.now);
  expect(() => openLmdbIdentity(path, audit)).toThrow(
    'has format version 1, but this release reads version 3',
  );
  rmSync(directory, { recursive: true });
});

function occurrences(bytes: Buffer, part: Buffer): number[] {
  const found: number[] = [];
  for (let at = bytes.indexOf(part); at !== -1; at = bytes.indexOf(part, at + 1)) found.push(at);
  return found;
}
