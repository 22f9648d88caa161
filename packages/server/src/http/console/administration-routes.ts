/** Users and projects, for those who administer their domain, and within it. */
import type { FastifyRequest } from 'fastify';
import { ApiError } from '../../errors.ts';
import { administersDomain } from '../../identity/authentication.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import {
  ACCESS_TYPES,
  type AccessType,
  type Project,
  ROLES,
  type Role,
  type User,
} from '../../identity/records.ts';
import { actorOf } from '../auth/actor.ts';
import { at, malformed, parseJson, text } from '../auth/login.ts';
import { callerOf, type Route } from '../route.ts';
import { explained } from './explained.ts';

const USERS = '/console/api/users';
const PROJECTS = '/console/api/projects';

export function administrationRoutes({ administration }: RequestIdentity): Route[] {
  const inDomain = <T extends { domain_id: string }>(records: T[], domainId: string) =>
    records.filter(({ domain_id }) => domain_id === domainId);

  function userOf(request: FastifyRequest): User {
    const { id } = request.params as { id: string };
    const found = inDomain(administration.users(), administeredDomain(request)).find(
      (user) => user.id === id,
    );
    if (found === undefined) throw new ApiError('WAF.4000', 'the domain has no such user');
    return found;
  }

  function projectOf(request: FastifyRequest): Project {
    const { id } = request.params as { id: string };
    const found = inDomain(administration.projects(), administeredDomain(request)).find(
      (project) => project.id === id,
    );
    if (found === undefined) throw new ApiError('WAF.4000', 'the domain has no such project');
    return found;
  }

  /** Roles in projects of the domain, or in the domain itself. */
  function parseRoles(fields: unknown, domainId: string): Record<string, Role[]> {
    const given = at(fields, 'roles') ?? {};
    if (typeof given !== 'object' || given === null) throw malformed('roles must be an object');
    const scopes = new Set([domainId, ...inDomain(administration.projects(), domainId).map(({ id }) => id)]);
    const entries = Object.entries(given).map(([scope, roles]): [string, Role[]] => {
      if (!scopes.has(scope)) throw malformed('roles names a project that the domain does not have');
      if (!Array.isArray(roles) || !roles.every(isRole))
        throw malformed(`roles must hold lists of ${ROLES.join(', ')}`);
      return [scope, [...new Set(roles)]];
    });
    return Object.fromEntries(entries);
  }

  return [
    {
      method: 'GET',
      url: USERS,
      allow: 'anyone known',
      session: 'only',
      schema: { hide: true },
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
      allow: 'anyone known',
      session: 'only',
      schema: { hide: true },
      async handler(request, reply) {
        const domain_id = administeredDomain(request);
        const fields = parseJson(request.body);
        const given = {
          name: text(fields, 'name'),
          domain_id,
          access: parseAccess(fields),
          password: text(fields, 'password'),
          roles: parseRoles(fields, domain_id),
        };
        const user = await explained(() => administration.as(actorOf(request)).addUser(given));
        return reply.code(201).send(userBody(user));
      },
    },
    {
      method: 'PUT',
      url: `${USERS}/:id`,
      allow: 'anyone known',
      session: 'only',
      schema: { hide: true },
      async handler(request) {
        const { id } = userOf(request);
        const enabled = parseEnabled(request.body);
        if (!enabled && id === callerOf(request).user.id)
          throw new ApiError('WAF.1001', 'you cannot disable yourself: another administrator can');
        await administration.as(actorOf(request)).setUserEnabled(id, enabled);
        return userBody(administration.user(id));
      },
    },
    {
      method: 'POST',
      url: PROJECTS,
      allow: 'anyone known',
      session: 'only',
      schema: { hide: true },
      async handler(request, reply) {
        const domainId = administeredDomain(request);
        const name = text(parseJson(request.body), 'name');
        const project = await explained(() => administration.as(actorOf(request)).addProject(domainId, name));
        return reply.code(201).send(projectBody(project));
      },
    },
    {
      method: 'PUT',
      url: `${PROJECTS}/:id`,
      allow: 'anyone known',
      session: 'only',
      schema: { hide: true },
      async handler(request) {
        const { id } = projectOf(request);
        await administration.as(actorOf(request)).setProjectEnabled(id, parseEnabled(request.body));
        return projectBody(administration.project(id));
      },
    },
  ];
}

function administeredDomain(request: FastifyRequest): string {
  const { user } = callerOf(request);
  if (!administersDomain(user, user.domain_id))
    throw new ApiError('WAF.9002', 'only administrators of the domain may do this');
  return user.domain_id;
}

function userBody({ id, name, access, enabled, created, roles }: User): object {
  return { id, name, access, enabled, created, roles };
}

function projectBody({ id, name, enabled, created }: Project): object {
  return { id, name, enabled, created };
}

function parseAccess(fields: unknown): AccessType {
  const given = text(fields, 'access');
  const access = ACCESS_TYPES.find((type) => type === given);
  if (access === undefined) throw malformed(`access must be one of ${ACCESS_TYPES.join(', ')}`);
  return access;
}

function parseEnabled(body: unknown): boolean {
  const enabled = at(parseJson(body), 'enabled');
  if (typeof enabled !== 'boolean') throw malformed('enabled must be true or false');
  return enabled;
}

function isRole(role: unknown): role is Role {
  return (ROLES as readonly unknown[]).includes(role);
}
