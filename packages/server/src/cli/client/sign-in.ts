/** How a command signs in to a service: in one way, that of the command line, of a profile, or of the environment. */
import { type Origin, SETTINGS, type SettingName, type Settings, variableOf } from '../../config.ts';
import type { Io } from '../command.ts';
import { readSecret } from './ask.ts';
import type { Connection, Credentials } from './connection.ts';
import { profilesPath, readProfile } from './profiles.ts';

export const SIGN_IN_SETTINGS = [
  'url',
  'projectId',
  'ak',
  'skStdin',
  'signInUser',
  'signInDomain',
  'signInPasswordStdin',
  'token',
  'profile',
] as const satisfies readonly SettingName[];

export type SignInSettings = Settings<(typeof SIGN_IN_SETTINGS)[number]>;

export const DOMAIN_DEFAULT = 'default';

/** From the environment only, besides standard input: the list of processes shows flags to everyone. */
const SECRETS = {
  ak: { name: 'secret access key', flag: 'skStdin', variable: 'WAFSTAT_SK' },
  signInUser: { name: 'password', flag: 'signInPasswordStdin', variable: 'WAFSTAT_PASSWORD' },
} as const;

export const WAYS = ['ak', 'signInUser', 'token'] as const;
type Way = (typeof WAYS)[number];

/** Settings that say nothing without another one. */
const COMPANIONS = [
  ['skStdin', 'ak'],
  ['signInPasswordStdin', 'signInUser'],
  ['signInDomain', 'signInUser'],
] as const satisfies readonly (readonly [SettingName, Way])[];

export function signInProblems(given: Origin, io: Io): string[] {
  const origin = besideProfile(given);
  const problems: string[] = [];
  if (origin('profile') === undefined) {
    for (const name of ['url', 'projectId'] as const) {
      if (origin(name) !== undefined) continue;
      problems.push(`${flagOf(name)} (or ${variableOf(name)}, or a --profile that has it) is required`);
    }
    if (waysOf(origin).length === 0) {
      problems.push(
        'say how to sign in: --ak with --sk-stdin, --user with --password-stdin, --token, or --profile',
      );
    }
  }
  return [...problems, ...credentialProblems(origin, io)];
}

export function credentialProblems(origin: Origin, io: Io): string[] {
  const ways = waysOf(origin);
  const problems: string[] = [];
  if (ways.length > 1) {
    const spelled = ways.map((way) => (origin(way) === 'environment' ? variableOf(way) : flagOf(way)));
    problems.push(`${spelled.join(' and ')} are different ways to sign in: give one of them`);
  }
  for (const way of ways) {
    if (way === 'token' || io.stdin.isTTY) continue;
    const { name, flag, variable } = SECRETS[way];
    if (origin(flag) === undefined && io.env[variable] === undefined) {
      problems.push(
        `${flagOf(way)} needs the ${name}: give it to standard input with ${flagOf(flag)}, or in ${variable}`,
      );
    }
  }
  for (const [name, way] of COMPANIONS) {
    if (origin(name) === 'command line' && !ways.includes(way)) {
      problems.push(`${flagOf(name)} goes with ${flagOf(way)}`);
    }
  }
  return problems;
}

export async function connectionOf(settings: SignInSettings, given: Origin, io: Io): Promise<Connection> {
  const origin = besideProfile(given);
  const profile =
    settings.profile === undefined ? undefined : await readProfile(profilesPath(io.env), settings.profile);
  const url = origin('url') === undefined ? profile?.url : settings.url;
  const project = origin('projectId') === undefined ? profile?.project : settings.projectId;
  const credentials = (await credentialsOf(settings, origin, io)) ?? profile?.credentials;
  if (url === undefined || project === undefined || credentials === undefined) {
    throw new Error('signInProblems let an incomplete connection through');
  }
  return { url, project, credentials };
}

/** Undefined when the settings name no way to sign in. Secrets are read here, so call it once. */
export async function credentialsOf(
  settings: SignInSettings,
  origin: Origin,
  io: Io,
): Promise<Credentials | undefined> {
  const [way] = waysOf(origin);
  const { ak, skStdin, signInUser, signInDomain, signInPasswordStdin, token } = settings;
  const secret = (of: keyof typeof SECRETS, fromStdin: boolean | undefined) =>
    readSecret(SECRETS[of].name, fromStdin ? undefined : io.env[SECRETS[of].variable], io);
  if (way === 'ak' && ak !== undefined) {
    return { kind: 'key', access: ak, secret: await secret(way, skStdin) };
  }
  if (way === 'signInUser' && signInUser !== undefined) {
    const password = await secret(way, signInPasswordStdin);
    return { kind: 'password', user: signInUser, domain: signInDomain ?? DOMAIN_DEFAULT, password };
  }
  return way === 'token' && token !== undefined ? { kind: 'token', token } : undefined;
}

/** A profile counts for as much as the place that names it: one on the command line hides the environment. */
function besideProfile(origin: Origin): Origin {
  if (origin('profile') !== 'command line') return origin;
  return (name) => (origin(name) === 'environment' ? undefined : origin(name));
}

/** One way on the command line hides those of the environment. */
function waysOf(origin: Origin): Way[] {
  const given = WAYS.filter((way) => origin(way) === 'command line');
  return given.length > 0 ? given : WAYS.filter((way) => origin(way) === 'environment');
}

function flagOf(name: SettingName): string {
  return SETTINGS[name].flag.split(' ', 1)[0] ?? '';
}
