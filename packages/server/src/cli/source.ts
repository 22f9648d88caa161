import { command } from './command.ts';
import { withInstallation } from './data-folder.ts';
import { printList } from './list.ts';
import { STORE_SETTINGS } from './store.ts';

const list = command({
  name: 'source list',
  about:
    'list the log sources of the project: what each has sent, what was dropped, and when it was last heard of',
  settings: ['data', 'project', 'json', ...STORE_SETTINGS],
  required: ['data', 'project'],
  run: ({ data, project, json, ...where }, _operands, io) =>
    withInstallation(data, io, where, async ({ identity, store }) => {
      const sources = await store.sources(identity.administration.project(project).id);
      const time = (ms: number | null) => (ms === null ? '-' : new Date(ms).toISOString());
      return printList(io, json, sources, ({ name, format, events, dropped, first_seen, last_seen }) => [
        name,
        format,
        `${events} events`,
        `${time(first_seen)} to ${time(last_seen)}`,
        Object.entries(dropped)
          .map(([reason, n]) => `${reason} ${n}`)
          .join(', '),
      ]);
    }),
});

export const sourceCommands = [list];
