/** The calls of the console. The browser sends the session cookie. */
import { type Annotation, type Client, createClient, type Source, WafstatError } from '@wafstat/client';
import { type Counts, type SentCounts, withAllCategories } from './counts.ts';
import { apiParameters, type Filter } from './filters.ts';

export interface Project {
  id: string;
  name: string;
  roles: string[];
}

export interface Session {
  user: { id: string; name: string; domain: string; domain_id: string; access: 'console' | 'both' };
  administers_domain: boolean;
  projects: Project[];
  expires_at: number;
  /** The clock of the service. */
  now: number;
  drop_reasons: Record<string, string>;
  /** What to do about them. */
  drop_fixes: Record<string, string>;
  /** Access keys of a user. */
  keys_limit: number;
  /** How long top lists are kept. Null: unknown. */
  top_lists_ms: number | null;
  /** Whether the service can find the networks of sources. */
  has_geoip: boolean;
}

/** Requests, and attacks that the filter selects, in each point. */
export interface HostFigures {
  id: string;
  hostname: string;
  requests: readonly number[];
  attacks: readonly number[];
}

/** What the query selects, and each host if it asks for them. */
export interface Figures extends Counts {
  /** The earliest event of the project. Null: there is none. */
  first_seen: number | null;
  items: HostFigures[];
  /** Requests in the busiest second, if the query asks for it. Null: too much data. */
  peak?: number | null;
  /** Those of the range, newest first, if the query asks for them. */
  annotations?: Annotation[];
  /** Only with a filter that needs kept attacks: the attacks of range, hosts and categories, and how many are kept. */
  kept?: Kept;
}

export interface Kept {
  attacks: number;
  kept: number;
}

type SentFigures = SentCounts & Omit<Figures, keyof Counts>;

export interface AccessKey {
  access: string;
  user_id: string;
  description: string;
  status: 'active' | 'inactive';
  create_time: string;
}

export type NewAccessKey = AccessKey & { secret: string };

export type AccessType = 'programmatic' | 'console' | 'both';
export type Role = 'reader' | 'ingest' | 'admin';

/** By the ID of the project, or of the domain for all its projects. */
export type Roles = Record<string, Role[]>;

export interface ManagedProject {
  id: string;
  name: string;
  enabled: boolean;
  create_time: string;
}

export interface ManagedUser extends ManagedProject {
  access: AccessType;
  roles: Roles;
  keys: AccessKey[];
}

/** All users and projects of the domain. */
export interface Administration {
  domain_id: string;
  users: ManagedUser[];
  projects: ManagedProject[];
}

/** A log source, with examples of dropped lines for administrators. */
export interface SourceHealth extends Source {
  examples: Record<string, string>;
}

export interface SourceList {
  /** The time of the response, by the clock of the service. */
  now: number;
  items: SourceHealth[];
}

/** How the command line reaches this installation. */
interface Setup {
  /** Null, and no options: only administrators see paths. */
  program: string | null;
  options: string[];
  /** The options that say what is counted and kept. */
  counting: string[];
  can_create_key: boolean;
}

export interface IngestKey {
  user: string;
  access: string;
  secret: string;
}

/** Kinds of audited actions, and their names on the page. */
export const AUDIT_KINDS = {
  login: 'Refused logins',
  user: 'Users',
  role: 'Roles',
  key: 'Access keys',
  project: 'Projects',
  host: 'Hosts',
  alert: 'Alerts',
  annotation: 'Annotations',
  domain: 'Domains',
  service: 'Starts of the service',
  horizon: 'Retention horizon',
} as const;

export interface AuditFilter {
  /** Name or ID of the acting user. Empty: all. */
  user: string;
  /** One of AUDIT_KINDS, or empty. */
  action: string;
  from: number | undefined;
  to: number | undefined;
}

export interface AuditRecord {
  id: string;
  /** ISO 8601. */
  time: string;
  /** Null: a login of an unknown user. */
  user: string | null;
  user_id?: string;
  via: string;
  address?: string;
  request_id?: string;
  action: string;
  object: { type: string; id?: string; name?: string };
  /** The fields that changed. */
  before?: Readonly<Record<string, unknown>>;
  after?: Readonly<Record<string, unknown>>;
  outcome: string;
  reason?: string;
}

interface FiguresQuery {
  /** Point i is from `edges[i]` to `edges[i + 1]`. */
  edges: readonly number[];
  /** Empty: the whole project. */
  hosts?: readonly string[];
  /** On attacks. Requests are always all. */
  filters?: readonly Filter[];
  byHost?: boolean;
  hasPeak?: boolean;
  hasAnnotations?: boolean;
  hasResponses?: boolean;
  signal?: AbortSignal;
}

interface ErrorPagesQuery {
  from: number;
  to: number;
  hosts: readonly string[];
  code: number;
  top: number;
  signal: AbortSignal;
}

/** The pages with the most responses of one code, in whole hours. */
interface ErrorPages {
  /** Distinct pages. */
  total: number;
  requests: number;
  from: number;
  to: number;
  items: { key: string; num: number; host: string; host_id: string | null; error: number }[];
}

export type Api = ReturnType<typeof createApi>;

interface RoleOfUser {
  user: string;
  /** ID of the project, or of the domain. */
  scope: string;
  role: Role;
  domain_id: string;
}

interface RoleAssignment {
  user: { id: string };
  role: { id: Role };
  scope: { project: { id: string } } | { domain: { id: string } };
}

/** The longest pages of the service. */
const PAGES_MAX = { audit_records: 1_000, role_assignments: 10_000 };

export function createApi(origin: string) {
  const fetch = createFetch();

  async function send(
    method: string,
    path: string,
    body?: object,
    signal?: AbortSignal,
    isRead = method === 'GET',
  ) {
    const request = {
      method,
      headers: { 'X-Wafstat-Console': '1', ...(body ? { 'Content-Type': 'application/json' } : {}) },
      ...(body ? { body: JSON.stringify(body) } : {}),
      ...(signal ? { signal } : {}),
    };
    const response = await fetch(`${origin}/${path}`, request, isRead).catch((failure: unknown) => {
      signal?.throwIfAborted();
      throw new WafstatError('The service is not responding.', {}, { cause: failure });
    });
    if (!response.ok) throw await errorOf(response);
    return response;
  }

  const json = async <T>(...request: Parameters<typeof send>): Promise<T> => (await send(...request)).json();
  const change = async (method: string, path: string, body?: object): Promise<void> => {
    await send(method, path, body);
  };
  const id = encodeURIComponent;
  const confirmed = (name: string | undefined) => (name === undefined ? '' : `?confirm=${id(name)}`);

  const credentials = 'v3.0/OS-CREDENTIAL/credentials';
  const inProject = (project: string) => `console/api/projects/${id(project)}`;
  const hosts = (project: string) => `v1/${id(project)}/waf/instance`;

  /** The first `limit` items of a list of pages. */
  async function listOf<T>(
    name: keyof typeof PAGES_MAX,
    limit = Number.POSITIVE_INFINITY,
    filter: Record<string, string> = {},
    signal?: AbortSignal,
  ): Promise<{ items: T[]; hasMore: boolean }> {
    const items: T[] = [];
    let search = `?${new URLSearchParams({ ...filter, limit: String(Math.min(limit, PAGES_MAX[name])) })}`;
    for (;;) {
      type Page = { links: { next: string | null } } & Record<typeof name, T[]>;
      const { links, [name]: page } = await json<Page>('GET', `v3/${name}${search}`, undefined, signal);
      items.push(...page);
      if (links.next === null || items.length >= limit)
        return { items: items.slice(0, limit), hasMore: links.next !== null };
      search = new URL(links.next).search;
    }
  }

  return {
    /** Null: not signed in. */
    async session(): Promise<Session | null> {
      const response = await send('GET', 'console/api/session');
      return response.status === 204 ? null : response.json();
    },
    signIn: (account: { user: string; domain: string; password: string }) =>
      json<Session>('POST', 'console/api/session', account),
    signOut: () => change('DELETE', 'console/api/session'),
    changePassword: (user: string, original_password: string, password: string) =>
      change('POST', `v3/users/${id(user)}/password`, { user: { original_password, password } }),
    async keys(user: string) {
      const path = `${credentials}?user_id=${id(user)}`;
      return (await json<{ credentials: AccessKey[] }>('GET', path)).credentials;
    },
    async addKey(user_id: string, description = '') {
      const body = { credential: { user_id, description } };
      return (await json<{ credential: NewAccessKey }>('POST', credentials, body)).credential;
    },
    setKeyStatus: (access: string, status: AccessKey['status']) =>
      change('PUT', `${credentials}/${id(access)}`, { credential: { status } }),
    removeKey: (access: string) => change('DELETE', `${credentials}/${id(access)}`),
    async figures(project: string, query: FiguresQuery): Promise<Figures> {
      const { edges, hosts = [], filters = [], byHost: by_host = false, signal } = query;
      const body = {
        edges,
        by_host,
        ...(hosts.length === 0 ? {} : { hosts }),
        ...(filters.length === 0 ? {} : { filter: apiParameters(filters) }),
        ...(query.hasPeak ? { peak: true } : {}),
        ...(query.hasAnnotations ? { annotations: true } : {}),
        ...(query.hasResponses ? { responses: true } : {}),
      };
      const path = `${inProject(project)}/figures`;
      const {
        requests,
        attacks,
        blocked,
        responses = {},
        ...rest
      } = await json<SentFigures>('POST', path, body, signal, true);
      return { ...rest, ...withAllCategories({ requests, attacks, blocked, responses }) };
    },
    errorPages(project: string, { hosts, signal, ...query }: ErrorPagesQuery) {
      const parameters = Object.entries(query).map(([name, value]) => `${name}=${value}`);
      const search = [...parameters, ...hosts.map((host) => `hosts=${id(host)}`)].join('&');
      return json<ErrorPages>('GET', `v1/${id(project)}/waf/overviews/abnormal?${search}`, undefined, signal);
    },
    addHost: (project: string, hostname: string) => change('POST', hosts(project), { hostname }),
    renameHost: (project: string, host: string, hostname: string) =>
      change('PATCH', `${hosts(project)}/${id(host)}`, { hostname }),
    removeHost: (project: string, host: string) => change('DELETE', `${hosts(project)}/${id(host)}`),
    sources: (project: string, signal?: AbortSignal) =>
      json<SourceList>('GET', `${inProject(project)}/sources`, undefined, signal),
    setup: (project: string) => json<Setup>('GET', `${inProject(project)}/setup`),
    addIngestKey: (project: string) => json<IngestKey>('POST', `${inProject(project)}/ingest-key`),
    async administration(domain_id: string): Promise<Administration> {
      const filter = `domain_id=${id(domain_id)}`;
      const [{ users }, { projects }, { items: assignments }, { credentials: keys }] = await Promise.all([
        json<{ users: Omit<ManagedUser, 'roles' | 'keys'>[] }>('GET', `v3/users?${filter}`),
        json<{ projects: ManagedProject[] }>('GET', `v3/projects?${filter}`),
        listOf<RoleAssignment>('role_assignments'),
        json<{ credentials: AccessKey[] }>('GET', `${credentials}?${filter}`),
      ]);
      const withNothing = (user: (typeof users)[number]) => ({ ...user, keys: [], roles: {} });
      const byId = new Map<string, ManagedUser>(users.map((user) => [user.id, withNothing(user)]));
      for (const key of keys) byId.get(key.user_id)?.keys.push(key);
      for (const { user, role, scope } of assignments) {
        const { id: scopeId } = 'project' in scope ? scope.project : scope.domain;
        const roles = byId.get(user.id)?.roles ?? {};
        roles[scopeId] = [...(roles[scopeId] ?? []), role.id];
      }
      return { domain_id, projects, users: [...byId.values()] };
    },
    /** Newest first. */
    auditRecords(filter: AuditFilter, limit: number, signal?: AbortSignal) {
      const given = Object.entries(filter).filter(([, value]) => value !== undefined && value !== '');
      const text = Object.fromEntries(given.map(([name, value]) => [name, String(value)]));
      return listOf<AuditRecord>('audit_records', limit, text, signal);
    },
    /** Resolves to the ID. */
    addUser: async (user: { name: string; access: AccessType; password: string }) =>
      (await json<{ user: { id: string } }>('POST', 'v3/users', { user })).user.id,
    changeUser: (user: string, fields: { enabled: boolean } | { password: string }) =>
      change('PATCH', `v3/users/${id(user)}`, { user: fields }),
    /** `confirm`: the name of the user, if the domain loses its last administrator. */
    changeRole(verb: 'grant' | 'revoke', { user, scope, role, domain_id }: RoleOfUser, confirm?: string) {
      const kind = scope === domain_id ? 'domains' : 'projects';
      const path = `v3/${kind}/${id(scope)}/users/${id(user)}/roles/${role}`;
      return change(verb === 'grant' ? 'PUT' : 'DELETE', `${path}${confirmed(confirm)}`);
    },
    removeUser: (user: string) => change('DELETE', `v3/users/${id(user)}`),
    addProject: (name: string) => change('POST', 'v3/projects', { project: { name } }),
    /** `confirm`: the name of the project, if the domain loses its last enabled one. */
    setProjectEnabled: (project: string, enabled: boolean, confirm?: string) =>
      change('PATCH', `v3/projects/${id(project)}${confirmed(confirm)}`, { project: { enabled } }),
    removeProject: (project: string, confirm: string) =>
      change('DELETE', `v3/projects/${id(project)}${confirmed(confirm)}`),
    /** The public API. */
    client: (projectId: string): Client => createClient({ url: origin, projectId, fetch, maxRetries: 0 }),
  };
}

/** A page must not be refused because of its own requests. */
const PARALLEL_MAX = 4;
const RETRIES_MAX = 3;

/** Sends a few requests at a time, and repeats reads that an overloaded service refuses, when it says so. */
function createFetch() {
  let running = 0;
  const waiting: (() => void)[] = [];
  async function sendInTurn(url: string, request: RequestInit): Promise<Response> {
    if (running < PARALLEL_MAX) running++;
    else await new Promise<void>((start) => waiting.push(start));
    try {
      const response = await fetch(url, request);
      // The request is in progress until all of the response has arrived.
      await response.clone().arrayBuffer();
      return response;
    } finally {
      const next = waiting.shift();
      if (next === undefined) running--;
      else next();
    }
  }
  return async (url: string, request: RequestInit, isRead = true): Promise<Response> => {
    for (let retries = 0; ; retries++) {
      const response = await sendInTurn(url, request);
      const retryAfterS = Number(response.headers.get('Retry-After'));
      const isRefused = response.status === 503 || response.status === 429;
      if (!isRead || !isRefused || retries === RETRIES_MAX || !(retryAfterS > 0)) return response;
      await new Promise((resolve) => setTimeout(resolve, retryAfterS * 1_000));
      request.signal?.throwIfAborted();
    }
  };
}

/** `error`: the format of Keystone. */
interface ErrorBody {
  error_code?: string;
  error_msg?: string;
  error?: { message: string };
}

async function errorOf(response: Response): Promise<WafstatError> {
  const { status } = response;
  const requestId = response.headers.get('X-Request-Id') ?? undefined;
  const body: ErrorBody = await response.json().catch(() => ({}));
  const message =
    body.error_msg ?? body.error?.message ?? `The service returned ${status} without an error message.`;
  return new WafstatError(message, { status, errorCode: body.error_code, requestId });
}
