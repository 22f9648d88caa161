/** `timeline`, `types` and `peak`: queries to a running service. */
import {
  ATTACK_TYPES,
  type AttackType,
  type AttackTypes,
  type Client,
  type Point,
  type RequestPeak,
  type Series,
  type Timeline,
} from '@wafstat/client';
import { alignColumns, command, type Io } from '../command.ts';
import { duration, oneOf, option, type Source, timestamp, type Values } from '../options.ts';
import { CONNECTION_OPTIONS, callService, connectionOf, connectionProblems } from './connection.ts';
import { count, dateTime, isoTime, printableCsv, table } from './format.ts';
import { hostIds } from './names.ts';
import { LIST_OUTPUT, PLOT_OUTPUT, printOutput, type Renderer } from './output.ts';
import {
  type CategoryTimeline,
  plotCategories,
  plotTimeline,
  plotTypes,
  type QueryRange,
  type Timezone,
} from './plot.ts';

const RANGE_OPTIONS = {
  last: option(
    '--last <time>',
    'length of the range, like 24h, 7d or 90m; it ends now, or at --to, or begins at --from',
    duration('mhd', '1m', '3653d', '24h, 7d or 90m'),
    { default: '24h' },
  ),
  from: option(
    '--from <time>',
    'start of the range: a time like 2026-07-01T12:00:00+08:00, or milliseconds since the epoch',
    givenTime,
  ),
  to: option('--to <time>', 'end of the range, exclusive [default: now]', givenTime),
};

/** With the text, for messages. */
function givenTime(text: string): { text: string; time: number } {
  return { text, time: timestamp(text) };
}

/** A repeated option arrives joined with commas. */
function hostValues(value: string): string[] {
  const hosts = value.split(',').map((host) => host.trim());
  if (hosts.includes('')) throw new Error('must be IDs or names of hosts');
  return hosts;
}

export const QUERY_OPTIONS = {
  ...RANGE_OPTIONS,
  host: option(
    '--host <host...>',
    "only these hosts, by ID or name ('wafstat hosts' lists them) [default: all hosts of the project]",
    hostValues,
  ),
};

export const TIMEZONE = option('--timezone <offset>', 'time zone of the output, like +08:00', timezone, {
  default: '+00:00',
});

type QueryOptions = typeof QUERY_OPTIONS & typeof CONNECTION_OPTIONS;
type QueryValues = Values<QueryOptions>;
type QuerySource = Source<QueryOptions>;

export const timelineCommand = command({
  name: 'timeline',
  description: 'show requests and attacks over time; the time of an interval is its end',
  examples: [
    'wafstat timeline --url https://waf.example.com --project shop --user reporter',
    'wafstat timeline --profile shop --last 7d --timezone +08:00',
    'wafstat timeline --by category --host www.example.com --output csv > attacks.csv',
  ],
  options: {
    ...QUERY_OPTIONS,
    by: option('--by <dimension>', 'category: show the attacks of each category instead', oneOf('category')),
    timezone: TIMEZONE,
    output: PLOT_OUTPUT,
    ...CONNECTION_OPTIONS,
  },
  check: queryProblems,
  run({ timezone, by, ...values }, _operands, io, source) {
    const { text } = timezone;
    return by === 'category'
      ? runQuery(values, source, io, categoriesRenderer(timezone), (client, query) =>
          client.attackTimeline({ ...query, timezone: text }),
        )
      : runQuery(values, source, io, timelineRenderer(timezone), (client, query) =>
          client.timeline({ ...query, timezone: text }),
        );
  },
});

/** Renders the result of a query in a range. */
type QueryRenderer<T> = (range: QueryRange) => Renderer<T>;

function timelineRenderer(timezone: Timezone): QueryRenderer<Timeline> {
  const columns = ({ requests, attacks }: Timeline) => [requests, attacks];
  return (range) => ({
    ...pointRenderer(timezone, ['requests', 'attacks'], columns),
    plot: (timeline, terminal) => plotTimeline(timeline, range, timezone, terminal),
  });
}

function categoriesRenderer(timezone: Timezone): QueryRenderer<Series<AttackType>[]> {
  const columns = (series: Series<AttackType>[]) => allCategories(series).map(({ timeline }) => timeline);
  return (range) => ({
    ...pointRenderer(timezone, ATTACK_TYPES, columns),
    plot: (series, terminal) => plotCategories(allCategories(series), range, timezone, terminal),
  });
}

/** All categories, in the order of ATTACK_TYPES. Keys that the service invents are left out. */
function allCategories(series: readonly Series<AttackType>[]): CategoryTimeline {
  return ATTACK_TYPES.map((type) => ({
    key: type,
    timeline: series.find(({ key }) => key === type)?.timeline ?? [],
  }));
}

/** A row for each point, a column for each series. All series have the same times. */
function pointRenderer<T>(
  { offsetMs, text }: Timezone,
  names: readonly string[],
  columnsOf: (result: T) => readonly (readonly Point[])[],
): Renderer<T> {
  const rows = (result: T, timeText: (time: number) => string) => {
    const columns = columnsOf(result);
    return (columns[0] ?? []).map(
      ({ time }, i) => [timeText(time), ...columns.map((points) => points[i]?.num ?? 0)] as const,
    );
  };
  return {
    table: (result) =>
      table(
        [`until (${text})`, ...names],
        rows(result, (time) => dateTime(time, offsetMs, 'seconds')),
      ),
    csv: (result) =>
      printableCsv(
        ['time', ...names],
        rows(result, (time) => isoTime(time, offsetMs, text)),
      ),
  };
}

export const typesCommand = command({
  name: 'types',
  description: 'show attacks by category',
  examples: ['wafstat types --profile shop --last 30d --output csv > attacks.csv'],
  options: { ...QUERY_OPTIONS, output: PLOT_OUTPUT, ...CONNECTION_OPTIONS },
  check: queryProblems,
  run(values, _operands, io, source) {
    const header = ['category', 'count'];
    const rows = (types: AttackTypes) => ATTACK_TYPES.map((type) => [type, types[type]] as const);
    const renderer: QueryRenderer<AttackTypes> = (range) => ({
      plot: (types, terminal) => plotTypes(types, range, terminal),
      table: (types) => table(header, rows(types)),
      csv: (types) => printableCsv(header, rows(types)),
    });
    return runQuery(values, source, io, renderer, (client, query) => client.attackTypes(query));
  },
});

export const peakCommand = command({
  name: 'peak',
  description: 'show the number of requests in the busiest second',
  examples: ['wafstat peak --profile shop --last 30d', 'wafstat peak --host www.example.com --output json'],
  options: { ...QUERY_OPTIONS, timezone: TIMEZONE, output: LIST_OUTPUT, ...CONNECTION_OPTIONS },
  check: queryProblems,
  run({ timezone: { offsetMs, text }, ...values }, _operands, io, source) {
    const renderer: QueryRenderer<RequestPeak> = ({ from, to }) => ({
      table({ qps }) {
        const [start, end] = [from, to].map((time) => dateTime(time, offsetMs, 'seconds'));
        const header = [`from (${text})`, 'to', 'requests in the busiest second'];
        return alignColumns([header, [start ?? '', end ?? '', count(qps)]], 'right');
      },
      csv: ({ qps }) =>
        printableCsv(
          ['from', 'to', 'qps'],
          [[isoTime(from, offsetMs, text), isoTime(to, offsetMs, text), qps]],
        ),
    });
    return runQuery(values, source, io, renderer, (client, query) => client.requestPeak(query));
  },
});

export function rangeProblems(
  { from, to }: Partial<Values<typeof RANGE_OPTIONS>>,
  source: Source<typeof RANGE_OPTIONS>,
  now: number,
): string[] {
  if ((['from', 'to', 'last'] as const).every((name) => source(name) !== undefined))
    return ['use only two of --from, --to and --last: they determine the third'];
  if (from === undefined || source('last') !== undefined) return [];
  if (to !== undefined)
    return from.time > to.time ? [`--from (${from.text}) is after --to (${to.text})`] : [];
  // A value that cannot be parsed is given, too.
  if (source('to') !== undefined || from.time <= now) return [];
  return [`--from (${from.text}) is in the future: give --to or --last`];
}

/** With `--from`, only a length that is given determines the end, not the default one. */
export function rangeOf(
  { from, to, last }: Values<typeof RANGE_OPTIONS>,
  source: Source<typeof RANGE_OPTIONS>,
  now: number,
): QueryRange {
  if (from !== undefined && source('last') !== undefined) return { from: from.time, to: from.time + last };
  const end = to?.time ?? now;
  return { from: from?.time ?? Math.max(0, end - last), to: end };
}

export function queryProblems(values: Partial<QueryValues>, source: QuerySource, io: Io): string[] {
  return [...connectionProblems(source, io), ...rangeProblems(values, source, io.now())];
}

export async function runQuery<T>(
  values: QueryValues & { output?: 'plot' | 'table' | 'json' | 'csv' | undefined },
  source: QuerySource,
  io: Io,
  renderer: QueryRenderer<T>,
  call: (
    client: Client,
    query: QueryRange & { hosts: string[] | undefined; signal: AbortSignal },
  ) => Promise<T>,
): Promise<number> {
  const { stdout, stop } = io;
  const connection = await connectionOf(values, source, io);
  const range = rangeOf(values, source, io.now());
  const response = await callService(connection, io, async (client) => {
    const hosts = await hostIds(client, values.host, stop);
    return call(client, { ...range, hosts, signal: stop });
  });
  printOutput(io, values.output ?? (stdout.isTTY ? 'plot' : 'table'), response, renderer(range), connection);
  return 0;
}

function timezone(value: string): Timezone {
  const [, sign, hours, minutes] = /^([+-])(\d{2}):([0-5]\d)$/.exec(value) ?? [];
  const offset = (sign === '-' ? -1 : 1) * (Number(hours) * 60 + Number(minutes));
  if (!(offset >= -12 * 60 && offset <= 14 * 60))
    throw new Error('must be an offset like +08:00, from -12:00 to +14:00');
  return { text: value, offsetMs: offset * 60_000 };
}
