/** The audit trail: changes by command line, API and console, in the file, in the log and as printed. */
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { call, loginToDomain, requestToken, tokenRequest } from './api.ts';
import { eventually, wholeLines } from './process.ts';
import { type Installation, Sandbox, type Server } from './sandbox.ts';

const JSON_TYPE = { 'Content-Type': 'application/json' };
const CONSOLE = { ...JSON_TYPE, 'X-Wafstat-Console': '1' };

interface Record {
  time: string;
  user: string | null;
  user_id?: string;
  via: string;
  address?: string;
  request_id?: string;
  action: string;
  object: { type: string; id?: string; name?: string };
  outcome: string;
}

const sandbox = new Sandbox();
let installation: Installation;
let server: Server;
const secrets: string[] = [];

beforeAll(async () => {
  ({ installation, server } = await sandbox.service());
  secrets.push(installation.password);
});
afterAll(() => sandbox.clear());

const audit = (...args: string[]) => sandbox.runJson<Record[]>('audit', ...args);
const trail = () => readFileSync(join(sandbox.data, 'audit.log'), 'utf8');

describe('a change', () => {
  test('by the command line is recorded with the user of the operating system', async () => {
    const user = await sandbox.runJson<{ id: string; password: string }>('user', 'add', 'alice');
    const key = await sandbox.runJson<{ access: string; secret: string }>('key', 'add', '--user', 'alice');
    secrets.push(user.password, key.secret);
    const options = ['--project', 'default'];
    await sandbox.runJson('host', 'add', 'a.example', ...options);
    const [added, keyAdded, hostAdded] = (await audit()).slice(-3);
    const local = { user: expect.stringMatching(/^local:./), via: 'command line', outcome: 'done' };
    expect(added).toMatchObject({ ...local, action: 'user.add', object: { id: user.id, name: 'alice' } });
    expect(keyAdded).toMatchObject({ ...local, action: 'key.add', object: { id: key.access } });
    expect(hostAdded).toMatchObject({ ...local, action: 'host.add', object: { name: 'a.example' } });
  });

  test('by the API is recorded with user, address and request ID, in the log of the service too', async () => {
    const admin = await loginToDomain(server.address, installation);
    const response = await call(server.address, '/v3.0/OS-CREDENTIAL/credentials', {
      method: 'POST',
      headers: { ...JSON_TYPE, 'X-Auth-Token': admin.token },
      body: JSON.stringify({ credential: { user_id: installation.user_id, description: 'by API' } }),
    });
    const { credential } = JSON.parse(response.text);
    secrets.push(credential.secret, admin.token);
    const expected = {
      user: 'admin',
      user_id: installation.user_id,
      via: 'api',
      address: '127.0.0.1',
      request_id: response.headers['x-request-id'],
      action: 'key.add',
      object: { type: 'key', id: credential.access },
      outcome: 'done',
    };
    expect((await audit('--user', 'admin')).at(-1)).toMatchObject(expected);
    const logged = await eventually(
      () => wholeLines(server.process.stderr).find((line) => line.includes(credential.access)),
      'a line in the log',
    );
    expect(JSON.parse(logged).audit).toMatchObject(expected);
  });

  test('in the console is recorded with the session of the user', async () => {
    const signIn = await call(server.address, '/console/api/session', {
      method: 'POST',
      headers: CONSOLE,
      body: JSON.stringify({ user: 'admin', domain: 'default', password: installation.password }),
    });
    const [cookie = ''] = String(signIn.headers['set-cookie']).split(';');
    secrets.push(cookie.split('=')[1] ?? '');
    const send = (method: string, path: string, body: object) =>
      call(server.address, path, {
        method,
        headers: { ...CONSOLE, Cookie: cookie },
        body: JSON.stringify(body),
      });
    const bob = { name: 'bob', password: 'the-password-of-bob' };
    const created = JSON.parse((await send('POST', '/v3/users', { user: bob })).text).user;
    await send('PATCH', `/v3/users/${created.id}`, { user: { enabled: false } });
    const hosts = `/v1/${installation.project_id}/waf/instance`;
    const host = JSON.parse((await send('POST', hosts, { hostname: 'b.example' })).text);
    await send('PATCH', `${hosts}/${host.id}`, { hostname: 'c.example' });
    const changed = { original_password: installation.password, password: 'a-new-password-of-admin' };
    const own = `/v3/users/${installation.user_id}/password`;
    expect((await send('POST', own, { user: changed })).status).toBe(204);
    secrets.push(bob.password, changed.password);
    const records = (await audit('--user', installation.user_id)).slice(-5);
    expect(records.map(({ action, via }) => [action, via])).toEqual(
      ['user.add', 'user.disable', 'host.add', 'host.rename', 'user.set_password'].map((action) => [
        action,
        'console',
      ]),
    );
    installation.password = changed.password;
  });

  test('is recorded once by each of several concurrent processes', async () => {
    const names = Array.from({ length: 8 }, (_, i) => `project-${i}`);
    const add = (name: string) => sandbox.start(['project', 'add', name, '--data', sandbox.data]).end();
    for (const { status } of await Promise.all(names.map(add))) expect(status).toBe(0);
    const added = (await audit('--action', 'project.add')).map(({ object }) => object.name);
    expect(added.toSorted()).toEqual(names);
  });

  test('that is refused is recorded, and so is a refused login', async () => {
    expect((await sandbox.run(['user', 'add', 'alice', '--data', sandbox.data])).status).toBe(1);
    await requestToken(server.address, tokenRequest({ ...installation, password: 'a wrong password' }));
    secrets.push('a wrong password');
    const [refused, login] = (await audit()).slice(-2);
    expect(refused).toMatchObject({ action: 'user.add', object: { name: 'alice' }, outcome: 'refused' });
    expect(login).toMatchObject({ user: 'admin', action: 'login', address: '127.0.0.1', outcome: 'refused' });
  });
});

describe('the trail', () => {
  test('begins with the installation and the settings of each start', async () => {
    const [created, started] = await audit();
    expect(created).toMatchObject({ action: 'installation.create', outcome: 'done' });
    expect(started).toMatchObject({ action: 'service.start', after: { retention: 15_552_000_000 } });
  });

  test('is printed by time, user and action, and is readable by its owner only', async () => {
    const all = await audit();
    const third = all[2]?.time ?? '';
    expect(await audit('--since', third)).toEqual(all.filter(({ time }) => time >= third));
    expect(new Set((await audit('--action', 'user')).map(({ object }) => object.type))).toEqual(
      new Set(['user']),
    );
    const { stdout } = await sandbox.run(['audit', '--data', sandbox.data]);
    expect(stdout.trimEnd().split('\n')).toHaveLength(all.length);
    expect(stdout).toMatch(/^\S+Z {2}done +local:\S+ +user\.add +user alice +command line/m);
    expect(statSync(join(sandbox.data, 'audit.log')).mode & 0o777).toBe(0o600);
  });

  test('holds no secret, nor does the log of the service', async () => {
    expect(secrets.length).toBeGreaterThan(8);
    for (const secret of secrets) {
      expect(trail()).not.toContain(secret);
      expect(server.process.stderr).not.toContain(secret);
    }
    expect(trail()).not.toMatch(/argon2|password_hash|sealed/);
  });
});

test('changes by horizon and repair are recorded', async () => {
  const at = ['--data', sandbox.data];
  expect((await sandbox.run(['horizon', ...at, '--set', '2026-07-01T00:00:00Z'])).status).toBe(0);
  expect((await sandbox.run(['repair', ...at])).status).toBe(0);
  const { stdout } = await sandbox.run(['audit', ...at, '--json']);
  const records = JSON.parse(stdout) as { action: string; user: string }[];
  expect(records.slice(-2)).toMatchObject([{ action: 'horizon.set' }, { action: 'statistics.repair' }]);
  for (const { user } of records.slice(-2)) expect(user).toMatch(/^local:/);
});
