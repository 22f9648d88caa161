import {
  existsSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import { scaled } from '../../../../test/random.ts';
import { type Identity, openIdentity } from '../identity/identity.ts';
import { AUDIT_FILE_BYTES_MAX, openAuditFile } from './audit-file.ts';
import {
  AUDIT_ACTIONS,
  type AuditEntry,
  AuditUnavailable,
  allRecords,
  ChangesThrottled,
  recordLoginRefusals,
  UnknownMarker,
} from './audit-trail.ts';
import { hostAdministration } from './host-administration.ts';

const START = Date.UTC(2026, 6, 1);
const ENTRY: AuditEntry = {
  id: '1',
  user: 'admin',
  via: 'console',
  action: 'user.add',
  object: { type: 'user', name: 'alice' },
  outcome: 'done',
};

let directory: string;
const clock = { now: START };

beforeEach(() => {
  clock.now = START;
  directory = mkdtempSync(join(tmpdir(), 'wafstat-audit-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

const trail = () => openAuditFile(directory, () => clock.now);

const records = () => allRecords(trail());

describe('the audit file', () => {
  test('contains one line per entry, and only its owner can read it', async () => {
    trail().appendSync(ENTRY);
    trail().appendSync({ ...ENTRY, id: '2' });
    expect(await records()).toEqual([
      { time: '2026-07-01T00:00:00.000Z', ...ENTRY },
      { time: '2026-07-01T00:00:00.000Z', ...ENTRY, id: '2' },
    ]);
    expect(statSync(join(directory, 'audit.log')).mode & 0o777).toBe(0o600);
  });

  test('is not written if it is a link: root could be led to any file', async () => {
    const target = join(directory, 'elsewhere');
    symlinkSync(target, join(directory, 'audit.log'));
    expect(() => trail().appendSync(ENTRY)).toThrow(AuditUnavailable);
    expect(existsSync(target)).toBe(false);
    rmSync(join(directory, 'audit.log'));
    writeFileSync(target, '');
    linkSync(target, join(directory, 'audit.log'));
    expect(() => trail().appendSync(ENTRY)).toThrow('it is a link or not a regular file');
    expect(statSync(target).size).toBe(0);
  });

  test('is rotated at 16 MiB; three older files are kept, with all of the newest records', async () => {
    const path = join(directory, 'audit.log');
    for (let i = 0; i < 6; i++) {
      trail().appendSync({ ...ENTRY, id: String(i) });
      writeFileSync(
        path,
        `${JSON.stringify({ time: 'x', ...ENTRY, reason: ' '.repeat(AUDIT_FILE_BYTES_MAX) })}\n`,
        {
          flag: 'a',
        },
      );
      clock.now += 1_000;
    }
    expect(readdirSync(directory)).toHaveLength(4);
    const ids = (await records()).flatMap((record) => (record === 'damaged' ? [] : [record.id]));
    expect(ids).toEqual(['2', '1', '3', '1', '4', '1', '5', '1']);
  });

  test('accepts an entry while another process rotates it', async () => {
    const path = join(directory, 'audit.log');
    writeFileSync(path, ' '.repeat(AUDIT_FILE_BYTES_MAX));
    let calls = 0;
    const now = () => {
      // The second call is for the name of the archive.
      if (++calls === 2) renameSync(path, `${path}.20260630T000000000Z.0123456789abcdef`);
      return clock.now;
    };
    openAuditFile(directory, now).appendSync(ENTRY);
    expect(calls).toBe(2);
    expect(readdirSync(directory)).toHaveLength(2);
    expect((await records()).at(-1)).toMatchObject(ENTRY);
  });

  test('is read completely while another process rotates it', async () => {
    const path = join(directory, 'audit.log');
    const rotate = (hour: number) => renameSync(path, `${path}.20260701T0${hour}0000000Z.0123456789abcdef`);
    for (const hour of [1, 2]) {
      trail().appendSync({ ...ENTRY, id: String(hour) });
      rotate(hour);
    }
    trail().appendSync({ ...ENTRY, id: '3' });
    const read: unknown[] = [];
    for await (const { record } of trail().newest()) {
      if (read.length === 0) {
        rotate(3);
        trail().appendSync({ ...ENTRY, id: '4' });
      }
      read.push(record === 'damaged' ? record : record.id);
    }
    expect(read).toEqual(['3', '2', '1']);
  });

  test('is read from any record backwards, also after a rotation, and in blocks that cut lines', async () => {
    const path = join(directory, 'audit.log');
    const ids = Array.from({ length: 3_000 }, (_, i) => String(i));
    for (const [i, id] of ids.entries()) {
      const line = JSON.stringify({ time: 'x', ...ENTRY, id, reason: 'é'.repeat(i % 200) });
      writeFileSync(path, `${line}\n`, { flag: 'a' });
      if (i === 2_000) renameSync(path, `${path}.20260701T000000000Z.0123456789abcdef`);
    }
    expect((await records()).map((record) => record !== 'damaged' && record.id)).toEqual(ids);
    const seen: string[] = [];
    for (let marker: string | undefined; seen.length < ids.length; ) {
      let page = 0;
      for await (const next of trail().newest(marker)) {
        seen.push(next.record === 'damaged' ? next.record : next.record.id);
        marker = next.marker;
        if (++page === 700) break;
      }
      if (seen.length === 700) renameSync(path, `${path}.20260701T010000000Z.0123456789abcdef`);
    }
    expect(seen).toEqual(ids.toReversed());
    for (const marker of ['', '1', '1-1', 'x-1', `${statSync(directory).ino}-0`]) {
      await expect(allRecords({ newest: () => trail().newest(marker) })).rejects.toThrow(UnknownMarker);
    }
  });

  test('keeps the next line intact after one that was cut off', async () => {
    writeFileSync(join(directory, 'audit.log'), '{"time":"2026-07-0');
    trail().appendSync(ENTRY);
    expect(await records()).toEqual(['damaged', { time: '2026-07-01T00:00:00.000Z', ...ENTRY }]);
  });

  test('escapes bidirectional control characters and limits the length of lines', async () => {
    const roles = Object.fromEntries(Array.from({ length: 2_000 }, (_, i) => [`project ${i}`, ['reader']]));
    trail().appendSync({ ...ENTRY, object: { type: 'user', name: 'a\u202eb' }, after: { roles } });
    trail().appendSync({ ...ENTRY, object: { type: 'user', name: 'x'.repeat(100_000) } });
    const lines = readFileSync(join(directory, 'audit.log'), 'utf8').trimEnd().split('\n');
    expect(lines).toHaveLength(2);
    for (const line of lines) expect(line.length).toBeLessThan(1_000);
    expect(lines[0]).toContain('a\\u202eb');
    expect((await records())[0]).toMatchObject({ object: { name: 'a\u202eb' } });
  });

  test('is readable whatever bytes it contains', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 500 }), async (bytes) => {
        writeFileSync(join(directory, 'audit.log'), bytes);
        for (const record of await records()) expect(record).toBe('damaged');
      }),
      { numRuns: scaled(50) },
    );
  });
});

describe('administration', () => {
  let identity: Identity;
  beforeEach(async () => {
    identity = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), () => clock.now);
  });
  afterEach(() => identity.close());

  const bootstrap = () =>
    identity.administration.bootstrap({ domain: 'default', project: 'default', user: 'admin' }, 'secret-0');

  test('writes one line per change with its actor and address, and never a secret', async () => {
    const { domain, project, user: admin } = await bootstrap();
    const actor = {
      user: 'admin',
      user_id: admin.id,
      via: 'console',
      address: '192.0.2.1',
      request_id: 'r1',
    } as const;
    const administration = identity.administration.as(actor);
    const secrets = ['secret-0', 'secret-1', 'secret-2'];
    const other = await administration.addDomain('other');
    await administration.setEnabled('domain', other.id, false);
    await administration.setEnabled('domain', other.id, true);
    await administration.removeDomain(other.id);
    const shop = await administration.addProject(domain.id, 'shop');
    await administration.setEnabled('project', shop.id, false);
    await administration.setEnabled('project', shop.id, true);
    await administration.removeProject(shop.id, { deleteDetails: async () => {} });
    const alice = await administration.addUser({
      name: 'alice',
      domain_id: domain.id,
      access: 'both',
      password: 'secret-1',
      roles: {},
    });
    await administration.setPassword(alice.id, 'secret-2');
    await administration.changeRole('grant', alice.id, project.id, 'reader');
    await administration.changeRole('revoke', alice.id, project.id, 'reader');
    await administration.setEnabled('user', alice.id, false);
    await administration.setEnabled('user', alice.id, true);
    const key = await administration.addKey(alice.id, 'ci');
    secrets.push(key.secret);
    await administration.changeKey(key.access, { status: 'inactive' });
    await administration.removeKey(key.access);
    await administration.removeUser(alice.id);
    const { secret = '' } = await administration.addAlert(project.id, {
      name: 'flood',
      rule: { kind: 'spike', sensitivity: 3.5 },
      channel: { webhook: 'https://hooks.example.com/secret-3' },
    });
    secrets.push(secret, 'secret-3');
    await administration.removeAlert(project.id, 'flood');
    const { id } = await administration.addAnnotation(project.id, { time: 0, text: 'release', link: null });
    await administration.removeAnnotation(project.id, id);
    const hosts = hostAdministration(
      memoryStore(() => clock.now),
      identity,
    );
    const added = await hosts.add(actor, { project: project.id, hostname: 'a.example', limit: 10 });
    if (added.kind === 'full') throw new Error(added.kind);
    await hosts.rename(actor, { project: project.id, id: added.host.id, hostname: 'b.example' });
    await hosts.delete(actor, { project: project.id, id: added.host.id });

    const [first, ...rest] = (await records()).filter((record) => record !== 'damaged');
    expect(first).toMatchObject({
      user: 'local:unknown',
      via: 'command line',
      action: 'installation.create',
    });
    for (const record of rest) expect(record).toMatchObject({ ...actor, outcome: 'done' });
    const actions = rest.map(({ action }) => action);
    expect(actions).toHaveLength(25);
    const otherActions = [
      'installation.create',
      'service.start',
      'login',
      'horizon.set',
      'statistics.repair',
      'identity.repair',
      'events.delete',
    ];
    expect(new Set(actions)).toEqual(
      new Set(AUDIT_ACTIONS.filter((action) => !otherActions.includes(action))),
    );
    expect(rest.find(({ action }) => action === 'role.grant')).toMatchObject({
      object: { type: 'user', id: alice.id, name: 'alice' },
      before: { scope_id: project.id, roles: [] },
      after: { scope_id: project.id, roles: ['reader'] },
    });
    const text = readFileSync(join(directory, 'audit.log'), 'utf8');
    for (const secret of secrets) expect(text).not.toContain(secret);
    expect(text).not.toMatch(/password_hash|argon2|sealed|token_epoch/);
  });

  test('records refused changes with the reason', async () => {
    const { domain } = await bootstrap();
    await expect(identity.administration.addProject(domain.id, 'default')).rejects.toThrow();
    expect((await records()).at(-1)).toMatchObject({
      action: 'project.add',
      object: { name: 'default' },
      outcome: 'refused',
      reason: "project 'default' already exists",
    });
  });

  test('changes nothing if the line cannot be written', async () => {
    const { domain, user } = await bootstrap();
    rmSync(join(directory, 'audit.log'));
    mkdirSync(join(directory, 'audit.log'));
    await expect(identity.administration.addProject(domain.id, 'shop')).rejects.toThrow(AuditUnavailable);
    await expect(identity.administration.addKey(user.id, '')).rejects.toThrow('nothing was changed');
    const removed = identity.administration.removeUser(user.id, { confirm: 'admin' });
    await expect(removed).rejects.toThrow(AuditUnavailable);
    expect(identity.administration.projects().map(({ name }) => name)).toEqual(['default']);
    expect(identity.administration.keysOf(user.id)).toEqual([]);
    expect(identity.administration.userNamed('admin').id).toBe(user.id);
    rmSync(join(directory, 'audit.log'), { recursive: true });
    await identity.administration.addProject(domain.id, 'shop');
    expect(existsSync(join(directory, 'audit.log'))).toBe(true);
  });

  test('writes the line before it adds a host, and a second one if the store then fails', async () => {
    const store = memoryStore(() => clock.now);
    const hosts = hostAdministration(store, identity);
    const actor = { user: 'admin', via: 'console' } as const;
    const host = { project: 'p', hostname: 'a.example', limit: 10 };
    await hosts.add(actor, host);
    expect((await hosts.add(actor, host)).kind).toBe('exists');
    store.addHost = () => Promise.reject(new Error('away'));
    await expect(hosts.add(actor, { ...host, hostname: 'b.example' })).rejects.toThrow('away');
    const outcomes = (await records()).map(
      (record) => record !== 'damaged' && [record.outcome, record.reason],
    );
    expect(outcomes).toEqual([
      ['done', undefined],
      ['refused', 'exists'],
      ['done', undefined],
      ['failed', 'away'],
    ]);
  });

  test('records refused logins, but neither unknown user names nor passwords', async () => {
    await bootstrap();
    const { authenticator } = identity;
    const from = { address: '192.0.2.9', via: 'api', request_id: 'r2' } as const;
    const scope = { domain: { name: 'default' } };
    for (const name of ['admin', 'oops-my-password']) {
      const user = { name, domain: { name: 'default' } };
      expect(await authenticator.login({ user, password: 'guess-1', scope }, from)).toBe('wrong_credentials');
    }
    const [, known, unknown] = await records();
    expect(known).toMatchObject({
      user: 'admin',
      ...from,
      action: 'login',
      outcome: 'refused',
      reason: 'wrong_credentials',
    });
    expect(unknown).toMatchObject({ user: null, ...from, action: 'login' });
    expect(readFileSync(join(directory, 'audit.log'), 'utf8')).not.toMatch(/oops|guess/);
  });
});

test('refused logins are recorded at a limited rate, with a count of those omitted', () => {
  const written: AuditEntry[] = [];
  const note = async (entry: AuditEntry) => void written.push(entry);
  const newest = async function* () {};
  const record = recordLoginRefusals(
    { admit() {}, append: note, note, mirror() {}, newest },
    () => clock.now,
  );
  const refused = { user: null, from: { address: 'x', via: 'api' }, reason: 'wrong_credentials' } as const;
  for (let i = 0; i < 1_000; i++) record(refused);
  expect(written).toHaveLength(20);
  // Existing users have their own limit.
  record({ ...refused, user: { id: 'u', name: 'admin', domain_id: 'd' } });
  expect(written.at(-1)).toMatchObject({ user: 'admin', domain_id: 'd' });
  clock.now += 60_000;
  record(refused);
  expect(written.at(-1)?.suppressed).toBe(980);
});

test('a user can make 100 changes at once over HTTP, then one per second; the command line has no limit', () => {
  const { admit } = trail();
  const alice = { user: 'alice', user_id: 'a', via: 'api' } as const;
  for (let i = 0; i < 100; i++) admit(alice);
  expect(() => admit(alice)).toThrow(ChangesThrottled);
  admit({ user: 'bob', user_id: 'b', via: 'console' });
  for (let i = 0; i < 200; i++) admit({ user: 'local:root', via: 'command line' });
  clock.now += 1_000;
  admit(alice);
  expect(() => admit(alice)).toThrow(ChangesThrottled);
  clock.now -= 3_600_000;
  expect(() => admit(alice)).toThrow(ChangesThrottled);
  clock.now += 1_000;
  admit(alice);
});
