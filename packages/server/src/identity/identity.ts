/** Identity as a whole, on its file and under its master key. */
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Actor, type AuditTrail, createAuditTrail } from '../audit/audit-trail.ts';
import { recordLoginRefusals } from '../audit/login-refusals.ts';
import { Administration, type AdministrationView } from './administration.ts';
import { Authentication } from './authentication.ts';
import { createDevices } from './devices.ts';
import { createDirectory, type Directory } from './directory.ts';
import { createKnownLogins } from './known-logins.ts';
import { createLoginThrottle } from './login-throttle.ts';
import { deriveKey } from './master-key.ts';
import { createPasswords } from './passwords.ts';
import { createSecrets } from './secrets.ts';
import { createSessions } from './sessions.ts';
import { openIdentityStore } from './store.ts';
import { createTokens } from './tokens.ts';

export class WrongMasterKey extends Error {}

/** In a file of its own; the other kind is in remote/. */
export interface Identity {
  kind: 'own';
  authentication: Authentication;
  administration: Administration;
  directory: Directory;
  /** In the folder of the file. */
  audit: AuditTrail;
  /** Whoever opened it, and in whose name `administration` acts. */
  actor: Actor;
  /** Which statistics file belongs to this identity: its ID, so that a missing or another one is noticed. */
  statisticsFile: { id(): number | undefined; set(id: number): void };
  /** Rejects with IdentityNotWritable while changes fail. */
  checkWrites(): Promise<void>;
  close(): Promise<void>;
}

/** Identity for request handlers: changes require an actor. */
export type RequestIdentity = Omit<Identity, 'administration' | 'actor'> & {
  administration: AdministrationView;
};

export interface IdentityOptions {
  actor?: Actor;
  sleep?: (ms: number) => Promise<void>;
}

export async function openIdentity(
  path: string,
  masterKey: Buffer,
  now: () => number,
  { sleep = delayed, actor = { user: 'local:unknown', via: 'command line' } }: IdentityOptions = {},
): Promise<Identity> {
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
  const devices = createDevices(deriveKey(masterKey, 'devices'));
  const known = createKnownLogins(store, deriveKey(masterKey, 'known logins'), now);
  const throttle = createLoginThrottle(known, now, sleep);
  const audit = createAuditTrail(dirname(path), now);
  const refused = recordLoginRefusals(audit, now);
  return {
    kind: 'own',
    authentication: new Authentication(
      store,
      passwords,
      tokens,
      sessions,
      secrets,
      throttle,
      devices,
      refused,
      now,
    ),
    administration: new Administration(store, passwords, secrets, now, audit, actor),
    directory: createDirectory(store, secrets),
    audit,
    actor,
    statisticsFile: { id: store.statisticsFileId, set: store.setStatisticsFileId },
    checkWrites: () => store.checkWrites(),
    close: () => store.close(),
  };
}

/** Does not keep the process from ending: an attempt that waits is not worth it. */
function delayed(ms: number): Promise<void> {
  return delay(ms, undefined, { ref: false });
}
