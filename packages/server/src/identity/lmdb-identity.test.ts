import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { open } from 'lmdb';
import { expect, test } from 'vitest';
import { identityConformance, REVOCATIONS_KEPT } from '../../../../test/identity-conformance.ts';
import { openAuditFile } from '../audit/audit-file.ts';
import { IdentityDamaged } from './errors.ts';
import { identityProblems, openLmdbIdentity } from './lmdb-identity.ts';
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

test('a flipped bit in any record is an error, never another or a missing record, and verify finds it', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-identity-'));
  const audit = openAuditFile(directory, Date.now);
  const original = join(directory, 'identity.mdb');
  const user = { id: 'user0', domain_id: 'domain0', name: 'alice' } as User;
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
  const parts = ['user0', 'alice', 'domain0', 'shop', 'ACCESS', 'token0', 'fingerprint', '9000000000000'];
  const offsets = parts.flatMap((text) => occurrences(bytes, Buffer.from(text)).map((at) => at + 1));
  expect(offsets.length).toBeGreaterThan(15);
  let errors = 0;
  for (const [i, offset] of offsets.entries()) {
    const path = join(directory, `${i}.mdb`);
    const damaged = Buffer.from(bytes);
    damaged[offset] = (damaged[offset] ?? 0) ^ 2;
    writeFileSync(path, damaged);
    // Old versions of pages are still in the file, and do not matter.
    const problems = await identityProblems(path);
    const opened = openLmdbIdentity(path, audit);
    const read = (action: () => unknown) => {
      try {
        return action();
      } catch (error) {
        if (!(error instanceof IdentityDamaged)) throw error;
        expect(problems, `offset ${offset}`).not.toEqual([]);
        errors++;
        return 'error';
      }
    };
    expect([user, 'error']).toContainEqual(read(() => opened.userByName('domain0', 'alice')));
    expect([user, 'error']).toContainEqual(read(() => opened.user('user0')));
    expect(['shop', 'error']).toContain(read(() => opened.domain('domain0')?.name));
    expect([user.id, 'error']).toContain(read(() => opened.key('ACCESS')?.user_id));
    expect([1, 'error']).toContain(read(() => opened.keysOf('user0').length));
    expect([true, 'error']).toContain(read(() => opened.isRevoked('token0')));
    await opened.close();
  }
  expect(errors).toBeGreaterThan(15);
  rmSync(directory, { recursive: true });
});

test('a file of another format version is refused', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-identity-'));
  const path = join(directory, 'identity.mdb');
  const file = open({ path, noSubdir: true, maxDbs: 16, overlappingSync: false });
  file.openDB('meta', { encoding: 'json' }).putSync('version', 1);
  await file.close();
  const audit = openAuditFile(directory, Date.now);
  expect(() => openLmdbIdentity(path, audit)).toThrow(
    'has format version 1, but this release reads version 2',
  );
  rmSync(directory, { recursive: true });
});

function occurrences(bytes: Buffer, part: Buffer): number[] {
  const found: number[] = [];
  for (let at = bytes.indexOf(part); at !== -1; at = bytes.indexOf(part, at + 1)) found.push(at);
  return found;
}
