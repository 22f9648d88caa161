/** The counts of a dashboard: between any edges, by category, and of all hosts at once. */
import { malformed } from '../../errors.ts';
import { CATEGORIES } from '../../event.ts';
import { valueAt } from '../../json-path.ts';
import type { Store } from '../../store/store.ts';
import { optionalFlagAt, parseJson } from '../auth/json-body.ts';
import { SESSION_ONLY } from '../auth/session-cookie.ts';
import { parseTimelineQuery } from '../query.ts';
import { pathParameter, type Route } from '../route.ts';
import type { Admission } from '../statistics/admission.ts';
import { runAdmitted } from '../statistics/query-handler.ts';
import { contentResponse, sendResponse } from '../statistics/response-cache.ts';

/** Two periods, with as many points as the widest screens can show. */
const EDGES_MAX = 2_002;
/** Points of all hosts together; limits the size of a response. */
const HOST_POINTS_MAX = 60_000;
/** How long to work before other queries get their turn. */
const TURN_MS_MAX = 5;

export function figuresRoute(store: Store, admission: Admission, now: () => number): Route {
  return {
    method: 'POST',
    url: '/console/api/projects/:project_id/figures',
    ...SESSION_ONLY,
    allow: 'reader',
    /**
     * Requests, attacks and blocked attacks between neighbouring `edges`; categories without attacks are left out. With
     * `by_host`, also of each host. With the API, the console would need one request per host, and ten times the bytes.
     */
    async handler(request, reply) {
      const project = pathParameter(request, 'project_id');
      const admit = <T>(compute: () => Promise<T>) => runAdmitted(admission, request, compute);
      const count = async (hosts: readonly string[] | undefined, edges: readonly number[]) => {
        const [requests, ...rows] = await store.count({ project, hosts, edges, rows: 'everything' });
        const attacks = byCategory(rows.slice(0, CATEGORIES.length));
        return { requests: [...requests], attacks, blocked: byCategory(rows.slice(CATEGORIES.length)) };
      };
      const { edges, hosts, ...whole } = await admit(async () => {
        const { edges, hosts: filter, byHost } = parseFigures(parseJson(request.body), now());
        const wanted = filter && new Set(filter);
        const hosts = byHost ? (await store.hosts(project)).filter(({ id }) => wanted?.has(id) ?? true) : [];
        if (hosts.length * (edges.length - 1) > HOST_POINTS_MAX)
          throw malformed(`${hosts.length} hosts with ${edges.length - 1} points each are too many`);
        const sources = await store.sources(project);
        return { edges, hosts, first_seen: earliest(sources), ...(await count(filter, edges)) };
      });
      const items: object[] = [];
      // One admission for all hosts would keep other queries waiting until they are shed.
      while (items.length < hosts.length) {
        await admit(async () => {
          const end = performance.now() + TURN_MS_MAX;
          for (const { id, hostname } of hosts.slice(items.length)) {
            items.push({ id, hostname, ...(await count([id], edges)) });
            if (performance.now() >= end) break;
          }
        });
      }
      return sendResponse(request, reply, contentResponse({ ...whole, items }));
    },
  };
}

function parseFigures(fields: unknown, now: number) {
  const edges = valueAt(fields, 'edges');
  const isEdge = (edge: unknown, i: number, all: unknown[]) =>
    Number.isSafeInteger(edge) && (edge as number) >= ((all[i - 1] as number) ?? 0);
  if (!Array.isArray(edges) || edges.length < 2 || edges.length > EDGES_MAX || !edges.every(isEdge))
    throw malformed(`edges must be a list of 2 to ${EDGES_MAX} times, in milliseconds, none before another`);
  const hosts = valueAt(fields, 'hosts');
  if (hosts !== undefined && !(Array.isArray(hosts) && hosts.every((id) => typeof id === 'string')))
    throw malformed('hosts must be a list of host IDs');
  const range = { from: String(edges[0]), to: String(edges.at(-1)) };
  const query = parseTimelineQuery(hosts === undefined ? range : { ...range, hosts }, now);
  return { edges: edges as number[], hosts: query.hosts, byHost: optionalFlagAt(fields, 'by_host') ?? false };
}

function byCategory(rows: readonly Float64Array[]): Record<string, readonly number[]> {
  const entries = CATEGORIES.map((name, i) => [name, [...(rows[i] ?? [])]] as const);
  return Object.fromEntries(entries.filter(([, counts]) => counts.some((n) => n > 0)));
}

function earliest(sources: readonly { first_seen: number | null }[]): number | null {
  const times = sources.flatMap(({ first_seen }) => (first_seen === null ? [] : [first_seen]));
  return times.length === 0 ? null : Math.min(...times);
}
