/** The calls of the console. The browser sends the session cookie. */
import { type Client, createClient, WafstatError } from '@wafstat/client';

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
  users: ManagedUser[];
  projects: ManagedProject[];
}

export interface FiguresQuery {
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
  administration(): Promise<Administration>;
  addUser(user: Pick<ManagedUser, 'name' | 'access' | 'roles'> & { password: string }): Promise<void>;
  setUserEnabled(id: string, enabled: boolean): Promise<void>;
  addProject(name: string): Promise<void>;
  setProjectEnabled(id: string, enabled: boolean): Promise<void>;
  /** The public API. */
  client(project: string): Client;
}

export function createApi(origin: string): Api {
  async function send(method: string, path: string, body?: object, signal?: AbortSignal): Promise<Response> {
    const response = await fetch(`${origin}/console/api/${path}`, {
      method,
      headers: { 'X-Wafstat-Console': '1', ...(body ? { 'Content-Type': 'application/json' } : {}) },
      ...(body ? { body: JSON.stringify(body) } : {}),
      ...(signal ? { signal } : {}),
    }).catch((failure: unknown) => {
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
    administration: () => json('GET', 'users'),
    addUser: (user) => change('POST', 'users', user),
    setUserEnabled: (user, enabled) => change('PUT', `users/${id(user)}`, { enabled }),
    addProject: (name) => change('POST', 'projects', { name }),
    setProjectEnabled: (project, enabled) => change('PUT', `projects/${id(project)}`, { enabled }),
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
