import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { type Identity, openIdentity } from './identity.ts';
import { keyFileCsv } from './key-file.ts';
import { createSecrets } from './secrets.ts';
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
  const { authentication, administration } = identity;
  const names = { domain: 'default', project: 'default', user: 'admin' };
  const { domain, project, user: admin } = await administration.found(names, 'secret');
  const user = await administration.addUser({
    name: 'alice',
    domain_id: domain.id,
    access: 'both',
    password: 'hers',
    roles: { [project.id]: ['reader'] },
  });
  const login = (
    password = 'hers',
    scope: Parameters<typeof authentication.login>[0]['scope'] = { project: { id: project.id } },
  ) => authentication.login({ user: { name: 'alice', domain: { name: 'default' } }, password, scope }, HERE);
  async function token(): Promise<string> {
    const issued = await login();
    if (typeof issued === 'string') throw new Error(issued);
    return issued.text;
  }
  return { clock, folder, authentication, administration, domain, project, admin, user, login, token };
}

/** A process may go on reading what it began to read, until the timers of its turn are due. */
function snapshotsEnd(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 1));
}

describe('a token', () => {
  test('is good for 24 hours, to the millisecond', async () => {
    const { clock, authentication, token } = await setUp();
    const text = await token();
    clock.now += TOKEN_VALID_MS - 1;
    expect(authentication.checkToken(text)).toMatchObject({ user: { name: 'alice' }, roles: ['reader'] });
    clock.now += 1;
    expect(authentication.checkToken(text)).toBe('expired');
  });

  test('does not void an older one', async () => {
    const { authentication, token } = await setUp();
    const [first, second] = [await token(), await token()];
    expect(first).not.toBe(second);
    expect(authentication.checkToken(first)).toMatchObject({ user: { name: 'alice' } });
  });

  test('dies at once when it is revoked, and another of the same user lives on', async () => {
    const { authentication, token } = await setUp();
    const [first, second] = [await token(), await token()];
    const described = authentication.checkToken(first);
    if (typeof described === 'string') throw new Error(described);
    await authentication.revokeToken(described.token);
    expect(authentication.checkToken(first)).toBe('revoked');
    expect(authentication.checkToken(second)).toMatchObject({ user: { name: 'alice' } });
  });

  test('dies at once with its user, password, role, project and domain', async () => {
    const { authentication, administration, user, project, domain, token } = await setUp();
    let text = await token();
    const check = () => {
      const checked = authentication.checkToken(text);
      return typeof checked === 'string' ? checked : 'valid';
    };
    await administration.setProjectEnabled(project.id, false);
    expect(check()).toBe('scope_gone');
    await administration.setProjectEnabled(project.id, true);
    await administration.setDomainEnabled(domain.id, false);
    expect(check()).toBe('user_disabled');
    await administration.setDomainEnabled(domain.id, true);
    await administration.revokeRole(user.id, project.id, 'reader');
    expect(check()).toBe('role_lost');
    await administration.grantRole(user.id, project.id, 'reader');
    expect(check()).toBe('valid');
    await administration.setUserEnabled(user.id, false);
    expect(check()).toBe('user_disabled');
    await administration.setUserEnabled(user.id, true);
    expect(check()).toBe('superseded');
    text = await token();
    await administration.setPassword(user.id, 'another');
    expect(check()).toBe('superseded');
    await administration.removeUser(user.id);
    expect(check()).toBe('user_gone');
  });

  test('dies at once in every process, however often it was found good before', async () => {
    const { folder, clock, administration, authentication, user, project, domain, token } = await setUp();
    const other = await openIdentity(join(folder, 'identity.mdb'), MASTER_KEY, () => clock.now);
    opened.push(other);
    const check = async (text: string) => {
      await snapshotsEnd();
      const checked = other.authentication.checkToken(text);
      return typeof checked === 'string' ? checked : 'valid';
    };
    const kills: [
      expected: string,
      kill: (text: string) => Promise<unknown>,
      undo?: () => Promise<unknown>,
    ][] = [
      [
        'revoked',
        async (text) => {
          const described = authentication.checkToken(text);
          if (typeof described !== 'string') await authentication.revokeToken(described.token);
        },
      ],
      [
        'scope_gone',
        () => administration.setProjectEnabled(project.id, false),
        () => administration.setProjectEnabled(project.id, true),
      ],
      [
        'user_disabled',
        () => administration.setDomainEnabled(domain.id, false),
        () => administration.setDomainEnabled(domain.id, true),
      ],
      [
        'role_lost',
        () => administration.revokeRole(user.id, project.id, 'reader'),
        () => administration.grantRole(user.id, project.id, 'reader'),
      ],
      ['user_gone', () => administration.removeUser(user.id)],
    ];
    for (const [expected, kill, undo] of kills) {
      const text = await token();
      expect([await check(text), await check(text)]).toEqual(['valid', 'valid']);
      await kill(text);
      expect(await check(text)).toBe(expected);
      await undo?.();
    }
  });

  test('of another key, or with any character changed, is unknown', async () => {
    const { authentication, token } = await setUp();
    const text = await token();
    const forged = createTokens(Buffer.alloc(32, 1)).issue(
      { id: 'x', token_epoch: 0 },
      { project_id: 'p' },
      0,
    ).text;
    expect(authentication.checkToken(forged)).toBe('unknown');
    // The last character of the signature carries bits that base64 ignores, so it may be changed in vain.
    for (let i = 0; i < text.length - 1; i++) {
      const changed = text.slice(0, i) + (text[i] === 'A' ? 'B' : 'A') + text.slice(i + 1);
      expect(authentication.checkToken(changed)).toBe('unknown');
    }
    for (const nonsense of ['', '.', 'x', `${text}.`, 'x'.repeat(5_000)]) {
      expect(authentication.checkToken(nonsense)).toBe('unknown');
    }
  });
});

describe('a login', () => {
  test('finds user, domain and scope by ID or name', async () => {
    const { authentication, domain, project, user } = await setUp();
    const byName = { name: 'alice', domain: { name: 'default' } };
    const users = [byName, { name: 'alice', domain: { id: domain.id } }, { id: user.id }];
    const scopes = [
      { id: project.id },
      { name: 'default', domain: { id: domain.id } },
      { name: 'default', domain: { name: 'default' } },
    ];
    for (const [i, reference] of users.entries()) {
      const scope = { project: scopes[i] ?? { id: '' } };
      expect(await authentication.login({ user: reference, password: 'hers', scope }, HERE)).toMatchObject({
        description: { user: { id: user.id }, scope: { project: { id: project.id } } },
      });
    }
  });

  test('tells nobody whether a user or a project exists', async () => {
    const { authentication, login } = await setUp();
    expect(await login('wrong')).toBe('wrong_credentials');
    const nobody = {
      user: { name: 'nobody', domain: { name: 'default' } },
      password: 'hers',
      scope: { project: { id: 'x' } },
    };
    expect(await authentication.login(nobody, HERE)).toBe('wrong_credentials');
    expect(
      await authentication.login({ ...nobody, user: { name: 'alice', domain: { name: 'no' } } }, HERE),
    ).toBe('wrong_credentials');
    expect(await login('hers', { project: { id: 'none' } })).toBe('no_such_scope');
  });

  test('to the whole domain needs a role there', async () => {
    const { administration, domain, user, login } = await setUp();
    const scope = { domain: { id: domain.id } };
    expect(await login('hers', scope)).toBe('no_such_scope');
    await administration.grantRole(user.id, domain.id, 'reader');
    expect(await login('hers', scope)).toMatchObject({
      description: { scope: { domain: { name: 'default' } } },
    });
  });

  test('of a user who is for the console only is refused, but only with the right password', async () => {
    const { authentication, administration, domain, project } = await setUp();
    await administration.addUser({
      name: 'carol',
      domain_id: domain.id,
      access: 'console',
      password: 'hers',
      roles: { [project.id]: ['reader'] },
    });
    const login = (password: string) =>
      authentication.login(
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

  test('of a disabled user is refused, but only with the right password', async () => {
    const { administration, user, login } = await setUp();
    await administration.setUserEnabled(user.id, false);
    expect(await login()).toBe('user_disabled');
    expect(await login('wrong')).toBe('wrong_credentials');
  });
});

describe('administration', () => {
  test('keeps names unique in their domain, and finds by ID or name', async () => {
    const { administration, domain, project, user } = await setUp();
    await expect(administration.addDomain('default')).rejects.toThrow("there is a domain 'default' already");
    await expect(administration.addProject(domain.id, 'default')).rejects.toThrow(
      "there is a project 'default' already",
    );
    const another = await administration.addDomain('another');
    await administration.addProject(another.id, 'default');
    expect(administration.project(project.id).name).toBe('default');
    expect(() => administration.project('default')).toThrow(
      "'default' is a project in more than one domain: give its ID",
    );
    expect(() => administration.project('none')).toThrow("there is no project 'none'");
    expect(administration.user('alice').id).toBe(user.id);
    for (const name of ['', 'x'.repeat(65), 'a\nb', 'a\u202eb']) {
      await expect(administration.addProject(domain.id, name)).rejects.toThrow('1 to 64 characters');
    }
  });

  test('a user has at most two access keys, whose secrets are shown once', async () => {
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

  test('a key that is disabled or deleted is refused at once in every process', async () => {
    const { folder, clock, administration, user, project } = await setUp();
    const other = await openIdentity(join(folder, 'identity.mdb'), MASTER_KEY, () => clock.now);
    opened.push(other);
    const { access } = await administration.addKey(user.id, '');
    const admit = async () => {
      await snapshotsEnd();
      const admitted = await other.authentication.admitKey({ access });
      return 'reason' in admitted ? admitted.reason : admitted.user.name;
    };
    const roles = async () => {
      await snapshotsEnd();
      return other.authentication.rolesInProject({ user, scope: 'wherever the user has a role' }, project.id);
    };
    expect([await admit(), await admit(), await roles()]).toEqual(['alice', 'alice', ['reader']]);
    await administration.changeKey(access, { status: 'inactive' });
    expect(await admit()).toBe('inactive_key');
    await administration.setProjectEnabled(project.id, false);
    expect(await roles()).toEqual([]);
    await administration.changeKey(access, { status: 'active' });
    expect(await admit()).toBe('alice');
    await administration.removeKey(access);
    expect(await admit()).toBe('unknown_key');
  });

  test('a role that is lost while a body is on its way is lost, then and later', async () => {
    const { administration, authentication, user, project } = await setUp();
    const { access } = await administration.addKey(user.id, '');
    const admit = async () => {
      const caller = await authentication.admitKey({ access });
      if ('reason' in caller) throw new Error(caller.reason);
      return caller;
    };
    const early = await admit();
    expect(authentication.rolesInProject(early, project.id)).toEqual(['reader']);
    await administration.revokeRole(user.id, project.id, 'reader');
    expect(authentication.rolesInProject(early, project.id)).toEqual([]);
    expect(authentication.rolesInProject(await admit(), project.id)).toEqual([]);
  });

  test('deleting a user deletes the keys; deleting a project, the roles in it; a domain must be empty', async () => {
    const { administration, user, project, domain } = await setUp();
    const key = await administration.addKey(user.id, '');
    await administration.removeProject(project.id);
    expect(administration.user(user.id).roles).toEqual({});
    await administration.removeUser(user.id);
    expect(() => administration.key(key.access)).toThrow('there is no access key');
    await expect(administration.removeDomain(domain.id)).rejects.toThrow(
      "'default' still has projects or users",
    );
    const empty = await administration.addDomain('empty');
    await administration.removeDomain(empty.id);
    expect(administration.domains().map(({ name }) => name)).toEqual(['default']);
  });
});

describe('at rest', () => {
  test('the file is its owner’s alone, and holds neither a password nor a secret key', async () => {
    const { folder, administration, user } = await setUp();
    const { secret } = await administration.addKey(user.id, '');
    const path = join(folder, 'identity.mdb');
    expect(statSync(path).mode & 0o777).toBe(0o600);
    const { readFileSync } = await import('node:fs');
    const bytes = readFileSync(path);
    expect(bytes.includes(secret)).toBe(false);
    expect(bytes.includes('$argon2id$')).toBe(true);
  });

  test('of a time before keys were found by their hash, they are found all the same', async () => {
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
    expect(identity.directory.key(hash)).toMatchObject({ access, secret });
    await identity.administration.removeKey(access);
    expect(identity.directory.key(hash)).toBe(undefined);
  });

  test('another master key than the one it was made under is refused', async () => {
    const { folder } = await setUp();
    for (const identity of opened.splice(0)) await identity.close();
    const path = join(folder, 'identity.mdb');
    await expect(openIdentity(path, Buffer.alloc(32, 8), Date.now)).rejects.toThrow('another master key');
    opened.push(await openIdentity(path, MASTER_KEY, Date.now));
  });

  test('a sealed secret opens only under its own key and for its own access key ID', () => {
    const secrets = createSecrets(Buffer.alloc(32, 1));
    const sealed = secrets.seal('AK1', 'the secret');
    expect(secrets.open('AK1', sealed)).toBe('the secret');
    expect(secrets.seal('AK1', 'the secret')).not.toBe(sealed);
    expect(() => secrets.open('AK2', sealed)).toThrow();
    expect(() => createSecrets(Buffer.alloc(32, 2)).open('AK1', sealed)).toThrow();
  });

  test('the key file is CSV with the columns of the specification, and no formula', () => {
    expect(keyFileCsv('alice', { access: 'A', secret: 'S' })).toBe(
      'User Name,Access Key Id,Secret Access Key\r\nalice,A,S\r\n',
    );
    expect(keyFileCsv('=a,"b"', { access: 'A', secret: 'S' })).toContain(`\r\n"'=a,""b""",A,S\r\n`);
  });
});
