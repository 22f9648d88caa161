/** Hosts: adding and naming them, and the numbers of all of them at a glance. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { AuditTrail } from '../../audit/audit-trail.ts';
import { hostAdministration } from '../../audit/host-administration.ts';
import { ApiError } from '../../errors.ts';
import { normalHostname } from '../../event.ts';
import type { Store } from '../../store/store.ts';
import { actorOf } from '../auth/actor.ts';
import { parseJson, text } from '../auth/login.ts';
import { parseTimelineQuery, queryOf } from '../query.ts';
import type { Route } from '../route.ts';

const PATH = '/console/api/projects/:project_id/hosts';

/** Hosts that a person adds are not attacker input; this only keeps a script's mistake from filling the store. */
const HOSTS_MAX = 100_000;
/** A small line needs no more, and it bounds the size of an answer. */
const POINTS_MAX = 100;
/** Some five milliseconds of work; then whoever else waits has a turn. */
const HOSTS_PER_TURN = 64;

export function hostRoutes(store: Store, audit: AuditTrail): Route[] {
  const administration = hostAdministration(store, audit);
  return [
    {
      method: 'GET',
      url: `${PATH}/figures`,
      allow: 'reader',
      session: 'only',
      schema: { hide: true },
      /**
       * Requests and attacks of each host, and of all together, in `points` equal parts of the range (one unless asked
       * for more). The API could be asked host by host, but a project may have a thousand, and each answer has a
       * thousand points.
       */
      async handler(request) {
        const { project_id: project } = request.params as { project_id: string };
        const query = queryOf(request);
        const { from, to, hosts: wanted } = parseTimelineQuery(query, 0);
        const edges = equalParts(from, to, parsePoints(query.points));
        const hosts = (await store.hosts(project)).filter(({ id }) => wanted?.includes(id) ?? true);
        const items = [];
        for (const [i, { id, hostname }] of hosts.entries()) {
          if (i % HOSTS_PER_TURN === HOSTS_PER_TURN - 1) await nextTurn();
          const { requests, attacks } = await store.series({ project, hosts: [id], edges });
          items.push({ id, hostname, requests: [...requests], attacks: [...attacks] });
        }
        const total = await store.series({ project, hosts: wanted, edges });
        return { requests: [...total.requests], attacks: [...total.attacks], items };
      },
    },
    {
      method: 'POST',
      url: PATH,
      allow: 'admin',
      session: 'only',
      schema: { hide: true },
      async handler(request, reply) {
        const { project_id: project } = request.params as { project_id: string };
        const hostname = hostnameIn(request.body);
        const added = await administration.add(actorOf(request), { project, hostname, limit: HOSTS_MAX });
        if (added.kind === 'added') return reply.code(201).send(added.host);
        throw new ApiError(
          'WAF.1001',
          added.kind === 'full'
            ? `the project has its limit of ${HOSTS_MAX} hosts`
            : `${hostname} is registered already`,
        );
      },
    },
    {
      method: 'PUT',
      url: `${PATH}/:host_id`,
      allow: 'admin',
      session: 'only',
      schema: { hide: true },
      async handler(request) {
        const { project_id: project, host_id: id } = request.params as {
          project_id: string;
          host_id: string;
        };
        const hostname = hostnameIn(request.body);
        const renamed = await administration.rename(actorOf(request), { project, id, hostname });
        if (renamed.kind === 'renamed') return renamed.host;
        throw renamed.kind === 'unknown'
          ? new ApiError('WAF.4000', 'the project has no such host')
          : new ApiError('WAF.1001', `${hostname} is the name of another host of the project`);
      },
    },
  ];
}

function hostnameIn(body: unknown): string {
  const given = text(parseJson(body), 'hostname');
  const hostname = normalHostname(given);
  if (hostname === null) throw new ApiError('WAF.1001', 'hostname is not a host name');
  return hostname;
}

function parsePoints(given: string | string[] | undefined): number {
  const points = given === undefined ? 1 : Number(given);
  if (Number.isInteger(points) && points >= 1 && points <= POINTS_MAX) return points;
  throw new ApiError('WAF.1001', `points must be a whole number from 1 to ${POINTS_MAX}`);
}

function equalParts(from: number, to: number, points: number): number[] {
  return Array.from({ length: points + 1 }, (_, i) => Math.round(from + ((to - from) * i) / points));
}
