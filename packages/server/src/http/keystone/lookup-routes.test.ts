import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { checkDocumented } from '../../../../../test/documented.ts';
import { memoryStore } from '../../../../../test/memory-store.ts';
import { type Identity, openIdentity } from '../../identity/identity.ts';
import type { Role, User } from '../../identity/records.ts';
import { createApp } from '../app.ts';
import type { RoleAssignment } from './keystone.ts';
import { assignments } from './lookup-routes.ts';

type Scope = RoleAssignment['scope'];

const NOW = Date.UTC(2026, 6, 1);
let directory: string;
let identity: Identity;
let app: FastifyInstance;
let installation: Awaited<ReturnType<Identity['administration']['bootstrap']>>;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-lookup-'));
  identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), () => NOW);
  const { administration } = identity;
  installation = await administration.bootstrap(
    { domain: 'default', project: 'default', user: 'admin' },
    'password',
  );
  app = await createApp({
    store: memoryStore(() => NOW),
    identity,
    now: () => NOW,
    catalog: { publicUrl: null, region: 'eu' },
    bodyBytesMax: 1_048_576,
    rateLimit: 0,
    limits: { retentionMs: 180 * 86_400_000, hostsMax: 1_000 },
    logger: false,
  });
});

afterEach(async () => {
  await app.close();
  await identity.close();
  rmSync(directory, { recursive: true });
});

async function login(name: string, scope: object, domain = 'default') {
  const user = { name, password: 'password', domain: { name: domain } };
  const auth = { identity: { methods: ['password'], password: { user } }, scope };
  const response = await app.inject({ method: 'POST', url: '/v3/auth/tokens', payload: { auth } });
  return {
    status: response.statusCode,
    body: response.json(),
    token: String(response.headers['x-subject-token']),
  };
}

const hashOf = (access: string) => createHash('sha256').update(access).digest('hex');

async function get(url: string, token: string) {
  const response = await app.inject({ url, headers: { 'x-auth-token': token } });
  checkDocumented('GET', url, response.statusCode, response.body);
  return { status: response.statusCode, body: response.json(), headers: response.headers };
}

test('no call returns the secret of an existing key, and there is no token for the system', async () => {
  const { user, domain } = installation;
  const { access } = await identity.administration.addKey(user.id, '');
  const { token } = await login('admin', { domain: { id: domain.id } });
  expect((await get(`/v3/credentials/${hashOf(access)}`, token)).status).toBe(404);
  const key = (await get(`/v3.0/OS-CREDENTIAL/credentials/${access}`, token)).body.credential;
  expect([key.access, key.secret]).toEqual([access, undefined]);
  const { status, body } = await login('admin', { system: { all: true } });
  expect([status, body.error.message]).toEqual([400, 'auth.scope must contain a project or a domain']);
});

describe('reads', () => {
  /** Two domains with an administrator each; `reader` has a role in one project of each domain. */
  async function twoDomains() {
    const { administration } = identity;
    const { domain: own, project } = installation;
    const other = await administration.addDomain('other');
    const foreign = await administration.addProject(other.id, 'shop');
    const unused = await administration.addProject(own.id, 'unused');
    const rest = { access: 'programmatic', password: 'password' } as const;
    const chief = await administration.addUser({
      ...rest,
      name: 'chief',
      domain_id: other.id,
      roles: { [other.id]: ['admin'] },
    });
    const reader = await administration.addUser({
      ...rest,
      name: 'reader',
      domain_id: own.id,
      roles: { [project.id]: ['reader'], [foreign.id]: ['reader', 'ingest'] },
    });
    const { token } = await login('reader', { project: { id: project.id } });
    const admin = (await login('admin', { project: { id: project.id } })).token;
    const chiefToken = (await login('chief', { domain: { id: other.id } }, 'other')).token;
    return { own, other, project, foreign, unused, chief, reader, token, admin, chiefToken };
  }

  const names = (records: { name: string }[]) => records.map(({ name }) => name);

  test('everyone can read their own user, projects and domains, and nothing about others', async () => {
    const { own, other, project, foreign, unused, chief, reader, token } = await twoDomains();
    const { body, headers } = await get(`/identity/v3/users/${reader.id}`, token);
    expect(headers['cache-control']).toBe('no-store');
    expect(body.user).toEqual({
      id: reader.id,
      name: 'reader',
      domain_id: own.id,
      enabled: true,
      access: 'programmatic',
      create_time: '2026-07-01T00:00:00.000000Z',
      password_expires_at: null,
      options: {},
      links: { self: expect.stringMatching(`/identity/v3/users/${reader.id}$`) },
    });
    for (const [path, name] of [
      [`projects/${project.id}`, 'default'],
      [`projects/${foreign.id}`, 'shop'],
      [`domains/${own.id}`, 'default'],
      [`domains/${other.id}`, 'other'],
    ]) {
      const { status, body } = await get(`/v3/${path}`, token);
      expect([status, Object.values<{ name: string }>(body)[0]?.name]).toEqual([200, name]);
    }
    for (const path of ['projects', 'auth/projects', `users/${reader.id}/projects`]) {
      expect(names((await get(`/v3/${path}`, token)).body.projects)).toEqual(['default', 'shop']);
    }
    expect(names((await get('/v3/domains', token)).body.domains)).toEqual(['default', 'other']);
    // The response is the same for what exists and what does not.
    for (const [kind, ids] of [
      ['user', [chief.id, installation.user.id, 'none', 'x'.repeat(5_000)]],
      ['project', [unused.id, 'none']],
      ['domain', ['none']],
    ] as const) {
      for (const id of ids) {
        const { status, body } = await get(`/v3/${kind}s/${id}`, token);
        expect([status, body.error.message]).toEqual([
          404,
          `the ${kind} does not exist, or you are not allowed to read it`,
        ]);
      }
    }
    expect((await get(`/v3/users/${chief.id}/projects`, token)).status).toBe(404);
    for (const path of ['users', 'users?name=reader', 'roles', 'role_assignments']) {
      expect((await get(`/v3/${path}`, token)).status).toBe(403);
    }
  });

  test('an administrator reads the users, projects, roles and assignments of the domain only', async () => {
    const { own, project, unused, chief, reader, admin } = await twoDomains();
    expect(names((await get('/v3/users', admin)).body.users)).toEqual(['admin', 'reader']);
    expect(names((await get('/v3/users?name=reader', admin)).body.users)).toEqual(['reader']);
    expect(names((await get('/v3/projects', admin)).body.projects)).toEqual(['default', 'unused']);
    expect(names((await get('/v3/roles', admin)).body.roles)).toEqual(['reader', 'ingest', 'admin']);
    expect((await get(`/v3/users/${reader.id}`, admin)).status).toBe(200);
    // The list leaves out what the user may do in another domain.
    expect(names((await get(`/v3/users/${reader.id}/projects`, admin)).body.projects)).toEqual(['default']);
    const { body } = await get('/v3/role_assignments', admin);
    const seen = body.role_assignments.map(
      ({ user, role, scope }: { user: object; role: object; scope: object }) => ({ user, role, scope }),
    );
    const domain = { id: own.id, name: 'default' };
    expect(seen).toEqual([
      {
        user: { id: installation.user.id, name: 'admin', domain },
        role: { id: 'admin', name: 'admin' },
        scope: { domain },
      },
      {
        user: { id: reader.id, name: 'reader', domain },
        role: { id: 'reader', name: 'reader' },
        scope: { project: { id: project.id, name: 'default', domain } },
      },
    ]);
    expect((await get(`/v3/users/${chief.id}`, admin)).status).toBe(404);
    // The administrator sees disabled projects, which no longer give a token.
    await identity.administration.setEnabled('project', unused.id, false);
    expect((await get(`/v3/projects/${unused.id}`, admin)).body.project.enabled).toBe(false);
    expect(names((await get('/v3/projects?enabled=False', admin)).body.projects)).toEqual(['unused']);
    expect(names((await get('/v3/auth/projects', admin)).body.projects)).toEqual(['default']);
  });

  test('no filter reaches another domain, or reveals what exists there', async () => {
    const { own, other, project, foreign, chief, reader, admin, chiefToken } = await twoDomains();
    for (const [token, domain, user, project_id] of [
      [admin, other.id, chief.id, foreign.id],
      [admin, 'none', 'none', 'none'],
      [chiefToken, own.id, installation.user.id, project.id],
    ]) {
      const list = async (path: string) => Object.values((await get(`/v3/${path}`, String(token))).body)[0];
      expect(await list(`users?domain_id=${domain}`)).toEqual([]);
      expect(await list(`projects?domain_id=${domain}`)).toEqual([]);
      expect(await list(`role_assignments?user.id=${user}`)).toEqual([]);
      expect(await list(`role_assignments?scope.project.id=${project_id}&effective`)).toEqual([]);
      expect(await list(`role_assignments?scope.domain.id=${domain}&effective`)).toEqual([]);
    }
    // Foreign users with a role here are part of what the administrator must see.
    const here = await get(`/v3/role_assignments?user.id=${reader.id}&effective=true`, chiefToken);
    expect(here.body.role_assignments.map(({ role }: { role: { name: string } }) => role.name)).toEqual([
      'reader',
      'ingest',
    ]);
  });

  test('a token shows only the domain it is for, even to an administrator of several', async () => {
    const { own, other, chief, chiefToken } = await twoDomains();
    await identity.administration.changeRole('grant', chief.id, own.id, 'admin');
    expect(names((await get('/v3/users', chiefToken)).body.users)).toEqual(['chief']);
    const { token } = await login('chief', { domain: { id: own.id } }, 'other');
    expect(names((await get('/v3/users', token)).body.users)).toEqual(['admin', 'reader']);
    expect((await get(`/v3/users?domain_id=${other.id}`, token)).body.users).toEqual([]);
  });

  test('effective assignments include those that projects inherit, each once', async () => {
    const { project, admin } = await twoDomains();
    await identity.administration.changeRole('grant', installation.user.id, project.id, 'admin');
    const count = async (query: string) =>
      (await get(`/v3/role_assignments?user.id=${installation.user.id}${query}`, admin)).body.role_assignments
        .length;
    expect(await count('')).toBe(2);
    expect(await count('&effective')).toBe(3);
    expect(await count('&effective=false')).toBe(2);
    expect(await count(`&scope.project.id=${project.id}&effective`)).toBe(1);
    expect(await count('&role.id=reader&effective')).toBe(0);
  });

  test('an unknown, repeated or malformed filter is a 400', async () => {
    const { admin } = await twoDomains();
    for (const path of [
      'users?username=admin',
      'users?name__contains=a',
      'projects?tags=x',
      'roles?domain=x',
      'role_assignments?user_id=x',
      'role_assignments?group.id=x',
      'users?name=a&name=b',
      'users?enabled=perhaps',
      'role_assignments?effective=2',
      'users?marker=none',
      'users?limit=0',
    ]) {
      const { status, body } = await get(`/v3/${path}`, admin);
      const [, parameter = ''] = /[?]([^=]+)/.exec(path) ?? [];
      expect([status, body.error.message]).toEqual([400, expect.stringContaining(parameter)]);
    }
  });

  test('pages contain every user once', async () => {
    const { admin } = await twoDomains();
    const seen: string[] = [];
    let next: string | null = '/v3/users?limit=1';
    while (next !== null) {
      const { body } = await get(next, admin);
      seen.push(...names(body.users));
      next = body.links.next && new URL(body.links.next).pathname + new URL(body.links.next).search;
    }
    expect(seen).toEqual(['admin', 'reader']);
  });

  test('pages of role assignments have each of them once', async () => {
    const { admin } = await twoDomains();
    const { domain, project } = installation;
    for (let i = 0; i < 4; i++) {
      const { id } = await identity.administration.addProject(domain.id, `p${i}`);
      const roles = { [id]: ['reader', 'ingest'] as Role[], [project.id]: ['reader'] as Role[] };
      const user = {
        name: `u${i}`,
        domain_id: domain.id,
        access: 'both',
        password: 'password',
        roles,
      } as const;
      await identity.administration.addUser(user);
    }
    const all = (await get('/v3/role_assignments', admin)).body;
    expect(all.role_assignments.length).toBeGreaterThan(12);
    expect(all.links.next).toBeNull();
    for (const [limit, filter] of [
      [1, ''],
      [5, ''],
      [all.role_assignments.length, ''],
      [2, '&role.id=reader'],
    ] as const) {
      const wanted = all.role_assignments.filter(
        ({ role }: { role: { id: string } }) => filter === '' || role.id === 'reader',
      );
      const seen: object[] = [];
      for (let next: string | null = `/v3/role_assignments?limit=${limit}${filter}`; next !== null; ) {
        const { body } = await get(next, admin);
        expect(body.role_assignments.length).toBeLessThanOrEqual(limit);
        seen.push(...body.role_assignments);
        next = body.links.next && new URL(body.links.next).pathname + new URL(body.links.next).search;
      }
      expect(seen).toEqual(wanted);
    }
    for (const query of ['limit=0', 'limit=10001', 'marker=nobody', 'marker='])
      expect((await get(`/v3/role_assignments?${query}`, admin)).status).toBe(400);
  });

  test('no response contains a password hash or a secret', async () => {
    const { admin, reader } = await twoDomains();
    const { secret } = await identity.administration.addKey(reader.id, '');
    for (const path of ['users', `users/${reader.id}`, 'projects', 'role_assignments?effective']) {
      const text = JSON.stringify((await get(`/v3/${path}`, admin)).body);
      expect(text).not.toMatch(/argon2|hash|epoch|sealed/);
      expect(text).not.toContain(secret);
    }
  });
});

test('role assignments visit only the scopes in which a user has a role', () => {
  const { user, project, domain } = installation;
  const users = Array.from({ length: 50 }, (_, i): User => {
    const roles: User['roles'] = i === 0 ? user.roles : { [`p${i}`]: ['reader', 'admin'], other: ['admin'] };
    return { ...user, id: `u${i}`, roles };
  });
  const projects = Array.from({ length: 60 }, (_, i) => ({ project: { ...project, id: `p${i}` } }));
  let visited = 0;
  const counted = new Proxy<Scope[]>([{ domain }, ...projects], {
    get(target, name, receiver) {
      if (/^\d+$/.test(String(name))) visited++;
      return Reflect.get(target, name, receiver);
    },
  });
  const own = [...assignments(users, counted, false)];
  expect(own.map(({ user: { id }, role }) => `${id} ${role}`).slice(0, 3)).toEqual([
    'u0 admin',
    'u1 reader',
    'u1 admin',
  ]);
  expect(own).toHaveLength(1 + 49 * 2);
  // All once, and the one of each user.
  expect(visited).toBe(61 + 50);
  expect([...assignments(users, counted, true)]).toHaveLength(61 + 49 * 2);
});
