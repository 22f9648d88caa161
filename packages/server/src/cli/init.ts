import { DEFAULT_NAMES, LOCATION_OPTIONS } from '../config.ts';
import { AlreadyInitialised } from '../identity/errors.ts';
import { generatePassword } from '../identity/secrets.ts';
import { command, type Io, printLine, readStdin, UserError } from './command.ts';
import { createInstallation, describePostgres, hasInstallation, type Location } from './installation.ts';
import { flag, JSON_OUTPUT, option, text } from './options.ts';

export const PASSWORD_STDIN = option(
  '--password-stdin',
  'read the password from standard input instead of generating one',
  flag,
);

export const initCommand = command({
  examples: [
    'wafstat init --data ./data',
    'wafstat init --store postgres --postgres-url postgres://wafstat@127.0.0.1/wafstat',
    'wafstat init --data ./data --domain acme --project shop --user alice --password-stdin < password',
  ],
  options: {
    ...LOCATION_OPTIONS,
    domain: option('--domain <name>', 'name of the first domain', text, { default: DEFAULT_NAMES.domain }),
    project: option('--project <name>', 'name of the first project', text, {
      default: DEFAULT_NAMES.project,
    }),
    user: option('--user <name>', 'name of the first user, an administrator of the domain', text, {
      default: DEFAULT_NAMES.user,
    }),
    passwordStdin: PASSWORD_STDIN,
    json: JSON_OUTPUT,
  },
  async run({ domain, project, user, passwordStdin, json, ...location }, _operands, io) {
    const alreadyExists =
      location.data === undefined
        ? `${describePostgres(location)} already has a wafstat installation`
        : `${location.data} is already a wafstat data directory`;
    if (await hasInstallation(location, io)) throw new UserError(alreadyExists);
    const password = passwordStdin ? await readPassword(io) : undefined;
    const created = await initialise(location, { domain, project, user }, password, io);
    if (created === null) throw new UserError(alreadyExists);
    if (json) printLine(io.stdout, JSON.stringify(created));
    else printInitialised(io, created);
    return 0;
  },
});

type Initialised = NonNullable<Awaited<ReturnType<typeof initialise>>>;

/** Resolves to the names and IDs, and to the password if it was generated; to null if another process was faster. */
export async function initialise(
  location: Location,
  names: typeof DEFAULT_NAMES,
  givenPassword: string | undefined,
  io: Io,
) {
  const password = givenPassword ?? generatePassword();
  const bootstrapped = await createInstallation(location, io, ({ administration }) =>
    administration.bootstrap(names, password),
  ).catch((error) => {
    if (error instanceof AlreadyInitialised) return null;
    throw error;
  });
  if (bootstrapped === null) return null;
  const { domain, project, user } = bootstrapped;
  const created = { domain_id: domain.id, project_id: project.id, user_id: user.id, ...names };
  return { ...created, password: givenPassword === undefined ? password : undefined };
}

export function printInitialised(io: Io, { domain, project, project_id, user, password }: Initialised): void {
  printLine(io.stdout, `domain   ${domain}`);
  printLine(io.stdout, `project  ${project} (ID ${project_id})`);
  printLine(io.stdout, `user     ${user}`);
  if (password !== undefined) printLine(io.stdout, passwordLine(password));
}

export function passwordLine(password: string): string {
  return `password ${password}   (shown only once)`;
}

export async function readPassword(io: Io): Promise<string> {
  const password = await readStdin(io);
  if (password.length === 0) throw new UserError('--password-stdin: standard input is empty');
  return password;
}
