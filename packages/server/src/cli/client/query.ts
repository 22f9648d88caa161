/** `timeline`, `types`, `codes`, `traffic` and `peak`: queries to a running service. */
import {
  ATTACK_TYPES,
  type AttackType,
  type AttackTypes,
  type BandwidthKey,
  type Client,
  type Point,
  type RequestPeak,
  type Series,
  type Timeline,
} from '@wafstat/client';
import type { Zone } from '../../zone.ts';
import { alignColumns, command, type Io, warn } from '../command.ts';
import { flag, listOfValues, oneOf, option, type Source, type Values } from '../options.ts';
import { CONNECTION_OPTIONS, callService, connectionOf, connectionProblems } from './connection.ts';
import { FILTER_OPTIONS, FILTERED_CONNECTION, filterFlags, filtersOf, incompleteText } from './filters.ts';
import { count, dateTime, isoTime, printableCsv, table } from './format.ts';
import { hostFinder, hostIds } from './names.ts';
import { LIST_OUTPUT, PLOT_OUTPUT, printOutput, type Renderer } from './output.ts';
import { plotCounts, plotKeys, plotTimeline, type QueryRange, titleOf } from './plot.ts';
import { RANGE_OPTIONS, rangeOf, rangeProblems } from './range.ts';

function hostValue(value: string): string {
  if (value === '') throw new Error('must be IDs or names of hosts');
  return value;
}

export const QUERY_OPTIONS = {
  ...RANGE_OPTIONS,
  host: option(
    '--host <host...>',
    "only these hosts, by ID or name ('wafstat hosts' lists them) [default: all hosts of the project]",
    listOfValues(hostValue),
  ),
};

type QueryOptions = typeof QUERY_OPTIONS & typeof CONNECTION_OPTIONS;
type QueryValues = Values<QueryOptions>;
type QuerySource = Source<QueryOptions>;

export const timelineCommand = command({
  examples: [
    'wafstat timeline --url https://waf.example.com --project shop --user reporter',
    'wafstat timeline --profile shop --from yesterday --timezone Europe/Berlin',
    'wafstat timeline --by category --host www.example.com --output csv > attacks.csv',
  ],
  options: {
    ...QUERY_OPTIONS,
    by: option(
      '--by <dimension>',
      'category: show the attacks of each category instead; the filters need it. code: show the requests with each response code',
      oneOf('category', 'code'),
    ),
    ...FILTER_OPTIONS,
    output: PLOT_OUTPUT,
    ...FILTERED_CONNECTION,
  },
  check(values, source, io) {
    const flags = values.by === 'category' ? [] : filterFlags(source);
    const problems = flags.map(
      (flag) => `${flag} requires --by category, because it selects attacks, not requests`,
    );
    return [...queryProblems(values, source, io), ...problems];
  },
  run({ by, ...values }, _operands, io, source) {
    if (by === 'category')
      return runQuery(values, source, io, categoriesRenderer, (client, query) =>
        client.attackTimeline({ ...query, ...filtersOf(values) }),
      );
    if (by === 'code')
      return runQuery(values, source, io, codesOverTime, (client, query) =>
        client.responseCodeTimeline(query),
      );
    return runQuery(values, source, io, timelineRenderer, (client, query) => client.timeline(query));
  },
});

/** Renders the result of a query in a range. */
type QueryRenderer<T> = (range: QueryRange, zone: Zone) => Renderer<T>;

const timelineRenderer: QueryRenderer<Timeline> = (range, zone) => ({
  ...pointRenderer(zone, ['requests', 'attacks'], ({ requests, attacks }) => [requests, attacks]),
  plot: (timeline, terminal) => plotTimeline(timeline, range, zone, terminal),
});

const categoriesRenderer: QueryRenderer<Series<AttackType>[]> = (range, zone) => ({
  ...pointRenderer(zone, ATTACK_TYPES, (series) => allCategories(series).map(({ timeline }) => timeline)),
  plot: (series, terminal) =>
    plotKeys(allCategories(series), { key: 'category', counted: 'attacks' }, range, zone, terminal),
});

/** The codes are those of the response. */
const codesOverTime: QueryRenderer<Series<string>[]> = (range, zone) => {
  const of = (series: readonly Series<string>[]) =>
    pointRenderer<typeof series>(
      zone,
      series.map(({ key }) => key),
      (all) => all.map(({ timeline }) => timeline),
    );
  return {
    table: (series) => of(series).table(series),
    csv: (series) => of(series).csv(series),
    plot: (series, terminal) =>
      series.length === 0
        ? [`${titleOf(range, zone)}: no requests`]
        : plotKeys(series, { key: 'code', counted: 'requests' }, range, zone, terminal),
  };
};

/** All categories, in the order of ATTACK_TYPES. Keys that the service invents are left out. */
function allCategories(series: readonly Series<AttackType>[]): Series<AttackType>[] {
  return ATTACK_TYPES.map((type) => ({
    key: type,
    timeline: series.find(({ key }) => key === type)?.timeline ?? [],
  }));
}

/** A row for each point, a column for each series. All series have the same times. */
function pointRenderer<T>(
  zone: Zone,
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
        [`until (${zone.name})`, ...names],
        rows(result, (time) => dateTime(time, zone, 'seconds')),
      ),
    csv: (result) =>
      printableCsv(
        ['time', ...names],
        rows(result, (time) => isoTime(time, zone)),
      ),
  };
}

export const typesCommand = command({
  examples: ['wafstat types --profile shop --last 30d --output csv > attacks.csv'],
  options: { ...QUERY_OPTIONS, ...FILTER_OPTIONS, output: PLOT_OUTPUT, ...FILTERED_CONNECTION },
  check: queryProblems,
  run: (values, _operands, io, source) =>
    runQuery(values, source, io, typesRenderer, (client, query) =>
      client.attackTypes({ ...query, ...filtersOf(values) }),
    ),
});

const typesRenderer: QueryRenderer<AttackTypes> = (range, zone) =>
  countsRenderer(['category', 'count'], 'attacks', range, zone, (types) =>
    ATTACK_TYPES.map((type) => [type, types[type]]),
  );

/** A row for each key. */
function countsRenderer<T>(
  header: [key: string, count: string],
  what: string,
  range: QueryRange,
  zone: Zone,
  countsOf: (result: T) => (readonly [key: string, num: number])[],
): Renderer<T> {
  return {
    plot: (result, terminal) => plotCounts(countsOf(result), what, range, zone, terminal),
    table: (result) => [titleOf(range, zone), ...table(header, countsOf(result))],
    csv: (result) => printableCsv(header, countsOf(result)),
  };
}

export const codesCommand = command({
  examples: ['wafstat codes --profile shop --last 7d', 'wafstat codes --upstream --output csv > codes.csv'],
  options: {
    ...QUERY_OPTIONS,
    upstream: option(
      '--upstream',
      'show what the servers behind the firewall responded, if the log has it',
      flag,
    ),
    output: PLOT_OUTPUT,
    ...CONNECTION_OPTIONS,
  },
  check: queryProblems,
  run: ({ upstream, ...values }, _operands, io, source) =>
    runQuery(values, source, io, codesRenderer, (client, query) =>
      client.responseCodeTimeline({ ...query, responseSource: upstream ? 'UPSTREAM' : 'WAF' }),
    ),
});

const codesRenderer: QueryRenderer<Series<string>[]> = (range, zone) =>
  countsRenderer(['code', 'requests'], 'requests', range, zone, (series) =>
    series.map(({ key, timeline }) => [key, timeline.reduce((sum, { num }) => sum + num, 0)]),
  );

export const trafficCommand = command({
  examples: [
    'wafstat traffic --profile shop --last 7d',
    'wafstat traffic --peak --host www.example.com --output csv > bytes.csv',
  ],
  options: {
    ...QUERY_OPTIONS,
    peak: option('--peak', 'show the busiest minute of each interval instead of its average', flag),
    output: LIST_OUTPUT,
    ...CONNECTION_OPTIONS,
  },
  check: queryProblems,
  run: ({ peak, ...values }, _operands, io, source) =>
    runQuery(values, source, io, trafficRenderer, (client, query) =>
      client.bandwidthTimeline({ ...query, displayOption: peak ? 1 : 0 }),
    ),
});

const trafficRenderer: QueryRenderer<Series<BandwidthKey>[]> = (_range, zone) =>
  pointRenderer(zone, ['received bytes/s', 'sent bytes/s', 'both'], (series) =>
    series.map(({ timeline }) => timeline),
  );

export const peakCommand = command({
  examples: ['wafstat peak --profile shop --last 30d', 'wafstat peak --host www.example.com --output json'],
  options: { ...QUERY_OPTIONS, output: LIST_OUTPUT, ...CONNECTION_OPTIONS },
  check: queryProblems,
  run: (values, _operands, io, source) =>
    runQuery(values, source, io, peakRenderer, async (client, query) => {
      // First: `json` prints the last response.
      const minute = values.output === 'json' ? null : await busiestMinute(client, query);
      return { ...(await client.requestPeak(query)), minute };
    }),
});

type Peak = RequestPeak & { minute: number | null };

const peakRenderer: QueryRenderer<Peak> = ({ from, to }, zone) => ({
  table({ qps, minute }) {
    const time = (ms: number) => dateTime(ms, zone, 'seconds');
    const header = [`from (${zone.name})`, 'to', 'requests in the busiest second', 'in the minute from'];
    const row = [time(from), time(to), count(qps), minute === null ? '-' : time(minute)];
    return alignColumns([header, row], 'right');
  },
  csv: ({ qps, minute }) =>
    printableCsv(
      ['from', 'to', 'qps', 'minute'],
      [[isoTime(from, zone), isoTime(to, zone), qps, minute === null ? '' : isoTime(minute, zone)]],
    ),
});

/** The points of a long range are longer than a minute: looks into the highest one. Null without requests. */
async function busiestMinute(client: Client, query: Query): Promise<number | null> {
  let { from, to } = query;
  // A point has at most 25 hours, its points at most 5 minutes, and theirs have one.
  for (let i = 0; i < 3 && to - from > MINUTE_MS; i++) {
    const series = await client.qpsTimeline({ ...query, from, to, displayOption: 1 });
    const points = series.find(({ key }) => key === 'ACCESS')?.timeline ?? [];
    const highest = points.reduce((best, { num }, i) => (num > (points[best]?.num ?? 0) ? i : best), 0);
    if ((points[highest]?.num ?? 0) === 0) return null;
    [from, to] = [points[highest - 1]?.time ?? from, points[highest]?.time ?? to];
  }
  return from;
}

const MINUTE_MS = 60_000;

export function queryProblems(values: Partial<QueryValues>, source: QuerySource, io: Io): string[] {
  return [...connectionProblems(source, io), ...rangeProblems(values, source, io.now())];
}

type Query = QueryRange & { hosts: string[] | undefined; timezone: string; signal: AbortSignal };

export async function runQuery<T>(
  values: QueryValues & { output?: 'plot' | 'table' | 'json' | 'csv' | undefined },
  source: QuerySource,
  io: Io,
  renderer: QueryRenderer<T>,
  call: (client: Client, query: Query) => Promise<T>,
): Promise<number> {
  const { stdout, stop } = io;
  const connection = await connectionOf(values, source, io);
  const { timezone: zone } = values;
  const range = rangeOf(values, source, io.now());
  const response = await callService(connection, io, async (client) => {
    const hosts = await hostIds(hostFinder(client, stop), values.host);
    return call(client, { ...range, hosts, timezone: zone.name, signal: stop });
  });
  const output = values.output ?? (stdout.isTTY ? 'plot' : 'table');
  printOutput(io, output, response, renderer(range, zone), connection);
  const { kept } = response;
  if (kept !== undefined) warn(io, incompleteText(...kept));
  return 0;
}
