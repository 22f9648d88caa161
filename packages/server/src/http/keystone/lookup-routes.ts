/**
 * Reads of users, projects, domains and roles, as in Keystone v3. Everyone can read their own user, projects and domains;
 * an administrator of a domain can read those of the domain.
 */
import type { FastifyRequest } from 'fastify';
import { ApiError, malformed } from '../../errors.ts';
import type { Caller } from '../../identity/authenticator.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import { ROLES, type Role, rolesIn, type User } from '../../identity/records.ts';
import { parseWhole, type RawQuery, single } from '../query.ts';
import { partialObject, pathParameter, type Route } from '../route.ts';
import {
  baseOf,
  type Catalog,
  domainBody,
  filtersOf,
  type IdentityRoute,
  identityRoutes,
  isOn,
  listBody,
  listLinks,
  listSchema,
  pageParameters,
  projectBody,
  type RoleAssignment,
  recordSchema,
  roleAssignmentBody,
  roleBody,
  unknownMarker,
  userBody,
  withLink,
} from './keystone.ts';
import { administeredDomains, createView, readerOf, type View } from './view.ts';

const NEEDS_ADMIN = 'This call needs the role `admin` in a domain.';

/** More than a person reads, and a bound on the size of a response. */
const ASSIGNMENTS_MAX = 10_000;

export function lookupRoutes(identity: RequestIdentity, catalog: Catalog): Route[] {
  const { lookup, administration } = identity;
  const view = createView(identity);
  const list = <T extends { id: string }>(
    url: string,
    schema: { operationId: string; summary: string; description?: string },
    filters: Readonly<Record<string, (record: T) => string>>,
    records: (caller: Caller, request: FastifyRequest) => readonly T[],
    body: (record: T) => object,
  ): IdentityRoute => {
    const name = url.slice(url.lastIndexOf('/') + 1);
    return {
      method: 'GET',
      url,
      ...schema,
      querystring: partialObject({
        ...Object.fromEntries(Object.keys(filters).map((filter) => [filter, { type: 'string' }])),
        ...pageParameters(name),
      }),
      response: { 200: listSchema(name) },
      async handler(request) {
        const query = filtersOf(request, [...Object.keys(filters), 'limit', 'marker']);
        const matching = records(readerOf(request), request).filter((record) =>
          Object.entries(filters).every(([filter, value]) => {
            const wanted = query[filter];
            return wanted === undefined || value(record) === wanted;
          }),
        );
        return listBody(catalog, request, query, name, matching, body);
      },
    };
  };

  const name = (record: { name: string }) => record.name;
  const enabled = (record: { enabled: boolean }) => String(record.enabled);
  const domain_id = (record: { domain_id: string }) => record.domain_id;
  const projectFilters = {
    name,
    domain_id,
    enabled,
    parent_id: domain_id,
    is_domain: () => 'false',
  };
  return identityRoutes([
    recordRoute(catalog, 'user', lookup.user, view.user, userBody),
    recordRoute(catalog, 'project', lookup.project, view.project, projectBody),
    recordRoute(
      catalog,
      'domain',
      lookup.domain,
      (caller, { id }) => view.domainIds(caller).has(id),
      domainBody,
    ),
    recordRoute(
      catalog,
      'role',
      (id) => ROLES.find((role) => role === id),
      (caller) => view.domains(caller).length > 0,
      roleBody,
    ),
    list(
      '/v3/users',
      { operationId: 'users', summary: 'List the users of the domain', description: NEEDS_ADMIN },
      { name, domain_id, enabled },
      (caller) => {
        const domains = administeredDomains(view, caller);
        return administration.users().filter((user) => domains.some(({ id }) => id === user.domain_id));
      },
      userBody,
    ),
    list(
      '/v3/projects',
      {
        operationId: 'projects',
        summary: 'List the projects in which the caller has a role; for administrators also disabled ones',
      },
      projectFilters,
      (caller) =>
        administration.projectsWithRoles(caller.user).filter((project) => view.project(caller, project)),
      projectBody,
    ),
    list(
      '/v3/auth/projects',
      { operationId: 'ownProjects', summary: 'List the projects in which the caller has a role' },
      projectFilters,
      ({ user }) => administration.projectsOf(user),
      projectBody,
    ),
    list(
      '/v3/users/:id/projects',
      {
        operationId: 'projectsOfUser',
        summary: 'List the projects in which a user has a role',
        description: 'For the user, and for administrators of the domain.',
      },
      projectFilters,
      (caller, request) => {
        const user = lookup.user(pathParameter(request, 'id'));
        if (user === undefined || !view.user(caller, user)) throw notReadable('user');
        // An administrator does not see what the user does in other domains.
        return administration.projectsOf(user).filter((project) => view.project(caller, project));
      },
      projectBody,
    ),
    list(
      '/v3/domains',
      { operationId: 'domains', summary: 'List the domains of the caller and of the caller’s projects' },
      { name, enabled },
      (caller) => {
        const ids = view.domainIds(caller);
        return administration.domains().filter(({ id }) => ids.has(id));
      },
      domainBody,
    ),
    list(
      '/v3/auth/domains',
      { operationId: 'ownDomains', summary: 'List the domains in which the caller has a role' },
      { name, enabled },
      ({ user }) => administration.domains().filter(({ id }) => (user.roles[id] ?? []).length > 0),
      domainBody,
    ),
    list<{ id: Role; name: string }>(
      '/v3/roles',
      { operationId: 'roles', summary: 'List the roles', description: NEEDS_ADMIN },
      { name },
      (caller) => {
        administeredDomains(view, caller);
        return ROLES.map((role) => ({ id: role, name: role }));
      },
      ({ id }) => roleBody(id),
    ),
    roleAssignmentsRoute(identity, catalog, view),
  ]);
}

function recordRoute<R>(
  catalog: Catalog,
  name: string,
  find: (id: string) => R | undefined,
  isVisible: (caller: Caller, record: R) => boolean,
  body: (record: R) => object,
): IdentityRoute {
  return {
    method: 'GET',
    url: `/v3/${name}s/:id`,
    operationId: name,
    summary: `Get a ${name}`,
    description:
      name === 'role' ? NEEDS_ADMIN : 'Callers read their own records, administrators those of their domain.',
    response: { 200: recordSchema(name) },
    async handler(request) {
      const caller = readerOf(request);
      const id = pathParameter(request, 'id');
      const record = find(id);
      if (record === undefined || !isVisible(caller, record)) throw notReadable(name);
      return { [name]: withLink(baseOf(catalog, request), `${name}s/${id}`, body(record)) };
    },
  };
}

/** The same error in both cases, so that nobody learns which IDs exist. After a 404, clients look up the name instead. */
function notReadable(name: string): ApiError {
  return new ApiError('WAF.4000', `the ${name} does not exist, or you are not allowed to read it`);
}

const ASSIGNMENT_FILTERS = ['user.id', 'role.id', 'scope.project.id', 'scope.domain.id'];
/** `include_names` is always on, and projects have no subtree. */
const ASSIGNMENT_OPTIONS = ['effective', 'include_names', 'include_subtree'];

function roleAssignmentsRoute(
  { lookup, administration }: RequestIdentity,
  catalog: Catalog,
  view: View,
): IdentityRoute {
  /** The scopes of the query that the caller administers. */
  function scopesOf(request: FastifyRequest, query: RawQuery): Scope[] {
    const [projectId, domainId] = [single(query, 'scope.project.id'), single(query, 'scope.domain.id')];
    const domains = administeredDomains(view, readerOf(request));
    const administered = new Set(domains.map(({ id }) => id));
    const projects = administration.projects().filter(({ domain_id }) => administered.has(domain_id));
    return [...domains.map((domain) => ({ domain })), ...projects.map((one) => ({ project: one }))].filter(
      (scope) =>
        'project' in scope
          ? domainId === undefined && (projectId === undefined || scope.project.id === projectId)
          : projectId === undefined && (domainId === undefined || scope.domain.id === domainId),
    );
  }

  const parameters = {
    ...Object.fromEntries(
      [...ASSIGNMENT_FILTERS, ...ASSIGNMENT_OPTIONS].map((name) => [name, { type: 'string' }]),
    ),
    ...pageParameters('role assignments', ASSIGNMENTS_MAX),
  };
  return {
    method: 'GET',
    url: '/v3/role_assignments',
    operationId: 'roleAssignments',
    summary: 'List the roles of users in a domain and its projects',
    description:
      'Projects inherit the roles of their domain: `effective` lists these too. This call needs the role `admin` ' +
      'in a domain.',
    querystring: partialObject(parameters),
    response: { 200: listSchema('role_assignments') },
    async handler(request) {
      const query = filtersOf(request, Object.keys(parameters));
      const limit = parseWhole(query, 'limit', Number.POSITIVE_INFINITY, 1, ASSIGNMENTS_MAX);
      const scopes = scopesOf(request, query);
      const marker = single(query, 'marker');
      const userId = single(query, 'user.id');
      const users = userId === undefined ? administration.users() : [lookup.user(userId) ?? []].flat();
      const first = marker === undefined ? 0 : users.findIndex(({ id }) => marker.startsWith(`${id}.`));
      const items: object[] = [];
      let last: string | undefined;
      let isAfterMarker = marker === undefined;
      let next: string | null = null;
      for (const one of assignments(users.slice(first), scopes, isOn(query, 'effective'))) {
        if ((query['role.id'] ?? one.role) !== one.role) continue;
        if (items.length === limit) {
          next = last ?? null;
          break;
        }
        if (items.length === ASSIGNMENTS_MAX) {
          const advice = `use limit, or filter by ${ASSIGNMENT_FILTERS.join(', ')}`;
          throw malformed(`there are more than ${ASSIGNMENTS_MAX} role assignments: ${advice}`);
        }
        last = `${one.user.id}.${scopeId(one.scope)}.${one.role}`;
        if (isAfterMarker) items.push(roleAssignmentBody(one, (id) => lookup.domain(id)?.name ?? ''));
        isAfterMarker ||= last === marker;
      }
      if (!isAfterMarker) throw unknownMarker(marker);
      return { role_assignments: items, links: listLinks(catalog, request, next) };
    },
  };
}

type Scope = RoleAssignment['scope'];

const scopeId = (scope: Scope) => ('project' in scope ? scope.project.id : scope.domain.id);

/** By user and scope. Visits only the scopes of a user: there may be thousands of others. */
export function* assignments(
  users: readonly User[],
  scopes: readonly Scope[],
  isEffective: boolean,
): Generator<RoleAssignment> {
  const places = new Map(scopes.map((scope, i) => [scopeId(scope), i]));
  for (const user of users) {
    const own = Object.keys(user.roles).flatMap((id) => places.get(id) ?? []);
    const inherits = isEffective && scopes.some((scope) => 'domain' in scope && user.roles[scope.domain.id]);
    const visited = inherits ? scopes : own.sort((a, b) => a - b).flatMap((place) => scopes[place] ?? []);
    for (const scope of visited) {
      const held = isEffective ? rolesIn(user, scope) : (user.roles[scopeId(scope)] ?? []);
      for (const role of ROLES) if (held.includes(role)) yield { user, role, scope };
    }
  }
}
