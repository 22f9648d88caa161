import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, describe, expect, test } from 'vitest';
import { scaled } from '../../../../test/random.ts';
import { openAuditFile } from '../audit/audit-file.ts';
import { allRecords } from '../audit/audit-trail.ts';
import { createIdentity, type Identity, openIdentity } from './identity.ts';
import type { IdentityStore } from './identity-store.ts';
import { openLmdbIdentity } from './lmdb-identity.ts';
import type { ScopeReference } from './local-authenticator.ts';
import { LoginThrottled } from './login-throttle.ts';
import { keyFileCsv, rolesIn } from './records.ts';
import { createSecretCipher } from './secrets.ts';
import { createDeviceCookies, createTokens, DEVICE_VALID_MS, TOKEN_VALID_MS } from './tokens.ts';

const HERE = { address: 'here', via: 'api' } as const;
const MASTER_KEY = Buffer.alloc(32, 7);
const directories: string[] = [];
const opened: Identity[] = [];

afterEach(async () => {
  for (const identity of opened.splice(0)) await identity.close();
  for (const directory of directories.splice(0)) rmSync(directory, { recursive: true });
});

async function setUp() {
  const clock = { now: Date.UTC(2026, 6, 1) };
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-identity-'));
  directories.push(directory);
  const identity = await openIdentity(join(directory, 'identity.mdb'), MASTER_KEY, () => clock.now);
  opened.push(identity);
  const { authenticator, administration } = identity;
  const names = { domain: 'default', project: 'default', user: 'admin' };
  const { domain, project, user: admin } = await administration.bootstrap(names, 'password');
  const user = await administration.addUser({
    name: 'alice',
    domain_id: domain.id,
    access: 'both',
    password: 'her password',
    roles: { [project.id]: ['reader'] },
  });
  const login = (
    password = 'her password',
    scope: Parameters<typeof authenticator.login>[0]['scope'] = { project: { id: project.id } },
  ) => authenticator.login({ user: { name: 'alice', domain: { name: 'default' } }, password, scope }, HERE);
  async function token(): Promise<string> {
    const issued = await login();
    if (typeof issued === 'string') throw new Error(issued);
    return issued.text;
  }
  return { clock, directory, authenticator, administration, domain, project, admin, user, login, token };
}

/** A process may read from its snapshot until the end of the event-loop turn. */
function snapshotsEnd(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 1));
}

test('a project inherits the roles of its domain, and no others', () => {
  const project = { id: 'p', domain_id: 'd' };
  expect(rolesIn({ roles: { d: ['admin'] } }, { project })).toEqual(['admin']);
  expect(rolesIn({ roles: { d: ['admin'], p: ['reader'] } }, { project })).toEqual(['reader', 'admin']);
  expect(rolesIn({ roles: { other: ['admin'] } }, { project })).toEqual([]);
  expect(rolesIn({ roles: { p: ['reader'] } }, { domain: { id: 'd' } })).toEqual([]);
});

describe('a token', () => {
  test('is valid for exactly 24 hours', async () => {
    const { clock, authenticator, token } = await setUp();
    const text = await token();
    clock.now += TOKEN_VALID_MS - 1;
    expect(await authenticator.checkToken(text)).toMatchObject({
      user: { name: 'alice' },
      roles: ['reader'],
    });
    clock.now += 1;
    expect(await authenticator.checkToken(text)).toBe('expired');
  });

  test('is refused if it was issued more than a minute in the future', async () => {
    const { clock, authenticator, token } = await setUp();
    const text = await token();
    clock.now -= 60_000;
    expect(await authenticator.checkToken(text)).toMatchObject({ user: { name: 'alice' } });
    clock.now -= 1;
    expect(await authenticator.checkToken(text)).toBe('issued_in_future');
  });

  test('does not revoke older tokens', async () => {
    const { authenticator, token } = await setUp();
    const [first, second] = [await token(), await token()];
    expect(first).not.toBe(second);
    expect(await authenticator.checkToken(first)).toMatchObject({ user: { name: 'alice' } });
  });

  test('is rejected as soon as it is revoked; other tokens of the user stay valid', async () => {
    const { authenticator, token } = await setUp();
    const [first, second] = [await token(), await token()];
    const described = await authenticator.checkToken(first);
    if (typeof described === 'string') throw new Error(described);
    await authenticator.revoke(described.token);
    expect(await authenticator.checkToken(first)).toBe('revoked');
    expect(await authenticator.checkToken(second)).toMatchObject({ user: { name: 'alice' } });
  });

  test('is rejected as soon as it is revoked, even if other checks of it are under way', async () => {
    const { clock, directory, token } = await setUp();
    const text = await token();
    const path = join(directory, 'identity.mdb');
    const audit = openAuditFile(directory, () => clock.now);
    const stored = openLmdbIdentity(path, audit);
    let isRevoked = false;
    const store: IdentityStore = {
      ...stored,
      changes: () => stored.changes() + Number(isRevoked),
      get: (kind, id) => {
        const found = stored.get(kind, id);
        return kind === 'revoked' && isRevoked ? (clock.now as typeof found) : found;
      },
    };
    const parts = { store, audit, masterKey: MASTER_KEY, now: () => clock.now, name: path };
    const identity = await createIdentity(parts);
    opened.push(identity);
    const { authenticator } = identity;
    const before = authenticator.checkToken(text);
    isRevoked = true;
    const after = authenticator.checkToken(text);
    expect(await before).toMatchObject({ user: { name: 'alice' } });
    expect(await after).toBe('revoked');
    expect(await authenticator.checkToken(text)).toBe('revoked');
  });

  test('stays revoked while the clock is ahead for a while, and so does a session', async () => {
    const { clock, authenticator, user, project, token } = await setUp();
    const described = async (text: string) => {
      const checked = await authenticator.checkToken(text);
      if (typeof checked === 'string') throw new Error(checked);
      return checked.token;
    };
    const [revoked, login] = [await token(), await token()];
    const scope = { project: { id: project.id } };
    const exchanged = await authenticator.exchange({ token: login, scope }, HERE);
    const session = await authenticator.startSession(user);
    if (typeof exchanged === 'string' || typeof session === 'string') throw new Error('refused');
    await authenticator.revoke(await described(revoked));
    await authenticator.revoke(await described(login));
    await authenticator.revoke(session.session);
    const start = clock.now;
    for (const ahead of [Date.UTC(2099, 0, 1), Date.UTC(2100, 0, 1), start + 26 * 3_600_000]) {
      clock.now = ahead;
      await authenticator.revoke(await described(await token()));
    }
    clock.now = start + 3_600_000;
    expect(await authenticator.checkToken(revoked)).toBe('revoked');
    expect(await authenticator.checkToken(exchanged.text)).toBe('revoked');
    expect(await authenticator.checkSession(session.text)).toBe('revoked');
    // Nobody is locked out.
    expect(await authenticator.checkToken(await token())).toMatchObject({ user: { name: 'alice' } });
    expect(await authenticator.startSession(user)).toMatchObject({ user: { name: 'alice' } });
  });

  test('is rejected as soon as its user, password, role, project or domain changes', async () => {
    const { authenticator, administration, user, project, domain, token } = await setUp();
    let text = await token();
    const check = async () => {
      const checked = await authenticator.checkToken(text);
      return typeof checked === 'string' ? checked : 'valid';
    };
    await administration.setEnabled('project', project.id, false);
    expect(await check()).toBe('scope_gone');
    await administration.setEnabled('project', project.id, true);
    await administration.setEnabled('domain', domain.id, false);
    expect(await check()).toBe('user_disabled');
    await administration.setEnabled('domain', domain.id, true);
    await administration.changeRole('revoke', user.id, project.id, 'reader');
    expect(await check()).toBe('role_lost');
    await administration.changeRole('grant', user.id, project.id, 'reader');
    expect(await check()).toBe('valid');
    await administration.setEnabled('user', user.id, false);
    expect(await check()).toBe('user_disabled');
    await administration.setEnabled('user', user.id, true);
    expect(await check()).toBe('superseded');
    text = await token();
    await administration.setPassword(user.id, 'another password');
    expect(await check()).toBe('superseded');
    await administration.removeUser(user.id);
    expect(await check()).toBe('user_gone');
  });

  test('is rejected at once in every process, even if it is cached as valid', async () => {
    const { directory, clock, administration, authenticator, user, project, domain, token } = await setUp();
    const other = await openIdentity(join(directory, 'identity.mdb'), MASTER_KEY, () => clock.now);
    opened.push(other);
    const check = async (text: string) => {
      await snapshotsEnd();
      const checked = await other.authenticator.checkToken(text);
      return typeof checked === 'string' ? checked : 'valid';
    };
    const revocations: [
      expected: string,
      revoke: (text: string) => Promise<unknown>,
      undo?: () => Promise<unknown>,
    ][] = [
      [
        'revoked',
        async (text) => {
          const described = await authenticator.checkToken(text);
          if (typeof described !== 'string') await authenticator.revoke(described.token);
        },
      ],
      [
        'scope_gone',
        () => administration.setEnabled('project', project.id, false),
        () => administration.setEnabled('project', project.id, true),
      ],
      [
        'user_disabled',
        () => administration.setEnabled('domain', domain.id, false),
        () => administration.setEnabled('domain', domain.id, true),
      ],
      [
        'role_lost',
        () => administration.changeRole('revoke', user.id, project.id, 'reader'),
        () => administration.changeRole('grant', user.id, project.id, 'reader'),
      ],
      ['user_gone', () => administration.removeUser(user.id)],
    ];
    for (const [expected, revoke, undo] of revocations) {
      const text = await token();
      expect([await check(text), await check(text)]).toEqual(['valid', 'valid']);
      await revoke(text);
      expect(await check(text)).toBe(expected);
      await undo?.();
    }
  });

  test('is unknown if it was signed with another key or any character was changed', async () => {
    const { authenticator, token } = await setUp();
    const text = await token();
    const forged = createTokens(Buffer.alloc(32, 1)).issue(
      { id: 'x', token_epoch: 0 },
      { project_id: 'p' },
      0,
    ).text;
    expect(await authenticator.checkToken(forged)).toBe('unknown');
    // The last character of the signature has bits that base64 ignores.
    for (let i = 0; i < text.length - 1; i++) {
      const changed = text.slice(0, i) + (text[i] === 'A' ? 'B' : 'A') + text.slice(i + 1);
      expect(await authenticator.checkToken(changed)).toBe('unknown');
    }
    const signature = text.indexOf('.') + 1;
    const cut = [text.slice(0, signature), text.slice(0, signature + 8), text.slice(0, -1)];
    for (const nonsense of ['', '.', 'x', `${text}.`, ...cut, 'x'.repeat(5_000)]) {
      expect(await authenticator.checkToken(nonsense)).toBe('unknown');
    }
  });
});

describe('a login', () => {
  test('accepts user, domain and scope by ID or name', async () => {
    const { authenticator, domain, project, user } = await setUp();
    const byName = { name: 'alice', domain: { name: 'default' } };
    const users = [byName, { name: 'alice', domain: { id: domain.id } }, { id: user.id }];
    const scopes = [
      { id: project.id },
      { name: 'default', domain: { id: domain.id } },
      { name: 'default', domain: { name: 'default' } },
    ];
    for (const [i, reference] of users.entries()) {
      const scope = { project: scopes[i] ?? { id: '' } };
      expect(
        await authenticator.login({ user: reference, password: 'her password', scope }, HERE),
      ).toMatchObject({
        description: { user: { id: user.id }, scope: { project: { id: project.id } } },
      });
    }
  });

  test('does not reveal whether a user or a project exists', async () => {
    const { authenticator, login } = await setUp();
    expect(await login('wrong')).toBe('wrong_credentials');
    const nobody = {
      user: { name: 'nobody', domain: { name: 'default' } },
      password: 'her password',
      scope: { project: { id: 'x' } },
    };
    expect(await authenticator.login(nobody, HERE)).toBe('wrong_credentials');
    expect(
      await authenticator.login({ ...nobody, user: { name: 'alice', domain: { name: 'no' } } }, HERE),
    ).toBe('wrong_credentials');
    expect(await login('her password', { project: { id: 'none' } })).toBe('no_such_scope');
  });

  test('with a domain as its scope needs a role in the domain', async () => {
    const { administration, domain, user, login } = await setUp();
    const scope = { domain: { id: domain.id } };
    expect(await login('her password', scope)).toBe('no_such_scope');
    await administration.changeRole('grant', user.id, domain.id, 'reader');
    expect(await login('her password', scope)).toMatchObject({
      description: { scope: { domain: { name: 'default' } } },
    });
  });

  test('of a console-only user is refused with that reason only if the password is correct', async () => {
    const { authenticator, administration, domain, project } = await setUp();
    await administration.addUser({
      name: 'carol',
      domain_id: domain.id,
      access: 'console',
      password: 'her password',
      roles: { [project.id]: ['reader'] },
    });
    const login = (password: string) =>
      authenticator.login(
        {
          user: { name: 'carol', domain: { name: 'default' } },
          password,
          scope: { project: { id: project.id } },
        },
        HERE,
      );
    expect(await login('her password')).toBe('console_only');
    expect(await login('wrong')).toBe('wrong_credentials');
  });

  test('of a disabled user is refused with that reason only if the password is correct', async () => {
    const { administration, user, login } = await setUp();
    await administration.setEnabled('user', user.id, false);
    expect(await login()).toBe('user_disabled');
    expect(await login('wrong')).toBe('wrong_credentials');
  });

  test('in a disabled domain is refused, also where the user has a role in another one', async () => {
    const { administration, user, domain, login } = await setUp();
    const other = await administration.addDomain('other');
    const project = await administration.addProject(other.id, 'elsewhere');
    await administration.changeRole('grant', user.id, project.id, 'reader');
    const scope = { project: { id: project.id } };
    expect(await login('her password', scope)).toMatchObject({ description: { user: { id: user.id } } });
    await administration.setEnabled('domain', domain.id, false);
    expect(await login('her password', scope)).toBe('user_disabled');
  });

  test('of a programmatic user starts no session', async () => {
    const { authenticator, administration, domain } = await setUp();
    const user = await administration.addUser({
      name: 'robot',
      domain_id: domain.id,
      access: 'programmatic',
      password: 'its password',
      roles: {},
    });
    expect(await authenticator.signIn({ id: user.id }, 'its password', HERE)).toBe('programmatic_only');
    expect(await authenticator.signIn({ id: user.id }, 'wrong', HERE)).toBe('wrong_credentials');
  });
});

test('a device is known for 90 days, to its user only, and until the password changes', () => {
  const { issue, read } = createDeviceCookies(Buffer.alloc(32, 1));
  const alice = { id: 'alice', token_epoch: 1 };
  const text = issue(alice, 0);
  expect(read(text, alice, DEVICE_VALID_MS - 1)).not.toBeNull();
  expect(read(text, alice, DEVICE_VALID_MS)).toBeNull();
  expect(read(text, { ...alice, id: 'bob' }, 0)).toBeNull();
  expect(read(text, { ...alice, token_epoch: 2 }, 0)).toBeNull();
});

describe('an exchange', () => {
  async function setUpExchange() {
    const base = await setUp();
    const { administration, authenticator, domain, user } = base;
    const second = await administration.addProject(domain.id, 'second');
    await administration.changeRole('grant', user.id, second.id, 'reader');
    await administration.changeRole('grant', user.id, domain.id, 'ingest');
    const exchange = (token: string, scope: ScopeReference) => authenticator.exchange({ token, scope }, HERE);
    async function exchanged(token: string, scope: ScopeReference = { project: { id: second.id } }) {
      const issued = await exchange(token, scope);
      if (typeof issued === 'string') throw new Error(issued);
      return issued;
    }
    const revoke = async (text: string) => {
      const described = await authenticator.checkToken(text);
      if (typeof described === 'string') throw new Error(described);
      await authenticator.revoke(described.token);
    };
    return { ...base, second, exchange, exchanged, revoke };
  }

  test('returns a token of another scope, with the roles there', async () => {
    const { authenticator, second, domain, token, exchanged } = await setUpExchange();
    const scopes: [ScopeReference, object, string[]][] = [
      [{ project: { id: second.id } }, { project: { id: second.id } }, ['reader', 'ingest']],
      [{ project: { name: 'second', domain: null } }, { project: { id: second.id } }, ['reader', 'ingest']],
      [
        { project: { name: 'second', domain: { name: 'default' } } },
        { project: { id: second.id } },
        ['reader', 'ingest'],
      ],
      [{ domain: { id: domain.id } }, { domain: { id: domain.id } }, ['ingest']],
    ];
    for (const [reference, scope, roles] of scopes) {
      const { text } = await exchanged(await token(), reference);
      expect(await authenticator.checkToken(text)).toMatchObject({ scope, roles, isExchanged: true });
    }
  });

  test('never prolongs: no token of a chain outlives the one before it', async () => {
    const { clock, authenticator, project, second, domain, token, exchange } = await setUpExchange();
    const scopes: ScopeReference[] = [
      { project: { id: project.id } },
      { project: { id: second.id } },
      { domain: { id: domain.id } },
    ];
    const steps = fc.array(
      fc.record({ waitMs: fc.nat({ max: TOKEN_VALID_MS / 2 }), scope: fc.constantFrom(...scopes) }),
      { maxLength: 12 },
    );
    await fc.assert(
      fc.asyncProperty(steps, async (chain) => {
        let text = await token();
        const first = clock.now + TOKEN_VALID_MS;
        let expiry = first;
        for (const { waitMs, scope } of chain) {
          clock.now += waitMs;
          const next = await exchange(text, scope);
          if (clock.now >= expiry) {
            expect(next).toBe('expired');
            return;
          }
          if (typeof next === 'string') throw new Error(next);
          expect(next.description.token.expires_at).toBeLessThanOrEqual(expiry);
          ({ text } = next);
          expiry = next.description.token.expires_at;
        }
        clock.now = first;
        expect(await authenticator.checkToken(text)).toBe('expired');
      }),
      { numRuns: scaled(15) },
    );
  });

  test('is refused for a token that is revoked, expired, of a disabled user or not ours', async () => {
    const { clock, directory, administration, user, second, token, exchange, exchanged, revoke } =
      await setUpExchange();
    const scope = { project: { id: second.id } };
    const revoked = await token();
    await revoke(revoked);
    expect(await exchange(revoked, scope)).toBe('revoked');
    const forged = `${revoked.slice(0, -1)}${revoked.endsWith('A') ? 'B' : 'A'}`;
    for (const text of ['', 'x', forged, 'a'.repeat(100_000)])
      expect(await exchange(text, scope)).toBe('unknown');
    const old = await token();
    await administration.setPassword(user.id, 'her password');
    expect(await exchange(old, scope)).toBe('superseded');
    const late = await token();
    const child = await exchanged(late);
    // Not recorded: with a valid token, anybody could use up the quota of records.
    expect(await exchange(late, { project: { id: 'nope' } })).toBe('no_such_scope');
    clock.now += TOKEN_VALID_MS;
    expect(await exchange(late, scope)).toBe('expired');
    expect(await exchange(child.text, scope)).toBe('expired');
    const reasons: unknown[] = [];
    for (const record of await allRecords(openAuditFile(directory, Date.now)))
      if (record !== 'damaged' && record.action === 'login') reasons.push([record.user, record.reason]);
    expect(reasons).toEqual([
      ['alice', 'revoked'],
      ...Array(4).fill([null, 'unknown']),
      ['alice', 'superseded'],
      ['alice', 'expired'],
      ['alice', 'expired'],
    ]);
  });

  test('grants nothing that the user does not have: no foreign project or domain', async () => {
    const { administration, domain, user, token, exchange } = await setUpExchange();
    const other = await administration.addDomain('other');
    const foreign = await administration.addProject(other.id, 'foreign');
    await administration.changeRole('revoke', user.id, domain.id, 'ingest');
    const text = await token();
    const scopes: ScopeReference[] = [
      { project: { id: foreign.id } },
      { project: { name: 'foreign', domain: { name: 'other' } } },
      { project: { name: 'foreign', domain: null } },
      { project: { id: 'none' } },
      { domain: { id: other.id } },
      { domain: { id: domain.id } },
    ];
    for (const scope of scopes) expect(await exchange(text, scope)).toBe('no_such_scope');
  });

  test('ends with the token of the login: revoking it revokes all that came from it', async () => {
    const { authenticator, token, exchanged, revoke } = await setUpExchange();
    const text = await token();
    const child = (await exchanged(text)).text;
    const sibling = (await exchanged(text)).text;
    const grandchild = (await exchanged(child)).text;
    await revoke(sibling);
    expect(await authenticator.checkToken(sibling)).toBe('revoked');
    expect(await authenticator.checkToken(text)).toMatchObject({ user: { name: 'alice' } });
    await revoke(text);
    for (const one of [child, grandchild]) expect(await authenticator.checkToken(one)).toBe('revoked');
  });

  test('loses its role like any token, and is limited to 200 at once and ten per second', async () => {
    const { clock, administration, authenticator, user, second, domain, token, exchange, exchanged } =
      await setUpExchange();
    const text = await token();
    const child = (await exchanged(text)).text;
    for (let i = 1; i < 200; i++) await exchanged(text);
    await expect(exchange(text, { project: { id: second.id } })).rejects.toThrow(LoginThrottled);
    clock.now += 100;
    await exchanged(text);
    await administration.changeRole('revoke', user.id, domain.id, 'ingest');
    await administration.changeRole('revoke', user.id, second.id, 'reader');
    expect(await authenticator.checkToken(child)).toBe('role_lost');
    expect(await authenticator.checkToken(text)).toMatchObject({ roles: ['reader'] });
  });
});

describe('administration', () => {
  test('accepts new passwords of 8 to 1024 characters', async () => {
    const { administration, domain, user, login } = await setUp();
    const rule = 'the password must have 8 to 1024 characters';
    for (const password of ['', '7 chars', 'x'.repeat(1_025)]) {
      await expect(administration.setPassword(user.id, password)).rejects.toThrow(rule);
      const bob = { name: 'bob', domain_id: domain.id, access: 'both', password, roles: {} } as const;
      await expect(administration.addUser(bob)).rejects.toThrow(rule);
    }
    await administration.setPassword(user.id, '8 chars.');
    expect(await login('8 chars.')).toMatchObject({ text: expect.any(String) });
  });

  test('changes no password that was confirmed before another change', async () => {
    const { administration, user, login } = await setUp();
    await administration.setPassword(user.id, 'another password', user);
    await expect(administration.setPassword(user.id, 'a third password', user)).rejects.toThrow(
      /another password was set/,
    );
    expect(await login('another password')).toMatchObject({ description: { user: { id: user.id } } });
  });

  test('keeps names unique in their domain, and accepts IDs and names', async () => {
    const { administration, domain, project, user } = await setUp();
    await expect(administration.addDomain('default')).rejects.toThrow("domain 'default' already exists");
    await expect(administration.addProject(domain.id, 'default')).rejects.toThrow(
      "project 'default' already exists",
    );
    const another = await administration.addDomain('another');
    await administration.addProject(another.id, 'default');
    expect(administration.project(project.id).name).toBe('default');
    expect(() => administration.projectNamed('default')).toThrow(
      "several domains have a project 'default': use its ID",
    );
    expect(() => administration.projectNamed('none')).toThrow("unknown project 'none'");
    expect(administration.userNamed('alice').id).toBe(user.id);
    for (const name of ['', 'x'.repeat(65), 'a\nb', 'a\u202eb']) {
      await expect(administration.addProject(domain.id, name)).rejects.toThrow('1 to 64 characters');
    }
  });

  test('gives a user at most two access keys, and returns their secrets once', async () => {
    const { administration, user } = await setUp();
    const first = await administration.addKey(user.id, 'one');
    expect(first).toMatchObject({
      access: expect.stringMatching(/^[A-Z0-9]{20}$/),
      status: 'active',
      description: 'one',
    });
    expect(first.secret).toMatch(/^[A-Za-z0-9]{40}$/);
    await administration.addKey(user.id, 'two');
    await expect(administration.addKey(user.id, 'three')).rejects.toThrow(
      "user 'alice' already has 2 access keys, the maximum: delete one first",
    );
    expect(JSON.stringify(administration.keysOf(user.id))).not.toMatch(/secret/);
    await administration.removeKey(first.access);
    await administration.addKey(user.id, 'three');
    expect(
      administration
        .keysOf(user.id)
        .map(({ description }) => description)
        .sort(),
    ).toEqual(['three', 'two']);
  });

  test('disables and deletes keys at once in every process', async () => {
    const { directory, clock, administration, user, project } = await setUp();
    const other = await openIdentity(join(directory, 'identity.mdb'), MASTER_KEY, () => clock.now);
    opened.push(other);
    const { access } = await administration.addKey(user.id, '');
    const admit = async () => {
      await snapshotsEnd();
      const admitted = await other.authenticator.admitKey({ access });
      return 'reason' in admitted ? admitted.reason : admitted.user.name;
    };
    const roles = async () => {
      await snapshotsEnd();
      return other.authenticator.rolesInProject({ user, scope: 'unscoped' }, project.id);
    };
    expect([await admit(), await admit(), await roles()]).toEqual(['alice', 'alice', ['reader']]);
    await administration.changeKey(access, { status: 'inactive' });
    expect(await admit()).toBe('inactive_key');
    await administration.setEnabled('project', project.id, false);
    expect(await roles()).toEqual([]);
    await administration.changeKey(access, { status: 'active' });
    expect(await admit()).toBe('alice');
    await administration.removeKey(access);
    expect(await admit()).toBe('unknown_key');
  });

  test('revokes a role even for a request whose body is still arriving', async () => {
    const { administration, authenticator, user, project } = await setUp();
    const { access } = await administration.addKey(user.id, '');
    const admit = async () => {
      const caller = await authenticator.admitKey({ access });
      if ('reason' in caller) throw new Error(caller.reason);
      return caller;
    };
    const early = await admit();
    expect(await authenticator.rolesInProject(early, project.id)).toEqual(['reader']);
    await administration.changeRole('revoke', user.id, project.id, 'reader');
    expect(await authenticator.rolesInProject(early, project.id)).toEqual([]);
    expect(await authenticator.rolesInProject(await admit(), project.id)).toEqual([]);
  });

  test('refuses names that look like others', async () => {
    const { administration, domain } = await setUp();
    const names = [
      ' shop',
      'shop ',
      ' ',
      'sh\u200bop',
      'sh\u00a0op',
      'sh\u115fop',
      'shop\ufe0f',
      'a\u2028b',
      '',
    ];
    const given = { domain_id: domain.id, access: 'both', password: 'password', roles: {} } as const;
    for (const name of names) {
      const rule = '1 to 64 characters, without invisible characters, and no space at its ends';
      await expect(administration.addProject(domain.id, name)).rejects.toThrow(
        `project name must have ${rule}`,
      );
      await expect(administration.addUser({ ...given, name })).rejects.toThrow(`user name must have ${rule}`);
      await expect(administration.addDomain(name)).rejects.toThrow(`domain name must have ${rule}`);
    }
    for (const name of ['the shop', 'Äpfel 苹果 😀'])
      expect((await administration.addProject(domain.id, name)).name).toBe(name);
  });

  test('refuses a name that another record already has in a different Unicode form', async () => {
    const { administration, domain } = await setUp();
    const elsewhere = await administration.addDomain('elsewhere');
    const given = { access: 'both', password: 'password', roles: {} } as const;
    const add = {
      user: (domain_id: string, name: string) => administration.addUser({ ...given, domain_id, name }),
      project: (domainId: string, name: string) => administration.addProject(domainId, name),
      domain: (_: string, name: string) => administration.addDomain(name),
    };
    const pairs = [
      ['Jos\u00e9', 'Jose\u0301'],
      ['\u212a', 'K'],
    ] as const;
    for (const [what, addNamed] of Object.entries(add)) {
      for (const [one, other] of pairs) {
        for (const [first, second] of [
          [`1 ${one}`, `1 ${other}`],
          [`2 ${other}`, `2 ${one}`],
        ] as const) {
          expect((await addNamed(domain.id, first)).name).toBe(first);
          const refused = addNamed(domain.id, second);
          await expect(refused).rejects.toThrow(`${what} '${first}' already exists`);
          if (what !== 'domain') expect((await addNamed(elsewhere.id, second)).name).toBe(second);
        }
      }
    }
  });

  test('deletes the keys of a user and the roles in a project with them; a domain must be empty', async () => {
    const { administration, user, project, domain } = await setUp();
    const key = await administration.addKey(user.id, '');
    await administration.removeProject(project.id, { deleteDetails: async () => {} });
    expect(administration.user(user.id).roles).toEqual({});
    await administration.removeUser(user.id);
    expect(() => administration.key(key.access)).toThrow('unknown access key');
    await expect(administration.removeDomain(domain.id)).rejects.toThrow(
      "'default' still has projects or users",
    );
    const empty = await administration.addDomain('empty');
    await administration.removeDomain(empty.id);
    expect(administration.domains().map(({ name }) => name)).toEqual(['default']);
  });
});

describe('at rest', () => {
  test('the file is readable by its owner only, and contains neither passwords nor secret keys', async () => {
    const { directory, administration, user } = await setUp();
    const { secret } = await administration.addKey(user.id, '');
    const path = join(directory, 'identity.mdb');
    expect(statSync(path).mode & 0o777).toBe(0o600);
    const { readFileSync } = await import('node:fs');
    const bytes = readFileSync(path);
    expect(bytes.includes(secret)).toBe(false);
    expect(bytes.includes('$argon2id$')).toBe(true);
  });

  test('another master key is rejected', async () => {
    const { directory } = await setUp();
    for (const identity of opened.splice(0)) await identity.close();
    const path = join(directory, 'identity.mdb');
    await expect(openIdentity(path, Buffer.alloc(32, 8), Date.now)).rejects.toThrow('another master key');
    opened.push(await openIdentity(path, MASTER_KEY, Date.now));
  });

  test('a secret can be decrypted only with the same key and access key ID', () => {
    const cipher = createSecretCipher(Buffer.alloc(32, 1));
    const encrypted = cipher.encrypt('AK1', 'the secret');
    expect(cipher.decrypt('AK1', encrypted)).toBe('the secret');
    expect(cipher.encrypt('AK1', 'the secret')).not.toBe(encrypted);
    expect(() => cipher.decrypt('AK2', encrypted)).toThrow();
    expect(() => createSecretCipher(Buffer.alloc(32, 2)).decrypt('AK1', encrypted)).toThrow();
  });

  test('the key file is CSV with the columns of the specification, without formulas', () => {
    expect(keyFileCsv('alice', { access: 'A', secret: 'S' })).toBe(
      'User Name,Access Key Id,Secret Access Key\nalice,A,S\n',
    );
    expect(keyFileCsv('=a,"b"', { access: 'A', secret: 'S' })).toContain(`\n"'=a,""b""",A,S\n`);
  });
});
