/** `timeline` and `types`: queries to a running service. */
import { ATTACK_TYPES, type AttackTypes, type Client } from '@wafstat/client';
import { csv } from '../../csv.ts';
import { command, type Io, printLine } from '../command.ts';
import { duration, identifiers, oneOf, option, type Source, timestamp, type Values } from '../options.ts';
import { CONNECTION_OPTIONS, callService, connectionOf, connectionProblems } from './connection.ts';
import { dateTime, isoTime, table } from './format.ts';
import {
  plotTimeline,
  plotTypes,
  type QueryRange,
  type Terminal,
  type Timezone,
  terminalOf,
} from './plot.ts';

const RANGE_OPTIONS = {
  last: option(
    '--last <time>',
    'length of the range, like 24h, 7d or 90m',
    duration('mhd', '1m', '3653d', '24h, 7d or 90m'),
    { default: '24h' },
  ),
  from: option(
    '--from <time>',
    'start of the range: a time like 2026-07-01T12:00:00+08:00, or milliseconds since the epoch',
    timestamp,
  ),
  to: option('--to <time>', 'end of the range, exclusive [default: now]', timestamp),
};

const QUERY_OPTIONS = {
  ...RANGE_OPTIONS,
  host: option('--host <id...>', 'only these hosts, by ID [default: all hosts of the project]', identifiers),
  output: option(
    '--output <format>',
    'plot, table, csv, or json for the unchanged response [default: plot on a terminal, otherwise table]',
    oneOf('plot', 'table', 'json', 'csv'),
  ),
  ...CONNECTION_OPTIONS,
};

type QueryValues = Values<typeof QUERY_OPTIONS>;
type QuerySource = Source<typeof QUERY_OPTIONS>;

export const timelineCommand = command({
  name: 'timeline',
  description: 'show requests and attacks over time',
  examples: [
    'wafstat timeline --url https://waf.example.com --project ID --user reporter',
    'wafstat timeline --profile shop --last 7d --timezone +08:00',
  ],
  options: {
    ...QUERY_OPTIONS,
    timezone: option('--timezone <offset>', 'time zone of the output, like +08:00', timezone, {
      default: '+00:00',
    }),
  },
  check: queryProblems,
  run({ timezone, ...values }, _operands, io, source) {
    const { offsetMs, text } = timezone;
    return runQuery(values, source, io, (client, query) => client.timeline({ ...query, timezone: text }), {
      plot: (timeline, range, terminal) => plotTimeline(timeline, range, timezone, terminal),
      // The time of a point is its end.
      table: ({ requests, attacks }) =>
        table(
          [`until (${text})`, 'requests', 'attacks'],
          requests.map(({ time, num }, i) => [
            dateTime(time, offsetMs, 'seconds'),
            num,
            attacks[i]?.num ?? 0,
          ]),
        ),
      csv: ({ requests, attacks }) =>
        csv(
          ['time', 'requests', 'attacks'],
          requests.map(({ time, num }, i) => [isoTime(time, offsetMs, text), num, attacks[i]?.num ?? 0]),
        ),
    });
  },
});

export const typesCommand = command({
  name: 'types',
  description: 'show attacks by category',
  examples: ['wafstat types --profile shop --last 30d --output csv > attacks.csv'],
  options: QUERY_OPTIONS,
  check: queryProblems,
  run(values, _operands, io, source) {
    const header = ['category', 'count'];
    const rows = (types: AttackTypes) => ATTACK_TYPES.map((type) => [type, types[type]] as const);
    return runQuery(values, source, io, (client, query) => client.attackTypes(query), {
      plot: plotTypes,
      table: (types) => table(header, rows(types)),
      csv: (types) => csv(header, rows(types)),
    });
  },
});

export function rangeProblems(source: Source<typeof RANGE_OPTIONS>): string[] {
  return source('from') !== undefined && source('last') !== undefined
    ? ['--from and --last both set the start of the range: use one of them']
    : [];
}

export function rangeOf({ from, to, last }: Values<typeof RANGE_OPTIONS>, now: number): QueryRange {
  const end = to ?? now;
  return { from: from ?? Math.max(0, end - last), to: end };
}

function queryProblems(_values: unknown, source: QuerySource, io: Io): string[] {
  return [...connectionProblems(source, io), ...rangeProblems(source)];
}

async function runQuery<T>(
  values: QueryValues,
  source: QuerySource,
  io: Io,
  call: (
    client: Client,
    query: QueryRange & { hosts: string[] | undefined; signal: AbortSignal },
  ) => Promise<T>,
  output: {
    plot(result: T, range: QueryRange, terminal: Terminal): string[];
    table(result: T): string[];
    csv(result: T): string;
  },
): Promise<number> {
  const { stdout, stop } = io;
  const connection = await connectionOf(values, source, io);
  const range = rangeOf(values, io.now());
  const query = { ...range, hosts: values.host, signal: stop };
  const { result, body } = await callService(connection, io, (client) => call(client, query));
  switch (values.output ?? (stdout.isTTY ? 'plot' : 'table')) {
    case 'json':
      stdout.write(body);
      // On a terminal the next prompt needs a new line; elsewhere the response stays unchanged.
      if (stdout.isTTY) stdout.write('\n');
      break;
    case 'csv':
      stdout.write(output.csv(result));
      break;
    case 'table':
      for (const line of output.table(result)) printLine(stdout, line);
      break;
    case 'plot':
      // Not escaped, because of the colors: a plot contains only numbers and our own words.
      for (const line of output.plot(result, range, terminalOf(io))) stdout.write(`${line}\n`);
  }
  return 0;
}

function timezone(value: string): Timezone {
  const [, sign, hours, minutes] = /^([+-])(\d{2}):([0-5]\d)$/.exec(value) ?? [];
  const offset = (sign === '-' ? -1 : 1) * (Number(hours) * 60 + Number(minutes));
  if (!(offset >= -12 * 60 && offset <= 14 * 60))
    throw new Error('must be an offset like +08:00, from -12:00 to +14:00');
  return { text: value, offsetMs: offset * 60_000 };
}
