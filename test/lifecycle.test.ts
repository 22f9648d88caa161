/** Shutdown and the log of the service. */
import { Agent, get } from 'node:http';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  beginTokenRequest,
  Connection,
  call,
  login,
  requestToken,
  stopsListening,
  tokenRequest,
} from './api.ts';
import { eventually, wholeLines } from './process.ts';
import { scaled } from './random.ts';
import { Sandbox } from './sandbox.ts';
import { freePort } from './web-server.ts';

let sandbox: Sandbox;
const connections: Connection[] = [];
beforeEach(() => {
  sandbox = new Sandbox();
});
afterEach(async () => {
  for (const connection of connections.splice(0)) connection.end();
  await sandbox.clear();
});

async function open(connecting: Promise<Connection>): Promise<Connection> {
  const connection = await connecting;
  connections.push(connection);
  return connection;
}

describe('on SIGTERM', () => {
  test('requests in flight are served, new connections are refused, and the exit status is 0', async () => {
    const { installation, server } = await sandbox.service();
    const body = JSON.stringify(tokenRequest(installation));
    const begin = () => open(beginTokenRequest(server.address, body));
    const slow = await Promise.all(Array.from({ length: 10 }, begin));
    for (const connection of slow) connection.send(body.slice(0, 20));
    server.process.signal('SIGTERM');
    await stopsListening(server.address);
    for (const connection of slow) connection.send(body.slice(20));
    for (const connection of slow) {
      await connection.receives('HTTP/1.1 201 Created');
      await connection.receives('"catalog"');
      connection.end();
    }
    expect(await server.process.end()).toMatchObject({ status: 0, signal: null });
  });

  test('the connection closes after the last response, and the process ends', async () => {
    const { installation, server } = await sandbox.service();
    const body = JSON.stringify(tokenRequest(installation));
    const slow = await open(beginTokenRequest(server.address, body));
    server.process.signal('SIGTERM');
    await stopsListening(server.address);
    slow.send(body);
    expect(await slow.readToEnd()).toContain('201 Created');
    expect((await server.process.end()).status).toBe(0);
  });

  test('an idle connection does not delay the end', async () => {
    const { api, server } = await sandbox.service();
    // The default agent keeps this connection open.
    expect((await api.get('connections')).status).toBe(200);
    server.process.signal('SIGTERM');
    expect((await server.process.end()).status).toBe(0);
  });

  test('a connection without a single request does not delay the end', async () => {
    const { server } = await sandbox.service();
    await open(Connection.open(server.address));
    server.process.signal('SIGTERM');
    expect((await server.process.end()).status).toBe(0);
  });

  test('a request on an open connection during shutdown gets a complete response', async () => {
    const { installation, server } = await sandbox.service();
    const body = JSON.stringify(tokenRequest(installation));
    const late = await open(Connection.open(server.address));
    late.send('GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\n');
    await late.receives('"status":"ok"');
    // A request in flight keeps the process alive until the late request arrives.
    const slow = await open(beginTokenRequest(server.address, body));
    server.process.signal('SIGTERM');
    await stopsListening(server.address);
    late.send('Host: x\r\n\r\n');
    const response = (await late.readToEnd()).split('"status":"ok"}').slice(1).join('"status":"ok"}');
    expect(response).toMatch(/^X-Request-Id: \S+\r$/im);
    expect(response).toMatch(/^HTTP\/1\.1 (?:200 .*"status":"ok"|503 .*"error_code":"WAF\.5001")/s);
    slow.send(body);
    expect(await slow.readToEnd()).toContain('201 Created');
    expect((await server.process.end()).status).toBe(0);
  });

  test('a busy keep-alive connection ends with Connection: close and loses no response', async () => {
    const { server, api } = await sandbox.service();
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const url = `${server.address}/v1/${api.project}/waf/event/attack/type?from=1&to=2`;
    const query = () =>
      new Promise<string | undefined>((resolve, reject) => {
        const headers = { 'X-Auth-Token': api.token };
        const request = get(url, { agent, headers }, (response) => {
          response.resume().on('end', () => resolve(response.headers.connection));
        });
        request.on('error', reject);
      });
    expect(await query()).toBe('keep-alive');
    server.process.signal('SIGTERM');
    let connection: string | undefined = 'keep-alive';
    while (connection === 'keep-alive') connection = await query();
    expect(connection).toBe('close');
    expect((await server.process.end()).status).toBe(0);
    agent.destroy();
  });

  test('/readyz fails first, while requests are still served', async () => {
    const server = await sandbox.serve(['--drain-delay', '3']);
    const status = async (path: string) => (await call(server.address, path)).status;
    expect(await status('/readyz')).toBe(200);
    server.process.signal('SIGTERM');
    await eventually(async () => (await status('/readyz')) === 503 || undefined, 'a 503 of /readyz');
    expect(await status('/healthz')).toBe(200);
    await stopsListening(server.address);
    expect((await server.process.end()).status).toBe(0);
  });

  test('--health-listen serves only health checks, until the end', async () => {
    const health = `http://127.0.0.1:${await freePort()}`;
    const server = await sandbox.serve(['--drain-delay', '3', '--health-listen', new URL(health).host]);
    const status = async (path: string) => (await call(health, path)).status;
    expect(await status('/healthz')).toBe(200);
    expect(await status('/readyz')).toBe(200);
    expect(await status('/openapi.json')).toBe(404);
    expect(await status('/v3/auth/tokens')).toBe(404);
    server.process.signal('SIGTERM');
    await eventually(async () => (await status('/readyz')) === 503 || undefined, 'a 503 of /readyz');
    expect(await status('/healthz')).toBe(200);
    expect((await server.process.end()).status).toBe(0);
  });

  test('an address of --health-listen in use is an error message', async () => {
    const { server } = await sandbox.service();
    const taken = new URL(server.address).host;
    const args = ['serve', '--data', sandbox.data, '--listen', '127.0.0.1:0', '--health-listen', taken];
    const second = await sandbox.run(args);
    expect(second.status).toBe(1);
    expect(second.stderr).toContain(
      `cannot listen on ${taken} (--health-listen): the address is already in use`,
    );
  });

  test.each([
    ['one process', []],
    ['two workers', ['--workers', '2']],
  ])('%s under load: no connection is reset', async (_, settings) => {
    const installation = await sandbox.init();
    for (let stop = 0; stop < scaled(2); stop++) {
      const server = await sandbox.serve(settings, { group: true });
      const api = await login(server.address, installation);
      const url = `${server.address}/v1/${api.project}/waf/event/attack/type?from=1&to=2`;
      const agent = new Agent({ keepAlive: true });
      let responses = 0;
      const failures: string[] = [];
      const query = () =>
        new Promise<boolean>((resolve) => {
          const request = get(url, { agent, headers: { 'X-Auth-Token': api.token } }, (response) => {
            responses++;
            response
              .resume()
              .on('end', () => resolve(true))
              .on('error', (error: NodeJS.ErrnoException) => failed(error));
          });
          const failed = ({ code = 'no code' }: NodeJS.ErrnoException) => {
            if (code !== 'ECONNREFUSED') failures.push(code);
            resolve(code !== 'ECONNREFUSED');
          };
          request.on('error', failed);
        });
      const clients = Array.from({ length: 20 }, async () => {
        while (await query());
      });
      await eventually(() => responses > 500 || undefined, 'some load');
      server.process.signal('SIGTERM');
      await Promise.all(clients);
      expect((await server.process.end()).status).toBe(0);
      expect(failures).toEqual([]);
      agent.destroy();
    }
  });

  test('SIGINT (Ctrl-C) does the same', async () => {
    const server = await sandbox.serve();
    server.process.signal('SIGINT');
    expect(await server.process.end()).toMatchObject({ status: 0, signal: null });
  });

  test('ingest ends after the current batch, prints its summary, and the next run continues there', async () => {
    const { installation, api } = await sandbox.service();
    const now = Date.now();
    const line = (i: number) => `${JSON.stringify({ time: now - i, padding: 'x'.repeat(500) })}\n`;
    const file = sandbox.write('long', Array.from({ length: 40_000 }, (_, i) => line(i)).join(''));
    const options = ['--data', sandbox.data, '--project', installation.project_id];
    const args = ['ingest', ...options, '--format', 'events', file];
    const counted = async () => {
      const { items } = await api.getJson<{ items: { events: number }[] }>('connections');
      return items[0]?.events;
    };
    const run = sandbox.start(args);
    await eventually(counted, 'the first batch');
    run.signal('SIGTERM');
    const { status, stdout } = await run.end();
    expect(status).toBe(1);
    expect(stdout).toMatch(new RegExp(`^accepted +${await counted()}$`, 'm'));
    expect((await sandbox.run(args)).status).toBe(0);
    expect(await counted()).toBe(40_000);
  });
});

describe('the log', () => {
  test('has a JSON line for each response, with its request ID', async () => {
    const { api, server } = await sandbox.service();
    const responses = [
      await api.get('waf/event/timeline?from=0&to=1'),
      await api.get('waf/event/timeline?from=x'),
      await call(server.address, '/nowhere?secret=1'),
    ];
    server.process.signal('SIGTERM');
    const { stderr } = await server.process.end();
    const lines = wholeLines(stderr).map((line): Record<string, unknown> => JSON.parse(line));
    for (const { status, headers } of responses) {
      const found = lines.filter(({ reqId }) => reqId === headers['x-request-id']);
      expect(found).toMatchObject([{ status, method: 'GET' }]);
    }
  });

  test('contains no password and no token', async () => {
    const { installation, api, server } = await sandbox.service('--log-level', 'debug');
    const { password } = installation;
    await requestToken(server.address, tokenRequest({ ...installation, password: `wrong${password}` }));
    await requestToken(server.address, `{"password": "${password}"`);
    await api.get('connections');
    await api.get(`waf/event/timeline?from=0&to=1&hosts=${api.token}`);
    await call(server.address, `/v1/other/connections?X-Auth-Token=${api.token}`, {
      headers: { 'X-Auth-Token': `${api.token}x`, Authorization: `Basic ${password}` },
    });
    server.process.signal('SIGTERM');
    const { stdout, stderr } = await server.process.end();
    expect(wholeLines(stderr).length).toBeGreaterThan(5);
    for (const secret of [password, api.token, api.token.split('.').at(-1) ?? api.token]) {
      expect(stdout + stderr).not.toContain(secret);
    }
  });
});
