import { DEFAULT_NAMES, SERVER_OPTIONS } from '../../config.ts';
import { command, type Io, printText, UserError } from '../command.ts';
import { flag, identifier, oneOf, option, UsageError } from '../options.ts';
import { prompt } from '../prompt.ts';
import {
  CONNECTION_OPTIONS,
  type ConnectionSource,
  type ConnectionValues,
  callService,
  credentialProblems,
  credentialsOf,
  METHODS,
  missingOptions,
  PROFILE_DEFAULT,
  readSecret,
} from './connection.ts';
import { type Connection, type Credentials, profilesPath, readProfiles, saveProfile } from './profiles.ts';

export const configureCommand = command({
  examples: ['wafstat configure', 'wafstat timeline --last 7d', 'wafstat configure --profile shop'],
  options: {
    ...CONNECTION_OPTIONS,
    profile: option('--profile <name>', 'name of the profile', identifier, {
      env: 'WAFSTAT_PROFILE',
      default: PROFILE_DEFAULT,
    }),
    // Commander makes this an option `check` that is true unless `--no-check` is given.
    check: option('--no-check', 'save the profile without testing it', flag),
  },
  check: (_values, source, io) => credentialProblems(source, io),
  async run(values, _operands, io, source) {
    const path = profilesPath(io.env);
    const saved = (await readProfiles(path)).get(values.profile);
    const connection = await complete(values, source, saved, io);
    if (values.check !== false) await checkConnection(connection, io);
    await saveProfile(path, values.profile, connection);
    printText(io.stdout, `saved profile ${values.profile} in ${path}`);
    return 0;
  },
});

/** One query, of the kind that the profile is for. */
async function checkConnection(connection: Connection, io: Io): Promise<void> {
  const to = io.now();
  try {
    await callService(connection, io, (client) =>
      client.attackTypes({ from: to - 60_000, to, signal: io.stop }),
    );
  } catch (error) {
    if (!(error instanceof UserError)) throw error;
    const reason = error.message.replace(/\.$/, '');
    throw new UserError(`${reason}; the profile was not saved (--no-check saves it without a test)`);
  }
}

/** Options win over the saved profile. A terminal prompts for the rest, or for everything if there are no options. */
async function complete(
  values: ConnectionValues & { profile: string },
  source: ConnectionSource,
  saved: Connection | undefined,
  io: Io,
): Promise<Connection> {
  const hasOptions = (['url', 'project', ...METHODS] as const).some((name) => source(name) !== undefined);
  const kept = io.stdin.isTTY && !hasOptions ? undefined : saved;
  const missing = io.stdin.isTTY || kept ? [] : missingOptions(source, '');
  if (missing.length > 0) throw new UsageError(missing);
  const { url, project } = CONNECTION_OPTIONS;
  if (kept === undefined && io.stdin.isTTY)
    printText(
      io.stderr,
      `The profile '${values.profile}' tells the query commands where the service is and who you are. ` +
        'Press Enter to use the value in brackets.',
    );
  const ask = (name: string, suggestion: string, parse: (input: string) => string) =>
    prompt(io, name, { suggestion, parse });
  return {
    url: values.url ?? kept?.url ?? (await ask('URL of the service', saved?.url ?? URL_DEFAULT, url.parse)),
    project:
      values.project ??
      kept?.project ??
      (await ask('project, by name or ID', saved?.project ?? DEFAULT_NAMES.project, project.parse)),
    credentials:
      (await credentialsOf(values, source, io)) ??
      kept?.credentials ??
      (await promptCredentials(saved?.credentials, io)),
  };
}

/** Where `serve` and `demo` listen by default. */
const URL_DEFAULT = `http://${SERVER_OPTIONS.listen.default}`;

const parseKind = oneOf<Credentials['kind']>('key', 'password', 'token');

async function promptCredentials(saved: Credentials | undefined, io: Io): Promise<Credentials> {
  const label = 'log in with password, key (an access key) or token';
  const kind = parseKind(
    await prompt(io, label, { suggestion: saved?.kind ?? 'password', parse: parseKind }),
  );
  if (kind === 'key') {
    const suggestion = saved?.kind === kind ? saved.access : undefined;
    const access = await prompt(io, 'access key ID', { suggestion });
    return { kind, access, secret: await readSecret('secret access key', undefined, io) };
  }
  if (kind === 'password') {
    const previous = saved?.kind === kind ? saved : undefined;
    const user = await prompt(io, 'user', { suggestion: previous?.user ?? DEFAULT_NAMES.user });
    const domain = await prompt(io, 'domain of the user', {
      suggestion: previous?.domain ?? DEFAULT_NAMES.domain,
    });
    return { kind, user, domain, password: await readSecret('password', undefined, io) };
  }
  return { kind, token: await readSecret('token', undefined, io) };
}
