import { command, printLine } from './command.ts';
import { openInstallation } from './data-folder.ts';

export const projectAddCommand = command({
  name: 'project add <name>',
  about: 'add a project to the domain',
  settings: ['data', 'domain', 'json'],
  required: ['data'],
  async run({ data, domain, json }, [name = ''], { stdout, now }) {
    const installation = await openInstallation(data, now);
    try {
      const project = await installation.identity.addProject(domain, name);
      printLine(stdout, json ? JSON.stringify(project) : `project ${project.name} has the ID ${project.id}`);
      return 0;
    } finally {
      await installation.close();
    }
  },
});

export const projectListCommand = command({
  name: 'project list',
  about: 'list the projects',
  settings: ['data', 'json'],
  required: ['data'],
  async run({ data, json }, _operands, { stdout, now }) {
    const installation = await openInstallation(data, now);
    try {
      const projects = installation.identity.projects();
      if (json) printLine(stdout, JSON.stringify(projects));
      else for (const { id, name } of projects) printLine(stdout, `${id}  ${name}`);
      return 0;
    } finally {
      await installation.close();
    }
  },
});
