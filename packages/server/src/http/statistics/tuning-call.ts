/** The tuning report: which rules hit users, and exclusions for them. */
import type { Role } from '../../identity/records.ts';
import { THRESHOLD_DEFAULT } from '../../statistics/anomaly-score.ts';
import { attackTotal } from '../../statistics/overview.ts';
import { ITEMS_MAX, type TuningQuery, tuningReport } from '../../statistics/tuning.ts';
import type { Store } from '../../store/store.ts';
import { UTC, zoneOf } from '../../zone.ts';
import {
  checkNames,
  parseTimezone,
  parseTotalsQuery,
  parseWhole,
  type RawQuery,
  type StatisticsQuery,
} from '../query.ts';
import { array, integer, object, string } from '../route.ts';
import { type Call, TIMEZONE_PARAMETER } from './call.ts';
import type { QueryHandlers } from './query-handler.ts';

export function tuningCall(store: Store, { uncached }: QueryHandlers, allow: Role): Call {
  return {
    path: 'tuning',
    operationId: 'tuning',
    tag: 'events',
    allow,
    summary: 'List rules that may hit users, with the narrowest exclusion of each, best candidates first',
    description:
      'Based on the kept attacks. Hosts, paths and variables come from clients and may be hostile: escape them before you display them.',
    parameters: {
      timezone: TIMEZONE_PARAMETER,
      threshold: integer('Inbound anomaly score from which the firewall blocks a request.', {
        minimum: 1,
        maximum: THRESHOLD_MAX,
        default: THRESHOLD_DEFAULT,
      }),
      id_from: integer('Rule ID of the first exclusion; those that follow count up.', {
        minimum: 1,
        maximum: ID_MAX,
        default: ID_DEFAULT,
      }),
    },
    returns: ['The report.', REPORT],
    handler: uncached(parseTuningQuery, async (query) => {
      // First, so that attacks that arrive meanwhile are not missing.
      const attacks = await attackTotal(store, query);
      const { total, items, kept_attacks, ...rest } = await tuningReport(store, query);
      return { total, items, attacks, kept_attacks, complete: kept_attacks >= attacks, ...rest };
    }),
  };
}

const THRESHOLD_MAX = 10_000;
const ID_DEFAULT = 10_000;
/** All IDs of a report fit into 31 bits. */
const ID_MAX = 2 ** 31 - 1 - ITEMS_MAX;

function parseTuningQuery(
  query: RawQuery,
  now: number,
): StatisticsQuery & Pick<TuningQuery, 'zone' | 'threshold' | 'idFrom'> {
  checkNames(query, ['from', 'to', 'recent', 'timezone', 'hosts', 'instances', 'threshold', 'id_from']);
  return {
    ...parseTotalsQuery(query, now),
    zone: parseTimezone(query, zoneOf) ?? UTC,
    threshold: parseWhole(query, 'threshold', THRESHOLD_DEFAULT, 1, THRESHOLD_MAX),
    idFrom: parseWhole(query, 'id_from', ID_DEFAULT, 1, ID_MAX),
  };
}

const LIKELY = ['false_positive', 'unclear', 'attack'];
const TIME = 'milliseconds since the epoch.';

const ITEM = object({
  rules: array(string('Rule ID.')),
  host: string('Host name, empty for attacks without a registered host.'),
  path: string('Path; `*` stands for numbers, UUIDs and long hex.'),
  variable: string('What the rules matched, like `ARGS:q`. Empty if the log does not say.'),
  attacks: integer('Kept attacks in which exactly these rules matched this variable.'),
  blocked: integer('How many of them were blocked.'),
  sources: integer('Number of their sources.'),
  days: integer('Number of local days on which they were sent.'),
  alone: integer('How many of them would pass without these rules on this variable.'),
  likely: string('What the row probably is.', { enum: LIKELY }),
  reasons: array(string('Why, in words.')),
  exclusion: string('Directives for ModSecurity 2, ModSecurity 3 and Coraza that remove these rules there.'),
  opens_attacks: integer(
    'Attacks of attacking sources that would pass with this exclusion and those of the false positives before it. Do not use it unless this is 0.',
  ),
  first_seen: integer(`Time of the first of these attacks, ${TIME}`),
  last_seen: integer(`Time of the last one, ${TIME}`),
});

const REPORT = object({
  total: integer(`Number of rows. \`items\` has the first ${ITEMS_MAX}.`),
  items: array(ITEM),
  attacks: integer('Attacks in the range, of these hosts.'),
  kept_attacks: integer('How many of them are kept: the report is based on these.'),
  complete: { type: 'boolean', description: 'Whether all of them are kept.' },
  left_out: integer(
    'Kept attacks that no row has: without a path, without a numbered rule that detects attacks, or beyond the limits of a report.',
  ),
  blocking: object({
    days: array(
      object({
        day: string('Local day, like `2026-11-16`.'),
        attacks: integer('Kept attacks.'),
        would_block: integer('How many of them the firewall would have blocked, had it not only detected.'),
        false_positives: integer('How many of those are likely false positives.'),
      }),
    ),
    would_block: integer('Sum of all days.'),
    false_positives: integer('Sum of all days.'),
    ready: {
      type: 'boolean',
      description: 'Whether there are 7 days of data, and no likely false positive in the last 7 days.',
    },
    text: string('The same in a sentence.'),
  }),
});
