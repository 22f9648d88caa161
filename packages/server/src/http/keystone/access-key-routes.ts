/**
 * Access keys: users manage their own, administrators those of their domain. A key works in all projects of its user, so
 * a token for one project, or another key, is not enough to create one (decision 0020).
 */
import type { FastifyRequest } from 'fastify';
import { ApiError, malformed } from '../../errors.ts';
import type { AdministrationView } from '../../identity/administration.ts';
import { IdentityError, KeyLimitError } from '../../identity/errors.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import { type AccessKeyInfo, administersDomain, type User } from '../../identity/records.ts';
import { administer } from '../auth/actor.ts';
import { administeredDomain, domainScope } from '../auth/domain-scope.ts';
import { optionalOneOf, optionalTextAt, parseJson, textAt } from '../auth/json-body.ts';
import { queryOf, single } from '../query.ts';
import { callerOf, noContent, partialObject, pathParameter, type Route } from '../route.ts';
import {
  CREDENTIAL_REQUEST,
  CREDENTIAL_RESPONSE,
  CREDENTIALS_RESPONSE,
  credentialBody,
  identityRoutes,
} from './keystone.ts';

const PATH = '/v3.0/OS-CREDENTIAL/credentials';
const NEEDS_DOMAIN_TOKEN = 'This call needs a token scoped to the domain, created with the password.';

export function accessKeyRoutes({ administration, lookup }: RequestIdentity): Route[] {
  /** Users that do not exist and users that the caller may not manage look the same. */
  function manageableUser(request: FastifyRequest, userId: string): User {
    const mayManage = managerOf(request);
    const owner = lookup.user(userId);
    if (owner && mayManage(owner)) return owner;
    throw new ApiError('WAF.9002', 'not allowed to manage the access keys of this user');
  }

  function manageableKey(request: FastifyRequest): AccessKeyInfo {
    const access = pathParameter(request, 'access');
    const mayManage = managerOf(request);
    try {
      const key = administration.key(access);
      if (mayManage(administration.user(key.user_id))) return key;
    } catch (error) {
      if (!(error instanceof IdentityError)) throw error;
    }
    throw new ApiError('WAF.4000', 'the access key does not exist, or you are not allowed to manage it');
  }

  return identityRoutes([
    {
      method: 'POST',
      url: PATH,
      operationId: 'createAccessKey',
      summary: 'Create an access key',
      description: `A user can have two access keys. Only this response contains the secret. ${NEEDS_DOMAIN_TOKEN}`,
      body: CREDENTIAL_REQUEST,
      response: { 201: CREDENTIAL_RESPONSE },
      async handler(request, reply) {
        const fields = parseJson(request.body);
        const owner = manageableUser(request, textAt(fields, 'credential.user_id'));
        if (owner.access === 'console')
          throw new ApiError('WAF.9002', 'this user only supports console access and cannot use access keys');
        const description = optionalTextAt(fields, 'credential.description') ?? '';
        const { secret, ...key } = await administer(administration, request, (admin) =>
          admin.addKey(owner.id, description).catch(withFamilyCode),
        );
        reply.code(201);
        return { credential: { ...credentialBody(key), secret } };
      },
    },
    {
      method: 'GET',
      url: PATH,
      operationId: 'accessKeys',
      summary: 'List the access keys of a user, by default of the caller, or of all users of a domain',
      description: NEEDS_DOMAIN_TOKEN,
      querystring: partialObject({ user_id: { type: 'string' }, domain_id: { type: 'string' } }),
      response: { 200: CREDENTIALS_RESPONSE },
      async handler(request) {
        const query = queryOf(request);
        const domainId = single(query, 'domain_id');
        const userId = single(query, 'user_id') ?? callerOf(request).user.id;
        const owners =
          domainId === undefined
            ? [manageableUser(request, userId)]
            : usersIn(administration, request, domainId);
        return { credentials: owners.flatMap(({ id }) => administration.keysOf(id)).map(credentialBody) };
      },
    },
    {
      method: 'GET',
      url: `${PATH}/:access`,
      operationId: 'accessKey',
      summary: 'Get an access key without its secret',
      description: NEEDS_DOMAIN_TOKEN,
      response: { 200: CREDENTIAL_RESPONSE },
      async handler(request) {
        return { credential: credentialBody(manageableKey(request)) };
      },
    },
    {
      method: 'PUT',
      url: `${PATH}/:access`,
      operationId: 'changeAccessKey',
      summary: 'Change the status or the description of an access key',
      description: NEEDS_DOMAIN_TOKEN,
      body: CREDENTIAL_REQUEST,
      response: { 200: CREDENTIAL_RESPONSE },
      async handler(request) {
        const { access } = manageableKey(request);
        const fields = parseJson(request.body);
        const description = optionalTextAt(fields, 'credential.description');
        const status = optionalOneOf(fields, 'credential.status', ['active', 'inactive']);
        const change = { ...(status && { status }), ...(description !== undefined && { description }) };
        const key = await administer(administration, request, (admin) => admin.changeKey(access, change));
        return { credential: credentialBody(key) };
      },
    },
    {
      method: 'DELETE',
      url: `${PATH}/:access`,
      operationId: 'deleteAccessKey',
      summary: 'Delete an access key',
      description: NEEDS_DOMAIN_TOKEN,
      response: noContent('Access key deleted.'),
      async handler(request, reply) {
        const { access } = manageableKey(request);
        await administer(administration, request, (admin) => admin.removeKey(access));
        return reply.code(204).send();
      },
    },
  ]);
}

/** Clients of the API family look for `akSkNumExceed`. */
function withFamilyCode(error: unknown): never {
  if (!(error instanceof KeyLimitError)) throw error;
  throw malformed(`akSkNumExceed: ${error.message}, with DELETE ${PATH}/{access}`);
}

/** All users of a domain that the caller administers. */
function usersIn(administration: AdministrationView, request: FastifyRequest, domainId: string): User[] {
  if (administeredDomain(request) !== domainId)
    throw new ApiError('WAF.9002', 'domain_id is not the domain of the token');
  return administration.users().filter(({ domain_id }) => domain_id === domainId);
}

/** Whose keys the caller may manage. Throws a 403 without a token for a domain. */
function managerOf(request: FastifyRequest): (owner: User) => boolean {
  const domainId = domainScope(request, 'managing access keys');
  const { user: caller } = callerOf(request);
  return (owner) =>
    owner.domain_id === domainId && (owner.id === caller.id || administersDomain(caller, owner.domain_id));
}
