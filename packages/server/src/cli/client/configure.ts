import { type Origin, SETTINGS, SettingsError } from '../../config.ts';
import { command, type Io, printLine } from '../command.ts';
import { ask, readSecret } from './ask.ts';
import type { Connection, Credentials } from './connection.ts';
import { profilesPath, readProfiles, saveProfile } from './profiles.ts';
import {
  credentialProblems,
  credentialsOf,
  DOMAIN_DEFAULT,
  SIGN_IN_SETTINGS,
  type SignInSettings,
  WAYS,
} from './sign-in.ts';

export const configureCommand = command({
  name: 'configure',
  about: 'save the address and the credentials of a service as a profile; on a terminal, asks for them',
  settings: SIGN_IN_SETTINGS,
  required: ['profile'],
  check: credentialProblems,
  async run(settings, _operands, io, origin) {
    const path = profilesPath(io.env);
    const saved = (await readProfiles(path)).get(settings.profile);
    const connection = await completed(settings, origin, saved, io);
    await saveProfile(path, settings.profile, connection);
    printLine(io.stdout, `profile ${settings.profile} is saved in ${path}`);
    return 0;
  },
});

/** What is given wins over what was saved. On a terminal the rest is asked for: all of it when nothing is given. */
async function completed(
  settings: SignInSettings,
  origin: Origin,
  saved: Connection | undefined,
  io: Io,
): Promise<Connection> {
  const given = (['url', 'projectId', ...WAYS] as const).filter((name) => origin(name) !== undefined);
  const kept = io.stdin.isTTY && given.length === 0 ? undefined : saved;
  if (!io.stdin.isTTY && kept === undefined) checkComplete(given);
  const { url, projectId } = SETTINGS;
  return {
    url:
      settings.url ?? kept?.url ?? (await ask(io, 'address', { suggestion: saved?.url, parse: url.parse })),
    project:
      settings.projectId ??
      kept?.project ??
      (await ask(io, 'project ID', { suggestion: saved?.project, parse: projectId.parse })),
    credentials:
      (await credentialsOf(settings, origin, io)) ??
      kept?.credentials ??
      (await askCredentials(saved?.credentials, io)),
  };
}

function checkComplete(given: readonly string[]): void {
  const problems: string[] = [];
  if (!given.includes('url')) problems.push('--url (or WAFSTAT_URL) is required');
  if (!given.includes('projectId')) problems.push('--project (or WAFSTAT_PROJECT) is required');
  if (!WAYS.some((way) => given.includes(way))) {
    problems.push('say how to sign in: --ak with --sk-stdin, --user with --password-stdin, or --token');
  }
  if (problems.length > 0) throw new SettingsError(problems);
}

const KINDS = ['key', 'password', 'token'] as const satisfies readonly Credentials['kind'][];

async function askCredentials(saved: Credentials | undefined, io: Io): Promise<Credentials> {
  const suggestion = saved?.kind ?? 'key';
  const kind = parseKind(await ask(io, `sign in with ${KINDS.join(', ')}`, { suggestion, parse: parseKind }));
  if (kind === 'key') {
    const access = await ask(io, 'access key ID', {
      suggestion: saved?.kind === kind ? saved.access : undefined,
    });
    return { kind, access, secret: await readSecret('secret access key', undefined, io) };
  }
  if (kind === 'password') {
    const before = saved?.kind === kind ? saved : undefined;
    const user = await ask(io, 'user', { suggestion: before?.user });
    const domain = await ask(io, 'domain', { suggestion: before?.domain ?? DOMAIN_DEFAULT });
    return { kind, user, domain, password: await readSecret('password', undefined, io) };
  }
  return { kind, token: await readSecret('token', undefined, io) };
}

function parseKind(answer: string): Credentials['kind'] {
  const kind = KINDS.find((name) => name === answer);
  if (kind === undefined) throw new Error(`must be ${KINDS.join(', ')}`);
  return kind;
}
