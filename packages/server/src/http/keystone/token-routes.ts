/** The identity API of Keystone v3: versions, tokens, catalog, and the caller's projects and domains. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ApiError } from '../../errors.ts';
import { type Caller, isSystemScoped } from '../../identity/authenticator.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import type {
  LocalAuthenticator,
  LoginRefusal,
  TokenDescription,
} from '../../identity/local-authenticator.ts';
import { administersDomain } from '../../identity/records.ts';
import { excerpt } from '../../statistics/range.ts';
import { loginSource } from '../auth/actor.ts';
import { CONSOLE_ONLY } from '../auth/guard.ts';
import { parseMarkerPage, queryOf } from '../query.ts';
import { callerOf, notCached, type Route } from '../route.ts';
import {
  type Catalog,
  catalogEntries,
  domainBody,
  listSchema,
  parseLogin,
  projectBody,
  TOKEN_REQUEST,
  TOKEN_RESPONSE,
  tokenBody,
  versionBody,
} from './keystone.ts';

export function identityRoutes(
  { authenticator, administration }: RequestIdentity,
  { publicUrl, region }: Catalog,
): Route[] {
  const baseOf = (request: FastifyRequest) => publicUrl ?? `${request.protocol}://${request.host}`;
  const catalogFor = (request: FastifyRequest) =>
    'nocatalog' in queryOf(request) ? null : catalogEntries(baseOf(request), region);
  const list = (name: string, items: object[], request: FastifyRequest) => ({
    [name]: items,
    links: { self: `${baseOf(request)}${request.url}`, previous: null, next: null },
  });

  const documented: Route[] = [
    {
      method: 'GET',
      url: '/v3',
      schema: {
        operationId: 'identityVersion',
        tags: ['identity'],
        summary: 'Get the version of the identity API',
        response: { 200: { description: 'The version.', type: 'object', additionalProperties: true } },
      },
      async handler(request) {
        return { version: versionBody(`${baseOf(request)}${pathOf(request).replace(/\/$/, '')}/`) };
      },
    },
    {
      method: 'POST',
      url: '/v3/auth/tokens',
      schema: {
        operationId: 'createToken',
        tags: ['identity'],
        summary: 'Create a token with a user name and a password',
        description: 'The X-Subject-Token header of the response contains the token.',
        body: TOKEN_REQUEST,
        response: { 201: TOKEN_RESPONSE },
      },
      async handler(request, reply) {
        const login = parseLogin(request.body);
        const issued = await authenticator.login(login, loginSource(request));
        if (typeof issued === 'string') throw loginError(issued);
        reply.code(201).header('X-Subject-Token', issued.text);
        return tokenBody(issued.description, catalogFor(request));
      },
    },
    {
      method: 'GET',
      url: '/v3/auth/tokens',
      allow: 'authenticated',
      schema: {
        operationId: 'checkToken',
        tags: ['identity'],
        summary: 'Describe the token in X-Subject-Token, or return 404 if it is not valid',
        response: { 200: TOKEN_RESPONSE },
      },
      async handler(request, reply) {
        const { text, description } = subjectToken(authenticator, request);
        reply.header('X-Subject-Token', text);
        return tokenBody(description, catalogFor(request));
      },
    },
    {
      method: 'DELETE',
      url: '/v3/auth/tokens',
      allow: 'authenticated',
      schema: {
        operationId: 'revokeToken',
        tags: ['identity'],
        summary: 'Revoke the token in X-Subject-Token',
        response: { 204: { description: 'Token revoked.', type: 'null' } },
      },
      async handler(request, reply) {
        await authenticator.revoke(subjectToken(authenticator, request).description.token);
        return noContent(reply);
      },
    },
    {
      method: 'GET',
      url: '/v3/auth/catalog',
      allow: 'authenticated',
      schema: {
        operationId: 'catalog',
        tags: ['identity'],
        summary: 'List the endpoints of the services',
        response: { 200: listSchema('catalog') },
      },
      async handler(request) {
        return list('catalog', catalogEntries(baseOf(request), region), request);
      },
    },
    ...(['/v3/auth/projects', '/v3/projects'] as const).map(
      (url): Route => ({
        method: 'GET',
        url,
        allow: 'authenticated',
        schema: {
          operationId: url === '/v3/projects' ? 'projects' : 'ownProjects',
          tags: ['identity'],
          summary: 'List the projects in which the caller has a role',
          querystring: {
            type: 'object',
            properties: {
              name: { type: 'string' },
              domain_id: { type: 'string' },
              limit: {
                type: 'integer',
                minimum: 1,
                maximum: 1_000,
                description: 'Maximum number of projects.',
              },
              marker: { type: 'string', description: 'ID of the last project of the previous page.' },
            },
          },
          response: { 200: listSchema('projects') },
        },
        async handler(request) {
          const query = queryOf(request);
          const { name, domain_id } = query;
          const { limit, marker } = parseMarkerPage(query);
          const projects = administration
            .projectsOf(callerOf(request).user)
            .filter((project) => name === undefined || project.name === name)
            .filter((project) => domain_id === undefined || project.domain_id === domain_id);
          const page = pageAfter(projects, marker, limit);
          const listed = list('projects', page.items.map(projectBody), request);
          return page.last === undefined ? listed : withNextLink(listed, request, page.last.id);
        },
      }),
    ),
    {
      method: 'GET',
      url: '/v3/auth/domains',
      allow: 'authenticated',
      schema: {
        operationId: 'ownDomains',
        tags: ['identity'],
        summary: 'List the domains in which the caller has a role',
        response: { 200: listSchema('domains') },
      },
      async handler(request) {
        const { user } = callerOf(request);
        const domains = administration.domains().filter(({ id }) => (user.roles[id] ?? []).length > 0);
        return list('domains', domains.map(domainBody), request);
      },
    },
  ];
  const routes = documented.map(notCached);
  return [...routes, ...routes.map(underIdentity), versionList(baseOf)];
}

/** The same routes under `/identity`, to which the catalog points; documented once. */
export function underIdentity(route: Route): Route {
  return { ...route, url: `/identity${route.url}`, schema: { hide: true } };
}

/** The items after the one with the ID `marker`; `last` is the last of the page if more follow. */
function pageAfter<T extends { id: string }>(
  items: readonly T[],
  marker: string | undefined,
  limit = items.length,
): { items: readonly T[]; last: T | undefined } {
  const start = marker === undefined ? 0 : items.findIndex(({ id }) => id === marker) + 1;
  if (marker !== undefined && start === 0) {
    throw new ApiError(
      'WAF.1001',
      `marker must be the ID of a project in the list, not '${excerpt(marker)}'`,
    );
  }
  const end = start + limit;
  return { items: items.slice(start, end), last: end < items.length ? items[end - 1] : undefined };
}

function withNextLink<T extends { links: { self: string } }>(
  listed: T,
  { url }: FastifyRequest,
  marker: string,
) {
  const [path = '', query = ''] = url.split('?', 2);
  const parameters = new URLSearchParams(query);
  parameters.set('marker', marker);
  const base = listed.links.self.slice(0, -url.length);
  return { ...listed, links: { ...listed.links, next: `${base}${path}?${parameters}` } };
}

function versionList(baseOf: (request: FastifyRequest) => string): Route {
  return {
    method: 'GET',
    url: '/identity',
    schema: { hide: true },
    async handler(request: FastifyRequest, reply: FastifyReply) {
      reply.code(300);
      return { versions: { values: [versionBody(`${baseOf(request)}/identity/v3/`)] } };
    },
  };
}

/** The token in X-Subject-Token, if the caller may see it: their own, or others with more rights. */
function subjectToken(
  authenticator: LocalAuthenticator,
  request: FastifyRequest,
): { text: string; description: TokenDescription } {
  const text = request.headers['x-subject-token'];
  if (text === undefined) throw new ApiError('WAF.1001', 'the X-Subject-Token header is missing');
  const description = authenticator.checkToken(String(text));
  const { user } = callerOf(request);
  if (
    typeof description === 'string' ||
    (description.user.id !== user.id && !mayManage(callerOf(request), description, request.method))
  ) {
    throw new ApiError('WAF.4000', 'the token in X-Subject-Token is not valid');
  }
  return { text: String(text), description };
}

/** Administrators may check and revoke tokens of their domain; other services may check all, but revoke none. */
function mayManage(caller: Caller, { user: owner }: TokenDescription, method: string): boolean {
  if (administersDomain(caller.user, owner.domain_id)) return true;
  return method !== 'DELETE' && isSystemScoped(caller);
}

function loginError(refusal: LoginRefusal): ApiError {
  switch (refusal) {
    case 'wrong_credentials':
      return new ApiError('WAF.9001', 'The username or password is wrong.');
    case 'user_disabled':
      return new ApiError('WAF.9001', 'The user is disabled.');
    case 'console_only':
      return new ApiError('WAF.9002', CONSOLE_ONLY);
    case 'no_such_scope':
      return new ApiError(
        'WAF.9001',
        'The project or domain in auth.scope does not exist, or the user has no role in it.',
      );
  }
}

function pathOf(request: FastifyRequest): string {
  return request.url.split('?', 1)[0] ?? '';
}

export function noContent(reply: FastifyReply): null {
  reply.code(204);
  return null;
}
