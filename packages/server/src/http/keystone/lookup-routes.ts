/**
 * The calls of Keystone v3 with which a process looks up who calls it that has no identity of its own: for users with
 * the role `identity`, and for nobody else, because secret access keys leave the service here and nowhere else.
 */
import type { FastifyRequest } from 'fastify';
import { ApiError } from '../../errors.ts';
import { isForSystem } from '../../identity/authenticator.ts';
import type { Identity } from '../../identity/identity.ts';
import { queryOf } from '../query.ts';
import { callerOf, type Route } from '../route.ts';
import { domainBody, ec2CredentialBody, projectBody, roleAssignmentBody, userBody } from './keystone.ts';
import { underIdentity } from './token-routes.ts';

export function directoryRoutes({ directory }: Identity): Route[] {
  const routes = [
    lookup(
      'credential',
      'accessKeyWithSecret',
      'An access key with its secret, by the SHA-256 of its ID',
      (id) => {
        const key = directory.key(id);
        return key && ec2CredentialBody(id, key);
      },
    ),
    lookup('user', 'user', 'A user', (id) => {
      const user = directory.user(id);
      return user && userBody(user);
    }),
    lookup('project', 'project', 'A project', (id) => {
      const project = directory.project(id);
      return project && projectBody(project);
    }),
    lookup('domain', 'domain', 'A domain', (id) => {
      const domain = directory.domain(id);
      return domain && domainBody(domain);
    }),
    roleAssignments(directory),
  ];
  return [...routes, ...routes.map(underIdentity)];
}

function lookup(
  name: string,
  operationId: string,
  summary: string,
  find: (id: string) => object | undefined,
): Route {
  return {
    method: 'GET',
    url: `/v3/${name}s/:id`,
    allow: 'anyone known',
    schema: {
      operationId,
      tags: ['identity'],
      summary: `${summary}; for the role \`identity\``,
      response: { 200: { description: 'It', type: 'object', additionalProperties: true } },
    },
    async handler(request, reply) {
      demandSystemScope(request);
      const found = find((request.params as { id: string }).id);
      if (found === undefined) throw new ApiError('WAF.4000', `there is no such ${name}`);
      reply.header('Cache-Control', 'no-store');
      return { [name]: found };
    },
  };
}

function roleAssignments(directory: Identity['directory']): Route {
  return {
    method: 'GET',
    url: '/v3/role_assignments',
    allow: 'anyone known',
    schema: {
      operationId: 'roleAssignments',
      tags: ['identity'],
      summary: 'The roles of a user in a project, those in its domain included; for the role `identity`',
      querystring: {
        type: 'object',
        required: ['user.id', 'scope.project.id'],
        properties: { 'user.id': { type: 'string' }, 'scope.project.id': { type: 'string' } },
      },
      response: { 200: { description: 'They', type: 'object', additionalProperties: true } },
    },
    async handler(request) {
      demandSystemScope(request);
      const query = queryOf(request);
      const user = directory.user(String(query['user.id']));
      const project = directory.project(String(query['scope.project.id']));
      const roles = user && project ? directory.roles(user, project) : [];
      return {
        role_assignments: user && project ? roles.map((role) => roleAssignmentBody(user, project, role)) : [],
      };
    },
  };
}

/** A token for the system is to be had with the role alone. Secrets leave encrypted, or not the machine. */
function demandSystemScope(request: FastifyRequest): void {
  if (!isForSystem(callerOf(request))) {
    throw new ApiError(
      'WAF.9002',
      "this call needs a token for the system, of a user with the role 'identity'",
    );
  }
  if (request.protocol !== 'https' && !isLoopback(request.ip)) {
    throw new ApiError('WAF.9002', 'this call needs HTTPS, or a caller on the same machine');
  }
}

function isLoopback(ip: string): boolean {
  return ip === '::1' || /^(?:::ffff:)?127\./.test(ip);
}
