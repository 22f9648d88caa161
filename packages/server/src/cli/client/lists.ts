/** `hosts` and `sources`: lists from a running service. */
import type { Client, Host, List, Source as LogSource, Pages } from '@wafstat/client';
import type { Zone } from '../../zone.ts';
import { alignColumns, type Command, command } from '../command.ts';
import { CONNECTION_OPTIONS, callService, connectionOf, connectionProblems } from './connection.ts';
import { count, dateTime, isoTime, printableCsv } from './format.ts';
import { LIST_OUTPUT, printOutput, type Renderer } from './output.ts';
import { TIMEZONE } from './range.ts';

const OPTIONS = { timezone: TIMEZONE, output: LIST_OUTPUT, ...CONNECTION_OPTIONS };

export const hostsCommand = listCommand<Host>(
  {
    name: 'hosts',
    description:
      "list the hosts of a project; to read the data directory without a service, use 'wafstat host list'",
    examples: ['wafstat hosts --profile shop', 'wafstat hosts --output csv > hosts.csv'],
  },
  (client, signal) => client.hosts({ signal }),
  hostsRenderer,
);

export const sourcesCommand = listCommand<LogSource>(
  {
    name: 'sources',
    description:
      "list the log sources of a project; to read the data directory without a service, use 'wafstat source list'",
    examples: ['wafstat sources --profile shop', 'wafstat sources --timezone Europe/Berlin'],
  },
  (client, signal) => client.sources({ signal }),
  sourcesRenderer,
);

function hostsRenderer(zone: Zone): Renderer<List<Host>> {
  return {
    table: ({ items }) =>
      alignColumns(
        [
          ['id', 'name', `registered (${zone.name})`],
          ...items.map(({ id, hostname, timestamp }) => [id, hostname, dateTime(timestamp, zone, 'seconds')]),
        ],
        'left',
      ),
    csv: ({ items }) =>
      printableCsv(
        ['id', 'name', 'registered'],
        items.map(({ id, hostname, timestamp }) => [id, hostname, isoTime(timestamp, zone)]),
      ),
  };
}

function sourcesRenderer(zone: Zone): Renderer<List<LogSource>> {
  const dropped = (source: LogSource) =>
    Object.entries(source.dropped)
      .map(([reason, n]) => `${reason} ${n}`)
      .join(', ');
  const time = (ms: number | null) => (ms === null ? '-' : dateTime(ms, zone, 'seconds'));
  const csvTime = (ms: number | null) => (ms === null ? '' : isoTime(ms, zone));
  return {
    table: ({ items }) =>
      alignColumns(
        [
          ['name', 'format', 'events', 'without host', `first event (${zone.name})`, 'last event', 'dropped'],
          ...items.map((source) => [
            source.name,
            source.format,
            count(source.events),
            count(source.without_host),
            time(source.first_seen),
            time(source.last_seen),
            dropped(source) || '-',
          ]),
        ],
        'left',
      ),
    csv: ({ items }) =>
      printableCsv(
        ['id', 'name', 'format', 'events', 'without_host', 'first_seen', 'last_seen', 'dropped'],
        items.map((source) => [
          source.id,
          source.name,
          source.format,
          source.events,
          source.without_host,
          csvTime(source.first_seen),
          csvTime(source.last_seen),
          dropped(source),
        ]),
      ),
  };
}

function listCommand<T>(
  named: Pick<Command, 'name' | 'description' | 'examples'>,
  pages: (client: Client, signal: AbortSignal) => Pages<T>,
  renderer: (zone: Zone) => Renderer<List<T>>,
): Command {
  return command({
    ...named,
    options: OPTIONS,
    check: (_values, source, io) => connectionProblems(source, io),
    async run({ timezone, output, ...values }, _operands, io, source) {
      const connection = await connectionOf(values, source, io);
      const { result } = await callService(connection, io, async (client) => {
        const items: T[] = [];
        for await (const item of pages(client, io.stop)) items.push(item);
        return { total: items.length, items };
      });
      printOutput(io, output, { result }, renderer(timezone), connection);
      return 0;
    },
  });
}
