/**
 * A fake of the calls of Keystone 22 that wafstat makes, because Keystone needs 155 Debian packages and cannot run
 * everywhere. `test/keystone.test.ts` compares its responses with those of a real Keystone.
 */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

const TOKEN_VALID_MS = 3_600_000;
const DOMAIN = { id: 'default', name: 'Default' };

interface User {
  id: string;
  name: string;
  password: string;
  enabled: boolean;
  /** Names of roles by the ID of the project, or `system`. */
  roles: Record<string, string[]>;
}

interface Token {
  user: User;
  /** The ID of a project, or `system`. */
  scope: string;
  issuedAt: number;
}

export interface Key {
  access: string;
  secret: string;
}

export class FakeKeystone {
  /** Method and path of every request. */
  readonly calls: string[] = [];
  readonly server = createServer((request, response) => void this.#respond(request, response));
  /** A status to respond with instead, as a broken service or a proxy in front does. */
  failure: (request: IncomingMessage) => number | undefined = () => undefined;
  readonly #now: () => number;
  readonly #users = new Map<string, User>();
  readonly #projects = new Map<string, { id: string; name: string; enabled: boolean }>();
  readonly #keys = new Map<string, Key & { userId: string; projectId: string }>();
  readonly #tokens = new Map<string, Token>();
  #port = 0;

  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  get address(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Listens on the same port after a stop. */
  async start(): Promise<void> {
    await once(this.server.listen(this.#port, '127.0.0.1'), 'listening');
    this.#port = (this.server.address() as AddressInfo).port;
  }

  async stop(): Promise<void> {
    const closed = once(this.server, 'close');
    this.server.close();
    this.server.closeAllConnections();
    await closed;
  }

  /** Changes of the returned user have effect. */
  addUser(name: string, password: string, roles: User['roles']): User {
    const user = { id: newId(), name, password, enabled: true, roles };
    this.#users.set(user.id, user);
    return user;
  }

  /** Changes of the returned project have effect. */
  addProject(name: string) {
    const project = { id: newId(), name, enabled: true };
    this.#projects.set(project.id, project);
    return project;
  }

  addKey({ id: userId }: User, projectId: string): Key {
    const key = { access: newId(), secret: newId() };
    this.#keys.set(keyId(key), { ...key, userId, projectId });
    return key;
  }

  deleteKey(key: Key): void {
    this.#keys.delete(keyId(key));
  }

  newToken(user: User, scope: string): string {
    const id = `gAAAAAB${randomBytes(60).toString('base64url')}`;
    this.#tokens.set(id, { user, scope, issuedAt: Math.floor(this.#now() / 1_000) * 1_000 });
    return id;
  }

  revokeToken(id: string): void {
    this.#tokens.delete(id);
  }

  revokeTokensOf(user: User): void {
    for (const [id, token] of this.#tokens) if (token.user === user) this.#tokens.delete(id);
  }

  async #respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method, headers } = request;
    const { pathname, searchParams } = new URL(request.url ?? '', this.address);
    this.calls.push(`${method} ${pathname}`);
    const send = (status: number, body: object, more = {}) =>
      response
        .writeHead(status, { 'Content-Type': 'application/json', Vary: 'X-Auth-Token', ...more })
        .end(JSON.stringify(body));
    const refuse = (status: number, message: string) =>
      send(status, { error: { code: status, message, title: STATUS_CODES[status] } });
    const body = await text(request);
    const failure = this.failure(request);
    if (failure !== undefined) return void refuse(failure, 'failed');
    if (method === 'POST' && pathname === '/v3/auth/tokens') {
      const id = this.#logIn(JSON.parse(body));
      const token = id === null ? undefined : this.#validToken(id);
      if (id === null || token === undefined)
        return void refuse(401, 'The request you have made requires authentication.');
      return void send(201, this.#tokenBody(token), { 'X-Subject-Token': id });
    }
    const caller = this.#validToken(String(headers['x-auth-token']));
    if (caller === undefined) return void refuse(401, 'The request you have made requires authentication.');
    if (caller.scope !== 'system')
      return void refuse(403, 'You are not authorized to perform the requested action.');
    const found =
      pathname === '/v3/auth/tokens'
        ? this.#tokenBody(this.#validToken(String(headers['x-subject-token'])))
        : this.#record(pathname, searchParams);
    if (found === null) refuse(404, `Could not find ${pathname}.`);
    else send(200, found);
  }

  #logIn(body: {
    auth: { identity: { password: { user: { name: string; password: string } } }; scope: object };
  }): string | null {
    const { name, password } = body.auth.identity.password.user;
    const user = [...this.#users.values()].find((each) => each.name === name && each.password === password);
    const scope = 'project' in body.auth.scope ? (body.auth.scope.project as { id: string }).id : 'system';
    return user ? this.newToken(user, scope) : null;
  }

  #validToken(id: string): Token | undefined {
    const token = this.#tokens.get(id);
    if (token === undefined || this.#now() >= token.issuedAt + TOKEN_VALID_MS) return undefined;
    const { user, scope } = token;
    const isEnabled = user.enabled && (scope === 'system' || this.#projects.get(scope)?.enabled);
    return isEnabled && user.roles[scope]?.length ? token : undefined;
  }

  #tokenBody(token: Token): object;
  #tokenBody(token: Token | undefined): object | null;
  #tokenBody(token: Token | undefined): object | null {
    if (token === undefined) return null;
    const { user, scope, issuedAt } = token;
    const project = this.#projects.get(scope);
    return {
      token: {
        methods: ['password'],
        user: { domain: DOMAIN, id: user.id, name: user.name, password_expires_at: null },
        audit_ids: [randomBytes(16).toString('base64url')],
        expires_at: keystoneTime(issuedAt + TOKEN_VALID_MS),
        issued_at: keystoneTime(issuedAt),
        ...(project
          ? { project: { domain: DOMAIN, id: project.id, name: project.name }, is_domain: false }
          : { system: { all: true } }),
        roles: (user.roles[scope] ?? []).map((name) => ({ id: roleId(name), name })),
      },
    };
  }

  #record(path: string, query: URLSearchParams): object | null {
    const [, , kind, id = ''] = path.split('/');
    const links = { self: `${this.address}${path}` };
    const user = this.#users.get(kind === 'role_assignments' ? (query.get('user.id') ?? '') : id);
    const project = this.#projects.get(
      kind === 'role_assignments' ? (query.get('scope.project.id') ?? '') : id,
    );
    const key = this.#keys.get(id);
    if (kind === 'users' && user) {
      const { name, enabled } = user;
      const rest = { domain_id: DOMAIN.id, enabled, password_expires_at: null, options: {}, links };
      return { user: { id, name, ...rest } };
    }
    if (kind === 'projects' && project) {
      const rest = { domain_id: DOMAIN.id, description: '', parent_id: DOMAIN.id, is_domain: false };
      return { project: { ...project, ...rest, tags: [], options: {}, links } };
    }
    if (kind === 'domains' && id === DOMAIN.id)
      return {
        domain: { ...DOMAIN, description: 'The default domain', enabled: true, tags: [], options: {}, links },
      };
    if (kind === 'credentials' && key) {
      const { access, secret, userId, projectId } = key;
      const blob = JSON.stringify({ access, secret, trust_id: null });
      return { credential: { user_id: userId, project_id: projectId, blob, type: 'ec2', id, links } };
    }
    if (kind === 'role_assignments' && user && project) {
      const role_assignments = (user.roles[project.id] ?? []).map((name) => ({
        links: {
          assignment: `${this.address}/v3/projects/${project.id}/users/${user.id}/roles/${roleId(name)}`,
        },
        role: { id: roleId(name), name },
        scope: { project: { id: project.id, name: project.name, domain: DOMAIN } },
        user: { id: user.id, name: user.name, domain: DOMAIN },
      }));
      return { role_assignments, links: { ...links, next: null, previous: null } };
    }
    return null;
  }
}

const newId = () => randomBytes(16).toString('hex');
const sha256 = (value: string) => createHash('sha256').update(value).digest('hex');
/** Keystone's ID of a credential. */
const keyId = ({ access }: Key) => sha256(access);
const roleId = (name: string) => sha256(name).slice(0, 32);
const keystoneTime = (time: number) => new Date(time).toISOString().replace('Z', '000Z');
