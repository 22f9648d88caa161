/**
 * The Keystone v3 calls with which another process authenticates its callers. Only for users with the role `identity`,
 * because these are the only responses that contain existing secret access keys.
 */
import type { FastifyRequest } from 'fastify';
import { ApiError } from '../../errors.ts';
import { isSystemScoped } from '../../identity/authenticator.ts';
import type { IdentityLookup, RequestIdentity } from '../../identity/identity.ts';
import { rolesIn } from '../../identity/records.ts';
import { isLoopback } from '../../loopback.ts';
import { queryOf } from '../query.ts';
import { callerOf, object, pathParameter, type Route } from '../route.ts';
import {
  domainBody,
  ec2CredentialBody,
  identityRoutes,
  projectBody,
  roleAssignmentBody,
  userBody,
} from './keystone.ts';

const NEEDS_SYSTEM_TOKEN =
  'This call needs a token scoped to the system, which requires the role `identity`.';

export function lookupRoutes({ lookup }: RequestIdentity): Route[] {
  return identityRoutes([
    recordRoute(
      'credential',
      'accessKeyWithSecret',
      'an access key with its secret, by the SHA-256 of its ID',
      lookup.key,
      ec2CredentialBody,
    ),
    recordRoute('user', 'user', 'a user', lookup.user, userBody),
    recordRoute('project', 'project', 'a project', lookup.project, projectBody),
    recordRoute('domain', 'domain', 'a domain', lookup.domain, domainBody),
    roleAssignmentsRoute(lookup),
  ]);
}

function recordRoute<R>(
  name: string,
  operationId: string,
  what: string,
  find: (id: string) => R | undefined,
  body: (record: R, id: string) => object,
): Route {
  return {
    method: 'GET',
    url: `/v3/${name}s/:id`,
    allow: 'authenticated',
    schema: {
      operationId,
      summary: `Get ${what}`,
      description: NEEDS_SYSTEM_TOKEN,
      response: { 200: { description: `The ${name}.`, type: 'object', additionalProperties: true } },
    },
    async handler(request) {
      checkSystemScope(request);
      const id = pathParameter(request, 'id');
      const record = find(id);
      if (record === undefined) throw new ApiError('WAF.4000', `unknown ${name}`);
      return { [name]: body(record, id) };
    },
  };
}

function roleAssignmentsRoute(lookup: IdentityLookup): Route {
  return {
    method: 'GET',
    url: '/v3/role_assignments',
    allow: 'authenticated',
    schema: {
      operationId: 'roleAssignments',
      summary: 'List the roles of a user in a project, including inherited ones',
      description: NEEDS_SYSTEM_TOKEN,
      querystring: object({ 'user.id': { type: 'string' }, 'scope.project.id': { type: 'string' } }),
      response: { 200: { description: 'The role assignments.', type: 'object', additionalProperties: true } },
    },
    async handler(request) {
      checkSystemScope(request);
      const query = queryOf(request);
      const user = lookup.user(String(query['user.id']));
      const project = lookup.project(String(query['scope.project.id']));
      if (user === undefined || project === undefined) return { role_assignments: [] };
      const roles = rolesIn(user, { project });
      return { role_assignments: roles.map((role) => roleAssignmentBody(user, project, role)) };
    },
  };
}

/** Only the role `identity` gets a token for the system. Secrets must not cross the network unencrypted. */
function checkSystemScope(request: FastifyRequest): void {
  if (!isSystemScoped(callerOf(request))) {
    throw new ApiError(
      'WAF.9002',
      "this call needs a token scoped to the system, which requires the role 'identity'",
    );
  }
  if (request.protocol !== 'https' && !isLoopback(request.ip)) {
    throw new ApiError('WAF.9002', 'this call needs HTTPS, or a client on the same machine');
  }
}
