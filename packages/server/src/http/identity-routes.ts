/** The identity service, in the shape of Keystone v3. */
import { ApiError } from '../errors.ts';
import type { DomainReference, Identity, Login, PasswordLogin } from '../identity/identity.ts';
import type { Route } from './route.ts';

/** Each password check costs 19 MB and some 20 ms of a core; more at once would only queue, and hurt the queries. */
const LOGINS_MAX = 32;

export interface Catalog {
  /** The address under which clients reach the service; `null`: the one they called. */
  public_url: string | null;
  region: string;
}

export function identityRoutes(identity: Identity, catalog: Catalog): Route[] {
  let logins = 0;
  return [
    {
      method: 'POST',
      url: '/v3/auth/tokens',
      schema: {
        operationId: 'createToken',
        tags: ['identity'],
        summary:
          'A token for one project, from a user name and a password; it is in the X-Subject-Token header',
        body: TOKEN_REQUEST,
        response: {
          201: {
            description: 'The token is in the header X-Subject-Token and valid for 24 hours',
            type: 'object',
            properties: { token: { type: 'object', additionalProperties: true } },
          },
        },
      },
      async handler(request, reply) {
        const login = parseLogin(request.body);
        if (logins >= LOGINS_MAX) {
          throw new ApiError('WAF.3004', 'too many logins at once: try again in 1 s', { 'Retry-After': '1' });
        }
        logins++;
        const result = await identity.login(login).finally(() => {
          logins--;
        });
        if (result.kind === 'wrong_credentials')
          throw new ApiError('WAF.9001', 'The username or password is wrong.');
        if (result.kind === 'no_such_scope') {
          throw new ApiError(
            'WAF.9001',
            'The user has no role in the project of auth.scope, or there is no such project.',
          );
        }
        const base = catalog.public_url ?? `${request.protocol}://${request.host}`;
        return reply
          .code(201)
          .header('X-Subject-Token', result.text)
          .send({ token: tokenBody(result, base, catalog.region) });
      },
    },
  ];
}

function tokenBody(
  { token, user, domain, project, roles }: Extract<Login, { kind: 'token' }>,
  base: string,
  region: string,
) {
  const endpoint = (id: string, url: string) => ({ id, interface: 'public', region, region_id: region, url });
  return {
    methods: ['password'],
    issued_at: keystoneTime(token.issued_at),
    expires_at: keystoneTime(token.expires_at),
    user: { id: user.id, name: user.name, domain, password_expires_at: null },
    project: { id: project.id, name: project.name, domain },
    roles: roles.map((name) => ({ id: name, name })),
    catalog: [
      {
        id: 'identity',
        type: 'identity',
        name: 'identity',
        endpoints: [endpoint('identity', `${base}/identity/v3`)],
      },
      { id: 'waf', type: 'waf', name: 'waf', endpoints: [endpoint('waf', base)] },
    ],
  };
}

function keystoneTime(time: number): string {
  return new Date(time).toISOString().replace('Z', '000Z');
}

/** The body that the interface specification shows, and nothing that it does not. */
function parseLogin(body: unknown): PasswordLogin {
  const fields = parseJson(body);
  const methods = at(fields, 'auth.identity.methods');
  if (!Array.isArray(methods) || !methods.includes('password')) {
    throw malformed("auth.identity.methods must contain 'password'");
  }
  if (at(fields, 'auth.scope.project') === undefined) throw malformed('auth.scope.project is required');
  const userId = at(fields, 'auth.identity.password.user.id');
  const projectId = at(fields, 'auth.scope.project.id');
  return {
    user:
      userId !== undefined
        ? { id: text(fields, 'auth.identity.password.user.id') }
        : {
            name: text(fields, 'auth.identity.password.user.name'),
            domain: domainAt(fields, 'auth.identity.password.user.domain'),
          },
    password: text(fields, 'auth.identity.password.user.password'),
    project:
      projectId !== undefined
        ? { id: text(fields, 'auth.scope.project.id') }
        : {
            name: text(fields, 'auth.scope.project.name'),
            domain: domainAt(fields, 'auth.scope.project.domain'),
          },
  };
}

function domainAt(fields: unknown, path: string): DomainReference {
  return at(fields, `${path}.id`) === undefined
    ? { name: text(fields, `${path}.name`) }
    : { id: text(fields, `${path}.id`) };
}

function parseJson(body: unknown): unknown {
  if (!Buffer.isBuffer(body) || body.length === 0) throw malformed('the request has no body');
  try {
    return JSON.parse(body.toString('utf8'));
  } catch {
    throw malformed('the request body is not JSON');
  }
}

function text(fields: unknown, path: string): string {
  const value = at(fields, path);
  if (typeof value !== 'string' || value.length === 0)
    throw malformed(`${path} must be a string that is not empty`);
  return value;
}

/** The value at `a.b.c`, own properties only, or undefined. */
function at(fields: unknown, path: string): unknown {
  let value = fields;
  for (const key of path.split('.')) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Record<string, unknown>)[key];
  }
  return value;
}

function malformed(message: string): ApiError {
  return new ApiError('WAF.1001', message);
}

const NAMED = { type: 'object', properties: { id: { type: 'string' }, name: { type: 'string' } } } as const;

const TOKEN_REQUEST = {
  type: 'object',
  required: ['auth'],
  properties: {
    auth: {
      type: 'object',
      required: ['identity', 'scope'],
      properties: {
        identity: {
          type: 'object',
          required: ['methods', 'password'],
          properties: {
            methods: { type: 'array', items: { type: 'string', enum: ['password'] } },
            password: {
              type: 'object',
              properties: {
                user: {
                  type: 'object',
                  required: ['password'],
                  properties: {
                    id: { type: 'string', description: 'Instead of name and domain' },
                    name: { type: 'string' },
                    domain: NAMED,
                    password: { type: 'string' },
                  },
                },
              },
            },
          },
        },
        scope: {
          type: 'object',
          required: ['project'],
          properties: {
            project: {
              type: 'object',
              properties: { id: { type: 'string' }, name: { type: 'string' }, domain: NAMED },
            },
          },
        },
      },
    },
  },
} as const;
