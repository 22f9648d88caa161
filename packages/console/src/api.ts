/** The calls of the console. The browser sends the session cookie. */
import { type Client, createClient, type Source, WafstatError } from '@wafstat/client';

export interface Project {
  id: string;
  name: string;
  roles: string[];
}

export interface Session {
  user: { id: string; name: string; domain: string; access: 'console' | 'both' };
  administers_domain: boolean;
  projects: Project[];
  expires_at: number;
  /** The clock of the service. */
  now: number;
  drop_reasons: Record<string, string>;
  /** What to do about them. */
  drop_fixes: Record<string, string>;
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
  description: string;
  status: 'active' | 'inactive';
  created: number;
}

export type AccessType = 'programmatic' | 'console' | 'both';
export type Role = 'reader' | 'ingest' | 'admin';

export interface ManagedUser {
  id: string;
  name: string;
  access: AccessType;
  enabled: boolean;
  created: number;
  /** By the ID of the project, or of the domain for all its projects. */
  roles: Record<string, Role[]>;
  keys: AccessKey[];
}

export interface ManagedProject {
  id: string;
  name: string;
  enabled: boolean;
  created: number;
}

/** All users and projects of the domain. */
export interface Administration {
  domain_id: string;
  /** Access keys of a user. */
  keys_limit: number;
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

export interface Api {
  session(): Promise<Session>;
  signIn(account: { user: string; domain: string; password: string }): Promise<Session>;
  signOut(): Promise<void>;
  changePassword(old_password: string, new_password: string): Promise<Session>;
  keys(): Promise<{ items: AccessKey[]; limit: number }>;
  /** Resolves to the key file. */
  addKey(description: string): Promise<Blob>;
  setKeyStatus(access: string, status: AccessKey['status']): Promise<void>;
  removeKey(access: string): Promise<void>;
  figures(project: string, query: FiguresQuery): Promise<Figures & { items: HostFigures[] }>;
  addHost(project: string, hostname: string): Promise<void>;
  renameHost(project: string, id: string, hostname: string): Promise<void>;
  removeHost(project: string, id: string): Promise<void>;
  sources(project: string, signal?: AbortSignal): Promise<SourceList>;
  setup(project: string): Promise<Setup>;
  addIngestKey(project: string): Promise<IngestKey>;
  administration(): Promise<Administration>;
  /** Resolves to the generated password. */
  addUser(user: Pick<ManagedUser, 'name' | 'access' | 'roles'>): Promise<string>;
  /** `confirm`: the name of the user, if the domain loses its last administrator. */
  changeUser(
    id: string,
    change: Partial<Pick<ManagedUser, 'enabled' | 'roles'>>,
    confirm?: string,
  ): Promise<void>;
  /** Resolves to the generated password. */
  resetPassword(id: string): Promise<string>;
  removeUser(id: string): Promise<void>;
  addUserKey(id: string): Promise<{ access: string; secret: string }>;
  setUserKeyStatus(id: string, access: string, status: AccessKey['status']): Promise<void>;
  removeUserKey(id: string, access: string): Promise<void>;
  addProject(name: string): Promise<void>;
  /** `confirm`: the name of the project, if the domain loses its last enabled one. */
  setProjectEnabled(id: string, enabled: boolean, confirm?: string): Promise<void>;
  removeProject(id: string, confirm: string): Promise<void>;
  /** The public API. */
  client(project: string): Client;
}

/** As often as the client of the public API. */
const RETRIES_MAX = 3;

export function createApi(origin: string): Api {
  async function send(
    method: string,
    path: string,
    body?: object,
    signal?: AbortSignal,
    retries = method === 'GET' ? RETRIES_MAX : 0,
  ): Promise<Response> {
    const response = await fetch(`${origin}/console/api/${path}`, {
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

  return {
    session: () => json('GET', 'session'),
    signIn: (account) => json('POST', 'session', account),
    signOut: () => change('DELETE', 'session'),
    changePassword: (old_password, new_password) => json('PUT', 'password', { old_password, new_password }),
    keys: () => json('GET', 'keys'),
    addKey: async (description) => (await send('POST', 'keys', { description })).blob(),
    setKeyStatus: (access, status) => change('PUT', `keys/${id(access)}`, { status }),
    removeKey: (access) => change('DELETE', `keys/${id(access)}`),
    figures: (project, { from, to, hosts = [], points = 1, signal }) => {
      const filter = hosts.map((host) => `&hosts=${id(host)}`).join('');
      const query = `from=${from}&to=${to}&points=${points}${filter}`;
      return json('GET', `projects/${id(project)}/hosts/figures?${query}`, undefined, signal);
    },
    addHost: (project, hostname) => change('POST', `projects/${id(project)}/hosts`, { hostname }),
    renameHost: (project, host, hostname) =>
      change('PUT', `projects/${id(project)}/hosts/${id(host)}`, { hostname }),
    removeHost: (project, host) => change('DELETE', `projects/${id(project)}/hosts/${id(host)}`),
    sources: (project, signal) => json('GET', `projects/${id(project)}/sources`, undefined, signal),
    setup: (project) => json('GET', `projects/${id(project)}/setup`),
    addIngestKey: (project) => json('POST', `projects/${id(project)}/ingest-key`),
    administration: () => json('GET', 'users'),
    addUser: async (user) => (await json<{ password: string }>('POST', 'users', user)).password,
    changeUser: (user, fields, name) => change('PUT', `users/${id(user)}${confirmed(name)}`, fields),
    resetPassword: async (user) =>
      (await json<{ password: string }>('POST', `users/${id(user)}/password`)).password,
    removeUser: (user) => change('DELETE', `users/${id(user)}`),
    addUserKey: (user) => json('POST', `users/${id(user)}/keys`, {}),
    setUserKeyStatus: (user, access, status) =>
      change('PUT', `users/${id(user)}/keys/${id(access)}`, { status }),
    removeUserKey: (user, access) => change('DELETE', `users/${id(user)}/keys/${id(access)}`),
    addProject: (name) => change('POST', 'projects', { name }),
    setProjectEnabled: (project, enabled, name) =>
      change('PUT', `projects/${id(project)}${confirmed(name)}`, { enabled }),
    removeProject: (project, name) => change('DELETE', `projects/${id(project)}${confirmed(name)}`),
    client: (projectId) => createClient({ url: origin, projectId }),
  };
}

async function errorOf(response: Response): Promise<WafstatError> {
  const { status } = response;
  const requestId = response.headers.get('X-Request-Id') ?? undefined;
  const body: { error_code?: string; error_msg?: string } = await response.json().catch(() => ({}));
  const message = body.error_msg ?? `The service returned ${status} without an error message.`;
  return new WafstatError(message, { status, errorCode: body.error_code, requestId });
}
