import { command } from '../command.ts';
import { csv } from './csv.ts';
import { dateTime, isoTime } from './local-time.ts';
import { QUERY_SETTINGS, queryProblems, runQuery } from './query.ts';
import { table } from './table.ts';
import { plotTimeline } from './timeline-plot.ts';

export const timelineCommand = command({
  name: 'timeline',
  about: 'ask a service for the requests and attacks over a time range',
  settings: [...QUERY_SETTINGS, 'localTime'],
  required: [],
  check: queryProblems,
  run({ localTime, ...settings }, _operands, io, origin) {
    const { offsetMs, text } = localTime;
    return runQuery(settings, origin, io, (client, query) => client.timeline({ ...query, timezone: text }), {
      plot: (timeline, range, terminal) => plotTimeline(timeline, range, localTime, terminal),
      // The time of a point is its end: a row counts from the one above until then.
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
