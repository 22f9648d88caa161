/** The identity API of Keystone v3: versions, tokens, catalog, and the caller's projects and domains. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ApiError, type ErrorCode, invalid, malformed } from '../../errors.ts';
import { isSystemScoped } from '../../identity/authenticator.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import type {
  LocalAuthenticator,
  LoginRefusal,
  TokenDescription,
} from '../../identity/local-authenticator.ts';
import { administersDomain } from '../../identity/records.ts';
import { loginSource } from '../auth/actor.ts';
import { CONSOLE_ONLY } from '../auth/guard.ts';
import { LIST_LIMIT_MAX, parseWhole, queryOf, single } from '../query.ts';
import { callerOf, integer, partialObject, type Route, string } from '../route.ts';
import {
  type Catalog,
  catalogEntries,
  domainBody,
  identityRoutes,
  listSchema,
  parseLogin,
  projectBody,
  TOKEN_REQUEST,
  TOKEN_RESPONSE,
  tokenBody,
  versionBody,
} from './keystone.ts';

export function tokenRoutes(
  { authenticator, administration }: RequestIdentity,
  { publicUrl, region }: Catalog,
): Route[] {
  const baseOf = (request: FastifyRequest) => publicUrl ?? `${request.protocol}://${request.host}`;
  const catalogFor = (request: FastifyRequest) =>
    'nocatalog' in queryOf(request) ? null : catalogEntries(baseOf(request), region);
  function list(request: FastifyRequest, name: string, items: object[], nextMarker?: string): object {
    const [path = '', query = ''] = request.url.split('?', 2);
    const nextQuery = new URLSearchParams(query);
    if (nextMarker !== undefined) nextQuery.set('marker', nextMarker);
    const base = baseOf(request);
    const next = nextMarker === undefined ? null : `${base}${path}?${nextQuery}`;
    return { [name]: items, links: { self: `${base}${request.url}`, previous: null, next } };
  }

  const routes: Route[] = [
    {
      method: 'GET',
      url: '/v3',
      schema: {
        operationId: 'identityVersion',
        summary: 'Get the version of the identity API',
        response: { 200: { description: 'The version.', type: 'object', additionalProperties: true } },
      },
      async handler(request) {
        const [path = ''] = request.url.split(/\/?(?:\?|$)/, 1);
        return { version: versionBody(`${baseOf(request)}${path}/`) };
      },
    },
    {
      method: 'POST',
      url: '/v3/auth/tokens',
      schema: {
        operationId: 'createToken',
        summary: 'Create a token with a user name and a password',
        description: 'The X-Subject-Token header of the response contains the token.',
        body: TOKEN_REQUEST,
        response: { 201: TOKEN_RESPONSE },
      },
      async handler(request, reply) {
        const login = parseLogin(request.body);
        const issued = await authenticator.login(login, loginSource(request));
        if (typeof issued === 'string') throw new ApiError(...LOGIN_ERRORS[issued]);
        setSubjectToken(reply, issued.text);
        reply.code(201);
        return tokenBody(issued.description, catalogFor(request));
      },
    },
    {
      method: 'GET',
      url: '/v3/auth/tokens',
      allow: 'authenticated',
      schema: {
        operationId: 'checkToken',
        summary: 'Describe the token in X-Subject-Token, or return 404 if it is not valid',
        response: { 200: TOKEN_RESPONSE },
      },
      async handler(request, reply) {
        const { text, description } = await subjectToken(authenticator, request);
        setSubjectToken(reply, text);
        return tokenBody(description, catalogFor(request));
      },
    },
    {
      method: 'DELETE',
      url: '/v3/auth/tokens',
      allow: 'authenticated',
      schema: {
        operationId: 'revokeToken',
        summary: 'Revoke the token in X-Subject-Token',
        response: { 204: { description: 'Token revoked.', type: 'null' } },
      },
      async handler(request, reply) {
        const { description } = await subjectToken(authenticator, request);
        await authenticator.revoke(description.token);
        return reply.code(204).send();
      },
    },
    {
      method: 'GET',
      url: '/v3/auth/catalog',
      allow: 'authenticated',
      schema: {
        operationId: 'catalog',
        summary: 'List the endpoints of the services',
        response: { 200: listSchema('catalog') },
      },
      async handler(request) {
        return list(request, 'catalog', catalogEntries(baseOf(request), region));
      },
    },
    ...(['/v3/auth/projects', '/v3/projects'] as const).map(
      (url): Route => ({
        method: 'GET',
        url,
        allow: 'authenticated',
        schema: {
          operationId: url === '/v3/projects' ? 'projects' : 'ownProjects',
          summary: 'List the projects in which the caller has a role',
          querystring: partialObject({
            name: { type: 'string' },
            domain_id: { type: 'string' },
            limit: integer('Maximum number of projects.', { minimum: 1, maximum: LIST_LIMIT_MAX }),
            marker: string('ID of the last project of the previous page.'),
          }),
          response: { 200: listSchema('projects') },
        },
        async handler(request) {
          const query = queryOf(request);
          const { name, domain_id } = query;
          const marker = single(query, 'marker');
          const projects = administration
            .projectsOf(callerOf(request).user)
            .filter((project) => name === undefined || project.name === name)
            .filter((project) => domain_id === undefined || project.domain_id === domain_id);
          const start = marker === undefined ? 0 : indexOfId(projects, marker) + 1;
          const end = start + parseWhole(query, 'limit', projects.length, 1, LIST_LIMIT_MAX);
          const page = projects.slice(start, end).map(projectBody);
          return list(request, 'projects', page, end < projects.length ? page.at(-1)?.id : undefined);
        },
      }),
    ),
    {
      method: 'GET',
      url: '/v3/auth/domains',
      allow: 'authenticated',
      schema: {
        operationId: 'ownDomains',
        summary: 'List the domains in which the caller has a role',
        response: { 200: listSchema('domains') },
      },
      async handler(request) {
        const { user } = callerOf(request);
        const domains = administration.domains().filter(({ id }) => (user.roles[id] ?? []).length > 0);
        return list(request, 'domains', domains.map(domainBody));
      },
    },
  ];
  const versions: Route = {
    method: 'GET',
    url: '/identity',
    schema: { hide: true },
    async handler(request, reply) {
      reply.code(300);
      return { versions: { values: [versionBody(`${baseOf(request)}/identity/v3/`)] } };
    },
  };
  return [...identityRoutes(routes), versions];
}

function indexOfId(projects: readonly { id: string }[], marker: string): number {
  const index = projects.findIndex(({ id }) => id === marker);
  if (index >= 0) return index;
  throw invalid('marker', marker, 'must be the ID of a project in the list');
}

/** In this letter case on the wire, because shell clients grep for it; Fastify would send it in lower case. */
function setSubjectToken(reply: FastifyReply, text: string): void {
  reply.raw.setHeader('X-Subject-Token', text);
}

/** The token in X-Subject-Token, if the caller may check or revoke it. */
async function subjectToken(
  authenticator: LocalAuthenticator,
  request: FastifyRequest,
): Promise<{ text: string; description: TokenDescription }> {
  const text = request.headers['x-subject-token'];
  if (text === undefined) throw malformed('the X-Subject-Token header is missing');
  const description = await authenticator.checkToken(String(text));
  if (typeof description === 'string' || !mayManage(request, description)) {
    throw new ApiError('WAF.4000', 'the token in X-Subject-Token is not valid');
  }
  return { text: String(text), description };
}

/** Users may manage their own tokens, administrators those of their domain. Other services may check all, but revoke none. */
function mayManage(request: FastifyRequest, { user: owner }: TokenDescription): boolean {
  const caller = callerOf(request);
  if (caller.user.id === owner.id || administersDomain(caller.user, owner.domain_id)) return true;
  return request.method !== 'DELETE' && isSystemScoped(caller);
}

const LOGIN_ERRORS: Readonly<Record<LoginRefusal, [ErrorCode, string]>> = {
  wrong_credentials: ['WAF.9001', 'The username or password is wrong.'],
  user_disabled: ['WAF.9001', 'The user is disabled.'],
  console_only: ['WAF.9002', CONSOLE_ONLY],
  no_such_scope: [
    'WAF.9001',
    'The project or domain in auth.scope does not exist, or the user has no role in it.',
  ],
};
