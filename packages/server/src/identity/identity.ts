/** The local identity: store, authentication, administration and audit trail, encrypted with one master key. */
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { openAuditFile } from '../audit/audit-file.ts';
import { type Actor, type AuditTrail, recordLoginRefusals } from '../audit/audit-trail.ts';
import { Administration, type AdministrationView } from './administration.ts';
import { WrongMasterKey } from './errors.ts';
import type { IdentityRecord, IdentityStore } from './identity-store.ts';
import { createKnownNetworks } from './known-networks.ts';
import { openLmdbIdentity } from './lmdb-identity.ts';
import { LocalAuthenticator } from './local-authenticator.ts';
import { createLoginThrottle } from './login-throttle.ts';
import type { Alert, Domain, Project, User } from './records.ts';
import { createPasswords, createSecretCipher, deriveKey, masterKeyFingerprint } from './secrets.ts';
import { createDeviceCookies, createSessions, createTokens } from './tokens.ts';

export interface Identity {
  kind: 'local';
  authenticator: LocalAuthenticator;
  administration: Administration;
  lookup: IdentityLookup;
  alerts: AlertStore;
  audit: AuditTrail;
  /** The actor on whose behalf `administration` acts. */
  actor: Actor;
  /** Rejects with IdentityUnavailable while changes fail. */
  checkWrites(): Promise<void>;
  close(): Promise<void>;
}

/** Identity for request handlers: changes require an actor. */
export type RequestIdentity = Omit<Identity, 'administration' | 'actor'> & {
  administration: AdministrationView;
};

/** What the evaluation of alerts needs: their records, and the secrets of webhooks. */
export interface AlertStore
  extends Pick<IdentityStore, 'get' | 'alerts' | 'alertsOf' | 'incidentsOf' | 'change' | 'refresh'> {
  secretsOf(alert: Alert): { url: string; secret: string };
}

/** Single records by ID; undefined if there is none. */
interface IdentityLookup {
  user(id: string): User | undefined;
  project(id: string): Project | undefined;
  domain(id: string): Domain | undefined;
}

/** The identity of a data directory. */
export interface EmbeddedIdentity extends Identity {
  /** The ID of the statistics file that belongs to this identity, to detect a missing or wrong file. */
  statisticsFile: { id(): number | undefined; set(id: number): void };
  /** All records, to copy them. */
  records(): Iterable<IdentityRecord>;
  /** Messages for the log. */
  notices: readonly string[];
}

interface IdentityOptions {
  actor?: Actor;
  sleep?: (ms: number) => Promise<void>;
}

/** Opens the identity file of a data directory, and the audit trail beside it. */
export async function openIdentity(
  path: string,
  masterKey: Buffer,
  now: () => number,
  options: IdentityOptions = {},
): Promise<EmbeddedIdentity> {
  const audit = openAuditFile(dirname(path), now);
  const store = openLmdbIdentity(path, audit);
  const identity = await createIdentity({ store, audit, masterKey, now, name: path }, options);
  return {
    ...identity,
    statisticsFile: { id: store.statisticsFileId, set: store.setStatisticsFileId },
    records: store.records,
    notices: store.hasDamage()
      ? [`${path} has damaged records, which can be read but not changed: run 'wafstat repair'`]
      : [],
  };
}

interface IdentityParts {
  store: IdentityStore;
  audit: AuditTrail;
  masterKey: Buffer;
  now: () => number;
  /** The name of the store in messages. */
  name: string;
}

/** Closes the store if the master key is wrong, and when the identity is closed. */
export async function createIdentity(
  { store, audit, masterKey, now, name }: IdentityParts,
  {
    // Does not keep the process running for a delayed login.
    sleep = (ms) => delay(ms, undefined, { ref: false }),
    actor = { user: 'local:unknown', via: 'command line' },
  }: IdentityOptions = {},
): Promise<Identity> {
  if (!(await store.matchesMasterKey(masterKeyFingerprint(masterKey)))) {
    await store.close();
    throw new WrongMasterKey(`${name} was created with another master key: provide that key`);
  }
  const passwords = createPasswords();
  const cipher = createSecretCipher(deriveKey(masterKey, 'access keys'));
  const alertCipher = createSecretCipher(deriveKey(masterKey, 'alerts'));
  const knownNetworks = createKnownNetworks(store, deriveKey(masterKey, 'known logins'), now);
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
    administration: new Administration({ store, passwords, cipher, alertCipher, audit, now }, actor),
    lookup: {
      user: (id) => store.get('user', id),
      project: (id) => store.get('project', id),
      domain: (id) => store.get('domain', id),
    },
    alerts: {
      ...store,
      secretsOf: ({ id, sealed = '' }) => JSON.parse(alertCipher.decrypt(id, sealed)),
    },
    audit,
    actor,
    checkWrites: store.checkWrites,
    close: store.close,
  };
}
