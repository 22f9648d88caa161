import { ATTACK_TYPES } from '@wafstat/client';
import { command } from '../command.ts';
import { csv } from './csv.ts';
import { QUERY_SETTINGS, queryProblems, runQuery } from './query.ts';
import { table } from './table.ts';
import { plotTypes } from './types-plot.ts';

export const typesCommand = command({
  name: 'types',
  about: 'ask a service for the attacks of a time range by category',
  settings: QUERY_SETTINGS,
  required: [],
  check: queryProblems,
  run: (settings, _operands, io, origin) =>
    runQuery(settings, origin, io, (client, query) => client.attackTypes(query), {
      plot: plotTypes,
      table: (types) =>
        table(
          ['category', 'count'],
          ATTACK_TYPES.map((type) => [type, types[type]]),
        ),
      csv: (types) =>
        csv(
          ['category', 'count'],
          ATTACK_TYPES.map((type) => [type, types[type]]),
        ),
    }),
});
