/** Users and projects, for administrators of their domain. */
import type { FastifyRequest } from 'fastify';
import { ApiError, malformed } from '../../errors.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import {
  ACCESS_TYPES,
  administersDomain,
  type Project,
  ROLES,
  type Role,
  type User,
} from '../../identity/records.ts';
import { valueAt } from '../../json-path.ts';
import { administer } from '../auth/actor.ts';
import { oneOf, parseJson, textAt } from '../auth/json-body.ts';
import { SESSION_ONLY } from '../auth/session-cookie.ts';
import { callerOf, pathParameter, type Route } from '../route.ts';

const USERS = '/console/api/users';
const PROJECTS = '/console/api/projects';

export function administrationRoutes({ administration }: RequestIdentity): Route[] {
  const inDomain = <T extends { domain_id: string }>(records: T[], domainId: string) =>
    records.filter(({ domain_id }) => domain_id === domainId);

  /** The ID in the path, if the caller's domain has such a record. */
  function idInDomain(request: FastifyRequest, what: string, records: (User | Project)[]): string {
    const id = pathParameter(request, 'id');
    if (!inDomain(records, administeredDomain(request)).some((record) => record.id === id))
      throw new ApiError('WAF.4000', `unknown ${what}`);
    return id;
  }

  /** Accepts roles in the domain and its projects. */
  function parseRoles(fields: unknown, domainId: string): Record<string, Role[]> {
    const given = valueAt(fields, 'roles') ?? {};
    if (typeof given !== 'object' || given === null)
      throw malformed('roles must be an object: lists of roles by project ID');
    const scopes = new Set([domainId, ...inDomain(administration.projects(), domainId).map(({ id }) => id)]);
    const entries = Object.entries(given).map(([scope, roles]): [string, Role[]] => {
      if (!scopes.has(scope)) throw malformed('roles contains an ID that is no project of the domain');
      if (!Array.isArray(roles) || !roles.every(isRole))
        throw malformed(`roles must contain lists of: ${ROLES.join(', ')}`);
      return [scope, [...new Set(roles)]];
    });
    return Object.fromEntries(entries);
  }

  return [
    {
      method: 'GET',
      url: USERS,
      ...SESSION_ONLY,
      async handler(request) {
        const domainId = administeredDomain(request);
        const users = inDomain(administration.users(), domainId);
        const projects = inDomain(administration.projects(), domainId);
        return { domain_id: domainId, users: users.map(userBody), projects: projects.map(projectBody) };
      },
    },
    {
      method: 'POST',
      url: USERS,
      ...SESSION_ONLY,
      async handler(request, reply) {
        const domain_id = administeredDomain(request);
        const fields = parseJson(request.body);
        const given = {
          name: textAt(fields, 'name'),
          domain_id,
          access: oneOf(fields, 'access', ACCESS_TYPES),
          password: textAt(fields, 'password'),
          roles: parseRoles(fields, domain_id),
        };
        const user = await administer(administration, request, (admin) => admin.addUser(given));
        return reply.code(201).send(userBody(user));
      },
    },
    {
      method: 'PUT',
      url: `${USERS}/:id`,
      ...SESSION_ONLY,
      async handler(request) {
        const id = idInDomain(request, 'user', administration.users());
        const enabled = parseEnabled(request.body);
        if (!enabled && id === callerOf(request).user.id)
          throw malformed('you cannot disable yourself: ask another administrator');
        await administer(administration, request, (admin) => admin.setEnabled('user', id, enabled));
        return userBody(administration.user(id));
      },
    },
    {
      method: 'POST',
      url: PROJECTS,
      ...SESSION_ONLY,
      async handler(request, reply) {
        const domainId = administeredDomain(request);
        const name = textAt(parseJson(request.body), 'name');
        const project = await administer(administration, request, (admin) =>
          admin.addProject(domainId, name),
        );
        return reply.code(201).send(projectBody(project));
      },
    },
    {
      method: 'PUT',
      url: `${PROJECTS}/:id`,
      ...SESSION_ONLY,
      async handler(request) {
        const id = idInDomain(request, 'project', administration.projects());
        const enabled = parseEnabled(request.body);
        await administer(administration, request, (admin) => admin.setEnabled('project', id, enabled));
        return projectBody(administration.project(id));
      },
    },
  ];
}

function administeredDomain(request: FastifyRequest): string {
  const { user } = callerOf(request);
  if (!administersDomain(user, user.domain_id))
    throw new ApiError('WAF.9002', 'only administrators of the domain can do this');
  return user.domain_id;
}

function userBody({ id, name, access, enabled, created, roles }: User): object {
  return { id, name, access, enabled, created, roles };
}

function projectBody({ id, name, enabled, created }: Project): object {
  return { id, name, enabled, created };
}

function parseEnabled(body: unknown): boolean {
  const enabled = valueAt(parseJson(body), 'enabled');
  if (typeof enabled !== 'boolean') throw malformed('enabled must be true or false');
  return enabled;
}

function isRole(role: unknown): role is Role {
  return (ROLES as readonly unknown[]).includes(role);
}
