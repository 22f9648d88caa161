/** `annotate` and `annotations`: what happened at a time, for the charts of the console. */
import type { Annotation } from '@wafstat/client';
import { command, printText } from '../command.ts';
import { option, text } from '../options.ts';
import { CONNECTION_OPTIONS, callService, connectionOf, connectionProblems } from './connection.ts';
import { isoTime } from './format.ts';
import { type Columns, listRenderer } from './lists.ts';
import { LIST_OUTPUT, printOutput } from './output.ts';
import { givenTime, RANGE_OPTIONS, TIMEZONE } from './range.ts';

const COLUMNS: Columns<Annotation> = [
  ['time', 'time (ZONE)', ({ time }) => ({ time })],
  ['text', 'text', (annotation) => annotation.text],
  ['link', 'link', ({ link }) => link ?? ''],
  ['id', 'id', ({ id }) => id],
];

export const annotateCommand = command({
  examples: [
    "wafstat annotate 'release 4.2' --profile shop",
    "wafstat annotate 'rule 942100 off' --time '2026-07-01 12:00' --link https://git.example.com/rules/17",
  ],
  options: {
    time: option(
      '--time <time>',
      "when it happened: a time like '2026-07-01 12:00', ISO 8601, or milliseconds; of a date, its start [default: now]",
      givenTime,
    ),
    link: option('--link <address>', 'http or https address of a page about it', text),
    timezone: TIMEZONE,
    ...CONNECTION_OPTIONS,
  },
  check: (_values, source, io) => connectionProblems(source, io),
  async run({ time: given, link, timezone: zone, ...values }, [annotation = ''], io, source) {
    const connection = await connectionOf(values, source, io);
    const time = given?.resolve(zone, io.now()).from;
    const { result } = await callService(connection, io, (client) =>
      client.addAnnotation({ text: annotation, time, link }, { signal: io.stop }),
    );
    printText(io.stdout, `added annotation ${result.id} at ${isoTime(result.time, zone)}`);
    return 0;
  },
});

export const annotationsCommand = command({
  examples: ['wafstat annotations --from yesterday --profile shop', 'wafstat annotations --delete ID'],
  options: {
    from: RANGE_OPTIONS.from,
    to: option('--to <time>', 'end of the range, exclusive, in the same forms [default: none]', givenTime),
    timezone: TIMEZONE,
    output: LIST_OUTPUT,
    delete: option('--delete <id>', 'delete this annotation; needs the role admin', text),
    ...CONNECTION_OPTIONS,
  },
  check: (_values, source, io) => [
    ...connectionProblems(source, io),
    ...(source('delete') !== undefined && (source('from') ?? source('to')) !== undefined
      ? ['--delete deletes one annotation: remove --from and --to']
      : []),
  ],
  async run({ from, to, timezone: zone, output, delete: id, ...values }, _operands, io, source) {
    const connection = await connectionOf(values, source, io);
    if (id !== undefined) {
      await callService(connection, io, (client) => client.deleteAnnotation(id, { signal: io.stop }));
      printText(io.stdout, `deleted annotation ${id}`);
      return 0;
    }
    const range = { from: from?.resolve(zone, io.now()).from, to: to?.resolve(zone, io.now()).to };
    const response = await callService(connection, io, (client) =>
      client.annotations({ ...range, signal: io.stop }),
    );
    printOutput(io, output, response, listRenderer(COLUMNS, zone), connection);
    return 0;
  },
});
