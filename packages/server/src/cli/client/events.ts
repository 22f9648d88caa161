/** `events` and `event`: the kept attacks, from a running service. Nearly all of their text comes from attackers. */
import type { AttackEvent, EventList } from '@wafstat/client';
import { printable } from '../../printable.ts';
import type { Zone } from '../../zone.ts';
import { alignColumns, command, type Io, printText, warn } from '../command.ts';
import {
  flag,
  flagOf,
  integer,
  oneOf,
  option,
  REPEATED,
  type Source,
  text,
  type Values,
} from '../options.ts';
import { confirm, confirmationProblems, YES } from '../prompt.ts';
import { CONNECTION_OPTIONS, callService, connectionOf, connectionProblems } from './connection.ts';
import { FILTER_OPTIONS, FILTERED_CONNECTION, filtersOf, incompleteText } from './filters.ts';
import { count, dateTime, isoTime, printableCsv } from './format.ts';
import { hostFinder, hostIds } from './names.ts';
import { titleOf } from './plot.ts';
import type { Connection } from './profiles.ts';
import { QUERY_OPTIONS, queryProblems } from './query.ts';
import { rangeOf, TIMEZONE } from './range.ts';

/** The largest page of the API. */
const PAGE_ROWS_MAX = 1_000;

const LIST_OPTIONS = {
  ...QUERY_OPTIONS,
  ...FILTER_OPTIONS,
  notHost: option('--not-host <host...>', 'no attacks on this host, by ID or name', oneHost),
  limit: option('--limit <n>', 'maximum number of rows, up to 1000', integer(1, PAGE_ROWS_MAX), {
    default: '50',
  }),
  all: option('--all', 'print all rows, page by page', flag),
  output: option(
    '--output <format>',
    'table, csv, or json: one object per line',
    oneOf('table', 'json', 'csv'),
    { default: 'table' },
  ),
};

const EVENTS_OPTIONS = {
  ...LIST_OPTIONS,
  delete: option(
    '--delete',
    'delete the kept attacks of --source, of all times; counts stay; needs the role admin',
    flag,
  ),
  yes: YES,
  ...FILTERED_CONNECTION,
};
type EventsValues = Values<typeof EVENTS_OPTIONS>;
type EventsSource = Source<typeof EVENTS_OPTIONS>;

export const eventsCommand = command({
  examples: [
    "wafstat events --last 1h --source 192.0.2.0/24 --rule 942100 --not-url '/health*'",
    'wafstat events --from yesterday --category sqli --all --output csv > attacks.csv',
    'wafstat events --delete --source 192.0.2.7',
  ],
  options: EVENTS_OPTIONS,
  check: (values, source, io) =>
    values.delete ? deleteProblems(values, source, io) : listProblems(values, source, io),
  async run(values, _operands, io, source) {
    const connection = await connectionOf(values, source, io);
    if (values.delete) return deleteEvents(values.source ?? [], values.yes, connection, io);
    const { timezone: zone, all: isAll = false } = values;
    // The end is the same for all pages: attacks that arrive meanwhile do not move them.
    const range = rangeOf(values, source, io.now());
    const render = RENDERERS[values.output];
    const { result } = await callService(connection, io, async (client) => {
      const find = hostFinder(client, io.stop);
      const hosts = await hostIds(find, values.host);
      const limit = isAll ? PAGE_ROWS_MAX : values.limit;
      const ndomain = values.notHost && (await find(values.notHost)).hostname;
      const excluded = ndomain === undefined ? {} : ({ ndomain, queryMode: 'equal' } as const);
      const query = { ...range, hosts, ...filtersOf(values), ...excluded, limit, signal: io.stop };
      for (let page = 1; ; page++) {
        const list = await client.events({ ...query, page });
        const rows = isAll ? list.total : list.items.length;
        const title = page === 1 ? `${titleOf(range, zone)}: ${rowsText(rows, list)}` : null;
        const text = render(list.items, zone, title);
        // Fails if the reader has left, like `head`.
        const isRead = await new Promise((resolve) => io.stdout.write(text, (error) => resolve(!error)));
        if (!isRead || !isAll || list.items.length === 0 || page * limit >= list.total) return list;
      }
    });
    if (!result.complete) warn(io, incompleteText(result.kept_attacks, result.attacks));
    return 0;
  },
});

/** Of two, the first one would be ignored. */
function oneHost(value: string): string {
  if (value.includes(REPEATED)) throw new Error('must be one host, because the API excludes only one');
  return text(value);
}

function listProblems(values: Partial<EventsValues>, source: EventsSource, io: Io): string[] {
  const problems = queryProblems(values, source, io);
  if (values.all && source('limit') !== undefined) problems.push('use only one of --all and --limit');
  return problems;
}

/** With other filters or a range, attacks of the person would stay. */
function deleteProblems(values: Partial<EventsValues>, source: EventsSource, io: Io): string[] {
  const problems = [...connectionProblems(source, io), ...confirmationProblems(values, source, io)];
  if (source('source') === undefined) problems.push('--delete requires --source');
  const names = Object.keys(LIST_OPTIONS) as (keyof typeof LIST_OPTIONS)[];
  const others = names.filter((name) => name !== 'source' && source(name) !== undefined);
  const flags = others.map((name) => flagOf(LIST_OPTIONS[name]));
  if (others.length > 0)
    problems.push(`--delete deletes all attacks of --source: remove ${flags.join(', ')}`);
  return problems;
}

async function deleteEvents(
  sources: readonly string[],
  yes: boolean | undefined,
  connection: Connection,
  io: Io,
): Promise<number> {
  const names = sources.join(', ');
  await confirm(io, yes, names, `This deletes all kept attacks from ${names}. Their counts stay.`);
  const { result } = await callService(connection, io, (client) =>
    client.deleteEvents({ sips: sources, signal: io.stop }),
  );
  const { deleted } = result;
  printText(io.stdout, `deleted ${eventsText(deleted)} from ${names}`);
  return 0;
}

function rowsText(rows: number, { total, matched_attacks }: EventList): string {
  const attacks = matched_attacks === total ? '' : `, ${count(matched_attacks)} attacks`;
  return eventsText(total) + attacks + (rows < total ? `, the newest ${eventsText(rows)}` : '');
}

function eventsText(events: number): string {
  return `${count(events)} ${events === 1 ? 'event' : 'events'}`;
}

/** The text of a page. `title`: of the first page, null for the others, which continue it. */
type RenderPage = (items: readonly AttackEvent[], zone: Zone, title: string | null) => string;

const RENDERERS: Readonly<Record<EventsValues['output'], RenderPage>> = {
  json: (items) => linesOf(items.map((item) => JSON.stringify(item))),
  csv: (items, zone, title) => {
    const names = CSV_COLUMNS.map(([name]) => name);
    const rows = items.map((item) => CSV_COLUMNS.map(([, cell]) => cell(item, zone) ?? ''));
    const text = printableCsv(names, rows);
    return title === null ? text.slice(text.indexOf('\n') + 1) : text;
  },
  table: (items, zone, title) => {
    const hasCounts = items.some(({ count = 1 }) => count > 1);
    const header = [`time (${zone.name})`, 'host', 'source', 'request', 'category', 'rule', 'action'];
    const rows = items.map((item) => [
      dateTime(item.time, zone, 'seconds'),
      shortened(item.host),
      shortened(item.sip),
      shortened(item.request_line),
      shortened(item.attack),
      shortened(rulesText(item)),
      shortened(item.action),
      ...(hasCounts ? [count(item.count ?? 1)] : []),
      // Whole, because `wafstat event` takes it.
      printable(item.id),
    ]);
    const [first = '', ...lines] = alignColumns(
      [[...header, ...(hasCounts ? ['attacks'] : []), 'id'], ...rows],
      'left',
    );
    return linesOf(title === null ? lines : [title, first, ...lines]);
  },
};

/** As in the CSV files of the service. */
const CSV_COLUMNS: readonly (readonly [
  name: string,
  cell: (event: AttackEvent, zone: Zone) => string | number | undefined,
])[] = [
  ['time', ({ time }, zone) => isoTime(time, zone)],
  ['sip', ({ sip }) => sip],
  ['region', ({ region }) => region],
  ['attack', ({ attack }) => attack],
  ['action', ({ action }) => action],
  ['status', ({ status }) => status],
  ['score', ({ score }) => score],
  ['count', ({ count: attacks = 1 }) => attacks],
  ['rules', ({ rules = [] }) => rules.map(({ id }) => id).join(' ')],
  ['untrusted_host', ({ host }) => host],
  ['untrusted_id', ({ id }) => id],
  ['untrusted_method', ({ method }) => method],
  ['untrusted_url', ({ url }) => url],
  ['untrusted_request_line', ({ request_line }) => request_line],
  ['untrusted_variable', ({ rules = [] }) => rules[0]?.variable],
  ['untrusted_payload', ({ payload }) => payload],
  ['untrusted_user_agent', ({ user_agent }) => user_agent],
];

/** `942100 +2`: the rule that decided the category, and how many more matched. */
function rulesText({ rule, rules = [] }: AttackEvent): string | undefined {
  return rule !== undefined && rules.length > 1 ? `${rule} +${rules.length - 1}` : rule;
}

/** A row must stay on one line of a wide terminal. */
const CELL_LENGTH_MAX = 60;

function shortened(value = '-'): string {
  const text = printable(value);
  return text.length > CELL_LENGTH_MAX ? `${text.slice(0, CELL_LENGTH_MAX - 3)}...` : text;
}

function linesOf(lines: readonly string[]): string {
  return lines.map((line) => `${printable(line)}\n`).join('');
}

export const eventCommand = command({
  examples: [
    'wafstat event 1f3870be274f6c49b3e31a0c6728957f --profile shop',
    'wafstat event ID --output json',
  ],
  options: {
    timezone: TIMEZONE,
    output: option('--output <format>', 'table, or json: one object per line', oneOf('table', 'json'), {
      default: 'table',
    }),
    ...CONNECTION_OPTIONS,
  },
  check: (_values, source, io) => connectionProblems(source, io),
  async run({ output, timezone: zone, ...values }, [id = ''], io, source) {
    const connection = await connectionOf(values, source, io);
    await callService(connection, io, async (client) => {
      const { items } = await client.event(id, { signal: io.stop });
      const texts =
        output === 'json' ? [RENDERERS.json(items, zone, null)] : items.map((item) => describe(item, zone));
      io.stdout.write(texts.join('\n'));
    });
    return 0;
  },
});

function describe(event: AttackEvent, zone: Zone): string {
  const { rules = [], host, host_id, count: attacks = 1, score } = event;
  const fields: readonly (readonly [name: string, value: string | undefined])[] = [
    ['id', event.id],
    ['time', isoTime(event.time, zone)],
    ['host', host_id === undefined ? host : `${host} (${host_id})`],
    ['source', event.sip],
    ['country', event.region],
    ['request', event.request_line],
    ['status', event.status],
    ['user agent', event.user_agent],
    ['category', event.attack],
    ['action', event.action],
    ['score', score?.toString()],
    ['attacks', attacks === 1 ? undefined : count(attacks)],
  ];
  const rows = rules.map(({ id, severity, variable, value }) =>
    [id, severity, variable, value].map((cell = '-') => printable(cell)),
  );
  return linesOf([
    ...alignColumns(
      fields.flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
      'left',
    ),
    ...(rows.length === 0
      ? []
      : ['', ...alignColumns([['rule', 'severity', 'variable', 'value'], ...rows], 'left')]),
  ]);
}
