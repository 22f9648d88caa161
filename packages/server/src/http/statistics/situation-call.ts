/** The situation of a project: one sentence, and the bursts of a range. */
import { ApiError } from '../../errors.ts';
import { CATEGORIES } from '../../event.ts';
import { DAY_MS } from '../../statistics/grid.ts';
import { situationOf } from '../../statistics/situation.ts';
import type { Store } from '../../store/store.ts';
import { parseTimelineQuery, type RawQuery } from '../query.ts';
import { array, integer, object, string } from '../route.ts';
import { type Call, HOST_PARAMETERS, RANGE_PARAMETERS, TIMEZONE_PARAMETER } from './call.ts';
import type { QueryHandlers } from './query-handler.ts';

/** With the days before that bursts are compared with, 29,000 points. */
const RANGE_DAYS_MAX = 92;

const OR_NULL = { type: ['string', 'null'] };
const INTEGER_OR_NULL = { type: ['integer', 'null'] };

const SITUATION = object({
  state: string('`no_data` comes before `attack`.', { enum: ['quiet', 'attack', 'no_data'] }),
  sentence: string('The situation, with times in `timezone`.'),
  since: integer(
    'When the attack or the silence began, milliseconds since the epoch. Null if it is quiet, or if there was never any data.',
    INTEGER_OR_NULL,
  ),
  from: integer('Start of the range of `bursts`.'),
  to: integer('End of the range (exclusive): the time of the situation.'),
  attacks: integer('Attacks in the last hour before `to`.'),
  usual: {
    ...object({
      low: integer('Attacks in the third lowest of the same hours of the last 7 days.'),
      high: integer('Attacks in the third highest.'),
    }),
    type: ['object', 'null'],
    description: 'Null on the first day.',
  },
  bursts: array(
    object({
      from: integer('Start, milliseconds since the epoch.'),
      to: integer('End (exclusive).'),
      open: { type: 'boolean', description: 'The burst has not ended: `to` is that of the range.' },
      category: string('Category of at least half of the attacks, or null.', {
        ...OR_NULL,
        enum: [...CATEGORIES, null],
      }),
      host: string('Name of the host with at least half of the attacks, or null.', OR_NULL),
      host_id: string('ID of this host.', OR_NULL),
      source: string(
        'Address with at least half of the attacks, or null; for IPv6 its /64 network.',
        OR_NULL,
      ),
      attacks: integer('Number of attacks.'),
      blocked: integer('Attacks among them that the log reports as blocked.'),
      times_usual: {
        type: ['number', 'null'],
        description: 'Attacks divided by the usual number for this time; null if that is 0.',
      },
    }),
    { description: 'In order of time, the latest 100.' },
  ),
  silent_sources: array(
    object({
      name: string('Name of the log source.'),
      last_seen: integer('Time of its latest event, milliseconds since the epoch.'),
    }),
    { description: 'Log sources that usually send and have stopped, the latest first.' },
  ),
});

export function situationCall(store: Store, { uncached }: QueryHandlers, now: () => number): Call {
  return {
    path: 'overviews/situation',
    operationId: 'situation',
    summary: 'Get the situation in one sentence, and the bursts of attacks in a range',
    description:
      'A burst opens with more than 200 attacks in 5 minutes whose z-score over the same hours of the last 7 days exceeds 3.5, ' +
      'and ends when the count falls to the mean plus one deviation. Without a range, the bursts are those of the last 24 hours.',
    hasNoRange: true,
    parameters: {
      from: { ...RANGE_PARAMETERS.from, description: 'Start of the range. Default: 24 hours before `to`.' },
      to: {
        ...RANGE_PARAMETERS.to,
        description: 'End of the range, and the time of the situation. Default: now.',
      },
      recent: RANGE_PARAMETERS.recent,
      timezone: TIMEZONE_PARAMETER,
      ...HOST_PARAMETERS,
    },
    returns: ['The situation.', SITUATION],
    handler: uncached(parseSituationQuery, (query) => {
      // After parsing, because parsed queries are cached.
      const to = Math.min(query.to, now());
      const from = Math.min(query.from, to);
      if (to - from > RANGE_DAYS_MAX * DAY_MS)
        throw new ApiError(
          'WAF.1025',
          `from and to are more than ${RANGE_DAYS_MAX} days apart: query a shorter range`,
        );
      return situationOf(store, { ...query, from, to });
    }),
  };
}

function parseSituationQuery(query: RawQuery, now: number) {
  if (query.recent !== undefined || (query.from !== undefined && query.to !== undefined))
    return parseTimelineQuery(query, now);
  const to = query.to ?? String(now);
  const from = query.from ?? String(Math.max(0, (Number(to) || 0) - DAY_MS));
  return parseTimelineQuery({ ...query, from, to }, now);
}
