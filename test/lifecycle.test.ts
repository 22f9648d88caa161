/** Shutdown and the log of the service. */
import { appendFileSync } from 'node:fs';
import { Agent, get } from 'node:http';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import {
  beginTokenRequest,
  Connection,
  call,
  exchangeRequest,
  login,
  requestToken,
  stopsListening,
  tokenRequest,
} from './api.ts';
import { type Ended, eventually, wholeLines } from './process.ts';
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

/** Longer than a busy machine may pause: the test ends the process before. */
const LONG_DELAY = ['--drain-delay', '300'];

/** A client that stands still no longer than this sends its next request in time. */
const PAUSE_MS_MAX = 50;

/** How often a test is repeated because this process stood still at the wrong moment. */
const REPEATS_MAX = 5;

/** Measures how long this process stands still. `stop` returns the longest pause. */
function watchPauses(): { stop(): number } {
  let last = performance.now();
  let longest = 0;
  const measure = () => {
    const now = performance.now();
    longest = Math.max(longest, now - last);
    last = now;
  };
  const timer = setInterval(measure, 5);
  return {
    stop() {
      clearInterval(timer);
      measure();
      return longest;
    },
  };
}

describe('on SIGTERM', () => {
  test('requests in flight are served, new connections are refused, and the exit status is 0', async () => {
    const { api, server } = await sandbox.service();
    const body = JSON.stringify(exchangeRequest(api));
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
    const { api, server } = await sandbox.service();
    const body = JSON.stringify(exchangeRequest(api));
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
    const { api, server } = await sandbox.service();
    const body = JSON.stringify(exchangeRequest(api));
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
    const server = await sandbox.serve(LONG_DELAY);
    const status = async (path: string) => (await call(server.address, path)).status;
    expect(await status('/readyz')).toBe(200);
    server.process.signal('SIGTERM');
    await eventually(async () => (await status('/readyz')) === 503 || undefined, 'a 503 of /readyz');
    expect(await status('/healthz')).toBe(200);
    await server.process.kill();
    const next = await sandbox.serve(['--drain-delay', '1']);
    next.process.signal('SIGTERM');
    await stopsListening(next.address);
    expect((await next.process.end()).status).toBe(0);
  });

  test('--health-listen serves only health checks, until the end', async () => {
    const health = `http://127.0.0.1:${await freePort()}`;
    const listen = ['--health-listen', new URL(health).host];
    const server = await sandbox.serve([...LONG_DELAY, ...listen]);
    const status = async (path: string) => (await call(health, path)).status;
    expect(await status('/healthz')).toBe(200);
    expect(await status('/readyz')).toBe(200);
    expect(await status('/openapi.json')).toBe(404);
    expect(await status('/v3/auth/tokens')).toBe(404);
    server.process.signal('SIGTERM');
    await eventually(async () => (await status('/readyz')) === 503 || undefined, 'a 503 of /readyz');
    expect(await status('/healthz')).toBe(200);
    await server.process.kill();
    const next = await sandbox.serve(['--drain-delay', '1', ...listen]);
    next.process.signal('SIGTERM');
    expect((await next.process.end()).status).toBe(0);
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
    let repeats = 0;
    for (let stops = 0; stops < scaled(2); ) {
      // If this process pauses, nobody reads the log, which may delay the end.
      const server = await sandbox.serve([...settings, '--log-level', 'warn'], { group: true });
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
      const pauses = watchPauses();
      server.process.signal('SIGTERM');
      await Promise.all(clients);
      const pausedMs = pauses.stop();
      expect((await server.process.end()).status).toBe(0);
      agent.destroy();
      // A client that stands still sends its next request after the connection has ended: then again, until none does.
      if (failures.length > 0 && pausedMs > PAUSE_MS_MAX && ++repeats <= REPEATS_MAX) continue;
      expect(failures).toEqual([]);
      stops++;
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
    const file = sandbox.write('long', '');
    let lines = 0;
    const options = ['--data', sandbox.data, '--project', installation.project_id];
    const args = ['ingest', ...options, '--format', 'events', file];
    const counted = async () => {
      const { items } = await api.getJson<{ items: { events: number }[] }>('connections');
      return items[0]?.events ?? 0;
    };
    let before = 0;
    let ended: Ended | undefined;
    // It has read all lines if this process paused before the signal: then again.
    for (let i = 0; i <= REPEATS_MAX && (ended?.status ?? 0) === 0; i++) {
      before = await counted();
      appendFileSync(file, Array.from({ length: 40_000 }, () => line(lines++)).join(''));
      const run = sandbox.start(args);
      await eventually(async () => (await counted()) > before || undefined, 'the first batch');
      run.signal('SIGTERM');
      ended = await run.end();
    }
    expect(ended?.status).toBe(1);
    expect(ended?.stdout).toMatch(new RegExp(`^accepted +${(await counted()) - before}$`, 'm'));
    expect(await counted()).toBeLessThan(lines);
    expect((await sandbox.run(args)).status).toBe(0);
    expect(await counted()).toBe(lines);
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
