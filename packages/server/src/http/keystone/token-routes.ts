/** The identity API of Keystone v3: versions, tokens and catalog. */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { ApiError, type ErrorCode, malformed } from '../../errors.ts';
import type { Caller } from '../../identity/authenticator.ts';
import type { RequestIdentity } from '../../identity/identity.ts';
import type {
  ExchangeRefusal,
  LocalAuthenticator,
  LoginRefusal,
  TokenDescription,
} from '../../identity/local-authenticator.ts';
import { administersDomain } from '../../identity/records.ts';
import { loginSource } from '../auth/actor.ts';
import { CONSOLE_ONLY } from '../auth/guard.ts';
import { queryOf } from '../query.ts';
import { callerOf, noContent, type Route } from '../route.ts';
import {
  baseOf,
  type Catalog,
  catalogEntries,
  type IdentityRoute,
  identityRoutes,
  listLinks,
  listSchema,
  parseLogin,
  TOKEN_REQUEST,
  TOKEN_RESPONSE,
  tokenBody,
  versionBody,
} from './keystone.ts';

export function tokenRoutes({ authenticator }: RequestIdentity, catalog: Catalog): Route[] {
  const entriesFor = (request: FastifyRequest, scope: Caller['scope']) => {
    const project = typeof scope === 'object' && 'project' in scope ? scope.project.id : null;
    return catalogEntries(baseOf(catalog, request), catalog.region, project);
  };
  const describe = (request: FastifyRequest, description: TokenDescription) =>
    tokenBody(description, 'nocatalog' in queryOf(request) ? null : entriesFor(request, description.scope));

  const routes: IdentityRoute[] = [
    {
      method: 'GET',
      url: '/v3',
      isPublic: true,
      operationId: 'identityVersion',
      summary: 'Get the version of the identity API',
      response: { 200: { description: 'The version.', type: 'object', additionalProperties: true } },
      async handler(request) {
        const [path = ''] = request.url.split(/\/?(?:\?|$)/, 1);
        return { version: versionBody(`${baseOf(catalog, request)}${path}/`) };
      },
    },
    {
      method: 'POST',
      url: '/v3/auth/tokens',
      isPublic: true,
      operationId: 'createToken',
      summary: 'Create a token with a user name and a password, or from a token of another scope',
      description:
        'The X-Subject-Token header of the response contains the token. A token created from another token expires ' +
        'with it, and cannot manage access keys.',
      body: TOKEN_REQUEST,
      response: { 201: TOKEN_RESPONSE },
      async handler(request, reply) {
        const login = parseLogin(request.body);
        const from = loginSource(request);
        const issued =
          'token' in login
            ? await authenticator.exchange(login, from)
            : await authenticator.login(login, from);
        if (typeof issued === 'string') throw loginError(issued);
        setSubjectToken(reply, issued.text);
        reply.code(201);
        return describe(request, issued.description);
      },
    },
    {
      method: 'GET',
      url: '/v3/auth/tokens',
      operationId: 'checkToken',
      summary: 'Describe the token in X-Subject-Token, or return 404 if it is not valid',
      response: { 200: TOKEN_RESPONSE },
      async handler(request, reply) {
        const { text, description } = await subjectToken(authenticator, request);
        setSubjectToken(reply, text);
        return describe(request, description);
      },
    },
    {
      method: 'DELETE',
      url: '/v3/auth/tokens',
      operationId: 'revokeToken',
      summary: 'Revoke the token in X-Subject-Token',
      response: noContent('Token revoked.'),
      async handler(request, reply) {
        const { description } = await subjectToken(authenticator, request);
        await authenticator.revoke(description.token);
        return reply.code(204).send();
      },
    },
    {
      method: 'GET',
      url: '/v3/auth/catalog',
      operationId: 'catalog',
      summary: 'List the endpoints of the services',
      response: { 200: listSchema('catalog') },
      async handler(request) {
        const links = listLinks(catalog, request, null);
        return { catalog: entriesFor(request, callerOf(request).scope), links };
      },
    },
  ];
  const versions: Route = {
    method: 'GET',
    url: '/identity',
    schema: { hide: true },
    async handler(request, reply) {
      reply.code(300).header('Cache-Control', 'no-store');
      return { versions: { values: [versionBody(`${baseOf(catalog, request)}/identity/v3/`)] } };
    },
  };
  return [...identityRoutes(routes), versions];
}

/** Keeps the letter case of the header, because shell clients grep for it; Fastify would send it in lower case. */
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

/** Users may manage their own tokens, administrators those of their domain. */
function mayManage(request: FastifyRequest, { user: owner }: TokenDescription): boolean {
  const caller = callerOf(request);
  return caller.user.id === owner.id || administersDomain(caller.user, owner.domain_id);
}

/** All other refusals mean that the token to exchange is not valid; the audit trail has the reason. */
function loginError(refusal: LoginRefusal | ExchangeRefusal): ApiError {
  const [code, message] = LOGIN_ERRORS[refusal] ?? [
    'WAF.9001',
    'The token in auth.identity.token.id is not valid: request a new one with the password.',
  ];
  return new ApiError(code, message);
}

const LOGIN_ERRORS: Readonly<Partial<Record<LoginRefusal | ExchangeRefusal, [ErrorCode, string]>>> = {
  wrong_credentials: ['WAF.9001', 'The username or password is wrong.'],
  user_disabled: ['WAF.9001', 'The user is disabled.'],
  console_only: ['WAF.9002', CONSOLE_ONLY],
  no_such_scope: [
    'WAF.9001',
    'The project or domain in auth.scope does not exist, or the user has no role in it.',
  ],
};
