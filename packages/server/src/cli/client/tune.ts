/** `tune`: rules that hit users, with exclusions for them, from a running service. Hosts, paths and variables come from attackers. */
import {
  chosenExclusions,
  type ExclusionChoice,
  exclusionFile,
  type TuningItem,
  type TuningReport,
} from '@wafstat/client';
import { printable } from '../../printable.ts';
import type { Zone } from '../../zone.ts';
import { alignColumns, command, type Io, warn } from '../command.ts';
import { flag, integer, oneOf, option } from '../options.ts';
import { CONNECTION_OPTIONS, callService, connectionOf } from './connection.ts';
import { incompleteText } from './filters.ts';
import { count, isoTime, printableCsv } from './format.ts';
import { hostFinder, hostIds } from './names.ts';
import { printOutput, type Renderer } from './output.ts';
import { type QueryRange, titleOf } from './plot.ts';
import { QUERY_OPTIONS, queryProblems } from './query.ts';
import { rangeOf } from './range.ts';

/** In a table without `--all`. */
const ROWS_MAX = 20;

export const tuneCommand = command({
  examples: [
    'wafstat tune --last 7d --host www.example.com',
    'wafstat tune --last 7d --output modsecurity > exclusions.conf',
    'wafstat tune --last 30d --threshold 10 --output csv > candidates.csv',
  ],
  options: {
    ...QUERY_OPTIONS,
    last: { ...QUERY_OPTIONS.last, default: '7d' },
    threshold: option(
      '--threshold <score>',
      'inbound anomaly score from which the firewall blocks a request',
      integer(1, 10_000),
      { default: '5' },
    ),
    output: option(
      '--output <format>',
      'table, csv, json, or modsecurity: the exclusions of rows that are likely false positives',
      oneOf('table', 'json', 'csv', 'modsecurity'),
      { default: 'table' },
    ),
    all: option(
      '--all',
      `all rows: in a table not only the first ${ROWS_MAX}, of exclusions not only those of likely false positives`,
      flag,
    ),
    force: option('--force', 'also print exclusions that would let attacks pass', flag),
    idFrom: option(
      '--id-from <id>',
      'rule ID of the first exclusion; those that follow count up',
      integer(1, 2 ** 31 - 1_001),
      { default: '10000' },
    ),
    ...CONNECTION_OPTIONS,
  },
  check(values, source, io) {
    const problems = queryProblems(values, source, io);
    if (values.output !== 'modsecurity' && values.force)
      problems.push('--force requires --output modsecurity');
    return problems;
  },
  async run({ output, threshold, idFrom, all, force, ...values }, _operands, io, source) {
    const connection = await connectionOf(values, source, io);
    const { timezone: zone } = values;
    const range = rangeOf(values, source, io.now());
    const response = await callService(connection, io, async (client) => {
      const hosts = await hostIds(hostFinder(client, io.stop), values.host);
      return client.tuning({ ...range, hosts, timezone: zone.name, threshold, idFrom, signal: io.stop });
    });
    const { result } = response;
    if (output === 'modsecurity') printExclusions(io, result, { all, force });
    else printOutput(io, output, response, renderer(range, zone, all ?? false), connection);
    if (!result.complete) warn(io, incompleteText(result.kept_attacks, result.attacks));
    return 0;
  },
});

function printExclusions(io: Io, report: TuningReport, choice: ExclusionChoice): void {
  const chosen = chosenExclusions(report, choice);
  const lines = exclusionFile(chosen).split('\n');
  io.stdout.write(lines.map(printable).join('\n'));
  const dangerous = chosenExclusions(report, { ...choice, force: true }).length - chosen.length;
  if (dangerous > 0)
    warn(
      io,
      `${rowsText(dangerous)} would let attacks pass and ${dangerous === 1 ? 'is' : 'are'} left out; --force includes them`,
    );
}

function rowsText(rows: number): string {
  return `${count(rows)} ${rows === 1 ? 'row' : 'rows'}`;
}

function renderer(range: QueryRange, zone: Zone, isAll: boolean): Renderer<TuningReport> {
  return {
    table(report) {
      const { total, items, blocking } = report;
      const shown = isAll ? items : items.slice(0, ROWS_MAX);
      const header = [
        'likely',
        'attacks',
        'blocked',
        'sources',
        'days',
        'alone',
        'rules',
        'variable',
        'where',
        'why',
      ];
      const rows = shown.map((item) => [
        item.likely.replace('_', ' '),
        ...[item.attacks, item.blocked, item.sources, item.days, item.alone].map(count),
        item.rules.join(' '),
        item.variable || '-',
        `${item.host}${item.path}`,
        item.reasons.join('; '),
      ]);
      const first = shown.length < total ? `, the first ${count(shown.length)}` : '';
      const days = blocking.days.map(({ day, attacks, would_block, false_positives }) => [
        day,
        ...[attacks, would_block, false_positives].map(count),
      ]);
      const exclusions = chosenExclusions(report).length;
      return [
        `${titleOf(range, zone)}: ${rowsText(total)}${first}`,
        ...(rows.length === 0 ? [] : alignColumns([header, ...rows], 'left')),
        '',
        blocking.text,
        ...(days.length === 0
          ? []
          : alignColumns(
              [[`day (${zone.name})`, 'attacks', 'would be blocked', 'likely false positives'], ...days],
              'right',
            )),
        ...(exclusions === 0
          ? []
          : ['', `Exclusions for ${rowsText(exclusions)}: repeat the command with --output modsecurity.`]),
      ];
    },
    csv: ({ items }) =>
      printableCsv(
        CSV_COLUMNS.map(([name]) => name),
        items.map((item) => CSV_COLUMNS.map(([, cell]) => cell(item, zone))),
      ),
  };
}

const CSV_COLUMNS: readonly (readonly [string, (item: TuningItem, zone: Zone) => string | number])[] = [
  ['likely', ({ likely }) => likely],
  ['attacks', ({ attacks }) => attacks],
  ['blocked', ({ blocked }) => blocked],
  ['sources', ({ sources }) => sources],
  ['days', ({ days }) => days],
  ['alone', ({ alone }) => alone],
  ['opens_attacks', ({ opens_attacks }) => opens_attacks],
  ['first_seen', ({ first_seen }, zone) => isoTime(first_seen, zone)],
  ['last_seen', ({ last_seen }, zone) => isoTime(last_seen, zone)],
  ['rules', ({ rules }) => rules.join(' ')],
  ['reasons', ({ reasons }) => reasons.join('; ')],
  ['untrusted_host', ({ host }) => host],
  ['untrusted_path', ({ path }) => path],
  ['untrusted_variable', ({ variable }) => variable],
];
