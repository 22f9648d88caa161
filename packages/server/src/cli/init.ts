import { randomBytes } from 'node:crypto';
import { text as readAll } from 'node:stream/consumers';
import { command, type Io, printLine, UserError } from './command.ts';
import { createDataFolder, isInitialised } from './data-folder.ts';

export const initCommand = command({
  name: 'init',
  about: 'make a data folder with a first domain, project and user',
  settings: ['data', 'domain', 'projectName', 'userName', 'passwordStdin', 'json'],
  required: ['data'],
  async run({ data, domain, projectName: project, userName: user, passwordStdin, json }, _operands, io) {
    if (isInitialised(data)) throw new UserError(`${data} is a wafstat data folder already`);
    const given = passwordStdin ? await readPassword(io) : undefined;
    const made = await initialise(data, { domain, project, user }, given, io);
    if (json) printLine(io.stdout, JSON.stringify(made));
    else printMade(io, made);
    return 0;
  },
});

export interface Made {
  domain_id: string;
  project_id: string;
  user_id: string;
  domain: string;
  project: string;
  user: string;
  /** Only when it was made here: this is the one time it is shown. */
  password?: string;
}

export async function initialise(
  data: string,
  names: { domain: string; project: string; user: string },
  givenPassword: string | undefined,
  io: Io,
): Promise<Made> {
  const password = givenPassword ?? randomPassword();
  const founded = await createDataFolder(data, io, ({ administration }) =>
    administration.bootstrap(names, password),
  );
  const { domain, project, user } = founded;
  const made = { domain_id: domain.id, project_id: project.id, user_id: user.id, ...names };
  return givenPassword === undefined ? { ...made, password } : made;
}

export function printMade(io: Io, { domain, project, project_id, user, password }: Made): void {
  printLine(io.stdout, `domain   ${domain}`);
  printLine(io.stdout, `project  ${project} (ID ${project_id})`);
  printLine(io.stdout, `user     ${user}`);
  if (password !== undefined) printLine(io.stdout, `password ${password}   (shown this once)`);
}

export function randomPassword(): string {
  return randomBytes(18).toString('base64url');
}

export async function readPassword(io: Io): Promise<string> {
  const password = (await readAll(io.stdin)).replace(/\r?\n$/, '');
  if (password.length === 0) throw new UserError('--password-stdin: standard input holds no password');
  return password;
}
