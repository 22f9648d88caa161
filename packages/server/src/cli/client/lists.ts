/** `hosts` and `sources`: lists from a running service. */
import type { Client, Host, List, Source as LogSource, Pages } from '@wafstat/client';
import type { Zone } from '../../zone.ts';
import { alignColumns, type Command, command } from '../command.ts';
import { CONNECTION_OPTIONS, callService, connectionOf, connectionProblems } from './connection.ts';
import { count, dateTime, isoTime, printableCsv } from './format.ts';
import { LIST_OUTPUT, printOutput, type Renderer } from './output.ts';
import { TIMEZONE } from './range.ts';

type Cell = string | number | { time: number | null };

/** The names of a column in CSV and in a table, if it is there, and its values. */
export type Columns<T> = readonly (readonly [csv: string, table: string | null, cell: (item: T) => Cell])[];

export const hostsCommand = listCommand<Host>(
  ['wafstat hosts --profile shop', 'wafstat hosts --output csv > hosts.csv'],
  (client, signal) => client.hosts({ signal }),
  [
    ['id', 'id', ({ id }) => id],
    ['name', 'name', ({ hostname }) => hostname],
    ['registered', 'registered (ZONE)', ({ timestamp }) => ({ time: timestamp })],
  ],
);

export const sourcesCommand = listCommand<LogSource>(
  ['wafstat sources --profile shop', 'wafstat sources --timezone Europe/Berlin'],
  (client, signal) => client.sources({ signal }),
  [
    ['id', null, ({ id }) => id],
    ['name', 'name', ({ name }) => name],
    ['format', 'format', ({ format }) => format],
    ['events', 'events', ({ events }) => events],
    ['without_host', 'without host', ({ without_host }) => without_host],
    ['first_seen', 'first event (ZONE)', ({ first_seen }) => ({ time: first_seen })],
    ['last_seen', 'last event', ({ last_seen }) => ({ time: last_seen })],
    [
      'dropped',
      'dropped',
      ({ dropped }) =>
        Object.entries(dropped)
          .map((each) => each.join(' '))
          .join(', '),
    ],
  ],
);

export function listRenderer<T>(columns: Columns<T>, zone: Zone): Renderer<List<T>> {
  const shown = columns.flatMap(([, header, cell]) => (header === null ? [] : [{ header, cell }]));
  const text = (cell: Cell) => {
    if (typeof cell === 'object') return cell.time === null ? '-' : dateTime(cell.time, zone, 'seconds');
    return typeof cell === 'number' ? count(cell) : cell || '-';
  };
  const csvText = (cell: Cell) => {
    if (typeof cell !== 'object') return cell;
    return cell.time === null ? '' : isoTime(cell.time, zone);
  };
  return {
    table: ({ items }) =>
      alignColumns(
        [
          shown.map(({ header }) => header.replace('ZONE', zone.name)),
          ...items.map((item) => shown.map(({ cell }) => text(cell(item)))),
        ],
        'left',
      ),
    csv: ({ items }) =>
      printableCsv(
        columns.map(([name]) => name),
        items.map((item) => columns.map(([, , cell]) => csvText(cell(item)))),
      ),
  };
}

function listCommand<T>(
  examples: readonly string[],
  pages: (client: Client, signal: AbortSignal) => Pages<T>,
  columns: Columns<T>,
): Command {
  return command({
    examples,
    options: { timezone: TIMEZONE, output: LIST_OUTPUT, ...CONNECTION_OPTIONS },
    check: (_values, source, io) => connectionProblems(source, io),
    async run({ timezone, output, ...values }, _operands, io, source) {
      const connection = await connectionOf(values, source, io);
      const { result } = await callService(connection, io, async (client) => {
        const items: T[] = [];
        for await (const item of pages(client, io.stop)) items.push(item);
        return { total: items.length, items };
      });
      printOutput(io, output, { result }, listRenderer(columns, timezone), connection);
      return 0;
    },
  });
}
