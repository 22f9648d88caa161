/** The calls of the console. The browser sends the session cookie. */
import { type Client, createClient, type Source, WafstatError } from '@wafstat/client';

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
}

/** Counts of equal parts of the range, in order. */
export interface Figures {
  requests: number[];
  attacks: number[];
}

export interface HostFigures extends Figures {
  id: string;
  hostname: string;
}

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

interface FiguresQuery {
  from: number;
  to: number;
  hosts?: readonly string[];
  points?: number;
  signal?: AbortSignal;
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

interface RoleAssignments {
  role_assignments: RoleAssignment[];
  links: { next: string | null };
}

/** As often as the client of the public API. */
const RETRIES_MAX = 3;

export function createApi(origin: string) {
  async function send(
    method: string,
    path: string,
    body?: object,
    signal?: AbortSignal,
    retries = method === 'GET' ? RETRIES_MAX : 0,
  ): Promise<Response> {
    const response = await fetch(`${origin}/${path}`, {
      method,
      headers: { 'X-Wafstat-Console': '1', ...(body ? { 'Content-Type': 'application/json' } : {}) },
      ...(body ? { body: JSON.stringify(body) } : {}),
      ...(signal ? { signal } : {}),
    }).catch((failure: unknown) => {
      signal?.throwIfAborted();
      throw new WafstatError('The service is not responding.', {}, { cause: failure });
    });
    if (response.ok) return response;
    // An overloaded service says when to try again.
    const retryAfterS = Number(response.headers.get('Retry-After'));
    if (response.status !== 503 || retries === 0 || !(retryAfterS > 0)) throw await errorOf(response);
    await new Promise((resolve) => setTimeout(resolve, retryAfterS * 1_000));
    signal?.throwIfAborted();
    return send(method, path, body, signal, retries - 1);
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

  async function allRoleAssignments(): Promise<RoleAssignment[]> {
    const all: RoleAssignment[] = [];
    for (let page = 'v3/role_assignments?limit=10000'; ; ) {
      const { role_assignments, links } = await json<RoleAssignments>('GET', page);
      all.push(...role_assignments);
      if (links.next === null) return all;
      page = `v3/role_assignments${new URL(links.next).search}`;
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
    figures(project: string, { from, to, hosts = [], points = 1, signal }: FiguresQuery) {
      const filter = hosts.map((host) => `&hosts=${id(host)}`).join('');
      const path = `${inProject(project)}/hosts/figures?from=${from}&to=${to}&points=${points}${filter}`;
      return json<Figures & { items: HostFigures[] }>('GET', path, undefined, signal);
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
      const [{ users }, { projects }, roleAssignments, { credentials: keys }] = await Promise.all([
        json<{ users: Omit<ManagedUser, 'roles' | 'keys'>[] }>('GET', `v3/users?${filter}`),
        json<{ projects: ManagedProject[] }>('GET', `v3/projects?${filter}`),
        allRoleAssignments(),
        json<{ credentials: AccessKey[] }>('GET', `${credentials}?${filter}`),
      ]);
      const withNothing = (user: (typeof users)[number]) => ({ ...user, keys: [], roles: {} });
      const byId = new Map<string, ManagedUser>(users.map((user) => [user.id, withNothing(user)]));
      for (const key of keys) byId.get(key.user_id)?.keys.push(key);
      for (const { user, role, scope } of roleAssignments) {
        const { id: scopeId } = 'project' in scope ? scope.project : scope.domain;
        const roles = byId.get(user.id)?.roles ?? {};
        roles[scopeId] = [...(roles[scopeId] ?? []), role.id];
      }
      return { domain_id, projects, users: [...byId.values()] };
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
    client: (projectId: string): Client => createClient({ url: origin, projectId }),
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
