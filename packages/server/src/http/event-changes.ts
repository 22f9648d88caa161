/** Deletes kept attacks, for example those of a person. */
import { newAuditEntry } from '../audit/audit-trail.ts';
import { malformed } from '../errors.ts';
import type { RequestIdentity } from '../identity/identity.ts';
import type { AttackFilter, Store } from '../store/store.ts';
import { actorOf } from './auth/actor.ts';
import { checkNames, parseHosts, pickNames, queryOf } from './query.ts';
import {
  HOSTS_PARAMETER,
  integer,
  object,
  ok,
  PROJECT_PATH,
  partialObject,
  pathParameter,
  type Route,
} from './route.ts';
import {
  FILTER_NAMES,
  FILTER_PARAMETERS,
  parseAttackConditions,
  selectHosts,
} from './statistics/attack-filters.ts';

const HOST_NAMES = ['hosts', 'instances'];

export function eventChangeRoutes(store: Store, { audit, lookup }: RequestIdentity): Route[] {
  return [
    {
      method: 'DELETE',
      url: '/v1/:project_id/waf/event',
      allow: 'admin',
      schema: {
        operationId: 'deleteEvents',
        tags: ['events'],
        summary: 'Delete the kept attacks that the filters select, whatever their time',
        description:
          'Needs a filter that selects: those that exclude are not enough. All counts stay. Needs the role `admin`.',
        params: PROJECT_PATH,
        querystring: partialObject({ ...FILTER_PARAMETERS, hosts: HOSTS_PARAMETER }),
        response: ok('Deleted.', object({ deleted: integer('Number of deleted events.') })),
      },
      async handler(request) {
        const query = queryOf(request);
        checkNames(query, [...FILTER_NAMES, ...HOST_NAMES]);
        const project = pathParameter(request, 'project_id');
        const conditions = {
          hosts: parseHosts(pickNames(query, HOST_NAMES)),
          ...parseAttackConditions(query),
        };
        const { hosts, filter } = selectHosts(conditions, await store.hosts(project));
        const selected: AttackFilter = { ...filter, include: { ...filter.include, ...(hosts && { hosts }) } };
        if (Object.keys(selected.include).length === 0)
          throw malformed('deleting needs a filter that selects events, such as sips=203.0.113.7');
        const actor = actorOf(request);
        audit.admit(actor);
        const domain_id = lookup.project(project)?.domain_id;
        const entry = newAuditEntry(
          actor,
          'events.delete',
          { type: 'project', id: project },
          {
            ...(domain_id !== undefined && { domain_id }),
            // Not the values: they may be what the person wants to have deleted.
            before: { filters: Object.keys(query) },
          },
        );
        await audit.append(entry);
        try {
          const deleted = await store.eraseAttacks(project, selected);
          await audit.note({ ...entry, after: { deleted } });
          return { deleted };
        } catch (error) {
          void audit.note({ ...entry, outcome: 'failed', reason: (error as Error).message });
          throw error;
        }
      },
    },
  ];
}
