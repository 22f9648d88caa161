/** Domains, projects, users and access keys. */
import { closeSync, openSync, writeSync } from 'node:fs';
import { DATA } from '../config.ts';
import { type Administration, KEYS_PER_USER_MAX } from '../identity/administration.ts';
import { KeyLimitError } from '../identity/errors.ts';
import { ACCESS_TYPES, keyFileCsv, ROLES, SYSTEM_ROLE } from '../identity/records.ts';
import { type Command, command, printLine, printList, printResult, UserError } from './command.ts';
import { withIdentity } from './data-directory.ts';
import { generatePassword, PASSWORD_STDIN, passwordLine, readPassword } from './init.ts';
import { JSON_OUTPUT, oneOf, option, PROJECT, required, text } from './options.ts';

const ON_DATA = { data: required(DATA) };
const DOMAIN = option('--domain <id or name>', 'domain; optional if there is only one', text);
const USER = required(option('--user <id or name>', 'owner of the access keys', text));
const ROLE = option(
  '--role <role>',
  `role: ${ROLES.join(', ')}; or ${SYSTEM_ROLE}, for services that use --identity-url`,
  oneOf(...ROLES, SYSTEM_ROLE),
  { default: 'reader' },
);

export const domainCommands = [
  command({
    name: 'domain add <name>',
    description: 'add a domain: a tenant with its own projects and users',
    options: { ...ON_DATA, json: JSON_OUTPUT },
    run: ({ data, json }, [name = ''], io) =>
      withIdentity(data, io, async ({ administration }) => {
        const domain = await administration.addDomain(name);
        return printResult(io, json, domain, `domain ${domain.name} has the ID ${domain.id}`);
      }),
  }),
  command({
    name: 'domain list',
    description: 'list the domains',
    options: { ...ON_DATA, json: JSON_OUTPUT },
    run: ({ data, json }, _operands, io) =>
      withIdentity(data, io, async ({ administration }) =>
        printList(io, json, administration.domains(), ({ id, name, enabled }) => [id, name, state(enabled)]),
      ),
  }),
  change('domain enable <domain>', 'enable a disabled domain', (administration, domain) =>
    administration.setDomainEnabled(administration.domain(domain).id, true),
  ),
  change(
    'domain disable <domain>',
    'disable a domain: requests of its users and to its projects are rejected',
    (administration, domain) => administration.setDomainEnabled(administration.domain(domain).id, false),
  ),
  change('domain delete <domain>', 'delete a domain without projects and users', (administration, domain) =>
    administration.removeDomain(administration.domain(domain).id),
  ),
];

export const projectCommands = [
  command({
    name: 'project add <name>',
    description: 'add a project to a domain',
    options: { ...ON_DATA, domain: DOMAIN, json: JSON_OUTPUT },
    run: ({ data, domain, json }, [name = ''], io) =>
      withIdentity(data, io, async ({ administration }) => {
        const project = await administration.addProject(administration.onlyDomain(domain).id, name);
        return printResult(io, json, project, `project ${project.name} has the ID ${project.id}`);
      }),
  }),
  command({
    name: 'project list',
    description: 'list the projects',
    options: { ...ON_DATA, json: JSON_OUTPUT },
    run: ({ data, json }, _operands, io) =>
      withIdentity(data, io, async ({ administration }) =>
        printList(io, json, administration.projects(), ({ id, name, enabled }) => [id, name, state(enabled)]),
      ),
  }),
  change('project enable <project>', 'enable a disabled project', (administration, project) =>
    administration.setProjectEnabled(administration.project(project).id, true),
  ),
  change(
    'project disable <project>',
    'disable a project: all requests to it are rejected, existing tokens stop working',
    (administration, project) => administration.setProjectEnabled(administration.project(project).id, false),
  ),
  change(
    'project delete <project>',
    'delete a project and all roles in it; its statistics can no longer be queried',
    (administration, project) => administration.removeProject(administration.project(project).id),
  ),
];

const addUser = command({
  name: 'user add <name>',
  description: 'add a user with a role in one project (--project) or in the whole domain',
  examples: [
    'wafstat user add reporter --data ./data --project shop --role reader',
    'wafstat user add shipper --data ./data --project shop --role ingest --access programmatic',
  ],
  options: {
    ...ON_DATA,
    domain: DOMAIN,
    access: option(
      '--access <type>',
      `where the user can log in: ${ACCESS_TYPES.join(', ')} (programmatic: the API only)`,
      oneOf(...ACCESS_TYPES),
      { default: 'both' },
    ),
    role: ROLE,
    project: PROJECT,
    passwordStdin: PASSWORD_STDIN,
    json: JSON_OUTPUT,
  },
  check: systemRoleProblems,
  run: ({ data, domain, access, role, project, passwordStdin, json }, [name = ''], io) =>
    withIdentity(data, io, async ({ administration }) => {
      const domain_id = administration.onlyDomain(domain).id;
      const scope = project === undefined ? domain_id : administration.project(project).id;
      const given = passwordStdin ? await readPassword(io) : undefined;
      const password = given ?? generatePassword();
      const user = await administration.addUser({
        name,
        domain_id,
        access,
        password,
        ...(role === SYSTEM_ROLE ? { roles: {}, system_role: SYSTEM_ROLE } : { roles: { [scope]: [role] } }),
      });
      const { password_hash: _, token_epoch: __, ...shown } = user;
      const result = given === undefined ? { ...shown, password } : shown;
      printResult(io, json, result, `user ${name} has the ID ${user.id}`);
      if (json || given !== undefined) return 0;
      printLine(io.stdout, passwordLine(password));
      if (access === 'programmatic') {
        printLine(
          io.stdout,
          `The password gets API tokens. To sign requests instead, run 'wafstat key add --user ${name}'.`,
        );
      }
      return 0;
    }),
});

const listUsers = command({
  name: 'user list',
  description: 'list the users with their roles',
  options: { ...ON_DATA, json: JSON_OUTPUT },
  run: ({ data, json }, _operands, io) =>
    withIdentity(data, io, async ({ administration }) => {
      const users = administration.users().map(({ password_hash: _, token_epoch: __, ...user }) => user);
      const names = new Map([
        ...administration.domains().map(({ id, name }) => [id, `domain ${name}`] as const),
        ...administration.projects().map(({ id, name }) => [id, `project ${name}`] as const),
      ]);
      return printList(io, json, users, ({ id, name, domain_id, access, enabled, roles, system_role }) => [
        id,
        name,
        names.get(domain_id) ?? '',
        access,
        [
          ...Object.entries(roles).map(
            ([scope, held]) => `${held.join(', ')} in ${names.get(scope) ?? scope}`,
          ),
          ...(system_role ? [`${system_role} in the system`] : []),
        ].join('; '),
        state(enabled),
      ]);
    }),
});

const changePassword = command({
  name: 'user password <user>',
  description: "change a user's password and revoke the user's tokens",
  options: { ...ON_DATA, passwordStdin: PASSWORD_STDIN },
  run: ({ data, passwordStdin }, [user = ''], io) =>
    withIdentity(data, io, async ({ administration }) => {
      const { id } = administration.user(user);
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
    description: `${verb} a role in one project (--project) or in the whole domain`,
    options: { ...ON_DATA, role: ROLE, project: PROJECT },
    check: systemRoleProblems,
    run: ({ data, role, project }, [name = ''], io) =>
      withIdentity(data, io, async ({ administration }) => {
        const user = administration.user(name);
        const scope = project === undefined ? user.domain_id : administration.project(project).id;
        if (role === SYSTEM_ROLE) await administration.setSystemRole(user.id, verb === 'grant');
        else if (verb === 'grant') await administration.grantRole(user.id, scope, role);
        else await administration.revokeRole(user.id, scope, role);
        return 0;
      }),
  });
}

function systemRoleProblems({ role, project }: { role?: string; project?: string | undefined }): string[] {
  return role === SYSTEM_ROLE && project !== undefined
    ? [`--role ${SYSTEM_ROLE} is a role in the system: leave out --project`]
    : [];
}

export const userCommands = [
  addUser,
  listUsers,
  changeRole('grant'),
  changeRole('revoke'),
  changePassword,
  change('user enable <user>', 'enable a disabled user', (administration, user) =>
    administration.setUserEnabled(administration.user(user).id, true),
  ),
  change(
    'user disable <user>',
    'disable a user; existing tokens and keys stop working',
    (administration, user) => administration.setUserEnabled(administration.user(user).id, false),
  ),
  change('user delete <user>', 'delete a user and all access keys of the user', (administration, user) =>
    administration.removeUser(administration.user(user).id),
  ),
];

const addKey = command({
  name: 'key add',
  description: `create an access key for a user, at most ${KEYS_PER_USER_MAX}; the secret is shown only once`,
  options: {
    ...ON_DATA,
    user: USER,
    description: option('--description <text>', 'description of the key', (value) => value, { default: '' }),
    csv: option('--csv <file>', 'write the key to this new CSV file, readable only by its owner', text),
    json: JSON_OUTPUT,
  },
  run: ({ data, user: name, description, csv, json }, _operands, io) =>
    withIdentity(data, io, async ({ administration }) => {
      const user = administration.user(name);
      // Opened first: if the file cannot be written, the secret of the new key would be lost.
      const file = csv === undefined ? null : createFile(csv);
      try {
        const key = await administration.addKey(user.id, description);
        if (file !== null) writeSync(file, keyFileCsv(user.name, key));
        const shown =
          file === null
            ? `access key ID      ${key.access}\nsecret access key  ${key.secret}   (shown only once)`
            : `access key ${key.access} is in ${csv}`;
        for (const line of json ? [JSON.stringify(key)] : shown.split('\n')) printLine(io.stdout, line);
        return 0;
      } catch (error) {
        if (!(error instanceof KeyLimitError)) throw error;
        throw new UserError(
          `${user.name} already has ${KEYS_PER_USER_MAX} access keys, the maximum: delete one first`,
        );
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
    options: { ...ON_DATA, user: USER, json: JSON_OUTPUT },
    run: ({ data, user, json }, _operands, io) =>
      withIdentity(data, io, async ({ administration }) =>
        printList(
          io,
          json,
          administration.keysOf(administration.user(user).id),
          ({ access, status, description }) => [access, status, description],
        ),
      ),
  }),
  change('key enable <access>', 'enable a disabled access key', (administration, access) =>
    administration.changeKey(access, { status: 'active' }),
  ),
  change(
    'key disable <access>',
    'disable an access key: requests signed with it are rejected',
    (administration, access) => administration.changeKey(access, { status: 'inactive' }),
  ),
  change('key delete <access>', 'delete an access key', (administration, access) =>
    administration.removeKey(access),
  ),
];

/** A command that changes one object and prints nothing. */
function change(
  name: string,
  description: string,
  apply: (administration: Administration, operand: string) => Promise<unknown>,
): Command {
  return command({
    name,
    description,
    options: ON_DATA,
    run: ({ data }, [operand = ''], io) =>
      withIdentity(data, io, async ({ administration }) => {
        await apply(administration, operand);
        return 0;
      }),
  });
}

function state(enabled: boolean): string {
  return enabled ? '' : 'disabled';
}
