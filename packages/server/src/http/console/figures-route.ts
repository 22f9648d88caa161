/** The counts of a dashboard: between any edges, by category, and of all hosts at once. */
import { malformed } from '../../errors.ts';
import { CATEGORIES, CODE_CLASSES } from '../../event.ts';
import { valueAt } from '../../json-path.ts';
import {
  FilteredStatistics,
  needsKeptAttacks,
  readCounted,
  selectedCategories,
  sumOf,
} from '../../statistics/filtered.ts';
import { requestPeak } from '../../statistics/overview.ts';
import type { Range } from '../../statistics/range.ts';
import { wholeMinutes } from '../../statistics/responses.ts';
import { type AttackFilter, QueryTooLarge, type Selection, type Store } from '../../store/store.ts';
import { optionalFlagAt, parseJson } from '../auth/json-body.ts';
import { SESSION_ONLY } from '../auth/session-cookie.ts';
import { parseTotalsQuery, type RawQuery } from '../query.ts';
import { pathParameter, type Route } from '../route.ts';
import type { Admission } from '../statistics/admission.ts';
import { withFilter } from '../statistics/attack-filters.ts';
import { runAdmitted } from '../statistics/query-handler.ts';
import { contentResponse, sendResponse } from '../statistics/response-cache.ts';

/** Two periods, with as many points as the widest screens can show. */
const EDGES_MAX = 2_002;
/** Points of all hosts together; limits the size of a response. */
const HOST_POINTS_MAX = 60_000;
/** How long to work before other queries get their turn. */
const TURN_MS_MAX = 5;

export function figuresRoute(
  store: Store,
  admission: Admission,
  now: () => number,
  annotationsIn: (project: string, range: Range) => readonly object[],
): Route {
  return {
    method: 'POST',
    url: '/console/api/projects/:project_id/figures',
    ...SESSION_ONLY,
    allow: 'reader',
    /**
     * Requests, attacks and blocked attacks between neighbouring `edges`; categories without attacks are left out. `filter`
     * selects attacks as in the API, requests are always all. With `by_host`, also of each host; with `peak`, also the
     * requests of the busiest second; with `annotations`, also those of the range; with `responses`, also
     * response codes and bytes. With the API, the console would need one request per host, and ten times the bytes.
     */
    async handler(request, reply) {
      const project = pathParameter(request, 'project_id');
      const admit = <T>(compute: () => Promise<T>) => runAdmitted(admission, request, compute);
      const { query, hosts, ...whole } = await admit(async () => {
        const { byHost, hasPeak, hasAnnotations, hasResponses, ...parsed } = parseFigures(
          parseJson(request.body),
          now(),
        );
        const query = { ...parsed, project };
        const wanted = query.hosts && new Set(query.hosts);
        const hosts = byHost ? (await store.hosts(project)).filter(({ id }) => wanted?.has(id) ?? true) : [];
        const points = query.edges.length - 1;
        if (hosts.length * points > HOST_POINTS_MAX)
          throw malformed(`${hosts.length} hosts with ${points} points each are too many`);
        const first_seen = earliest(await store.sources(project));
        return {
          query,
          hosts,
          first_seen,
          ...(hasAnnotations && { annotations: annotationsIn(project, rangeOf(query)) }),
          ...(hasResponses && { responses: await responses(store, query) }),
          ...(hasPeak && (await peak(store, query))),
          ...(await count(store, query)),
        };
      });
      const items: object[] = [];
      if (hosts.length > 0 && needsKeptAttacks(query.filter)) {
        const byHost = await admit(() => countByHost(store, query));
        const none = query.edges.slice(1).map(() => 0);
        for (const { id, hostname } of hosts)
          items.push({ id, hostname, requests: none, attacks: [...(byHost.get(id)?.[0] ?? none)] });
      }
      // One admission for all hosts would keep other queries waiting until they are shed.
      while (items.length < hosts.length) {
        await admit(async () => {
          const end = performance.now() + TURN_MS_MAX;
          for (const { id, hostname } of hosts.slice(items.length)) {
            const { requests, attacks } = await count(store, { ...query, hosts: [id] });
            const sums = query.edges
              .slice(1)
              .map((_, i) => sum(Object.values(attacks).map((row) => row[i] ?? 0)));
            items.push({ id, hostname, requests, attacks: sums });
            if (performance.now() >= end) break;
          }
        });
      }
      return sendResponse(request, reply, contentResponse({ ...whole, items }));
    },
  };
}

type FiguresQuery = Selection & { edges: readonly number[]; filter: AttackFilter };

/** `kept`: how many of the attacks of the range, hosts and categories the filter could select from. */
async function count(store: Store, query: FiguresQuery) {
  const { filter, ...points } = query;
  if (!needsKeptAttacks(filter)) {
    const [requests, ...rows] = await store.count({ ...points, rows: 'everything' });
    const categories = selectedCategories(filter);
    const attacks = byCategory((_, i) => rows[i], categories);
    const blocked = byCategory((_, i) => rows[CATEGORIES.length + i], categories);
    return { requests: [...requests], attacks, blocked };
  }
  const [requests] = await store.count({ ...points, rows: 'timeline' });
  const statistics = new FilteredStatistics(store, filter);
  const range = { ...rangeOf(query), filter };
  const [actions, counted] = await readCounted(store, range, () => statistics.actions(points));
  const attacks = byCategory((name) => sumOf(query.edges, actions, ({ category }) => category === name));
  const blocked = byCategory((name) =>
    sumOf(query.edges, actions, ({ category, isBlocked }) => isBlocked && category === name),
  );
  const kept = { attacks: counted, kept: statistics.keptAttacks };
  return { requests: [...requests], attacks, blocked, kept };
}

/**
 * Requests by class of their response code, and the bytes that clients sent and got; rows that are zero are left out. Bytes are
 * kept by minute: a point has those of the minutes that begin in it, the last also those of the minute that it cuts.
 */
async function responses(store: Store, { project, hosts, edges }: FiguresQuery) {
  const classes = await store.count({ project, hosts, edges, rows: 'codeClasses' });
  const last = edges.length - 1;
  const minutes = edges.map((time, i) => wholeMinutes({ from: time, to: time })[i === last ? 'to' : 'from']);
  const bytes = await store.count({ project, hosts, edges: minutes, rows: 'traffic' });
  const names = [...CODE_CLASSES, 'received', 'sent'];
  const rows = [...classes, ...bytes].map((row, i) => [names[i] ?? '', [...row]] as const);
  return Object.fromEntries(rows.filter(([, counts]) => counts.some((n) => n > 0)));
}

function countByHost(store: Store, { filter, ...points }: FiguresQuery) {
  return new FilteredStatistics(store, filter).count({ ...points, rows: 'attacks', byHost: true });
}

/** Null if there is too much to read, as for many hosts. */
async function peak(store: Store, query: FiguresQuery): Promise<{ peak: number | null }> {
  try {
    return { peak: await requestPeak(store, rangeOf(query)) };
  } catch (error) {
    if (error instanceof QueryTooLarge) return { peak: null };
    throw error;
  }
}

function rangeOf({ project, hosts, edges }: FiguresQuery) {
  return { project, hosts, from: edges[0] ?? 0, to: edges.at(-1) ?? 0 };
}

const parseRangeAndFilter = withFilter(parseTotalsQuery);

function parseFigures(fields: unknown, now: number) {
  const edges = valueAt(fields, 'edges');
  const isEdge = (edge: unknown, i: number, all: unknown[]) =>
    Number.isSafeInteger(edge) && (edge as number) >= ((all[i - 1] as number) ?? 0);
  if (!Array.isArray(edges) || edges.length < 2 || edges.length > EDGES_MAX || !edges.every(isEdge))
    throw malformed(`edges must be a list of 2 to ${EDGES_MAX} times, in milliseconds, none before another`);
  const hosts = valueAt(fields, 'hosts');
  if (hosts !== undefined && !isTexts(hosts)) throw malformed('hosts must be a list of host IDs');
  const lists = valueAt(fields, 'filter') ?? {};
  if (typeof lists !== 'object' || !Object.values(lists as object).every(isTexts))
    throw malformed('filter must be an object of lists, such as {"sips":["192.0.2.1"]}');
  const range = { from: String(edges[0]), to: String(edges.at(-1)) };
  const raw: RawQuery = { ...(lists as RawQuery), ...(hosts === undefined ? {} : { hosts }), ...range };
  const { hosts: ids, filter = { include: {}, exclude: {} } } = parseRangeAndFilter(raw, now);
  const flag = (name: string) => optionalFlagAt(fields, name) ?? false;
  return {
    edges: edges as number[],
    hosts: ids,
    filter,
    byHost: flag('by_host'),
    hasPeak: flag('peak'),
    hasAnnotations: flag('annotations'),
    hasResponses: flag('responses'),
  };
}

function isTexts(value: unknown): value is string[] {
  return Array.isArray(value) && value.every((item) => typeof item === 'string');
}

function byCategory(
  rowOf: (name: string, index: number) => Float64Array | undefined,
  categories: readonly string[] = CATEGORIES,
): Record<string, readonly number[]> {
  const entries = CATEGORIES.map((name, i) => [name, [...(rowOf(name, i) ?? [])]] as const);
  return Object.fromEntries(
    entries.filter(([name, counts]) => categories.includes(name) && counts.some((n) => n > 0)),
  );
}

function sum(counts: readonly number[]): number {
  return counts.reduce((total, n) => total + n, 0);
}

function earliest(sources: readonly { first_seen: number | null }[]): number | null {
  const times = sources.flatMap(({ first_seen }) => (first_seen === null ? [] : [first_seen]));
  return times.length === 0 ? null : Math.min(...times);
}
