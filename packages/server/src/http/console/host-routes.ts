/** The numbers of all hosts at once. */
import type { Store } from '../../store/store.ts';
import { SESSION_ONLY } from '../auth/session-cookie.ts';
import { parseTimelineQuery, parseWhole, queryOf } from '../query.ts';
import { callerOf, pathParameter, type Route } from '../route.ts';
import type { Admission } from '../statistics/admission.ts';

/** Enough for a small chart; limits the size of a response. */
const POINTS_MAX = 100;
/** How long to work before other queries get their turn. */
const TURN_MS_MAX = 5;

export function hostRoutes(store: Store, admission: Admission, now: () => number): Route[] {
  return [
    {
      method: 'GET',
      url: '/console/api/projects/:project_id/hosts/figures',
      ...SESSION_ONLY,
      allow: 'reader',
      /**
       * Requests and attacks of each host and of all hosts, in `points` equal parts of the range (default 1). With the
       * API, the console would need one request per host, each with up to a thousand points.
       */
      async handler(request) {
        const project = pathParameter(request, 'project_id');
        const admit = <T>(compute: () => Promise<T>) =>
          admission.run(project, callerOf(request).user.id, compute);
        const figuresOf = async (selected: readonly string[] | undefined, edges: readonly number[]) => {
          const [requests, attacks] = await store.count({
            project,
            hosts: selected,
            edges,
            rows: 'timeline',
          });
          return { requests: [...requests], attacks: [...attacks] };
        };
        const { edges, hosts, total } = await admit(async () => {
          const query = queryOf(request);
          const { from, to, hosts: filter } = parseTimelineQuery(query, now());
          const edges = equalParts(from, to, parseWhole(query, 'points', 1, 1, POINTS_MAX));
          const wanted = filter && new Set(filter);
          const hosts = (await store.hosts(project)).filter(({ id }) => wanted?.has(id) ?? true);
          return { edges, hosts, total: await figuresOf(filter, edges) };
        });
        const items: object[] = [];
        // One admission for all hosts would keep other queries waiting until they are shed.
        while (items.length < hosts.length) {
          await admit(async () => {
            const end = performance.now() + TURN_MS_MAX;
            for (const { id, hostname } of hosts.slice(items.length)) {
              items.push({ id, hostname, ...(await figuresOf([id], edges)) });
              if (performance.now() >= end) break;
            }
          });
        }
        return { ...total, items };
      },
    },
  ];
}

function equalParts(from: number, to: number, points: number): number[] {
  return Array.from({ length: points + 1 }, (_, i) => Math.round(from + ((to - from) * i) / points));
}
