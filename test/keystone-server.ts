/** A real OpenStack Keystone, from Debian, on loopback and SQLite, in a folder of its own. */
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { type Answer, call } from './api.ts';
import { eventually } from './process.ts';
import { freePort } from './web-server.ts';

export class Keystone {
  readonly address: string;
  readonly password = 'bootstrap';
  readonly #stop: () => Promise<void>;
  #token = '';

  private constructor(address: string, stop: () => Promise<void>) {
    this.address = address;
    this.#stop = stop;
  }

  static async start(region: string): Promise<Keystone> {
    const folder = mkdtempSync(join(tmpdir(), 'wafstat-keystone-'));
    const port = await freePort();
    const keystone = new Keystone(`http://127.0.0.1:${port}`, stop);
    const config = join(folder, 'keystone.conf');
    for (const name of ['fernet', 'credential']) mkdirSync(join(folder, name), { mode: 0o700 });
    writeFileSync(config, configuration(folder));
    // Readers and writers of Keystone are different connections, which SQLite lets work together in this mode only.
    const wal = `import sqlite3; sqlite3.connect('${folder}/keystone.db').execute('pragma journal_mode=wal')`;
    execFileSync('/usr/bin/python3', ['-c', wal]);
    const { username } = userInfo();
    const owner = ['--keystone-user', username, '--keystone-group', username];
    const manage = (...args: string[]) =>
      execFileSync('/usr/bin/keystone-manage', ['--config-file', config, ...args], { stdio: 'pipe' });
    manage('db_sync');
    manage('fernet_setup', ...owner);
    manage('credential_setup', ...owner);
    const urls = ['--bootstrap-public-url', `${keystone.address}/v3`, '--bootstrap-region-id', region];
    manage('bootstrap', '--bootstrap-password', keystone.password, ...urls);
    const args = ['--host', '127.0.0.1', '--port', String(port), '--', '--config-file', config];
    const child = spawn('/usr/bin/keystone-wsgi-public', args, { stdio: 'ignore' });
    const ended = new Promise<void>((resolve) => child.on('close', () => resolve()));
    async function stop(): Promise<void> {
      child.kill('SIGKILL');
      await ended;
      rmSync(folder, { recursive: true, force: true });
    }
    await eventually(() => call(keystone.address, '/v3').catch(() => undefined), 'an answer of Keystone');
    const scope = { project: { name: 'admin', domain: { name: 'Default' } } };
    keystone.#token = await keystone.login('admin', keystone.password, scope);
    return keystone;
  }

  async login(user: string, password: string, scope: object, address = this.address): Promise<string> {
    const identity = {
      methods: ['password'],
      password: { user: { name: user, password, domain: { name: 'Default' } } },
    };
    const { status, headers, text } = await call(address, '/v3/auth/tokens', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ auth: { identity, scope } }),
    });
    if (status !== 201) throw new Error(`Keystone gives no token: ${status} ${text}`);
    return String(headers['x-subject-token']);
  }

  /** As its administrator, unless the token is another's. */
  async ask<T = unknown>(method: string, path: string, body?: object, token = this.#token): Promise<T> {
    const headers = { 'X-Auth-Token': token, 'Content-Type': 'application/json' };
    const text = body && { body: JSON.stringify(body) };
    const answer: Answer = await call(this.address, `/v3${path}`, { method, headers, ...text });
    if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
    return answer.text === '' ? (null as T) : JSON.parse(answer.text);
  }

  /** Makes a thing, and answers its ID: `make('project', {...})` is `POST /v3/projects`. */
  async make(name: string, fields: object): Promise<string> {
    const made = await this.ask<Record<string, { id: string }>>('POST', `/${name}s`, { [name]: fields });
    return made[name]?.id ?? '';
  }

  async roleId(name: string): Promise<string> {
    const { roles } = await this.ask<{ roles: { id: string }[] }>('GET', `/roles?name=${name}`);
    return roles[0]?.id ?? (await this.make('role', { name }));
  }

  stop(): Promise<void> {
    return this.#stop();
  }
}

function configuration(folder: string): string {
  return `[DEFAULT]
log_file = ${folder}/keystone.log
[database]
connection = sqlite:///${folder}/keystone.db
[fernet_tokens]
key_repository = ${folder}/fernet
[fernet_receipts]
key_repository = ${folder}/fernet
[credential]
key_repository = ${folder}/credential
[identity]
password_hash_rounds = 4
`;
}
