/** The kept attacks of a project, which the API family calls events: lists of them, and single ones. */
import { setImmediate } from 'node:timers/promises';
import { timed } from '../../diagnostics.ts';
import { ApiError } from '../../errors.ts';
import type { MatchedRule } from '../../event.ts';
import type { GeoIp } from '../../geoip.ts';
import type { Role } from '../../identity/records.ts';
import { readCounted } from '../../statistics/filtered.ts';
import { type AttackEntry, type AttackList, type Host, type Store, timeInId } from '../../store/store.ts';

import {
  checkNames,
  EVENTS_PER_PAGE,
  LIST_LIMIT_MAX,
  type Page,
  parseEventsPage,
  parseOneOf,
  parseTotalsQuery,
  pickNames,
  type RawQuery,
  type StatisticsQuery,
  single,
} from '../query.ts';
import { array, integer, object, partialObject, pathParameter, string } from '../route.ts';
import {
  type AttackConditions,
  FILTER_NAMES,
  FILTER_PARAMETERS,
  parseAttackConditions,
  selectHosts,
} from './attack-filters.ts';
import { type Call, TIMEZONE_PARAMETER } from './call.ts';
import { CATEGORY } from './overview-calls.ts';
import type { QueryHandlers } from './query-handler.ts';

export function eventCalls(
  store: Store,
  { uncached }: QueryHandlers,
  allow: Role,
  geo: GeoIp | undefined,
): Call[] {
  return [
    {
      path: 'event',
      operationId: 'events',
      tag: 'events',
      allow,
      summary: 'List the kept attacks in a time range, newest first',
      description:
        'All filters apply together. The values come from clients and may be hostile: escape them before you display them.',
      parameters: { timezone: TIMEZONE_PARAMETER, ...FILTER_PARAMETERS, ...PAGE_PARAMETERS },
      returns: ['One page of events.', EVENT_LIST],
      handler: uncached(parseEventsQuery, (query) => listEvents(store, query, geo)),
    },
    {
      path: 'event/:event_id',
      operationId: 'event',
      tag: 'events',
      allow,
      hasNoRange: true,
      pathParameters: { event_id: string('ID of the event.') },
      summary: 'Get all kept attacks with an ID',
      description: 'A client may choose the ID of its requests, so several events can have the same one.',
      returns: [
        'The events, newest first.',
        object({ total: integer('Number of events with this ID.'), items: array(EVENT) }),
      ],
      handler: uncached(parseNoQuery, async ({ project }, _notes, request) =>
        findEvents(store, project, pathParameter(request, 'event_id'), geo),
      ),
    },
  ];
}
type EventsQuery = StatisticsQuery & AttackConditions & Page & { isAscending: boolean };

const SELECTION_NAMES = ['from', 'to', 'recent', 'timezone', 'hosts', 'instances'];
const PAGE_NAMES = ['page', 'pagesize', 'offset', 'limit', 'marker', 'sort_key', 'sort_direction'];
const EVENTS_NAMES = [...SELECTION_NAMES, ...FILTER_NAMES, ...PAGE_NAMES];

function parseEventsQuery(query: RawQuery, now: number): EventsQuery {
  checkNames(query, EVENTS_NAMES);
  // Ignoring it would return the first page for ever.
  if (single(query, 'marker'))
    throw new ApiError('WAF.1001', 'marker is not supported: use offset and limit');
  parseOneOf(query, 'sort_key', ['attack_time']);
  return {
    ...parseTotalsQuery(pickNames(query, SELECTION_NAMES), now),
    ...parseAttackConditions(query),
    ...parseEventsPage(query),
    isAscending: parseOneOf(query, 'sort_direction', ['desc', 'asc']) === 'asc',
  };
}

/** The whole time: IDs have no range. */
function parseNoQuery(query: RawQuery): StatisticsQuery {
  checkNames(query, []);
  return { ...ALL_TIME, hosts: undefined };
}

const ALL_TIME = { from: 0, to: Number.MAX_SAFE_INTEGER };

async function listEvents(
  store: Store,
  query: EventsQuery & { project: string },
  geo: GeoIp | undefined,
): Promise<Buffer> {
  const { project, skip, size, ...conditions } = query;
  const known = await store.hosts(project);
  const { hostnames: _, ...selected } = selectHosts(conditions, known);
  const attackQuery = { ...selected, project, offset: skip, limit: size };
  const [list, attacks] = await readCounted(store, attackQuery, async () =>
    timed('attacks', () => store.attacks(attackQuery)),
  );
  const { total, totalAttacks, kept, keptAttacks } = list;
  const rest = {
    matched_attacks: totalAttacks,
    attacks,
    kept,
    kept_attacks: keptAttacks,
    complete: keptAttacks === attacks,
  };
  return eventsJson(list, known, geo, { total }, rest);
}

async function findEvents(
  store: Store,
  project: string,
  id: string,
  geo: GeoIp | undefined,
): Promise<Buffer> {
  const filter = { include: { ids: [id] }, exclude: {} };
  const query = { project, filter, isAscending: false, offset: 0, limit: LIST_LIMIT_MAX };
  const time = timeInId(id);
  const atTime = time === undefined ? undefined : await store.attacks({ ...query, from: time, to: time + 1 });
  const list = atTime?.total ? atTime : await store.attacks({ ...query, ...ALL_TIME });
  if (list.total === 0)
    throw new ApiError(
      'WAF.4000',
      `the project has no event with the ID '${id.slice(0, 128)}', or no longer keeps it`,
    );
  return eventsJson(list, await store.hosts(project), geo, { total: list.total });
}

/** A thousand items can have 20 MB: other requests get their turn in between. */
const ITEMS_PER_TURN = 100;

async function eventsJson(
  { items }: AttackList,
  hosts: readonly Host[],
  geo: GeoIp | undefined,
  before: object,
  after: object = {},
): Promise<Buffer> {
  const ids = new Set(items.map(({ hostId }) => hostId));
  const names = new Map(hosts.filter(({ id }) => ids.has(id)).map(({ id, hostname }) => [id, hostname]));
  const texts: string[] = [];
  for (const entry of items) {
    const { source, country = source && geo?.country(source) } = entry;
    texts.push(JSON.stringify({ ...eventItem(entry, names), region: country }));
    if (texts.length % ITEMS_PER_TURN === 0) await setImmediate();
  }
  const [start, end] = [JSON.stringify(before).slice(0, -1), JSON.stringify(after).slice(1)];
  return Buffer.from(`${start},"items":[${texts.join()}]${end === '}' ? '' : ','}${end}`);
}

/** Under the field names of the API family, and `method`, `rules`, `score`, `user_agent` and `count`. */
export function eventItem(entry: AttackEntry, hostnames: ReadonlyMap<string, string>) {
  const { id, time, source, hostId, url, query, category, blocked, country, status, rules } = entry;
  const { method, score, userAgent, count } = entry;
  const [first] = rules;
  const target = url === undefined || query === undefined ? url : `${url}?${query}`;
  return {
    id,
    time,
    sip: source,
    host: hostId === null ? undefined : (hostnames.get(hostId) ?? hostId),
    host_id: hostId ?? undefined,
    url,
    attack: category,
    rule: first?.id,
    payload: first?.value,
    payload_location: payloadLocation(first),
    // As in the counts of actions.
    action: blocked ? 'block' : 'log',
    request_line: target === undefined || method === undefined ? target : `${method} ${target}`,
    status: status === undefined ? undefined : String(status),
    region: country,
    method,
    rules: rules.length === 0 ? undefined : rules,
    score,
    user_agent: userAgent,
    count: count === 1 ? undefined : count,
  };
}

const LOCATIONS = ['params', 'uri', 'body', 'header'] as const;

/** Where the variables of ModSecurity and Coraza are in a request. */
const VARIABLES: readonly [RegExp, (typeof LOCATIONS)[number]][] = [
  [/^(REQUEST_BODY|FILES|MULTIPART|XML|JSON|ARGS_POST|BODY)/i, 'body'],
  [/^ARGS|^QUERY/i, 'params'],
  [/^(REQUEST_(URI|FILENAME|BASENAME|LINE|METHOD|PROTOCOL)|PATH|URI|URL)/i, 'uri'],
  [/^REQUEST_(HEADERS|COOKIES)|^(HEADER|COOKIE)/i, 'header'],
];

function payloadLocation(rule: MatchedRule | undefined): string | undefined {
  return VARIABLES.find(([pattern]) => pattern.test(rule?.variable ?? ''))?.[1];
}

const PAGE_PARAMETERS = {
  page: integer('Number of the page, from 1. A page after the last one has no items.', {
    minimum: 1,
    default: 1,
  }),
  pagesize: integer('Events per page.', { minimum: 1, maximum: LIST_LIMIT_MAX, default: EVENTS_PER_PAGE }),
  offset: integer('Number of the page, from 0. Not together with `page` and `pagesize`.', {
    minimum: 0,
    default: 0,
  }),
  limit: integer('Events per page, together with `offset`.', {
    minimum: 1,
    maximum: LIST_LIMIT_MAX,
    default: EVENTS_PER_PAGE,
  }),
  sort_key: string('Events are sorted by time.', { enum: ['attack_time'], default: 'attack_time' }),
  sort_direction: string('`asc`: oldest first.', { enum: ['desc', 'asc'], default: 'desc' }),
};

const RULE = partialObject(
  {
    id: string('Rule ID, as in the log.'),
    variable: string('What matched, like `ARGS:q`.'),
    value: string('The part that matched, at most 128 bytes. Secrets are masked.'),
    severity: string('Severity, like `critical`.'),
  },
  { required: ['id'] },
);

const EVENT = partialObject(
  {
    id: string('ID of the request in its log, or one that identifies the event.'),
    time: integer('Time, milliseconds since the epoch.'),
    sip: string('Address of the client; for IPv6 its /64 network.'),
    host: string('Host name. Absent without a registered host.'),
    host_id: string('Host ID. Absent without a registered host.'),
    url: string('Path, without the query.'),
    attack: CATEGORY,
    rule: string('ID of the rule that decided the category.'),
    payload: string('What this rule matched.'),
    payload_location: string('Where in the request it matched.', { enum: LOCATIONS }),
    action: string('`log`: the attack was not blocked, or the log does not say.', { enum: ['block', 'log'] }),
    request_line: string('Method, and path with query. Secrets are masked.'),
    status: string('Response code, like `403`.'),
    region: string('ISO 3166-1 country code, like `DE`.'),
    method: string('Method.'),
    rules: array(RULE, { description: 'All matched rules, at most 32: the one that decided first.' }),
    score: integer('Inbound anomaly score.'),
    user_agent: string('User agent, at most 128 bytes.'),
    count: integer('Number of identical attacks. Absent if it is 1.', { minimum: 2 }),
  },
  { required: ['id', 'time', 'attack', 'action'] },
);

const EVENT_LIST = object({
  total: integer('Number of events on all pages.'),
  items: array(EVENT),
  matched_attacks: integer('Number of attacks of these events: the sum of `count` on all pages.'),
  attacks: integer(
    'Exact number of attacks in the range, of these hosts and categories; other filters do not apply.',
  ),
  kept: integer('Number of events that are kept of these attacks.'),
  kept_attacks: integer('How many of these attacks are kept: the sum of `count` of the kept events.'),
  complete: {
    type: 'boolean',
    description:
      'Whether all of these attacks are kept. An hour with more than `--events-max` keeps a sample, and events are deleted after `--details-retention`.',
  },
});
