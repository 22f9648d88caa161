/** Adds, renames and deletes hosts. */
import { hostAdministration } from '../audit/host-administration.ts';
import { malformed } from '../errors.ts';
import { normalHostname } from '../event.ts';
import type { RequestIdentity } from '../identity/identity.ts';
import type { Store } from '../store/store.ts';
import { actorOf } from './auth/actor.ts';
import { parseJson, textAt } from './auth/json-body.ts';
import { noContent, ok, PROJECT_PATH, partialObject, pathParameter, type Route, string } from './route.ts';
import { HOST, HOST_PATH, hostIdIn, hostItem, unknownHost } from './statistics/inventory-routes.ts';

const PATH = '/v1/:project_id/waf/instance';

/** Keeps a faulty script from filling the store. */
const HOSTS_MAX = 100_000;

const NAME = partialObject({ hostname: string('Host name.') }, { required: ['hostname'] });

export function hostChangeRoutes(store: Store, identity: RequestIdentity): Route[] {
  const administration = hostAdministration(store, identity);
  return [
    {
      method: 'POST',
      url: PATH,
      allow: 'admin',
      schema: {
        operationId: 'addHost',
        tags: ['inventory'],
        summary: 'Add a host to the project',
        description: 'Other fields of the body are ignored. Needs the role `admin`.',
        params: PROJECT_PATH,
        body: NAME,
        response: ok('The host.', HOST),
      },
      async handler(request) {
        const project = pathParameter(request, 'project_id');
        const hostname = hostnameIn(request.body);
        const added = await administration.add(actorOf(request), { project, hostname, limit: HOSTS_MAX });
        if (added.kind === 'added') return hostItem(added.host);
        throw malformed(
          added.kind === 'full'
            ? `the project has reached its limit of ${HOSTS_MAX} hosts`
            : `the project already has a host ${hostname}`,
        );
      },
    },
    {
      method: 'PATCH',
      url: `${PATH}/:host_id`,
      allow: 'admin',
      schema: {
        operationId: 'renameHost',
        tags: ['inventory'],
        summary: 'Rename a host',
        description: 'The host keeps its ID and its counts. Needs the role `admin`.',
        params: HOST_PATH,
        body: NAME,
        response: ok('The host.', HOST),
      },
      async handler(request) {
        const project = pathParameter(request, 'project_id');
        const id = hostIdIn(request);
        const hostname = hostnameIn(request.body);
        const renamed = await administration.rename(actorOf(request), { project, id, hostname });
        if (renamed.kind === 'renamed') return hostItem(renamed.host);
        throw renamed.kind === 'unknown'
          ? unknownHost(id)
          : malformed(`another host of the project already has the name ${hostname}`);
      },
    },
    {
      method: 'DELETE',
      url: `${PATH}/:host_id`,
      allow: 'admin',
      schema: {
        operationId: 'deleteHost',
        tags: ['inventory'],
        summary: 'Delete a host',
        description: 'Its counts stay in the total of the project. Needs the role `admin`.',
        params: HOST_PATH,
        response: noContent('Deleted.'),
      },
      async handler(request, reply) {
        const project = pathParameter(request, 'project_id');
        const id = hostIdIn(request);
        const deleted = await administration.delete(actorOf(request), { project, id });
        if (deleted.kind === 'unknown') throw unknownHost(id);
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
