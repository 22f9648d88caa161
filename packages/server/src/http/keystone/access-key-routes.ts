/**
 * Access keys, as the API family manages them: users their own, administrators those of their domain. A key works in all
 * projects of its user, so a token for one project, or another key, must not be enough to get one (0020).
 */
import type { FastifyRequest } from 'fastify';
import { ApiError } from '../../errors.ts';
import {
  type Administration,
  type AdministrationView,
  IdentityError,
  KeyLimitError,
} from '../../identity/administration.ts';
import { administersDomain } from '../../identity/authentication.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import type { AccessKeyInfo, User } from '../../identity/records.ts';
import { actorOf } from '../auth/actor.ts';
import { at, malformed, parseJson, text } from '../auth/login.ts';
import { queryOf } from '../query.ts';
import { callerOf, notCached, type Route } from '../route.ts';
import { credentialBody } from './keystone.ts';
import { CREDENTIAL_ANSWER, CREDENTIAL_REQUEST, CREDENTIALS_ANSWER } from './schemas.ts';
import { noContent, underIdentity } from './token-routes.ts';

const PATH = '/v3.0/OS-CREDENTIAL/credentials';

export function credentialRoutes({ administration }: RequestIdentity): Route[] {
  const documented: Route[] = [
    {
      method: 'POST',
      url: PATH,
      allow: 'anyone known',
      schema: {
        operationId: 'createAccessKey',
        tags: ['identity'],
        summary:
          'Create an access key, at most two per user. Only this response holds the secret. Needs a token scoped to the domain.',
        body: CREDENTIAL_REQUEST,
        response: { 201: CREDENTIAL_ANSWER },
      },
      async handler(request, reply) {
        const fields = parseJson(request.body);
        const owner = manageable(administration, request, text(fields, 'credential.user_id'));
        const description = at(fields, 'credential.description') === undefined ? '' : descriptionOf(fields);
        const { secret, ...key } = await explained(() =>
          administration.as(actorOf(request)).addKey(owner.id, description),
        );
        reply.code(201);
        return { credential: { ...credentialBody(key), secret } };
      },
    },
    {
      method: 'GET',
      url: PATH,
      allow: 'anyone known',
      schema: {
        operationId: 'accessKeys',
        tags: ['identity'],
        summary:
          'List the access keys of a user, by default of the caller. Needs a token scoped to the domain.',
        querystring: { type: 'object', properties: { user_id: { type: 'string' } } },
        response: { 200: CREDENTIALS_ANSWER },
      },
      async handler(request) {
        const { user_id } = queryOf(request);
        const owner = manageable(administration, request, String(user_id ?? callerOf(request).user.id));
        return { credentials: administration.keysOf(owner.id).map(credentialBody) };
      },
    },
    {
      method: 'GET',
      url: `${PATH}/:access`,
      allow: 'anyone known',
      schema: {
        operationId: 'accessKey',
        tags: ['identity'],
        summary: 'Get an access key without its secret. Needs a token scoped to the domain.',
        response: { 200: CREDENTIAL_ANSWER },
      },
      async handler(request) {
        return { credential: credentialBody(manageableKey(administration, request)) };
      },
    },
    {
      method: 'PUT',
      url: `${PATH}/:access`,
      allow: 'anyone known',
      schema: {
        operationId: 'changeAccessKey',
        tags: ['identity'],
        summary: 'Change the status or the description of an access key. Needs a token scoped to the domain.',
        body: CREDENTIAL_REQUEST,
        response: { 200: CREDENTIAL_ANSWER },
      },
      async handler(request) {
        const { access } = manageableKey(administration, request);
        const fields = parseJson(request.body);
        const change: Parameters<Administration['changeKey']>[1] = {};
        if (at(fields, 'credential.status') !== undefined) change.status = statusOf(fields);
        if (at(fields, 'credential.description') !== undefined) change.description = descriptionOf(fields);
        return {
          credential: credentialBody(
            await explained(() => administration.as(actorOf(request)).changeKey(access, change)),
          ),
        };
      },
    },
    {
      method: 'DELETE',
      url: `${PATH}/:access`,
      allow: 'anyone known',
      schema: {
        operationId: 'deleteAccessKey',
        tags: ['identity'],
        summary: 'Delete an access key. Needs a token scoped to the domain.',
        response: { 204: { description: 'Access key deleted', type: 'null' } },
      },
      async handler(request, reply) {
        await administration.as(actorOf(request)).removeKey(manageableKey(administration, request).access);
        return noContent(reply);
      },
    },
  ];
  const routes = documented.map(notCached);
  return [...routes, ...routes.map(underIdentity)];
}

/** The user with this ID, if the caller may manage their keys. Who may not cannot tell whether there is such a user. */
function manageable(administration: AdministrationView, request: FastifyRequest, userId: string): User {
  const mayManage = managerOf(request);
  const owner = administration.users().find(({ id }) => id === userId);
  if (owner && mayManage(owner)) return owner;
  throw new ApiError('WAF.9002', 'the caller may not manage the access keys of this user');
}

function manageableKey(administration: AdministrationView, request: FastifyRequest): AccessKeyInfo {
  const { access } = request.params as { access: string };
  const mayManage = managerOf(request);
  try {
    const key = administration.key(access);
    if (mayManage(administration.user(key.user_id))) return key;
  } catch (error) {
    if (!(error instanceof IdentityError)) throw error;
  }
  throw new ApiError('WAF.4000', 'there is no such access key, or the caller may not manage it');
}

/** Whose keys the caller may manage; a 403 without a token for a domain. */
function managerOf(request: FastifyRequest): (owner: User) => boolean {
  const { user: caller, scope } = callerOf(request);
  // A project's scope names its domain too.
  if (typeof scope !== 'object' || 'project' in scope || !('domain' in scope)) {
    throw new ApiError(
      'WAF.9002',
      'access keys are managed with a token scoped to the domain (auth.scope.domain) or in the console, ' +
        'not with a token scoped to a project or an access key',
    );
  }
  return (owner) =>
    owner.domain_id === scope.domain.id &&
    (owner.id === caller.id || administersDomain(caller, owner.domain_id));
}

function statusOf(fields: unknown): AccessKeyInfo['status'] {
  const status = at(fields, 'credential.status');
  if (status === 'active' || status === 'inactive') return status;
  throw malformed("credential.status must be 'active' or 'inactive'");
}

function descriptionOf(fields: unknown): string {
  const description = at(fields, 'credential.description');
  if (typeof description !== 'string') throw malformed('credential.description must be a string');
  return description;
}

/** What identity cannot do for its caller is the caller's mistake here. */
async function explained<T>(action: () => Promise<T>): Promise<T> {
  try {
    return await action();
  } catch (error) {
    if (error instanceof KeyLimitError) throw new ApiError('WAF.1001', 'akSkNumExceed');
    if (error instanceof IdentityError) throw malformed(error.message);
    throw error;
  }
}
