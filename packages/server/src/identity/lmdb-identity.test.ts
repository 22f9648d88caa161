import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { identityConformance } from '../../../../test/identity-conformance.ts';
import { openAuditFile } from '../audit/audit-file.ts';
import { openLmdbIdentity } from './lmdb-identity.ts';

identityConformance('LMDB', async (now) => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-identity-'));
  const audit = openAuditFile(directory, now);
  const another = async () => openLmdbIdentity(join(directory, 'identity.mdb'), audit);
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
});
