/**
 * Reads of users, projects, domains and roles, as in Keystone v3. Everyone can read their own user, projects and domains;
 * an administrator of a domain can read those of the domain.
 */
import type { FastifyRequest } from 'fastify';
import { ApiError, invalid, malformed } from '../../errors.ts';
import { TimeSlicer } from '../../fair-queue.ts';
import type { Caller } from '../../identity/authenticator.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import {
  administersDomain,
  type Domain,
  type Project,
  ROLES,
  type Role,
  rolesIn,
  type User,
} from '../../identity/records.ts';
import { LIST_LIMIT_MAX, queryOf, type RawQuery, single } from '../query.ts';
import { callerOf, integer, partialObject, pathParameter, type Route, string } from '../route.ts';
import {
  baseOf,
  type Catalog,
  domainBody,
  type IdentityRoute,
  identityRoutes,
  listBody,
  listSchema,
  projectBody,
  type RoleAssignment,
  recordSchema,
  roleAssignmentBody,
  roleBody,
  userBody,
  withLink,
} from './keystone.ts';

const NEEDS_ADMIN = 'This call needs the role `admin` in a domain.';

/** More than a person reads, and a bound on the size of a response. */
const ASSIGNMENTS_MAX = 10_000;

type View = ReturnType<typeof createView>;

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
        limit: integer(`Maximum number of ${name}.`, { minimum: 1, maximum: LIST_LIMIT_MAX }),
        marker: string('ID of the last item of the previous page.'),
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
    roleAssignmentsRoute(identity, view),
  ]);
}

/** The caller. A session reads what a token for the domain of its user reads. */
function readerOf(request: FastifyRequest): Caller {
  const caller = callerOf(request);
  return request.signedIn ? { ...caller, scope: { domain: request.signedIn.domain } } : caller;
}

/** What a caller may read. */
function createView({ administration }: RequestIdentity) {
  const administers = ({ user, scope }: Caller, domainId: string): boolean => {
    if (!administersDomain(user, domainId)) return false;
    // A token for one project or domain does not show others.
    if (scope === 'unscoped') return true;
    return ('project' in scope ? scope.project.domain_id : scope.domain.id) === domainId;
  };
  const project = (caller: Caller, project: Project) =>
    administers(caller, project.domain_id) ||
    (project.enabled && rolesIn(caller.user, { project }).length > 0);
  return {
    user: (caller: Caller, { id, domain_id }: User) =>
      id === caller.user.id || administers(caller, domain_id),
    project,
    /** The IDs of the caller's domain, of domains in which the caller has a role, and of domains of the caller's projects. */
    domainIds: ({ user }: Caller) =>
      new Set([
        user.domain_id,
        ...Object.keys(user.roles),
        ...administration.projectsOf(user).map(({ domain_id }) => domain_id),
      ]),
    /** The domains that the caller administers. */
    domains: (caller: Caller) => administration.domains().filter(({ id }) => administers(caller, id)),
  };
}

function administeredDomains(view: View, caller: Caller): Domain[] {
  const domains = view.domains(caller);
  if (domains.length === 0) throw new ApiError('WAF.9002', "this call needs the role 'admin' in a domain");
  return domains;
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

function roleAssignmentsRoute({ lookup, administration }: RequestIdentity, view: View): IdentityRoute {
  const slicer = new TimeSlicer();
  /** The scopes of the query that the caller administers. */
  function scopesOf(request: FastifyRequest, query: RawQuery): RoleAssignment['scope'][] {
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

  return {
    method: 'GET',
    url: '/v3/role_assignments',
    operationId: 'roleAssignments',
    summary: 'List the roles of users in a domain and its projects',
    description:
      'Projects inherit the roles of their domain: `effective` lists these too. This call needs the role `admin` ' +
      'in a domain.',
    querystring: partialObject(
      Object.fromEntries(
        [...ASSIGNMENT_FILTERS, ...ASSIGNMENT_OPTIONS].map((name) => [name, { type: 'string' }]),
      ),
    ),
    response: { 200: recordSchema('role assignments') },
    async handler(request, reply) {
      const query = filtersOf(request, [...ASSIGNMENT_FILTERS, ...ASSIGNMENT_OPTIONS]);
      const userId = single(query, 'user.id');
      const users =
        userId === undefined ? administration.users() : [lookup.user(userId)].filter((u) => u !== undefined);
      const roles = ROLES.filter((role) => query['role.id'] === undefined || role === query['role.id']);
      const steps = assignmentsJson(
        users,
        scopesOf(request, query),
        roles,
        isOn(query, 'effective'),
        (id) => lookup.domain(id)?.name ?? '',
      );
      const items = await slicer.run(callerOf(request).user.id, steps);
      return reply.type('application/json; charset=utf-8').send(`{"role_assignments":[${items.join(',')}]}`);
    },
  };
}

/** Each item as JSON. Yields after each user: thousands of users and projects take hundreds of milliseconds. */
export function* assignmentsJson(
  users: readonly User[],
  scopes: readonly RoleAssignment['scope'][],
  roles: readonly Role[],
  isEffective: boolean,
  domainName: (id: string) => string,
): Generator<void, string[]> {
  const found: string[] = [];
  for (const user of users) {
    yield;
    for (const scope of scopes) {
      const domainId = 'project' in scope ? scope.project.domain_id : scope.domain.id;
      const direct = user.roles['project' in scope ? scope.project.id : scope.domain.id];
      const isInherited = isEffective && user.roles[domainId] !== undefined;
      if (direct === undefined && !isInherited) continue;
      const held = isEffective ? rolesIn(user, scope) : (direct ?? []);
      for (const role of roles) {
        if (held.includes(role))
          found.push(JSON.stringify(roleAssignmentBody({ user, role, scope }, domainName)));
      }
      if (found.length > ASSIGNMENTS_MAX) {
        const filters = ASSIGNMENT_FILTERS.join(', ');
        throw malformed(`there are more than ${ASSIGNMENTS_MAX} role assignments: filter by ${filters}`);
      }
    }
  }
  return found;
}

/** Rejects unknown parameters: ignoring a filter would return more than the client asked for. */
function filtersOf(request: FastifyRequest, names: readonly string[]): RawQuery {
  const query = queryOf(request);
  const unknown = Object.keys(query).find((name) => !names.includes(name));
  if (unknown !== undefined)
    throw malformed(`there is no parameter '${unknown.slice(0, 64)}': use ${names.join(', ')}`);
  for (const name of names) single(query, name);
  return { ...query, ...flagOf(query, 'enabled'), ...flagOf(query, 'is_domain') };
}

/** Python clients send `True`. */
function flagOf(query: RawQuery, name: string): RawQuery {
  return query[name] === undefined ? {} : { [name]: String(isOn(query, name)) };
}

/** As in Keystone, the name alone means true. */
function isOn(query: RawQuery, name: string): boolean {
  const text = single(query, name);
  if (text === undefined) return false;
  if (/^(?:|1|true)$/i.test(text)) return true;
  if (/^(?:0|false)$/i.test(text)) return false;
  throw invalid(name, text, 'must be true or false');
}
