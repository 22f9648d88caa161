/** Users, their roles and access keys, and projects, for administrators of their domain. */
import type { FastifyRequest } from 'fastify';
import { ApiError, malformed } from '../../errors.ts';
import { KEYS_PER_USER_MAX, type Roles } from '../../identity/administration.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import {
  ACCESS_TYPES,
  administersDomain,
  type Project,
  ROLES,
  type Role,
  type User,
} from '../../identity/records.ts';
import { generatePassword } from '../../identity/secrets.ts';
import { valueAt } from '../../json-path.ts';
import type { Store } from '../../store/store.ts';
import { administer } from '../auth/actor.ts';
import { oneOf, optionalFlagAt, optionalTextAt, parseJson, textAt } from '../auth/json-body.ts';
import { SESSION_ONLY } from '../auth/session-cookie.ts';
import { confirmationIn } from '../query.ts';
import { callerOf, pathParameter, type Route } from '../route.ts';
import { explainKeyLimit } from './account-routes.ts';

const USERS = '/console/api/users';
const PROJECTS = '/console/api/projects';

export function administrationRoutes({ administration }: RequestIdentity, store: Store): Route[] {
  const inDomain = <T extends { domain_id: string }>(records: T[], domainId: string) =>
    records.filter(({ domain_id }) => domain_id === domainId);

  /** The ID in the path, if the caller's domain has such a record. */
  function idInDomain(request: FastifyRequest, what: string, records: (User | Project)[]): string {
    const id = pathParameter(request, 'id');
    if (!inDomain(records, callersDomain(request)).some((record) => record.id === id))
      throw new ApiError('WAF.4000', `unknown ${what}`);
    return id;
  }

  const userId = (request: FastifyRequest) => idInDomain(request, 'user', administration.users());
  const projectId = (request: FastifyRequest) => idInDomain(request, 'project', administration.projects());

  function otherUserId(request: FastifyRequest, verb: string, advice: string): string {
    const id = userId(request);
    if (id === callerOf(request).user.id) throw malformed(`you cannot ${verb}: ${advice}`);
    return id;
  }

  /** The access key ID in the path, if it belongs to the user in the path. */
  function keyOfUser(request: FastifyRequest): string {
    const access = pathParameter(request, 'access');
    if (!administration.keysOf(userId(request)).some((key) => key.access === access))
      throw new ApiError('WAF.4000', 'unknown access key');
    return access;
  }

  function scopesOf(domainId: string): string[] {
    return [domainId, ...inDomain(administration.projects(), domainId).map(({ id }) => id)];
  }

  /** Accepts roles in the domain and its projects. An empty object takes all of them away. */
  function parseRoles(fields: unknown, domainId: string): Roles {
    const given = valueAt(fields, 'roles');
    if (given === undefined) return {};
    if (typeof given !== 'object' || given === null || Array.isArray(given))
      throw malformed('roles must be an object: lists of roles by project ID');
    const scopes = new Set(scopesOf(domainId));
    const entries = Object.entries(given).map(([scope, roles]): [string, Role[]] => {
      if (!scopes.has(scope)) throw malformed('roles contains an ID that is not a project of the domain');
      if (!Array.isArray(roles) || !roles.every(isRole))
        throw malformed(`roles must contain lists of: ${ROLES.join(', ')}`);
      return [scope, [...new Set(roles)]];
    });
    return Object.fromEntries(entries);
  }

  const userItem = (user: User) => {
    const { id, name, access, enabled, created, roles } = user;
    return { id, name, access, enabled, created, roles, keys: administration.keysOf(id) };
  };

  return [
    {
      method: 'GET',
      url: USERS,
      ...SESSION_ONLY,
      async handler(request) {
        const domainId = callersDomain(request);
        const users = inDomain(administration.users(), domainId);
        const projects = inDomain(administration.projects(), domainId);
        return {
          domain_id: domainId,
          keys_limit: KEYS_PER_USER_MAX,
          users: users.map(userItem),
          projects: projects.map(projectItem),
        };
      },
    },
    {
      method: 'POST',
      url: USERS,
      ...SESSION_ONLY,
      /** If the request has no password, one is generated, which only this response contains. */
      async handler(request, reply) {
        const domain_id = callersDomain(request);
        const fields = parseJson(request.body);
        const generated = valueAt(fields, 'password') === undefined ? generatePassword() : undefined;
        const given = {
          name: textAt(fields, 'name'),
          domain_id,
          access: oneOf(fields, 'access', ACCESS_TYPES),
          password: generated ?? textAt(fields, 'password'),
          roles: parseRoles(fields, domain_id),
        };
        const user = await administer(administration, request, (admin) => admin.addUser(given));
        return reply.code(201).send({ ...userItem(user), ...(generated ? { password: generated } : {}) });
      },
    },
    {
      method: 'PUT',
      url: `${USERS}/:id`,
      ...SESSION_ONLY,
      /** Changes `enabled`, `roles`, or both. */
      async handler(request) {
        const id = userId(request);
        const domainId = callersDomain(request);
        const fields = parseJson(request.body);
        const enabled = optionalFlagAt(fields, 'enabled');
        const roles =
          valueAt(fields, 'roles') === undefined
            ? undefined
            : { scopes: scopesOf(domainId), roles: parseRoles(fields, domainId) };
        if (enabled === undefined && roles === undefined)
          throw malformed('the body must have enabled or roles');
        if (enabled === false) otherUserId(request, 'disable yourself', 'ask another administrator');
        const confirmation = confirmationIn(request);
        await administer(administration, request, (admin) =>
          admin.changeUser(id, { roles, enabled }, confirmation),
        );
        return userItem(administration.user(id));
      },
    },
    {
      method: 'DELETE',
      url: `${USERS}/:id`,
      ...SESSION_ONLY,
      async handler(request, reply) {
        const id = otherUserId(request, 'delete yourself', 'ask another administrator');
        await administer(administration, request, (admin) => admin.removeUser(id, confirmationIn(request)));
        return reply.code(204).send();
      },
    },
    {
      method: 'POST',
      url: `${USERS}/:id/password`,
      ...SESSION_ONLY,
      /** Sets a generated password, which only this response contains. Ends the user's sessions and tokens. */
      async handler(request) {
        const id = otherUserId(request, 'reset your own password', 'change it under My credentials');
        const password = generatePassword();
        await administer(administration, request, (admin) => admin.setPassword(id, password));
        return { password };
      },
    },
    {
      method: 'POST',
      url: `${USERS}/:id/keys`,
      ...SESSION_ONLY,
      async handler(request, reply) {
        const user = administration.user(userId(request));
        if (user.access === 'console')
          throw new ApiError('WAF.9002', 'this user only supports console access and cannot use access keys');
        const description = optionalTextAt(parseJson(request.body), 'description') ?? '';
        const key = await administer(administration, request, (admin) =>
          admin.addKey(user.id, description).catch(explainKeyLimit),
        );
        return reply.code(201).send(key);
      },
    },
    {
      method: 'PUT',
      url: `${USERS}/:id/keys/:access`,
      ...SESSION_ONLY,
      async handler(request) {
        const access = keyOfUser(request);
        const status = oneOf(parseJson(request.body), 'status', ['active', 'inactive']);
        return administer(administration, request, (admin) => admin.changeKey(access, { status }));
      },
    },
    {
      method: 'DELETE',
      url: `${USERS}/:id/keys/:access`,
      ...SESSION_ONLY,
      async handler(request, reply) {
        const access = keyOfUser(request);
        await administer(administration, request, (admin) => admin.removeKey(access));
        return reply.code(204).send();
      },
    },
    {
      method: 'POST',
      url: PROJECTS,
      ...SESSION_ONLY,
      async handler(request, reply) {
        const domainId = callersDomain(request);
        const name = textAt(parseJson(request.body), 'name');
        const project = await administer(administration, request, (admin) =>
          admin.addProject(domainId, name),
        );
        return reply.code(201).send(projectItem(project));
      },
    },
    {
      method: 'PUT',
      url: `${PROJECTS}/:id`,
      ...SESSION_ONLY,
      async handler(request) {
        const id = projectId(request);
        const enabled = optionalFlagAt(parseJson(request.body), 'enabled');
        if (enabled === undefined) throw malformed('enabled must be true or false');
        const confirmation = confirmationIn(request);
        await administer(administration, request, (admin) =>
          admin.setEnabled('project', id, enabled, confirmation),
        );
        return projectItem(administration.project(id));
      },
    },
    {
      method: 'DELETE',
      url: `${PROJECTS}/:id`,
      ...SESSION_ONLY,
      async handler(request, reply) {
        const id = projectId(request);
        const confirmation = confirmationIn(request);
        await administer(administration, request, (admin) => admin.removeProject(id, store, confirmation));
        return reply.code(204).send();
      },
    },
  ];
}

export function callersDomain(request: FastifyRequest): string {
  const { user } = callerOf(request);
  if (!administersDomain(user, user.domain_id))
    throw new ApiError('WAF.9002', 'only administrators of the domain can do this');
  return user.domain_id;
}

function projectItem({ id, name, enabled, created }: Project): object {
  return { id, name, enabled, created };
}

function isRole(role: unknown): role is Role {
  return (ROLES as readonly unknown[]).includes(role);
}
