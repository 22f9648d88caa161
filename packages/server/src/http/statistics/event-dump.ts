/** Kept attacks as CSV, one file per local day. A file is written while it is downloaded. */
import { Readable } from 'node:stream';
import { setTimeout } from 'node:timers/promises';
import { csv, csvRows } from '../../csv.ts';
import { ApiError, retryLater } from '../../errors.ts';
import { DAY_MS, startOfDay } from '../../statistics/grid.ts';
import { RANGE_MS_MAX } from '../../statistics/range.ts';
import { type AttackEntry, type AttackList, HOUR_MS, type Store } from '../../store/store.ts';
import { UTC, type Zone, zoneOf } from '../../zone.ts';
import { baseOf } from '../keystone/keystone.ts';
import {
  checkNames,
  type Page,
  parseHostsPage,
  parseTimezone,
  queryOf,
  type RawQuery,
  type StatisticsQuery,
  single,
} from '../query.ts';
import {
  array,
  callerOf,
  integer,
  noPath,
  object,
  ok,
  PROJECT_PATH,
  partialObject,
  pathParameter,
  type Route,
  string,
} from '../route.ts';
import type { Admission } from './admission.ts';
import { type Call, TIMEZONE_PARAMETER } from './call.ts';
import { eventItem } from './event-calls.ts';
import { type QueryHandlers, runAdmitted } from './query-handler.ts';

/** The days of the list are the whole range. */
type DumpQuery = StatisticsQuery & Page & { zone: Zone; timezone: string; now: number };

export function dumpCall(
  store: Store,
  { uncached }: QueryHandlers,
  allow: 'reader' | 'admin',
  publicUrl: string | null,
): Call {
  return {
    path: 'event/dump',
    operationId: 'eventDumps',
    tag: 'events',
    allow,
    hasNoRange: true,
    summary: 'List the local days that have kept attacks, newest first, with the URL of a CSV file of each',
    parameters: { timezone: TIMEZONE_PARAMETER, ...PAGE_PARAMETERS },
    returns: [
      'One page of days, by default all.',
      object({ total: integer('Number of days on all pages.'), items: array(DUMP) }),
    ],
    handler: uncached(parseDumpQuery, async (query, _notes, request) => {
      const base = `${baseOf({ publicUrl }, request)}/v1/${query.project}/waf/event/dump`;
      const days = await daysWithEvents(store, query);
      const items = days.slice(query.skip, query.skip + query.size).map(({ day, total, start, end }) => ({
        id: day,
        filename: `${day}.csv`,
        total,
        url: `${base}/${day}.csv${query.timezone === '' ? '' : `?timezone=${encodeURIComponent(query.timezone)}`}`,
        timestamp: Math.min(end, query.now),
        start,
        end,
      }));
      return { total: days.length, items };
    }),
  };
}

export function dumpRoute(store: Store, admission: Admission, allow: 'reader' | 'admin'): Route {
  /** Running downloads, by user. */
  const downloads = new Map<string, number>();

  return {
    method: 'GET',
    url: '/v1/:project_id/waf/event/dump/:file',
    allow,
    schema: {
      operationId: 'eventDump',
      tags: ['events'],
      summary: 'Download the kept attacks of a local day as CSV, oldest first',
      description:
        'Columns whose names begin with `untrusted_` have values of clients. An apostrophe precedes text that a spreadsheet would run as a formula.',
      params: object({ ...PROJECT_PATH.properties, file: string('The day, like `2026-11-16.csv`.') }),
      querystring: partialObject({ timezone: TIMEZONE_PARAMETER }),
      response: ok('The events.', { type: 'string' }),
    },
    async handler(request, reply) {
      const query = queryOf(request);
      checkNames(query, ['timezone']);
      const zone = parseTimezone(query, zoneOf) ?? UTC;
      const project = pathParameter(request, 'project_id');
      const file = pathParameter(request, 'file');
      const midnight = Date.parse(file.slice(0, 10));
      // Some days do not exist, such as 31 February.
      if (Number.isNaN(midnight) || `${dayText(midnight / DAY_MS)}.csv` !== file)
        throw noPath(request, ': the name of a file is a day, like 2026-11-16.csv');
      const day = midnight / DAY_MS;
      const hosts = await store.hosts(project);
      const names = new Map(hosts.map(({ id, hostname }) => [id, hostname]));
      const read = (from: number, to: number, offset: number) =>
        retried(() =>
          runAdmitted(admission, request, () =>
            store.attacks({ project, from, to, filter: EVERYTHING, isAscending: true, offset, limit: PAGE }),
          ),
        );
      reply.header('Content-Type', 'text/csv; charset=utf-8').header('Cache-Control', 'private, no-cache');
      reply.header('Content-Disposition', `attachment; filename="${file}"`);
      const rows = csvOf(startOfDay(day, zone), startOfDay(day + 1, zone), read, names);
      if (request.method === 'HEAD') return reply.send('');
      const { id } = callerOf(request).user;
      const running = downloads.get(id) ?? 0;
      if (running === DOWNLOADS_MAX)
        throw retryLater('WAF.3004', `you have ${running} downloads: wait until one of them ends`, 5);
      downloads.set(id, running + 1);
      const content = Readable.from(rows, { highWaterMark: 1 });
      content.once('close', () => {
        const others = (downloads.get(id) ?? 1) - 1;
        if (others === 0) downloads.delete(id);
        else downloads.set(id, others);
      });
      return reply.send(content);
    },
  };
}

const EVERYTHING = { include: {}, exclude: {} };
/** Events in memory at a time, for each download: up to 5 MB. */
const PAGE = 250;
/** Of a user at a time. Clients that do not read are disconnected after a minute. */
const DOWNLOADS_MAX = 4;

function parseDumpQuery(query: RawQuery, now: number): DumpQuery {
  checkNames(query, ['timezone', ...Object.keys(PAGE_PARAMETERS)]);
  const zone = parseTimezone(query, zoneOf) ?? UTC;
  const tomorrow = dayOf(now, zone) + 1;
  return {
    from: startOfDay(tomorrow + 1 - RANGE_MS_MAX / DAY_MS, zone),
    // Events may be up to a day ahead of the clock.
    to: startOfDay(tomorrow + 1, zone),
    hosts: undefined,
    zone,
    timezone: single(query, 'timezone')?.replaceAll(' ', '+') ?? '',
    now,
    ...parseHostsPage(query),
  };
}

/** Days since the epoch, of the local clock. */
function dayOf(time: number, zone: Zone): number {
  return Math.floor((time + zone.offsetAt(time)) / DAY_MS);
}

function dayText(day: number): string {
  return new Date(day * DAY_MS).toISOString().slice(0, 10);
}

/** Newest first. */
async function daysWithEvents(store: Store, { project, from, to, zone }: DumpQuery & { project: string }) {
  const [first, last] = [dayOf(from, zone), dayOf(to - 1, zone)];
  const edges = Array.from({ length: last - first + 2 }, (_, i) => startOfDay(first + i, zone));
  const [attacks] = await store.count({ project, edges, rows: 'attacks' });
  const days: { day: string; total: number; start: number; end: number }[] = [];
  for (let i = attacks.length - 1; i >= 0; i--) {
    // Events are kept for a shorter time than counts, and each is counted.
    if (attacks[i] === 0) continue;
    const [start = 0, end = 0] = edges.slice(i, i + 2);
    const query = { project, from: start, to: end, filter: EVERYTHING, isAscending: true };
    const { total } = await store.attacks({ ...query, offset: 0, limit: 0 });
    if (total > 0) days.push({ day: dayText(first + i), total, start, end });
  }
  return days;
}

/** In parts of an hour, so that each part reads little, and later events do not move those that follow. */
async function* csvOf(
  from: number,
  to: number,
  read: (from: number, to: number, offset: number) => Promise<AttackList>,
  names: ReadonlyMap<string, string>,
): AsyncGenerator<string> {
  yield csv(CSV_COLUMNS, []);
  let [start, offset] = [from, 0];
  while (start < to) {
    const end = Math.min(to, (Math.floor(start / HOUR_MS) + 1) * HOUR_MS);
    const { items } = await read(start, end, offset);
    if (items.length > 0) yield csvRows(items.map((entry) => csvRow(entry, names)));
    const { time } = items.at(-1) ?? { time: end };
    if (items.length < PAGE) [start, offset] = [end, 0];
    else {
      const atSameTime = items.filter((entry) => entry.time === time).length;
      [start, offset] = [time, (time === start ? offset : 0) + atSameTime];
    }
  }
}

/** `wafstat events --output csv` has the same. */
export const CSV_COLUMNS = [
  ...['time', 'sip', 'region', 'attack', 'action', 'status', 'score', 'count', 'rules'],
  ...['host', 'id', 'method', 'url', 'request_line', 'variable', 'payload', 'user_agent'].map(
    (name) => `untrusted_${name}`,
  ),
];

function csvRow(entry: AttackEntry, names: ReadonlyMap<string, string>): (string | number)[] {
  const item = eventItem(entry, names);
  const rules = entry.rules.map(({ id }) => id).join(' ');
  const counted = [item.status, item.score, entry.count, rules];
  const trusted = [item.sip, item.region, item.attack, item.action, ...counted];
  const request = [item.method, item.url, item.request_line];
  const untrusted = [item.host, item.id, ...request, entry.rules[0]?.variable];
  const cells = [...trusted, ...untrusted, item.payload, item.user_agent];
  return [new Date(item.time).toISOString(), ...cells.map((cell) => cell ?? '')];
}

/** A minute, if the service is overloaded. */
const ATTEMPTS_MAX = 60;

/** Once the download has begun, an error would cut the file off. */
async function retried<T>(read: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await read();
    } catch (error) {
      const afterS = error instanceof ApiError ? error.headers['Retry-After'] : undefined;
      if (afterS === undefined || attempt === ATTEMPTS_MAX) throw error;
      await setTimeout(Number(afterS) * 1_000);
    }
  }
}

const PAGE_PARAMETERS = {
  page: integer('Number of the page, from 1.', { minimum: 1, default: 1 }),
  pagesize: integer('Days per page; -1 for all.', { minimum: -1, default: -1 }),
  offset: integer('Number of the page, from 0. Not together with `page` and `pagesize`.', {
    minimum: 0,
    default: 0,
  }),
  limit: integer('Days per page, together with `offset`; -1 for all.', { minimum: -1 }),
};

const DUMP = object({
  id: string('The day, like `2026-11-16`.'),
  filename: string('Name of the file.'),
  total: integer('Number of events.'),
  url: string('Where to download the file, with the same authentication.'),
  timestamp: integer('Time of the content: the end of the day, or now. Milliseconds since the epoch.'),
  start: integer('Start of the day, milliseconds since the epoch.'),
  end: integer('End of the day (exclusive), milliseconds since the epoch.'),
});
