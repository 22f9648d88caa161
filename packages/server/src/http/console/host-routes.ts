/** Adds, renames and deletes hosts, and returns the numbers of all hosts at once. */
import type { AuditTrail } from '../../audit/audit-trail.ts';
import { hostAdministration } from '../../audit/host-administration.ts';
import { ApiError, malformed } from '../../errors.ts';
import { normalHostname } from '../../event.ts';
import type { Store } from '../../store/store.ts';
import { actorOf } from '../auth/actor.ts';
import { parseJson, textAt } from '../auth/json-body.ts';
import { SESSION_ONLY } from '../auth/session-cookie.ts';
import { parseTimelineQuery, parseWhole, queryOf } from '../query.ts';
import { callerOf, pathParameter, type Route } from '../route.ts';
import type { Admission } from '../statistics/admission.ts';

const PATH = '/console/api/projects/:project_id/hosts';

/** Keeps a faulty script from filling the store. */
const HOSTS_MAX = 100_000;
/** Enough for a small chart; limits the size of a response. */
const POINTS_MAX = 100;
/** How long to work before other queries get their turn. */
const TURN_MS_MAX = 5;

export function hostRoutes(
  store: Store,
  admission: Admission,
  audit: AuditTrail,
  now: () => number,
): Route[] {
  const administration = hostAdministration(store, audit);
  return [
    {
      method: 'GET',
      url: `${PATH}/figures`,
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
    {
      method: 'POST',
      url: PATH,
      ...SESSION_ONLY,
      allow: 'admin',
      async handler(request, reply) {
        const project = pathParameter(request, 'project_id');
        const hostname = hostnameIn(request.body);
        const added = await administration.add(actorOf(request), { project, hostname, limit: HOSTS_MAX });
        if (added.kind === 'added') return reply.code(201).send(added.host);
        throw malformed(
          added.kind === 'full'
            ? `the project has reached its limit of ${HOSTS_MAX} hosts`
            : `the project already has a host ${hostname}`,
        );
      },
    },
    {
      method: 'PUT',
      url: `${PATH}/:host_id`,
      ...SESSION_ONLY,
      allow: 'admin',
      async handler(request) {
        const project = pathParameter(request, 'project_id');
        const id = pathParameter(request, 'host_id');
        const hostname = hostnameIn(request.body);
        const renamed = await administration.rename(actorOf(request), { project, id, hostname });
        if (renamed.kind === 'renamed') return renamed.host;
        throw renamed.kind === 'unknown'
          ? new ApiError('WAF.4000', 'unknown host')
          : malformed(`another host of the project already has the name ${hostname}`);
      },
    },
    {
      method: 'DELETE',
      url: `${PATH}/:host_id`,
      ...SESSION_ONLY,
      allow: 'admin',
      async handler(request, reply) {
        const project = pathParameter(request, 'project_id');
        const id = pathParameter(request, 'host_id');
        const deleted = await administration.delete(actorOf(request), { project, id });
        if (deleted.kind === 'unknown') throw new ApiError('WAF.4000', 'unknown host');
        return reply.code(204).send();
      },
    },
  ];
}

function hostnameIn(body: unknown): string {
  const hostname = normalHostname(textAt(parseJson(body), 'hostname'));
  if (hostname === null) throw malformed('hostname must be a host name, such as www.example.com');
  return hostname;
}

function equalParts(from: number, to: number, points: number): number[] {
  return Array.from({ length: points + 1 }, (_, i) => Math.round(from + ((to - from) * i) / points));
}
