/** A real OpenStack Keystone from Debian on loopback, with SQLite in a temporary directory. */
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { call, newToken } from './api.ts';
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
    const directory = mkdtempSync(join(tmpdir(), 'wafstat-keystone-'));
    const port = await freePort();
    const keystone = new Keystone(`http://127.0.0.1:${port}`, stop);
    const config = join(directory, 'keystone.conf');
    for (const name of ['fernet', 'credential']) mkdirSync(join(directory, name), { mode: 0o700 });
    writeFileSync(config, configuration(directory));
    // Keystone reads and writes on different connections, which SQLite supports in this mode only.
    const wal = `import sqlite3; sqlite3.connect('${directory}/keystone.db').execute('pragma journal_mode=wal')`;
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
      rmSync(directory, { recursive: true, force: true });
    }
    await eventually(() => call(keystone.address, '/v3').catch(() => undefined), 'a response of Keystone');
    const scope = { project: { name: 'admin', domain: { name: 'Default' } } };
    keystone.#token = await keystone.login('admin', keystone.password, scope);
    return keystone;
  }

  login(user: string, password: string, scope: object): Promise<string> {
    const identity = {
      methods: ['password'],
      password: { user: { name: user, password, domain: { name: 'Default' } } },
    };
    return newToken(this.address, { auth: { identity, scope } });
  }

  /** Sends a request, by default as the administrator. */
  async request<T = unknown>(method: string, path: string, body?: object, token = this.#token): Promise<T> {
    const headers = { 'X-Auth-Token': token, 'Content-Type': 'application/json' };
    const text = body && { body: JSON.stringify(body) };
    const response = await call(this.address, `/v3${path}`, { method, headers, ...text });
    if (response.status >= 300) throw new Error(`${method} ${path}: ${response.status} ${response.text}`);
    return response.text === '' ? (null as T) : JSON.parse(response.text);
  }

  /** Resolves to the ID: `create('project', {...})` is `POST /v3/projects`. */
  async create(name: string, fields: object): Promise<string> {
    const created = await this.request<Record<string, { id: string }>>('POST', `/${name}s`, {
      [name]: fields,
    });
    return created[name]?.id ?? '';
  }

  async roleId(name: string): Promise<string> {
    const { roles } = await this.request<{ roles: { id: string }[] }>('GET', `/roles?name=${name}`);
    return roles[0]?.id ?? (await this.create('role', { name }));
  }

  stop(): Promise<void> {
    return this.#stop();
  }
}

function configuration(directory: string): string {
  return `[DEFAULT]
log_file = ${directory}/keystone.log
[database]
connection = sqlite:///${directory}/keystone.db
[fernet_tokens]
key_repository = ${directory}/fernet
[fernet_receipts]
key_repository = ${directory}/fernet
[credential]
key_repository = ${directory}/credential
[identity]
password_hash_rounds = 4
`;
}
