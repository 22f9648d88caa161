import { SYSTEM_ROLE } from '../identity/records.ts';
import { command, printLine, UserError } from './command.ts';
import { withIdentity } from './data-folder.ts';
import { randomPassword, readPassword } from './init.ts';
import { printList } from './list.ts';

const add = command({
  name: 'user add <name>',
  about: 'add a user to the domain, with a role in one project, or in the whole domain without --project',
  settings: ['data', 'domainOf', 'access', 'role', 'project', 'passwordStdin', 'json'],
  required: ['data'],
  run: ({ data, domainOf, access, role, project, passwordStdin, json }, [name = ''], io) =>
    withIdentity(data, io, async ({ administration }) => {
      const domain_id = administration.onlyDomain(domainOf).id;
      const scope = project === undefined ? domain_id : administration.project(project).id;
      if (role === SYSTEM_ROLE) checkHasNoProject(project);
      const given = passwordStdin ? await readPassword(io) : undefined;
      const password = given ?? randomPassword();
      const user = await administration.addUser({
        name,
        domain_id,
        access,
        password,
        ...(role === SYSTEM_ROLE ? { roles: {}, system_role: SYSTEM_ROLE } : { roles: { [scope]: [role] } }),
      });
      const { password_hash: _, token_epoch: __, ...shown } = user;
      if (json) printLine(io.stdout, JSON.stringify(given === undefined ? { ...shown, password } : shown));
      else {
        printLine(io.stdout, `user ${name} has the ID ${user.id}`);
        if (given === undefined) printLine(io.stdout, `password ${password}   (shown this once)`);
      }
      return 0;
    }),
});

const list = command({
  name: 'user list',
  about: 'list the users',
  settings: ['data', 'json'],
  required: ['data'],
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
        enabled ? '' : 'disabled',
      ]);
    }),
});

const password = command({
  name: 'user password <user>',
  about: 'give the user another password; tokens that are out die',
  settings: ['data', 'passwordStdin'],
  required: ['data'],
  run: ({ data, passwordStdin }, [user = ''], io) =>
    withIdentity(data, io, async ({ administration }) => {
      const { id } = administration.user(user);
      const given = passwordStdin ? await readPassword(io) : undefined;
      const password = given ?? randomPassword();
      await administration.setPassword(id, password);
      if (given === undefined) printLine(io.stdout, `password ${password}   (shown this once)`);
      return 0;
    }),
});

function changeRole(verb: 'grant' | 'revoke') {
  return command({
    name: `user ${verb} <user>`,
    about: `${verb} a role in one project, or in the whole domain without --project`,
    settings: ['data', 'role', 'project'],
    required: ['data'],
    run: ({ data, role, project }, [name = ''], io) =>
      withIdentity(data, io, async ({ administration }) => {
        const user = administration.user(name);
        if (role === SYSTEM_ROLE) {
          checkHasNoProject(project);
          await administration.setSystemRole(user.id, verb === 'grant');
          return 0;
        }
        const scope = project === undefined ? user.domain_id : administration.project(project).id;
        if (verb === 'grant') await administration.grantRole(user.id, scope, role);
        else await administration.revokeRole(user.id, scope, role);
        return 0;
      }),
  });
}

function setEnabled(enabled: boolean) {
  return command({
    name: `user ${enabled ? 'enable' : 'disable'} <user>`,
    about: enabled
      ? 'let a disabled user in again'
      : 'refuse the user, tokens and keys that are out included',
    settings: ['data'],
    required: ['data'],
    run: ({ data }, [user = ''], io) =>
      withIdentity(data, io, async ({ administration }) => {
        await administration.setUserEnabled(administration.user(user).id, enabled);
        return 0;
      }),
  });
}

const remove = command({
  name: 'user delete <user>',
  about: 'delete the user with all access keys',
  settings: ['data'],
  required: ['data'],
  run: ({ data }, [user = ''], io) =>
    withIdentity(data, io, async ({ administration }) => {
      await administration.removeUser(administration.user(user).id);
      return 0;
    }),
});

function checkHasNoProject(project: string | undefined): void {
  if (project !== undefined) throw new UserError(`the role ${SYSTEM_ROLE} is not one in a project`);
}

export const userCommands = [
  add,
  list,
  changeRole('grant'),
  changeRole('revoke'),
  password,
  setEnabled(true),
  setEnabled(false),
  remove,
];
