/** `status`: the situation of a project in one sentence, and its bursts of attacks. */
import type { Situation } from '@wafstat/client';
import type { Zone } from '../../zone.ts';
import { alignColumns, command } from '../command.ts';
import { CONNECTION_OPTIONS } from './connection.ts';
import { count, dateTime, durationText, isoTime, percentage, printableCsv } from './format.ts';
import { LIST_OUTPUT, type Renderer } from './output.ts';
import type { QueryRange } from './plot.ts';
import { QUERY_OPTIONS, queryProblems, runQuery } from './query.ts';

export const statusCommand = command({
  examples: [
    'wafstat status --profile shop',
    'wafstat status --last 7d --host www.example.com --timezone Europe/Berlin',
    'wafstat status --output json',
  ],
  options: { ...QUERY_OPTIONS, output: LIST_OUTPUT, ...CONNECTION_OPTIONS },
  check: queryProblems,
  run: (values, _operands, io, source) =>
    runQuery(values, source, io, situationRenderer, (client, query) => client.situation(query)),
});

function situationRenderer(_range: QueryRange, zone: Zone): Renderer<Situation> {
  return {
    table({ sentence, bursts }) {
      if (bursts.length === 0) return [sentence];
      const header = [
        `burst from (${zone.name})`,
        'length',
        'category',
        'host',
        'source',
        'attacks',
        'blocked',
      ];
      const rows = bursts.map((burst) => [
        dateTime(burst.from, zone, 'minutes'),
        durationText(burst.to - burst.from) + (burst.open ? ' so far' : ''),
        burst.category ?? '-',
        burst.host ?? '-',
        burst.source ?? '-',
        count(burst.attacks),
        percentage(burst.blocked, burst.attacks),
        burst.times_usual === null ? '-' : count(burst.times_usual),
      ]);
      return [sentence, ...alignColumns([[...header, 'times usual'], ...rows], 'left')];
    },
    csv: ({ bursts }) =>
      printableCsv(
        ['from', 'to', 'open', 'category', 'host_id', 'host', 'source', 'attacks', 'blocked', 'times_usual'],
        bursts.map((burst) => [
          isoTime(burst.from, zone),
          isoTime(burst.to, zone),
          String(burst.open),
          burst.category ?? '',
          burst.host_id ?? '',
          burst.host ?? '',
          burst.source ?? '',
          burst.attacks,
          burst.blocked,
          burst.times_usual ?? '',
        ]),
      ),
  };
}
