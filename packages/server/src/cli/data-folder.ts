/** The folder that holds an installation: identity, statistics, and the master key. */
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { Identity } from '../identity/identity.ts';
import { createMasterKey, deriveKey, readMasterKey } from '../identity/master-key.ts';
import { createPasswords } from '../identity/passwords.ts';
import { openIdentityStore } from '../identity/store.ts';
import { createTokens } from '../identity/tokens.ts';
import { lmdbStore } from '../store/lmdb/lmdb.ts';
import type { Store } from '../store/store.ts';
import { UserError } from './command.ts';

export interface Installation {
  identity: Identity;
  store: Store;
  close(): Promise<void>;
}

const MASTER_KEY = 'master.key';

export function isInitialised(folder: string): boolean {
  return existsSync(join(folder, MASTER_KEY));
}

/** Makes the folder and what must be there before anything else. Readable by its owner only. */
export function createDataFolder(folder: string): void {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  createMasterKey(join(folder, MASTER_KEY));
}

export async function openInstallation(folder: string, now: () => number): Promise<Installation> {
  if (!isInitialised(folder)) {
    throw new UserError(
      `${folder} is not a wafstat data folder: make one with 'wafstat init --data ${folder}'`,
    );
  }
  const tokens = createTokens(deriveKey(readMasterKey(join(folder, MASTER_KEY)), 'tokens'));
  const identityStore = openIdentityStore(join(folder, 'identity.mdb'));
  const identity = new Identity(identityStore, await createPasswords(), tokens, now);
  const store = lmdbStore(join(folder, 'statistics.mdb'), now);
  return {
    identity,
    store,
    async close() {
      await store.close();
      await identityStore.close();
    },
  };
}
