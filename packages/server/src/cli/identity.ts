/** Domains, projects, users and access keys. */
import { closeSync, openSync, writeSync } from 'node:fs';
import { DATA, STORE_OPTIONS } from '../config.ts';
import { type Administration, KEYS_PER_USER_MAX } from '../identity/administration.ts';
import { ACCESS_TYPES, keyFileCsv, ROLES } from '../identity/records.ts';
import { generatePassword } from '../identity/secrets.ts';
import { type Command, command, type Io, printLine, printList, printResult, UserError } from './command.ts';
import { PASSWORD_STDIN, passwordLine, readPassword } from './init.ts';
import { locationProblems, withIdentity, withInstallation } from './installation.ts';
import { JSON_OUTPUT, oneOf, option, PROJECT, required, text } from './options.ts';

const LOCATION = { data: DATA, ...STORE_OPTIONS };
const DOMAIN = option('--domain <domain>', 'domain, by ID or name; optional if there is only one', text);
const USER = required(option('--user <user>', 'owner of the access keys, by ID or name', text));
const ROLE_PROJECT = {
  ...PROJECT,
  description: 'project of the role, by ID or name [default: the whole domain]',
};
const ROLE = option('--role <role>', `role: ${ROLES.join(', ')}`, oneOf(...ROLES), { default: 'reader' });

export const domainCommands = [
  command({
    name: 'domain add <name>',
    description: 'add a domain: a tenant with its own projects and users',
    options: { ...LOCATION, json: JSON_OUTPUT },
    check: locationProblems,
    run: ({ json, ...location }, [name = ''], io) =>
      withIdentity(location, io, async ({ administration }) => {
        const domain = await administration.addDomain(name);
        return printResult(io, json, domain, `domain ${domain.name} has the ID ${domain.id}`);
      }),
  }),
  listCommand('domain'),
  ...lifecycleCommands(
    'domain',
    'disable a domain; requests of its users and to its projects are rejected',
    'delete a domain that has no projects or users, with all roles in it',
    (administration, id) => administration.removeDomain(id),
  ),
];

export const projectCommands = [
  command({
    name: 'project add <name>',
    description: 'add a project to a domain',
    options: { ...LOCATION, domain: DOMAIN, json: JSON_OUTPUT },
    check: locationProblems,
    run: ({ domain, json, ...location }, [name = ''], io) =>
      withIdentity(location, io, async ({ administration }) => {
        const project = await administration.addProject(administration.onlyDomain(domain).id, name);
        return printResult(io, json, project, `project ${project.name} has the ID ${project.id}`);
      }),
  }),
  listCommand('project'),
  ...enableCommands(
    'project',
    'disable a project; all requests to it are rejected, and existing tokens stop working',
  ),
  command({
    name: 'project delete <project>',
    description:
      'delete a project, all roles in it and its top lists; its statistics can no longer be queried',
    options: LOCATION,
    check: locationProblems,
    run: (location, [operand = ''], io) =>
      withInstallation(location, io, async ({ identity: { administration }, store }) => {
        const { id } = administration.projectNamed(operand);
        await administration.removeProject(id, store);
        printLine(
          io.stdout,
          `deleted the project ${operand}, all roles in it and its top lists; its counts stay in the store until retention ends`,
        );
        return 0;
      }),
  }),
];

const addUser = command({
  name: 'user add <name>',
  description: 'add a user; the user gets a role in one project (--project) or in the whole domain',
  examples: [
    'wafstat user add reporter --data ./data --project shop --role reader',
    'wafstat user add shipper --data ./data --project shop --role ingest --access programmatic',
  ],
  options: {
    ...LOCATION,
    domain: DOMAIN,
    access: option(
      '--access <type>',
      'where the user can log in: programmatic (the API only), console or both',
      oneOf(...ACCESS_TYPES),
      { default: 'both' },
    ),
    role: ROLE,
    project: ROLE_PROJECT,
    passwordStdin: PASSWORD_STDIN,
    json: JSON_OUTPUT,
  },
  check: locationProblems,
  run: ({ domain, access, role, project, passwordStdin, json, ...location }, [name = ''], io) =>
    withIdentity(location, io, async ({ administration }) => {
      const domain_id = administration.onlyDomain(domain).id;
      const scope = project === undefined ? domain_id : administration.projectNamed(project).id;
      const given = passwordStdin ? await readPassword(io) : undefined;
      const password = given ?? generatePassword();
      const user = await administration.addUser({
        name,
        domain_id,
        access,
        password,
        roles: { [scope]: [role] },
      });
      const { password_hash: _, token_epoch: __, ...shown } = user;
      const result = given === undefined ? { ...shown, password } : shown;
      printResult(io, json, result, `user ${name} has the ID ${user.id}`);
      if (json || given !== undefined) return 0;
      printLine(io.stdout, passwordLine(password));
      if (access === 'programmatic') {
        printLine(
          io.stdout,
          `Use the password to get API tokens. To sign requests instead, run 'wafstat key add --user ${name}'.`,
        );
      }
      return 0;
    }),
});

const listUsers = command({
  name: 'user list',
  description: 'list the users with their roles',
  options: { ...LOCATION, json: JSON_OUTPUT },
  check: locationProblems,
  run: ({ json, ...location }, _operands, io) =>
    withIdentity(location, io, async ({ administration }) => {
      const users = administration.users().map(({ password_hash: _, token_epoch: __, ...user }) => user);
      const names = new Map([
        ...administration.domains().map(({ id, name }) => [id, `domain ${name}`] as const),
        ...administration.projects().map(({ id, name }) => [id, `project ${name}`] as const),
      ]);
      return printList(io, json, users, ({ id, name, domain_id, access, enabled, roles }) => [
        id,
        name,
        names.get(domain_id) ?? '',
        access,
        Object.entries(roles)
          .map(([scope, held]) => `${held.join(', ')} in ${names.get(scope) ?? scope}`)
          .join('; '),
        state(enabled),
      ]);
    }),
});

const changePassword = command({
  name: 'user password <user>',
  description: "change a user's password and revoke the user's tokens",
  options: { ...LOCATION, passwordStdin: PASSWORD_STDIN },
  check: locationProblems,
  run: ({ passwordStdin, ...location }, [user = ''], io) =>
    withIdentity(location, io, async ({ administration }) => {
      const { id } = administration.userNamed(user);
      const given = passwordStdin ? await readPassword(io) : undefined;
      const password = given ?? generatePassword();
      await administration.setPassword(id, password);
      if (given === undefined) printLine(io.stdout, passwordLine(password));
      return 0;
    }),
});

function changeRole(verb: 'grant' | 'revoke'): Command {
  return command({
    name: `user ${verb} <user>`,
    description: `${verb} a role; applies to one project (--project) or to the whole domain`,
    options: { ...LOCATION, role: ROLE, project: ROLE_PROJECT },
    check: locationProblems,
    run: ({ role, project, ...location }, [name = ''], io) =>
      withIdentity(location, io, async ({ administration }) => {
        const user = administration.userNamed(name);
        const scope = project === undefined ? user.domain_id : administration.projectNamed(project).id;
        await warnOfLostAdministrators(administration, io, () =>
          administration.changeRole(verb, user.id, scope, role),
        );
        return 0;
      }),
  });
}

export const userCommands = [
  addUser,
  listUsers,
  changeRole('grant'),
  changeRole('revoke'),
  changePassword,
  ...lifecycleCommands(
    'user',
    'disable a user; existing tokens and keys stop working',
    'delete a user and all access keys of the user',
    (administration, id) => administration.removeUser(id),
  ),
];

const addKey = command({
  name: 'key add',
  description: `create an access key for a user; a user has at most ${KEYS_PER_USER_MAX}; the secret is shown only once`,
  options: {
    ...LOCATION,
    user: USER,
    description: option('--description <text>', 'description of the key', (value) => value, { default: '' }),
    csv: option('--csv <file>', 'write the key to this new CSV file, readable only by its owner', text),
    json: JSON_OUTPUT,
  },
  check: locationProblems,
  run: ({ user: name, description, csv, json, ...location }, _operands, io) =>
    withIdentity(location, io, async ({ administration }) => {
      const user = administration.userNamed(name);
      // Opened first: if the file cannot be written, the secret of the new key would be lost.
      const file = csv === undefined ? null : createFile(csv);
      try {
        const key = await administration.addKey(user.id, description);
        if (file !== null) writeSync(file, keyFileCsv(user.name, key));
        if (json || file !== null) return printResult(io, json, key, `access key ${key.access} is in ${csv}`);
        printLine(io.stdout, `access key ID      ${key.access}`);
        printLine(io.stdout, `secret access key  ${key.secret}   (shown only once)`);
        return 0;
      } finally {
        if (file !== null) closeSync(file);
      }
    }),
});

/** Never overwrites a file, which may have the secret of another key. */
function createFile(path: string): number {
  try {
    return openSync(path, 'wx', 0o600);
  } catch (error) {
    throw new UserError(`cannot create ${path}: ${(error as NodeJS.ErrnoException).code}`);
  }
}

export const keyCommands = [
  addKey,
  command({
    name: 'key list',
    description: 'list the access keys of a user, without secrets',
    options: { ...LOCATION, user: USER, json: JSON_OUTPUT },
    check: locationProblems,
    run: ({ user, json, ...location }, _operands, io) =>
      withIdentity(location, io, async ({ administration }) =>
        printList(
          io,
          json,
          administration.keysOf(administration.userNamed(user).id),
          ({ access, status, description }) => [access, status, description],
        ),
      ),
  }),
  changeCommand('key enable <key-id>', 'enable a disabled access key', (administration, access) =>
    administration.changeKey(access, { status: 'active' }),
  ),
  changeCommand(
    'key disable <key-id>',
    'disable an access key; requests signed with it are rejected',
    (administration, access) => administration.changeKey(access, { status: 'inactive' }),
  ),
  changeCommand('key delete <key-id>', 'delete an access key', (administration, access) =>
    administration.removeKey(access),
  ),
];

function listCommand(type: 'domain' | 'project'): Command {
  return command({
    name: `${type} list`,
    description: `list the ${type}s`,
    options: { ...LOCATION, json: JSON_OUTPUT },
    check: locationProblems,
    run: ({ json, ...location }, _operands, io) =>
      withIdentity(location, io, async ({ administration }) =>
        printList(io, json, administration[`${type}s`](), ({ id, name, enabled }) => [
          id,
          name,
          state(enabled),
        ]),
      ),
  });
}

/** The commands `enable`, `disable` and `delete` of a kind of record. */
function lifecycleCommands(
  type: 'domain' | 'user',
  disable: string,
  remove: string,
  removeRecord: (administration: Administration, id: string) => Promise<void>,
): Command[] {
  return [
    ...enableCommands(type, disable),
    changeCommand(`${type} delete <${type}>`, remove, (administration, operand) =>
      removeRecord(administration, administration[`${type}Named`](operand).id),
    ),
  ];
}

function enableCommands(type: 'domain' | 'project' | 'user', disable: string): Command[] {
  const setEnabled = (enabled: boolean) => (administration: Administration, operand: string) =>
    administration.setEnabled(type, administration[`${type}Named`](operand).id, enabled);
  return [
    changeCommand(`${type} enable <${type}>`, `enable a disabled ${type}`, setEnabled(true)),
    changeCommand(`${type} disable <${type}>`, disable, setEnabled(false)),
  ];
}

/** Not an error: the command line needs no user, so it can add another administrator. */
async function warnOfLostAdministrators(
  administration: Administration,
  io: Io,
  change: () => Promise<unknown>,
): Promise<void> {
  const withoutAdministrator = () =>
    administration
      .domains()
      .filter(
        ({ id }) =>
          !administration
            .users()
            .some(
              ({ domain_id, enabled, roles }) => domain_id === id && enabled && roles[id]?.includes('admin'),
            ),
      );
  const before = new Set(withoutAdministrator().map(({ id }) => id));
  await change();
  for (const { id, name } of withoutAdministrator()) {
    if (before.has(id)) continue;
    printLine(
      io.stderr,
      `wafstat: the domain ${name} no longer has an administrator: nobody can manage its users in the console. ` +
        `To add one, run 'wafstat user add NAME --domain ${name} --role admin'`,
    );
  }
}

/** A command that changes one object. */
function changeCommand(
  name: string,
  description: string,
  apply: (administration: Administration, operand: string) => Promise<unknown>,
): Command {
  return command({
    name,
    description,
    options: LOCATION,
    check: locationProblems,
    run: (location, [operand = ''], io) =>
      withIdentity(location, io, async ({ administration }) => {
        await warnOfLostAdministrators(administration, io, () => apply(administration, operand));
        return 0;
      }),
  });
}

function state(enabled: boolean): string {
  return enabled ? '' : 'disabled';
}
