import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { identityConformance, REVOCATIONS_KEPT } from '../../../../test/identity-conformance.ts';
import { openAuditFile } from '../audit/audit-file.ts';
import { openLmdbIdentity } from './lmdb-identity.ts';

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
