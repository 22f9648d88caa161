/** Request and response bodies of Keystone v3, and their schemas. */
import type { FastifyRequest } from 'fastify';
import { type ApiError, invalid, malformed } from '../../errors.ts';
import type {
  DomainReference,
  MemberReference,
  PasswordLogin,
  ScopeReference,
  TokenDescription,
  TokenLogin,
} from '../../identity/local-authenticator.ts';
import type { AccessKeyInfo, Domain, Project, Role, User } from '../../identity/records.ts';
import { valueAt } from '../../json-path.ts';
import { parseJson, textAt } from '../auth/json-body.ts';
import { LIST_LIMIT_MAX, parseWhole, queryOf, type RawQuery, single } from '../query.ts';
import { array, integer, notCached, partialObject, type Route, string } from '../route.ts';

/** A route with the fields of its schema. */
export type IdentityRoute = Pick<Route, 'method' | 'url' | 'handler'> &
  Route['schema'] & {
    /** Whether callers need no credentials. */
    isPublic?: boolean;
  };

/** Forbids caching, and adds the routes under `/identity`, to which the catalog points; documented once. */
export function identityRoutes(routes: readonly IdentityRoute[]): Route[] {
  const tagged = routes.map(({ method, url, handler, isPublic, ...schema }) =>
    notCached({
      method,
      url,
      handler,
      ...(isPublic ? {} : { allow: 'authenticated' }),
      schema: { ...schema, tags: ['identity'] },
    }),
  );
  const aliases = tagged.map((route) => ({ ...route, url: `/identity${route.url}`, schema: { hide: true } }));
  return [...tagged, ...aliases];
}

export interface Catalog {
  /** The URL under which clients reach the service; null to use that of the request. */
  publicUrl: string | null;
  region: string;
}

/** The base URL of the links in a response. */
export function baseOf({ publicUrl }: Pick<Catalog, 'publicUrl'>, request: FastifyRequest): string {
  // A trusted proxy may forward any text as the protocol.
  return publicUrl ?? `${request.protocol === 'https' ? 'https' : 'http'}://${request.host}`;
}

/** Every record has a link to itself: the `openstack` command fails without it. */
export function withLink(base: string, path: string, record: object): object {
  return { ...record, links: { self: `${base}/identity/v3/${path}` } };
}

/** A whole list, or the page of it that `limit` and `marker` select. */
export function listBody<T extends { id: string }>(
  catalog: Catalog,
  request: FastifyRequest,
  query: RawQuery,
  name: string,
  records: readonly T[],
  body: (record: T) => object,
) {
  const marker = single(query, 'marker');
  const before = marker === undefined ? -1 : records.findIndex(({ id }) => id === marker);
  if (marker !== undefined && before === -1) throw unknownMarker(marker);
  const end = before + 1 + parseWhole(query, 'limit', records.length, 1, LIST_LIMIT_MAX);
  const page = records.slice(before + 1, end);
  const base = baseOf(catalog, request);
  const items = page.map((record) => withLink(base, `${name}/${record.id}`, body(record)));
  const next = end < records.length ? (page.at(-1)?.id ?? null) : null;
  return { [name]: items, links: listLinks(catalog, request, next) };
}

/** `next`: the marker of the next page, or null. */
export function listLinks(catalog: Catalog, request: FastifyRequest, next: string | null) {
  const [path = '', queryText = ''] = request.url.split('?', 2);
  const query = new URLSearchParams(queryText);
  query.set('marker', next ?? '');
  const base = baseOf(catalog, request);
  return { self: `${base}${request.url}`, previous: null, next: next && `${base}${path}?${query}` };
}

export const pageParameters = (name: string, maximum = LIST_LIMIT_MAX) => ({
  limit: integer(`Maximum number of ${name}.`, { minimum: 1, maximum }),
  marker: string('The `marker` in `links.next` of the previous page.'),
});

export function unknownMarker(marker = ''): ApiError {
  return invalid('marker', marker, 'must be that of links.next of the previous page');
}

/** Rejects unknown parameters: ignoring a filter would return more than the client asked for. */
export function filtersOf(request: FastifyRequest, names: readonly string[]): RawQuery {
  const query = queryOf(request);
  const unknown = Object.keys(query).find((name) => !names.includes(name));
  if (unknown !== undefined)
    throw malformed(`there is no parameter '${unknown.slice(0, 64)}': use ${names.join(', ')}`);
  for (const name of names) single(query, name);
  return { ...query, ...flagOf(query, 'enabled'), ...flagOf(query, 'is_domain') };
}

/** Python clients send `True`. */
function flagOf(query: RawQuery, name: string): RawQuery {
  return query[name] === undefined ? {} : { [name]: String(isOn(query, name)) };
}

/** As in Keystone, the name alone means true. */
export function isOn(query: RawQuery, name: string): boolean {
  const text = single(query, name);
  if (text === undefined) return false;
  if (/^(?:|1|true)$/i.test(text)) return true;
  if (/^(?:0|false)$/i.test(text)) return false;
  throw invalid(name, text, 'must be true or false');
}

export function tokenBody(description: TokenDescription, catalog: object[] | null) {
  const { token, user, userDomain, scope, roles, isExchanged } = description;
  const named = ({ id, name }: { id: string; name: string }) => ({ id, name });
  return {
    token: {
      methods: isExchanged ? ['password', 'token'] : ['password'],
      issued_at: keystoneTime(token.issued_at),
      expires_at: keystoneTime(token.expires_at),
      user: { ...named(user), domain: named(userDomain), password_expires_at: null },
      ...('project' in scope
        ? { project: { ...named(scope.project), domain: named(scope.domain) } }
        : { domain: named(scope.domain) }),
      roles: roles.map((name) => ({ id: name, name })),
      audit_ids: [token.id, ...(token.login_id === undefined ? [] : [token.login_id])],
      ...(catalog === null ? {} : { catalog }),
    },
  };
}

/**
 * The waf endpoint is the bare base URL: clients append `/v1/...`. Except for gophertelekomcloud, whose `NewWAFDV1` takes
 * the URL of the project from the entry `premium-waf`.
 */
export function catalogEntries(base: string, region: string, projectId: string | null): object[] {
  const entry = (type: string, url: string) => ({
    id: type,
    type,
    name: type,
    endpoints: [{ id: `${type}-public`, interface: 'public', region, region_id: region, url }],
  });
  const entries = [entry('identity', `${base}/identity/v3`), entry('waf', base)];
  if (projectId !== null) entries.push(entry('premium-waf', `${base}/v1/${projectId}`));
  return entries;
}

/** `create_time` is our addition to the format of Keystone, here and in `userBody`. */
export function projectBody({ id, name, domain_id, enabled, created }: Project) {
  const record = { id, name, domain_id, enabled, create_time: keystoneTime(created) };
  return { ...record, description: '', is_domain: false, parent_id: domain_id, tags: [] };
}

export function domainBody({ id, name, enabled }: Domain) {
  return { id, name, enabled, description: '' };
}

/** `access` is our addition, too. */
export function userBody({ id, name, domain_id, enabled, access, created }: User) {
  const record = { id, name, domain_id, enabled, access, create_time: keystoneTime(created) };
  return { ...record, password_expires_at: null, options: {} };
}

/** The ID of a role is its name. */
export function roleBody(role: Role) {
  return { id: role, name: role, domain_id: null, description: '', options: {} };
}

export interface RoleAssignment {
  user: User;
  role: Role;
  scope: { project: Project } | { domain: Domain };
}

export function roleAssignmentBody(
  { user, role, scope }: RoleAssignment,
  nameOf: (domainId: string) => string,
) {
  const domainOf = (id: string) => ({ id, name: nameOf(id) });
  return {
    role: { id: role, name: role },
    scope:
      'project' in scope
        ? {
            project: {
              id: scope.project.id,
              name: scope.project.name,
              domain: domainOf(scope.project.domain_id),
            },
          }
        : { domain: domainOf(scope.domain.id) },
    user: { id: user.id, name: user.name, domain: domainOf(user.domain_id) },
  };
}

export function credentialBody({ access, user_id, description, status, created }: AccessKeyInfo) {
  return { access, user_id, description, status, create_time: keystoneTime(created) };
}

/**
 * The versions at the base address, where both APIs are. openstacksdk looks for the statistics API there too and, unless
 * the caller names a version, takes the highest one: it must not be that of identity, or calls go to `/identity/v3/v1/...`.
 */
export function versionsBody(base: string, identityKind: 'local' | 'remote') {
  const statistics = { status: 'stable', links: [{ rel: 'self', href: `${base}/` }] };
  const values = [
    { id: 'v1.0', ...statistics },
    ...(identityKind === 'local' ? [versionBody(`${base}/identity/v3/`)] : []),
    { id: 'v99.0', ...statistics },
  ];
  return { versions: { values } };
}

export function versionBody(href: string) {
  return {
    id: 'v3.6',
    status: 'stable',
    updated: '2016-04-04T00:00:00Z',
    'media-types': [{ base: 'application/json', type: 'application/vnd.openstack.identity-v3+json' }],
    links: [{ rel: 'self', href }],
  };
}

function keystoneTime(time: number): string {
  return new Date(time).toISOString().replace('Z', '000Z');
}

export function parseLogin(body: unknown): PasswordLogin | TokenLogin {
  const fields = parseJson(body);
  const methods = valueAt(fields, 'auth.identity.methods');
  if (Array.isArray(methods) && methods.length === 1 && methods[0] === 'token') {
    return { token: textAt(fields, 'auth.identity.token.id'), scope: scopeAt(fields, 'auth.scope') };
  }
  if (!Array.isArray(methods) || !methods.includes('password')) {
    throw malformed("auth.identity.methods must be ['password'] or ['token']");
  }
  return {
    user: referenceAt(fields, 'auth.identity.password.user'),
    password: textAt(fields, 'auth.identity.password.user.password'),
    scope: scopeAt(fields, 'auth.scope'),
  };
}

/** If both are given, the project takes precedence. */
function scopeAt(fields: unknown, path: string): ScopeReference {
  const project = valueAt(fields, `${path}.project`);
  if (project !== undefined) {
    const isNameOnly = valueAt(project, 'id') === undefined && valueAt(project, 'domain') === undefined;
    if (isNameOnly) return { project: { name: textAt(fields, `${path}.project.name`), domain: null } };
    return { project: referenceAt(fields, `${path}.project`) };
  }
  if (valueAt(fields, `${path}.domain`) !== undefined) return { domain: domainAt(fields, `${path}.domain`) };
  throw malformed(`${path} must contain a project or a domain`);
}

/** A user or project: by ID, or by name and domain. */
function referenceAt(fields: unknown, path: string): MemberReference {
  if (valueAt(fields, `${path}.id`) !== undefined) return { id: textAt(fields, `${path}.id`) };
  return { name: textAt(fields, `${path}.name`), domain: domainAt(fields, `${path}.domain`) };
}

function domainAt(fields: unknown, path: string): DomainReference {
  return valueAt(fields, `${path}.id`) === undefined
    ? { name: textAt(fields, `${path}.name`) }
    : { id: textAt(fields, `${path}.id`) };
}

const TEXT = { type: 'string' };
const ANY_OBJECT = { type: 'object', additionalProperties: true };
const NAMED = partialObject({ id: TEXT, name: TEXT });

export const recordSchema = (name: string) => ({ ...ANY_OBJECT, description: `The ${name}.` });

export function listSchema(name: string) {
  const properties = { [name]: array(ANY_OBJECT), links: ANY_OBJECT };
  return partialObject(properties, { description: `The ${name}.` });
}

export const TOKEN_RESPONSE = partialObject(
  { token: ANY_OBJECT },
  {
    description:
      'The X-Subject-Token header contains the token, which is valid until `expires_at`: 24 hours after the login.',
  },
);

const USER = partialObject(
  { id: string('ID of the user, instead of name and domain.'), name: TEXT, domain: NAMED, password: TEXT },
  { required: ['password'] },
);

const SCOPE = partialObject({
  project: partialObject({ id: TEXT, name: TEXT, domain: NAMED }),
  domain: {
    ...NAMED,
    description:
      'A token for a domain gives no access to statistics. If both are given, the project takes precedence.',
  },
});

const IDENTITY = partialObject(
  {
    methods: array({ ...TEXT, enum: ['password', 'token'] }, { maxItems: 1 }),
    password: partialObject({ user: USER }, { description: 'For the method `password`.' }),
    token: partialObject({ id: TEXT }, { description: 'For the method `token`: the token to exchange.' }),
  },
  { required: ['methods'] },
);

export const TOKEN_REQUEST = partialObject(
  { auth: partialObject({ identity: IDENTITY, scope: SCOPE }, { required: ['identity', 'scope'] }) },
  { required: ['auth'] },
);

const STATUS = { ...TEXT, enum: ['active', 'inactive'] };

const CREDENTIAL = partialObject({
  access: TEXT,
  user_id: TEXT,
  description: TEXT,
  status: STATUS,
  create_time: TEXT,
  secret: string('The secret access key. Only the response that creates the key contains it.'),
});

export const CREDENTIAL_RESPONSE = partialObject(
  { credential: CREDENTIAL },
  { description: 'The access key.' },
);

export const CREDENTIALS_RESPONSE = partialObject(
  { credentials: array(CREDENTIAL) },
  { description: 'The access keys, without their secrets.' },
);

export const CREDENTIAL_REQUEST = partialObject(
  { credential: partialObject({ user_id: TEXT, description: TEXT, status: STATUS }) },
  { required: ['credential'] },
);
