/** The identity service, in the shape of Keystone v3: versions, tokens, catalog, and what the caller has a part in. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ApiError } from '../../errors.ts';
import {
  type Authentication,
  administersDomain,
  type LoginRefusal,
  type TokenDescription,
} from '../../identity/authentication.ts';
import { type Caller, isForSystem } from '../../identity/authenticator.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import { excerpt } from '../../statistics/range.ts';
import { loginSource } from '../auth/actor.ts';
import { CONSOLE_ONLY } from '../auth/guard.ts';
import { parseLogin } from '../auth/login.ts';
import { parseMarkerPage, queryOf } from '../query.ts';
import { callerOf, notCached, type Route } from '../route.ts';
import { type Catalog, catalogEntries, domainBody, projectBody, tokenBody, versionBody } from './keystone.ts';
import { LIST_OF, TOKEN_ANSWER, TOKEN_REQUEST } from './schemas.ts';

export function identityRoutes(
  { authentication, administration }: RequestIdentity,
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
        summary: 'The version of the identity service',
        response: { 200: { description: 'The version', type: 'object', additionalProperties: true } },
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
        summary:
          'A token for one project, from a user name and a password; it is in the X-Subject-Token header',
        body: TOKEN_REQUEST,
        response: { 201: TOKEN_ANSWER },
      },
      async handler(request, reply) {
        const login = parseLogin(request.body);
        const issued = await authentication.login(login, loginSource(request));
        if (typeof issued === 'string') throw loginError(issued);
        reply.code(201).header('X-Subject-Token', issued.text);
        return tokenBody(issued.description, catalogFor(request));
      },
    },
    {
      method: 'GET',
      url: '/v3/auth/tokens',
      allow: 'anyone known',
      schema: {
        operationId: 'checkToken',
        tags: ['identity'],
        summary: 'What the token in X-Subject-Token is; 404 when it is not valid',
        response: { 200: TOKEN_ANSWER },
      },
      async handler(request, reply) {
        const { text, description } = subject(authentication, request);
        reply.header('X-Subject-Token', text);
        return tokenBody(description, catalogFor(request));
      },
    },
    {
      method: 'DELETE',
      url: '/v3/auth/tokens',
      allow: 'anyone known',
      schema: {
        operationId: 'revokeToken',
        tags: ['identity'],
        summary: 'Makes the token in X-Subject-Token void at once',
        response: { 204: { description: 'It is', type: 'null' } },
      },
      async handler(request, reply) {
        await authentication.revokeToken(subject(authentication, request).description.token);
        return noContent(reply);
      },
    },
    {
      method: 'GET',
      url: '/v3/auth/catalog',
      allow: 'anyone known',
      schema: {
        operationId: 'catalog',
        tags: ['identity'],
        summary: 'Where the services are',
        response: { 200: LIST_OF('catalog') },
      },
      async handler(request) {
        return list('catalog', catalogEntries(baseOf(request), region), request);
      },
    },
    ...(['/v3/auth/projects', '/v3/projects'] as const).map(
      (url): Route => ({
        method: 'GET',
        url,
        allow: 'anyone known',
        schema: {
          operationId: url === '/v3/projects' ? 'projects' : 'ownProjects',
          tags: ['identity'],
          summary: 'The projects in which the caller has a role',
          querystring: {
            type: 'object',
            properties: {
              name: { type: 'string' },
              domain_id: { type: 'string' },
              limit: { type: 'integer', minimum: 1, maximum: 1_000, description: 'How many to list' },
              marker: { type: 'string', description: 'ID of the last project of the page before' },
            },
          },
          response: { 200: LIST_OF('projects') },
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
      allow: 'anyone known',
      schema: {
        operationId: 'ownDomains',
        tags: ['identity'],
        summary: 'The domains in which the caller has a role',
        response: { 200: LIST_OF('domains') },
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

/** The same routes under `/identity`, which is where the catalog points; documented once. */
export function underIdentity(route: Route): Route {
  return { ...route, url: `/identity${route.url}`, schema: { hide: true } };
}

/** The items after the one with the ID of `marker`; `last` is that of a page with more behind it. */
function pageAfter<T extends { id: string }>(
  items: readonly T[],
  marker: string | undefined,
  limit = items.length,
): { items: readonly T[]; last: T | undefined } {
  const start = marker === undefined ? 0 : items.findIndex(({ id }) => id === marker) + 1;
  if (marker !== undefined && start === 0) {
    throw new ApiError('WAF.1001', `marker is '${excerpt(marker)}', but no project in the list has this ID`);
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

/** The token that a call is about. Everyone may ask about their own; administrators and other services about more. */
function subject(
  authentication: Authentication,
  request: FastifyRequest,
): { text: string; description: TokenDescription } {
  const text = request.headers['x-subject-token'];
  if (text === undefined) throw new ApiError('WAF.1001', 'the request has no X-Subject-Token header');
  const description = authentication.checkToken(String(text));
  const { user } = callerOf(request);
  if (
    typeof description === 'string' ||
    (description.user.id !== user.id && !mayAskAbout(callerOf(request), description, request.method))
  ) {
    throw new ApiError('WAF.4000', 'the token in X-Subject-Token is not valid');
  }
  return { text: String(text), description };
}

/** An administrator about those of the domain, a process whose identity we are about all; but it may revoke none. */
function mayAskAbout(caller: Caller, { user: owner }: TokenDescription, method: string): boolean {
  if (administersDomain(caller.user, owner.domain_id)) return true;
  return method !== 'DELETE' && isForSystem(caller);
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
        'The user has no role in what auth.scope names, or there is no such thing.',
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
