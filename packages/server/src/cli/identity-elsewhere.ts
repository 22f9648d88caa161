/** Settings of a process that keeps no identity of its own, but asks a service that does. */
import { readFileSync } from 'node:fs';
import { type Origin, type SettingName, type Settings, variableOf } from '../config.ts';
import { IdentityUnavailable, ServiceUserRejected } from '../identity/errors.ts';
import { openRemoteIdentity, type RemoteIdentity } from '../identity/remote/remote-identity.ts';
import { type Io, UserError } from './command.ts';

export const IDENTITY_SETTINGS = [
  'identityUrl',
  'identityUser',
  'identityDomain',
  'identityPasswordFile',
  'identityCache',
] as const satisfies readonly SettingName[];

type IdentitySettings = Settings<(typeof IDENTITY_SETTINGS)[number]>;

/** Instead of the file. In the environment only: a command line stands in the list of processes for all to read. */
const PASSWORD_VARIABLE = 'WAFSTAT_IDENTITY_PASSWORD';

export function identityProblems(origin: Origin, { env }: Pick<Io, 'env'>): string[] {
  if (origin('identityUrl') === undefined) {
    return (['identityUser', 'identityPasswordFile'] as const)
      .filter((name) => origin(name) !== undefined)
      .map((name) => `${variableOf(name)} or its flag says nothing without --identity-url`);
  }
  const problems: string[] = [];
  if (origin('identityUser') === undefined) {
    problems.push('--identity-url needs --identity-user, the user with which this process asks there');
  }
  if (origin('identityPasswordFile') === undefined && env[PASSWORD_VARIABLE] === undefined) {
    problems.push(`--identity-url needs a password: give --identity-password-file, or ${PASSWORD_VARIABLE}`);
  }
  return problems;
}

/** Null without --identity-url: identity is in the data folder. */
export function remoteIdentity(settings: IdentitySettings, { env, now }: Io): RemoteIdentity | null {
  const { identityUrl, identityUser, identityDomain, identityPasswordFile, identityCache } = settings;
  if (identityUrl === undefined || identityUser === undefined) return null;
  const password =
    identityPasswordFile === undefined
      ? env[PASSWORD_VARIABLE]
      : readFileSync(identityPasswordFile, 'utf8').replace(/\r?\n$/, '');
  if (!password) throw new UserError(`the password of --identity-user is empty`);
  return openRemoteIdentity({
    // Where clients of Keystone are told its address, the version is often part of it.
    baseUrl: identityUrl.replace(/\/v3$/, ''),
    user: { name: identityUser, domain: identityDomain, password },
    cacheTtlMs: identityCache,
    now,
  });
}

/** A service that refuses us will go on to do so; one that is away may come. Answers what is to be said of it, if anything. */
export async function firstCheck(identity: RemoteIdentity): Promise<string | null> {
  try {
    await identity.check();
    return null;
  } catch (error) {
    if (error instanceof ServiceUserRejected) throw new UserError(error.message);
    if (error instanceof IdentityUnavailable) return error.message;
    throw error;
  }
}
