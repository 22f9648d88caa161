import { command, printLine } from './command.ts';
import { withInstallation } from './data-folder.ts';
import { NAME_THE_HOST } from './ingest-summary.ts';
import { printList } from './list.ts';
import { STORE_SETTINGS } from './store.ts';

const list = command({
  name: 'source list',
  about:
    'list the log sources of the project: events counted, events without a host, drops by reason, first and last event',
  settings: ['data', 'project', 'json', ...STORE_SETTINGS],
  required: ['data', 'project'],
  run: ({ data, project, json, ...where }, _operands, io) =>
    withInstallation(data, io, where, async ({ identity, store }) => {
      const sources = await store.sources(identity.administration.project(project).id);
      const time = (ms: number | null) => (ms === null ? '-' : new Date(ms).toISOString());
      const status = printList(io, json, sources, (source) => [
        source.name,
        source.format,
        `${source.events} events`,
        `${source.without_host} without a host`,
        `${time(source.first_seen)} to ${time(source.last_seen)}`,
        Object.entries(source.dropped)
          .map(([reason, n]) => `${reason} ${n}`)
          .join(', '),
      ]);
      if (!json && sources.some(({ without_host }) => without_host > 0)) {
        printLine(
          io.stderr,
          `Events without a host count in the project's total only. ${NAME_THE_HOST} ` +
            "If the log names the host, register it with 'wafstat host add', or raise --hosts-max.",
        );
      }
      return status;
    }),
});

export const sourceCommands = [list];
