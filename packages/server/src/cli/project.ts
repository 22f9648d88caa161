import { command, printLine } from './command.ts';
import { withIdentity } from './data-folder.ts';
import { printList } from './list.ts';

const add = command({
  name: 'project add <name>',
  about: 'add a project to the domain',
  settings: ['data', 'domainOf', 'json'],
  required: ['data'],
  run: ({ data, domainOf, json }, [name = ''], io) =>
    withIdentity(data, io, async ({ administration }) => {
      const project = await administration.addProject(administration.onlyDomain(domainOf).id, name);
      printLine(
        io.stdout,
        json ? JSON.stringify(project) : `project ${project.name} has the ID ${project.id}`,
      );
      return 0;
    }),
});

const list = command({
  name: 'project list',
  about: 'list the projects',
  settings: ['data', 'json'],
  required: ['data'],
  run: ({ data, json }, _operands, io) =>
    withIdentity(data, io, async (identity) =>
      printList(io, json, identity.administration.projects(), ({ id, name, enabled }) => [
        id,
        name,
        enabled ? '' : 'disabled',
      ]),
    ),
});

function setEnabled(enabled: boolean) {
  const verb = enabled ? 'enable' : 'disable';
  return command({
    name: `project ${verb} <project>`,
    about: enabled
      ? 'let a disabled project be used again'
      : 'refuse every call to the project, tokens that are out included',
    settings: ['data'],
    required: ['data'],
    run: ({ data }, [project = ''], io) =>
      withIdentity(data, io, async ({ administration }) => {
        await administration.setProjectEnabled(administration.project(project).id, enabled);
        return 0;
      }),
  });
}

const remove = command({
  name: 'project delete <project>',
  about: 'delete the project and all roles in it; nobody can ask for its numbers any more',
  settings: ['data'],
  required: ['data'],
  run: ({ data }, [project = ''], io) =>
    withIdentity(data, io, async ({ administration }) => {
      await administration.removeProject(administration.project(project).id);
      return 0;
    }),
});

export const projectCommands = [add, list, setEnabled(true), setEnabled(false), remove];
