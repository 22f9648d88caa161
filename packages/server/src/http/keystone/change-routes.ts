/**
 * Changes of users, projects and roles, as in Keystone v3, by administrators of their domain. Like access keys, they need a
 * token for the domain that was created with the password (decision 0020).
 */
import type { FastifyRequest } from 'fastify';
import { ApiError, malformed } from '../../errors.ts';
import type { Administration } from '../../identity/administration.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import { ACCESS_TYPES, ROLES, type Role, type User } from '../../identity/records.ts';
import { valueAt } from '../../json-path.ts';
import type { Store } from '../../store/store.ts';
import { administer, loginSource } from '../auth/actor.ts';
import { administeredDomain } from '../auth/domain-scope.ts';
import { optionalFlagAt, optionalOneOf, optionalTextAt, parseJson, textAt } from '../auth/json-body.ts';
import { SIGN_IN_ERRORS, sendSessionCookies } from '../auth/session-cookie.ts';
import { confirmationIn } from '../query.ts';
import { callerOf, noContent, partialObject, pathParameter, type Route, string } from '../route.ts';
import {
  baseOf,
  type Catalog,
  type IdentityRoute,
  identityRoutes,
  projectBody,
  recordSchema,
  userBody,
  withLink,
} from './keystone.ts';

const NEEDS_ADMIN =
  'This call needs the role `admin` in the domain, and a token scoped to the domain, created with the password.';
const CONFIRM = string(
  'The name of the user or project. Needed if the domain would lose its last administrator or enabled project.',
);
const TEXT = { type: 'string' };
const FLAG = { type: 'boolean' };
const CONFIRMABLE = { querystring: partialObject({ confirm: CONFIRM }) };
const ROLE_CHANGES = {
  PUT: { verb: 'grant', Verb: 'Grant', done: 'granted' },
  DELETE: { verb: 'revoke', Verb: 'Revoke', done: 'revoked' },
} as const;
const DELETED = noContent('Deleted.');

export function changeRoutes(
  { administration, authenticator, lookup }: RequestIdentity,
  store: Store,
  catalog: Catalog,
  now: () => number,
): Route[] {
  const change = <T>(request: FastifyRequest, make: (admin: Administration) => Promise<T>) =>
    administer(administration, request, make);
  /** The record with the ID in the path. One of another domain looks like one that does not exist. */
  function inDomain<R extends { domain_id: string }>(
    request: FastifyRequest,
    what: 'user' | 'project',
    find: (id: string) => R | undefined,
    parameter = 'id',
  ): R {
    const domainId = administeredDomain(request);
    const found = find(pathParameter(request, parameter));
    if (found?.domain_id !== domainId) throw new ApiError('WAF.4000', `the domain has no such ${what}`);
    return found;
  }
  const userOf = (request: FastifyRequest, parameter?: string) =>
    inDomain(request, 'user', lookup.user, parameter);
  const projectOf = (request: FastifyRequest) => inDomain(request, 'project', lookup.project);
  const sendUser = (request: FastifyRequest, id: string) => ({
    user: withLink(baseOf(catalog, request), `users/${id}`, userBody(administration.user(id))),
  });
  const sendProject = (request: FastifyRequest, id: string) => ({
    project: withLink(baseOf(catalog, request), `projects/${id}`, projectBody(administration.project(id))),
  });

  const users: IdentityRoute[] = [
    {
      method: 'POST',
      url: '/v3/users',
      operationId: 'createUser',
      summary: 'Create a user of the domain, without roles',
      description: NEEDS_ADMIN,
      body: partialObject({
        user: partialObject(
          {
            name: TEXT,
            password: TEXT,
            domain_id: TEXT,
            enabled: FLAG,
            access: { ...TEXT, enum: ACCESS_TYPES, default: 'both' },
          },
          { required: ['name', 'password'] },
        ),
      }),
      response: { 201: recordSchema('user') },
      async handler(request, reply) {
        const fields = parseJson(request.body);
        const domain_id = domainAt(request, fields, 'user.domain_id');
        const enabled = optionalFlagAt(fields, 'user.enabled') ?? true;
        const given = {
          name: textAt(fields, 'user.name'),
          domain_id,
          access: optionalOneOf(fields, 'user.access', ACCESS_TYPES) ?? 'both',
          password: textAt(fields, 'user.password'),
          roles: {},
          enabled,
        };
        const { id } = await change(request, (admin) => admin.addUser(given));
        reply.code(201);
        return sendUser(request, id);
      },
    },
    {
      method: 'PATCH',
      url: '/v3/users/:id',
      operationId: 'changeUser',
      summary: 'Enable or disable a user, or set a password',
      description: `Disabling a user and setting a password end the user's tokens and sessions. ${NEEDS_ADMIN}`,
      ...CONFIRMABLE,
      body: partialObject({ user: partialObject({ enabled: FLAG, password: TEXT }) }),
      response: { 200: recordSchema('user') },
      async handler(request) {
        const user = userOf(request);
        const fields = parseJson(request.body);
        refuseOthers(fields, 'user', user, ['name', 'domain_id', 'access']);
        const enabled = optionalFlagAt(fields, 'user.enabled');
        const password = optionalTextAt(fields, 'user.password');
        if (password !== undefined) refuseOwnSession(request, user, 'set your password without the old one');
        if (enabled === false) refuseOwnSession(request, user, 'disable yourself');
        const confirmation = confirmationIn(request);
        const changes = { password, enabled: enabled === user.enabled ? undefined : enabled };
        await change(request, (admin) => admin.changeUser(user.id, changes, confirmation));
        return sendUser(request, user.id);
      },
    },
    {
      method: 'DELETE',
      url: '/v3/users/:id',
      operationId: 'deleteUser',
      summary: 'Delete a user and the access keys of the user',
      description: NEEDS_ADMIN,
      ...CONFIRMABLE,
      response: DELETED,
      async handler(request, reply) {
        const user = userOf(request);
        refuseOwnSession(request, user, 'delete yourself');
        const confirmation = confirmationIn(request);
        await change(request, (admin) => admin.removeUser(user.id, confirmation));
        return reply.code(204).send();
      },
    },
    {
      method: 'POST',
      url: '/v3/users/:id/password',
      operationId: 'changeOwnPassword',
      summary: 'Change your own password',
      description:
        'Ends all your tokens and sessions, except for the session that makes the change. Throttled like a login.',
      body: partialObject({
        user: partialObject(
          { original_password: TEXT, password: TEXT },
          { required: ['original_password', 'password'] },
        ),
      }),
      response: noContent('Password changed.'),
      async handler(request, reply) {
        const { id } = callerOf(request).user;
        if (pathParameter(request, 'id') !== id)
          throw new ApiError(
            'WAF.9002',
            'this call changes your own password only: use PATCH /v3/users/{id}',
          );
        const fields = parseJson(request.body);
        const password = textAt(fields, 'user.password');
        const source = loginSource(request, request.signedIn ? 'console' : 'api');
        const original = textAt(fields, 'user.original_password');
        const checked = await authenticator.confirmPassword(administration.user(id), original, source);
        if (checked === 'wrong_credentials') throw malformed('the old password is wrong');
        if (typeof checked === 'string') throw new ApiError(...SIGN_IN_ERRORS[checked]);
        const changed = await change(request, (admin) => admin.setPassword(id, password, checked));
        if (request.signedIn) {
          const started = await authenticator.startSession(changed);
          if (typeof started === 'string') throw new ApiError(...SIGN_IN_ERRORS[started]);
          sendSessionCookies(request, reply, started, now());
        }
        return reply.code(204).send();
      },
    },
  ];

  const projects: IdentityRoute[] = [
    {
      method: 'POST',
      url: '/v3/projects',
      operationId: 'createProject',
      summary: 'Create a project of the domain',
      description: NEEDS_ADMIN,
      body: partialObject({
        project: partialObject({ name: TEXT, domain_id: TEXT, enabled: FLAG }, { required: ['name'] }),
      }),
      response: { 201: recordSchema('project') },
      async handler(request, reply) {
        const fields = parseJson(request.body);
        const domainId = domainAt(request, fields, 'project.domain_id');
        const name = textAt(fields, 'project.name');
        const enabled = optionalFlagAt(fields, 'project.enabled') ?? true;
        const { id } = await change(request, (admin) => admin.addProject(domainId, name, enabled));
        reply.code(201);
        return sendProject(request, id);
      },
    },
    {
      method: 'PATCH',
      url: '/v3/projects/:id',
      operationId: 'changeProject',
      summary: 'Enable or disable a project',
      description: `Requests to a disabled project are rejected. ${NEEDS_ADMIN}`,
      ...CONFIRMABLE,
      body: partialObject({ project: partialObject({ enabled: FLAG }) }),
      response: { 200: recordSchema('project') },
      async handler(request) {
        const project = projectOf(request);
        const fields = parseJson(request.body);
        refuseOthers(fields, 'project', project, ['name', 'domain_id']);
        const enabled = optionalFlagAt(fields, 'project.enabled');
        const confirmation = confirmationIn(request);
        if (enabled !== undefined && enabled !== project.enabled) {
          await change(request, (admin) => admin.setEnabled('project', project.id, enabled, confirmation));
        }
        return sendProject(request, project.id);
      },
    },
    {
      method: 'DELETE',
      url: '/v3/projects/:id',
      operationId: 'deleteProject',
      summary: 'Delete a project, all roles in it and its top lists',
      description: `Its statistics can no longer be queried. ${NEEDS_ADMIN}`,
      ...CONFIRMABLE,
      response: DELETED,
      async handler(request, reply) {
        const { id } = projectOf(request);
        const confirmation = confirmationIn(request);
        await change(request, (admin) => admin.removeProject(id, store, confirmation));
        return reply.code(204).send();
      },
    },
  ];

  const roleRoute = (scope: 'project' | 'domain', method: 'PUT' | 'DELETE'): IdentityRoute => {
    const { verb, Verb, done } = ROLE_CHANGES[method];
    return {
      method,
      url: `/v3/${scope}s/:id/users/:user_id/roles/:role_id`,
      operationId: `${verb}${scope === 'project' ? 'Project' : 'Domain'}Role`,
      summary: `${Verb} a role in a ${scope}`,
      description: NEEDS_ADMIN,
      ...(verb === 'revoke' ? CONFIRMABLE : {}),
      response: noContent(`Role ${done}.`),
      async handler(request, reply) {
        const user = userOf(request, 'user_id');
        const scopeId = scope === 'project' ? projectOf(request).id : pathParameter(request, 'id');
        if (scope === 'domain' && scopeId !== user.domain_id)
          throw new ApiError('WAF.4000', 'the token is for another domain');
        const role = roleIn(request);
        const confirmation = confirmationIn(request);
        await change(request, (admin) => admin.changeRole(verb, user.id, scopeId, role, confirmation));
        return reply.code(204).send();
      },
    };
  };

  return identityRoutes([
    ...users,
    ...projects,
    roleRoute('project', 'PUT'),
    roleRoute('project', 'DELETE'),
    roleRoute('domain', 'PUT'),
    roleRoute('domain', 'DELETE'),
  ]);
}

function domainAt(request: FastifyRequest, fields: unknown, path: string): string {
  const domainId = administeredDomain(request);
  const given = optionalTextAt(fields, path) ?? domainId;
  if (given !== domainId) throw new ApiError('WAF.9002', `${path} is not the domain of the token`);
  return domainId;
}

function roleIn(request: FastifyRequest): Role {
  const id = pathParameter(request, 'role_id');
  const role = ROLES.find((one) => one === id);
  if (role === undefined) throw new ApiError('WAF.4000', `there is no such role: use ${ROLES.join(', ')}`);
  return role;
}

/** A browser that is left open must not be enough to take over its user, or to lock the user out. */
function refuseOwnSession({ signedIn }: FastifyRequest, { id }: User, what: string): void {
  if (signedIn?.user.id === id) throw malformed(`you cannot ${what} in the console`);
}

/** Clients may send fields that cannot be changed, as long as they have their old values. */
function refuseOthers(fields: unknown, what: string, record: object, names: readonly string[]): void {
  for (const name of names) {
    const given = valueAt(fields, `${what}.${name}`);
    if (given !== undefined && given !== (record as Record<string, unknown>)[name])
      throw malformed(`${what}.${name} cannot be changed`);
  }
}
