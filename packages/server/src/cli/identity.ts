/** Domains, projects, users and access keys. */
import { closeSync, openSync, statSync, unlinkSync, writeSync } from 'node:fs';
import { LOCATION_OPTIONS } from '../config.ts';
import { type Administration, KEYS_PER_USER_MAX } from '../identity/administration.ts';
import { KeyLimitError } from '../identity/errors.ts';
import { ACCESS_TYPES, keyFileCsv, ROLES, type User } from '../identity/records.ts';
import { generatePassword } from '../identity/secrets.ts';
import {
  type Command,
  type Io,
  printLine,
  printList,
  printResult,
  printText,
  type Subcommand,
  subcommand,
  UserError,
  warn,
} from './command.ts';
import { PASSWORD_STDIN, passwordLine, readPassword } from './init.ts';
import { withIdentity, withInstallation } from './installation.ts';
import {
  flag,
  JSON_OUTPUT,
  type Options,
  oneOf,
  option,
  PROJECT,
  required,
  text,
  type Values,
} from './options.ts';
import { confirm, confirmationProblems, YES } from './prompt.ts';

const JSON_OPTION = { json: JSON_OUTPUT };
const DOMAIN = option('--domain <domain>', 'domain, by ID or name; optional if there is only one', text);
const USER = required(option('--user <user>', 'owner of the access keys, by ID or name', text));
const ROLE_PROJECT = {
  ...PROJECT,
  description: 'project of the role, by ID or name [default: the whole domain]',
};
const ROLE = option(`--role <${ROLES.join('|')}>`, 'role', oneOf(...ROLES), { default: 'reader' });
const FORCE = option('--force', 'also if the domain has no other administrator', flag);

/** A command on the users and projects of an installation. */
function identityCommand<O extends Options>(
  name: string,
  description: string,
  options: O,
  run: (administration: Administration, values: Values<O>, operand: string, io: Io) => Promise<unknown>,
  more: Pick<Command, 'examples' | 'check'> = {},
): Subcommand {
  return subcommand(name, description, {
    ...more,
    options: { ...LOCATION_OPTIONS, ...options },
    run: (values, [operand = ''], io) =>
      withIdentity(values as Values<typeof LOCATION_OPTIONS>, io, async ({ administration }) => {
        await run(administration, values as Values<O>, operand, io);
        return 0;
      }),
  });
}

function listCommand(type: 'domain' | 'project'): Subcommand {
  return identityCommand(
    'list',
    `list the ${type}s`,
    JSON_OPTION,
    async (administration, { json }, _operand, io) =>
      printList(io, json, administration[`${type}s`](), ({ id, name, enabled }) => [
        id,
        name,
        state(enabled),
      ]),
  );
}

function enableCommands(type: 'domain' | 'project' | 'user', disable: string): Subcommand[] {
  return [
    identityCommand(`enable <${type}>`, `enable a disabled ${type}`, {}, (administration, _values, operand) =>
      administration.setEnabled(type, administration[`${type}Named`](operand).id, true),
    ),
    identityCommand(
      `disable <${type}>`,
      disable,
      type === 'user' ? { force: FORCE } : {},
      (administration, { force }: { force?: boolean | undefined }, operand) => {
        const { id, name } = administration[`${type}Named`](operand);
        return administration.setEnabled(type, id, false, { confirm: force ? name : undefined });
      },
    ),
  ];
}

export const domainCommands = [
  identityCommand(
    'add <name>',
    'add a domain: a tenant with its own projects and users',
    JSON_OPTION,
    async (administration, { json }, name, io) => {
      const domain = await administration.addDomain(name);
      printResult(io, json, domain, `domain ${domain.name} has the ID ${domain.id}`);
    },
  ),
  listCommand('domain'),
  ...enableCommands('domain', 'disable a domain; requests of its users and to its projects are rejected'),
  identityCommand(
    'delete <domain>',
    'delete a domain that has no projects or users, with all roles in it',
    { yes: YES },
    async (administration, { yes }, operand, io) => {
      const { id, name } = administration.domainNamed(operand);
      await confirm(io, yes, name, `This deletes the domain ${name}, with all roles in it.`);
      await administration.removeDomain(id);
    },
    { check: confirmationProblems },
  ),
];

export const projectCommands = [
  identityCommand(
    'add <name>',
    'add a project to a domain',
    { domain: DOMAIN, ...JSON_OPTION },
    async (administration, { domain, json }, name, io) => {
      const project = await administration.addProject(administration.onlyDomain(domain).id, name);
      printResult(io, json, project, `project ${project.name} has the ID ${project.id}`);
    },
  ),
  listCommand('project'),
  ...enableCommands(
    'project',
    'disable a project; all requests to it are rejected, and existing tokens stop working',
  ),
  subcommand(
    'delete <project>',
    'delete a project, all roles in it, its top lists and kept attacks; its statistics can no longer be queried',
    {
      options: { ...LOCATION_OPTIONS, yes: YES },
      check: confirmationProblems,
      run: ({ yes, ...location }, [operand = ''], io) =>
        withInstallation(location, io, async ({ identity: { administration }, store }) => {
          const { id, name } = administration.projectNamed(operand);
          const what = `the project ${name}, all roles in it, its top lists and kept attacks`;
          await confirm(io, yes, name, `This deletes ${what}. Nobody can query its statistics afterwards.`);
          await administration.removeProject(id, store);
          printText(io.stdout, `deleted ${what}; its counts stay in the store until retention ends`);
          return 0;
        }),
    },
  ),
];

const addUser = identityCommand(
  'add <name>',
  'add a user; the user gets a role in one project (--project) or in the whole domain',
  {
    domain: DOMAIN,
    access: option(
      `--access <${ACCESS_TYPES.join('|')}>`,
      'where the user can log in: programmatic is the API only',
      oneOf(...ACCESS_TYPES),
      { default: 'both' },
    ),
    role: ROLE,
    project: ROLE_PROJECT,
    passwordStdin: PASSWORD_STDIN,
    ...JSON_OPTION,
  },
  async (administration, { domain, access, role, project, passwordStdin, json }, name, io) => {
    const { id: domain_id, name: domainName } = administration.onlyDomain(domain);
    const scope = project === undefined ? undefined : administration.projectNamed(project);
    const given = passwordStdin ? await readPassword(io) : undefined;
    const password = given ?? generatePassword();
    const roles = { [scope?.id ?? domain_id]: [role] };
    const user = await administration.addUser({ name, domain_id, access, password, roles });
    const shown = withoutSecrets(user);
    printResult(
      io,
      json,
      given === undefined ? { ...shown, password } : shown,
      `user ${name} has the ID ${user.id}`,
    );
    if (json) return;
    if (given === undefined) printLine(io.stdout, passwordLine(password));
    const where = scope ? `the project ${scope.name}` : `all projects of the domain ${domainName}`;
    printText(io.stdout, `${name} has the role ${role} in ${where}.`);
    if (!scope)
      printText(
        io.stdout,
        `To limit ${name} to one project, run 'wafstat user grant ${name} --role ${role} --project PROJECT', ` +
          `then 'wafstat user revoke ${name} --role ${role}', with the same --data or --store.`,
      );
    if (given === undefined && access === 'programmatic')
      printText(
        io.stdout,
        `Use the password to get API tokens. To sign requests instead, run 'wafstat key add --user ${name}'.`,
      );
  },
  {
    examples: [
      'wafstat user add reporter --data ./data --project shop --role reader',
      'wafstat user add shipper --data ./data --project shop --role ingest --access programmatic',
    ],
  },
);

const listUsers = identityCommand(
  'list',
  'list the users with their roles',
  JSON_OPTION,
  async (administration, { json }, _operand, io) => {
    const names = new Map([
      ...administration.domains().map(({ id, name }) => [id, `domain ${name}`] as const),
      ...administration.projects().map(({ id, name }) => [id, `project ${name}`] as const),
    ]);
    const users = administration.users().map(withoutSecrets);
    printList(io, json, users, ({ id, name, domain_id, access, enabled, roles }) => [
      id,
      name,
      names.get(domain_id) ?? '',
      access,
      Object.entries(roles)
        .map(([scope, held]) => `${held.join(', ')} in ${names.get(scope) ?? scope}`)
        .join('; '),
      state(enabled),
    ]);
  },
);

const changePassword = identityCommand(
  'password <user>',
  "change a user's password and revoke the user's tokens",
  { passwordStdin: PASSWORD_STDIN },
  async (administration, { passwordStdin }, user, io) => {
    const { id } = administration.userNamed(user);
    const given = passwordStdin ? await readPassword(io) : undefined;
    const password = given ?? generatePassword();
    await administration.setPassword(id, password);
    if (given === undefined) printLine(io.stdout, passwordLine(password));
  },
);

function changeRole(verb: 'grant' | 'revoke'): Subcommand {
  return identityCommand(
    `${verb} <user>`,
    `${verb} a role; applies to one project (--project) or to the whole domain`,
    { role: ROLE, project: ROLE_PROJECT, ...(verb === 'revoke' && { force: FORCE }) },
    async (administration, { role, project, force }, operand) => {
      const { id, name, domain_id } = administration.userNamed(operand);
      const scope = project === undefined ? domain_id : administration.projectNamed(project).id;
      await administration.changeRole(verb, id, scope, role, { confirm: force ? name : undefined });
    },
  );
}

export const userCommands = [
  addUser,
  listUsers,
  changeRole('grant'),
  changeRole('revoke'),
  changePassword,
  ...enableCommands('user', 'disable a user; existing tokens and keys stop working'),
  identityCommand(
    'delete <user>',
    'delete a user and all access keys of the user',
    { yes: YES, force: FORCE },
    async (administration, { yes, force }, operand, io) => {
      const { id, name } = administration.userNamed(operand);
      const keys = administration.keysOf(id).length;
      await confirm(io, yes, name, `This deletes the user ${name} and the user's access keys (${keys}).`);
      await administration.removeUser(id, { confirm: force ? name : undefined });
    },
    { check: confirmationProblems },
  ),
];

const addKey = identityCommand(
  'add',
  `create an access key for a user; a user has at most ${KEYS_PER_USER_MAX}; the secret is shown only once`,
  {
    user: USER,
    description: option('--description <text>', 'description of the key', (value) => value, { default: '' }),
    csv: option('--csv <file>', 'write the key to this new CSV file, readable only by its owner', text),
    ...JSON_OPTION,
  },
  async (administration, { user: given, description, csv, json }, _operand, io) => {
    const { id, name, access } = administration.userNamed(given);
    // Opened first: if the file cannot be written, the secret of the new key would be lost.
    const file = csv === undefined ? null : createFile(csv);
    try {
      const key = await administration.addKey(id, description);
      if (file !== null) writeSync(file, keyFileCsv(name, key));
      if (json || file !== null) printResult(io, json, key, `access key ${key.access} is in ${csv}`);
      else {
        printLine(io.stdout, `access key ID      ${key.access}`);
        printLine(io.stdout, `secret access key  ${key.secret}   (shown only once)`);
      }
      if (access === 'console')
        warn(
          io,
          `${name} can log in to the console only: requests with this key are rejected. ` +
            "Use a key of a user that was added with '--access both' or '--access programmatic'",
        );
    } catch (error) {
      // Left empty, the file would look like that of another key.
      if (csv !== undefined && statSync(csv).size === 0) unlinkSync(csv);
      if (!(error instanceof KeyLimitError)) throw error;
      throw new UserError(
        `${name} already has ${KEYS_PER_USER_MAX} access keys, the maximum: delete one first`,
      );
    } finally {
      if (file !== null) closeSync(file);
    }
  },
);

/** Never overwrites a file, which may have the secret of another key. */
function createFile(path: string): number {
  try {
    return openSync(path, 'wx', 0o600);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new UserError(
      code === 'EEXIST'
        ? `--csv ${path} already exists, and may have the secret of another key: use another name`
        : `cannot create ${path}: ${code}`,
    );
  }
}

function changeKey(verb: string, description: string, status: 'active' | 'inactive'): Subcommand {
  return identityCommand(`${verb} <key-id>`, description, {}, (administration, _values, id) =>
    administration.changeKey(id, { status }),
  );
}

export const keyCommands = [
  addKey,
  identityCommand(
    'list',
    'list the access keys of a user, without secrets',
    { user: USER, ...JSON_OPTION },
    async (administration, { user, json }, _operand, io) => {
      const keys = administration.keysOf(administration.userNamed(user).id);
      printList(io, json, keys, ({ access, status, description }) => [access, status, description]);
    },
  ),
  changeKey('enable', 'enable a disabled access key', 'active'),
  changeKey('disable', 'disable an access key; requests signed with it are rejected', 'inactive'),
  identityCommand(
    'delete <key-id>',
    'delete an access key',
    { yes: YES },
    async (administration, { yes }, operand, io) => {
      const { access, user_id } = administration.key(operand);
      const { name } = administration.user(user_id);
      await confirm(io, yes, access, `This deletes the access key ${access} of the user ${name}.`);
      await administration.removeKey(access);
    },
    { check: confirmationProblems },
  ),
];

function withoutSecrets({ password_hash: _, token_epoch: __, ...user }: User) {
  return user;
}

function state(enabled: boolean): string {
  return enabled ? '' : 'disabled';
}
