/** Identity as a whole, on its file and under its master key. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Administration } from './administration.ts';
import { Authentication } from './authentication.ts';
import { createDirectory, type Directory } from './directory.ts';
import { deriveKey } from './master-key.ts';
import { createPasswords } from './passwords.ts';
import { createSecrets } from './secrets.ts';
import { createSessions } from './sessions.ts';
import { openIdentityStore } from './store.ts';
import { createThrottle } from './throttle.ts';
import { createTokens } from './tokens.ts';

export class WrongMasterKey extends Error {}

/** In a file of its own; the other kind is in remote/. */
export interface Identity {
  kind: 'own';
  authentication: Authentication;
  administration: Administration;
  directory: Directory;
  /** Rejects with IdentityNotWritable while changes fail. */
  checkWrites(): Promise<void>;
  close(): Promise<void>;
}

export async function openIdentity(path: string, masterKey: Buffer, now: () => number): Promise<Identity> {
  const store = openIdentityStore(path);
  // Under another key every token would be refused and no secret could be opened: better to say so at once.
  if (!store.hasMark(deriveKey(masterKey, 'mark').toString('base64'))) {
    await store.close();
    throw new WrongMasterKey(`${path} was made under another master key than the one given`);
  }
  const passwords = createPasswords();
  const secrets = createSecrets(deriveKey(masterKey, 'access keys'));
  const tokens = createTokens(deriveKey(masterKey, 'tokens'));
  const sessions = createSessions(deriveKey(masterKey, 'sessions'));
  const throttle = createThrottle(now, sleep);
  return {
    kind: 'own',
    authentication: new Authentication(store, passwords, tokens, sessions, secrets, throttle, now),
    administration: new Administration(store, passwords, secrets, now),
    directory: createDirectory(store, secrets),
    checkWrites: () => store.checkWrites(),
    close: () => store.close(),
  };
}
