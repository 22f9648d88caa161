import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { type Identity, openIdentity } from './identity.ts';
import { keyFileCsv } from './records.ts';
import { createSecretCipher } from './secrets.ts';
import { createTokens, TOKEN_VALID_MS } from './tokens.ts';

const HERE = { address: 'here', via: 'api' } as const;
const MASTER_KEY = Buffer.alloc(32, 7);
const folders: string[] = [];
const opened: Identity[] = [];

afterEach(async () => {
  for (const identity of opened.splice(0)) await identity.close();
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

async function setUp() {
  const clock = { now: Date.UTC(2026, 6, 1) };
  const folder = mkdtempSync(join(tmpdir(), 'wafstat-identity-'));
  folders.push(folder);
  const identity = await openIdentity(join(folder, 'identity.mdb'), MASTER_KEY, () => clock.now);
  opened.push(identity);
  const { authenticator, administration } = identity;
  const names = { domain: 'default', project: 'default', user: 'admin' };
  const { domain, project, user: admin } = await administration.bootstrap(names, 'secret');
  const user = await administration.addUser({
    name: 'alice',
    domain_id: domain.id,
    access: 'both',
    password: 'hers',
    roles: { [project.id]: ['reader'] },
  });
  const login = (
    password = 'hers',
    scope: Parameters<typeof authenticator.login>[0]['scope'] = { project: { id: project.id } },
  ) => authenticator.login({ user: { name: 'alice', domain: { name: 'default' } }, password, scope }, HERE);
  async function token(): Promise<string> {
    const issued = await login();
    if (typeof issued === 'string') throw new Error(issued);
    return issued.text;
  }
  return { clock, folder, authenticator, administration, domain, project, admin, user, login, token };
}

/** A process may read from its snapshot until the end of the event-loop turn. */
function snapshotsEnd(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 1));
}

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
    await administration.setPassword(user.id, 'another');
    expect(await check()).toBe('superseded');
    await administration.removeUser(user.id);
    expect(await check()).toBe('user_gone');
  });

  test('is rejected at once in every process, even if it is cached as valid', async () => {
    const { folder, clock, administration, authenticator, user, project, domain, token } = await setUp();
    const other = await openIdentity(join(folder, 'identity.mdb'), MASTER_KEY, () => clock.now);
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
    for (const nonsense of ['', '.', 'x', `${text}.`, 'x'.repeat(5_000)]) {
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
      expect(await authenticator.login({ user: reference, password: 'hers', scope }, HERE)).toMatchObject({
        description: { user: { id: user.id }, scope: { project: { id: project.id } } },
      });
    }
  });

  test('does not reveal whether a user or a project exists', async () => {
    const { authenticator, login } = await setUp();
    expect(await login('wrong')).toBe('wrong_credentials');
    const nobody = {
      user: { name: 'nobody', domain: { name: 'default' } },
      password: 'hers',
      scope: { project: { id: 'x' } },
    };
    expect(await authenticator.login(nobody, HERE)).toBe('wrong_credentials');
    expect(
      await authenticator.login({ ...nobody, user: { name: 'alice', domain: { name: 'no' } } }, HERE),
    ).toBe('wrong_credentials');
    expect(await login('hers', { project: { id: 'none' } })).toBe('no_such_scope');
  });

  test('with a domain as its scope needs a role in the domain', async () => {
    const { administration, domain, user, login } = await setUp();
    const scope = { domain: { id: domain.id } };
    expect(await login('hers', scope)).toBe('no_such_scope');
    await administration.changeRole('grant', user.id, domain.id, 'reader');
    expect(await login('hers', scope)).toMatchObject({
      description: { scope: { domain: { name: 'default' } } },
    });
  });

  test('of a console-only user is refused with that reason only if the password is correct', async () => {
    const { authenticator, administration, domain, project } = await setUp();
    await administration.addUser({
      name: 'carol',
      domain_id: domain.id,
      access: 'console',
      password: 'hers',
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
    expect(await login('hers')).toBe('console_only');
    expect(await login('wrong')).toBe('wrong_credentials');
  });

  test('of a disabled user is refused with that reason only if the password is correct', async () => {
    const { administration, user, login } = await setUp();
    await administration.setEnabled('user', user.id, false);
    expect(await login()).toBe('user_disabled');
    expect(await login('wrong')).toBe('wrong_credentials');
  });
});

describe('administration', () => {
  test('keeps names unique in their domain, and accepts IDs and names', async () => {
    const { administration, domain, project, user } = await setUp();
    await expect(administration.addDomain('default')).rejects.toThrow("domain 'default' already exists");
    await expect(administration.addProject(domain.id, 'default')).rejects.toThrow(
      "project 'default' already exists",
    );
    const another = await administration.addDomain('another');
    await administration.addProject(another.id, 'default');
    expect(administration.project(project.id).name).toBe('default');
    expect(() => administration.project('default')).toThrow(
      "several domains have a project 'default': use its ID",
    );
    expect(() => administration.project('none')).toThrow("unknown project 'none'");
    expect(administration.user('alice').id).toBe(user.id);
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
    await expect(administration.addKey(user.id, 'three')).rejects.toThrow('akSkNumExceed');
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
    const { folder, clock, administration, user, project } = await setUp();
    const other = await openIdentity(join(folder, 'identity.mdb'), MASTER_KEY, () => clock.now);
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

  test('deletes the keys of a user and the roles in a project with them; a domain must be empty', async () => {
    const { administration, user, project, domain } = await setUp();
    const key = await administration.addKey(user.id, '');
    await administration.removeProject(project.id);
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
    const { folder, administration, user } = await setUp();
    const { secret } = await administration.addKey(user.id, '');
    const path = join(folder, 'identity.mdb');
    expect(statSync(path).mode & 0o777).toBe(0o600);
    const { readFileSync } = await import('node:fs');
    const bytes = readFileSync(path);
    expect(bytes.includes(secret)).toBe(false);
    expect(bytes.includes('$argon2id$')).toBe(true);
  });

  test('keys in files of releases without hashes of keys are found by their hash', async () => {
    const { folder, administration, user } = await setUp();
    const { access, secret } = await administration.addKey(user.id, '');
    for (const identity of opened.splice(0)) await identity.close();
    const path = join(folder, 'identity.mdb');
    const { open } = await import('lmdb');
    const file = open({ path, noSubdir: true, maxDbs: 16, overlappingSync: false });
    file.openDB('key-hashes', { encoding: 'json' }).clearSync();
    await file.close();
    const identity = await openIdentity(path, MASTER_KEY, Date.now);
    opened.push(identity);
    const hash = createHash('sha256').update(access).digest('hex');
    expect(identity.lookup.key(hash)).toMatchObject({ access, secret });
    await identity.administration.removeKey(access);
    expect(identity.lookup.key(hash)).toBe(undefined);
  });

  test('another master key is rejected', async () => {
    const { folder } = await setUp();
    for (const identity of opened.splice(0)) await identity.close();
    const path = join(folder, 'identity.mdb');
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
