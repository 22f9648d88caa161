/** The whole app with a memory store, an administrator and a user for each role, for tests of routes. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { createApp } from '../packages/server/src/http/app.ts';
import { type Identity, openIdentity } from '../packages/server/src/identity/identity.ts';
import type { Role } from '../packages/server/src/identity/records.ts';
import { checkDocumented } from './documented.ts';
import { memoryStore } from './memory-store.ts';

export class AppWithUsers {
  readonly identity: Identity;
  readonly app: FastifyInstance;
  readonly project: string;
  readonly #directory: string;
  readonly #tokens = new Map<string, string>();

  private constructor(directory: string, identity: Identity, app: FastifyInstance, project: string) {
    this.#directory = directory;
    this.identity = identity;
    this.app = app;
    this.project = project;
  }

  /** The administrator is `admin`; the other users have the names of their roles. */
  static async start(now: () => number, roles: readonly Role[]): Promise<AppWithUsers> {
    const directory = mkdtempSync(join(tmpdir(), 'wafstat-routes-'));
    const identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), now);
    const names = { domain: 'default', project: 'own', user: 'admin' };
    const { domain, project } = await identity.administration.bootstrap(names, 'password');
    for (const role of roles) {
      const user = { name: role, domain_id: domain.id, access: 'both', password: 'password' } as const;
      await identity.administration.addUser({ ...user, roles: { [project.id]: [role] } });
    }
    const app = await createApp({
      store: memoryStore(now),
      identity,
      now,
      catalog: { publicUrl: null, region: 'r' },
      bodyBytesMax: 1_048_576,
      rateLimit: 0,
      limits: { retentionMs: now(), hostsMax: 10 },
      logger: false,
    });
    const started = new AppWithUsers(directory, identity, app, project.id);
    for (const name of ['admin', ...roles]) await started.#login(name);
    return started;
  }

  async #login(name: string): Promise<void> {
    const user = { name, password: 'password', domain: { name: 'default' } };
    const identity = { methods: ['password'], password: { user } };
    const payload = { auth: { identity, scope: { project: { id: this.project } } } };
    const { headers } = await this.app.inject({ method: 'POST', url: '/v3/auth/tokens', payload });
    this.#tokens.set(name, String(headers['x-subject-token']));
  }

  token(user: string): string {
    return this.#tokens.get(user) ?? '';
  }

  /** `path`: after `/v1/PROJECT/waf/`. */
  async call(user: string, method: 'GET' | 'POST' | 'DELETE', path: string, payload?: object) {
    const url = `/v1/${this.project}/waf/${path}`;
    const headers = { 'X-Auth-Token': this.token(user) };
    const response = await this.app.inject({ method, url, headers, ...(payload && { payload }) });
    if (response.body !== '') checkDocumented(method, url, response.statusCode, response.body);
    return { status: response.statusCode, body: response.body === '' ? null : response.json() };
  }

  async stop(): Promise<void> {
    await this.app.close();
    await this.identity.close();
    rmSync(this.#directory, { recursive: true });
  }
}
