/** The local identity: store, authentication, administration and audit trail, encrypted with one master key. */
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Actor, type AuditTrail, createAuditTrail, recordLoginRefusals } from '../audit/audit-trail.ts';
import { Administration, type AdministrationView } from './administration.ts';
import { WrongMasterKey } from './errors.ts';
import { type IdentityStore, openIdentityStore } from './identity-store.ts';
import { createKnownNetworks } from './known-networks.ts';
import { LocalAuthenticator } from './local-authenticator.ts';
import { createLoginThrottle } from './login-throttle.ts';
import { createPasswords, createSecretCipher, deriveKey } from './secrets.ts';
import { createDeviceCookies, createSessions, createTokens } from './tokens.ts';

export interface Identity {
  kind: 'local';
  authenticator: LocalAuthenticator;
  administration: Administration;
  lookup: IdentityLookup;
  /** In the directory of the identity file. */
  audit: AuditTrail;
  /** On whose behalf `administration` acts. */
  actor: Actor;
  /** The ID of the statistics file that belongs to this identity, to detect a missing or wrong file. */
  statisticsFile: { id(): number | undefined; set(id: number): void };
  /** Rejects with IdentityNotWritable while changes fail. */
  checkWrites(): Promise<void>;
  close(): Promise<void>;
}

/** Identity for request handlers: changes require an actor. */
export type RequestIdentity = Omit<Identity, 'administration' | 'actor'> & {
  administration: AdministrationView;
};

/** Single records by ID; undefined if there is none. */
type IdentityLookup = Pick<IdentityStore, 'user' | 'project' | 'domain'>;

export async function openIdentity(
  path: string,
  masterKey: Buffer,
  now: () => number,
  {
    // Does not keep the process running for a delayed login.
    sleep = (ms) => delay(ms, undefined, { ref: false }),
    actor = { user: 'local:unknown', via: 'command line' },
  }: { actor?: Actor; sleep?: (ms: number) => Promise<void> } = {},
): Promise<Identity> {
  const store = openIdentityStore(path);
  if (!store.matchesMasterKey(deriveKey(masterKey, 'mark').toString('base64'))) {
    await store.close();
    throw new WrongMasterKey(`${path} was created with another master key: provide that key`);
  }
  const passwords = createPasswords();
  const cipher = createSecretCipher(deriveKey(masterKey, 'access keys'));
  const knownNetworks = createKnownNetworks(store, deriveKey(masterKey, 'known logins'), now);
  const audit = createAuditTrail(dirname(path), now);
  return {
    kind: 'local',
    authenticator: new LocalAuthenticator({
      store,
      passwords,
      cipher,
      tokens: createTokens(deriveKey(masterKey, 'tokens')),
      sessions: createSessions(deriveKey(masterKey, 'sessions')),
      devices: createDeviceCookies(deriveKey(masterKey, 'devices')),
      throttle: createLoginThrottle(knownNetworks, now, sleep),
      recordRefusal: recordLoginRefusals(audit, now),
      now,
    }),
    administration: new Administration({ store, passwords, cipher, audit, now }, actor),
    lookup: { user: store.user, project: store.project, domain: store.domain },
    audit,
    actor,
    statisticsFile: { id: store.statisticsFileId, set: store.setStatisticsFileId },
    checkWrites: store.checkWrites,
    close: store.close,
  };
}
