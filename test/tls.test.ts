/** HTTPS: protocols, certificates, connections. */
import { renameSync } from 'node:fs';
import https from 'node:https';
import { connect, type TLSSocket } from 'node:tls';
import { generate } from 'selfsigned';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type Api, call, login } from './api.ts';
import { eventually } from './process.ts';
import { type Installation, Sandbox, type Server } from './sandbox.ts';

interface Certificate {
  cert: string;
  private: string;
}

const shared = new Sandbox();
let certificate: Certificate;
let server: Server;
let installation: Installation;
const sockets: TLSSocket[] = [];

beforeAll(async () => {
  installation = await shared.init();
  certificate = await makeCertificate();
  server = await serveWith(shared, certificate);
});
afterEach(() => {
  for (const socket of sockets.splice(0)) socket.destroy();
});
afterAll(() => shared.clear());

test('with a certificate the service uses HTTPS', async () => {
  expect(server.address).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
  const api = await login(server.address, installation, { ca: certificate.cert });
  expect((await api.get('connections', { ca: certificate.cert })).status).toBe(200);
});

test('the cookie of a session is Secure and bound to this host', async () => {
  const { user, domain, password } = installation;
  const response = await call(server.address, '/console/api/session', {
    method: 'POST',
    headers: { 'X-Wafstat-Console': '1', Origin: server.address },
    body: JSON.stringify({ user, domain, password }),
    ca: certificate.cert,
  });
  const [session, device] = response.headers['set-cookie'] ?? [];
  expect(session).toMatch(/^__Host-wafstat_session=.*; Path=\/; .*; Secure$/);
  expect(device).toMatch(/^__Host-wafstat_device=.*; Path=\/; .*; Secure$/);
});

test('plain HTTP is refused on that port', async () => {
  const plain = call(server.address.replace('https:', 'http:'), '/healthz').then(({ status }) => status);
  await expect(plain.catch(() => 'no response')).resolves.not.toBe(200);
  expect((await call(server.address, '/healthz', { ca: certificate.cert })).status).toBe(200);
});

test.each(['TLSv1.2', 'TLSv1.3'] as const)('%s is accepted', async (version) => {
  const socket = await handshake(server, { minVersion: version, maxVersion: version });
  expect(socket.getProtocol()).toBe(version);
});

test.each(['TLSv1', 'TLSv1.1'] as const)('%s is refused', async (version) => {
  // Otherwise the client itself refuses, before it connects.
  const ciphers = 'DEFAULT:@SECLEVEL=0';
  const refused = handshake(server, { minVersion: version, maxVersion: version, ciphers });
  await expect(refused).rejects.toMatchObject({ code: 'ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION' });
});

test('several requests share one connection', async () => {
  const agent = new https.Agent({ keepAlive: true, maxSockets: 1, ca: certificate.cert });
  try {
    const api: Api = await login(server.address, installation, { agent });
    const ports = new Set<number | undefined>();
    for (let i = 0; i < 5; i++) {
      const response = await api.get('waf/event/timeline?from=0&to=86400000', { agent });
      expect(response.status).toBe(200);
      expect(response.headers.connection).not.toBe('close');
      ports.add(response.port);
    }
    expect(ports.size).toBe(1);
  } finally {
    agent.destroy();
  }
});

describe('a changed certificate file', () => {
  let sandbox: Sandbox;
  let first: Certificate;
  let changing: Server;
  beforeEach(async () => {
    sandbox = new Sandbox();
    first = await makeCertificate();
    changing = await serveWith(sandbox, first);
  });
  afterEach(() => sandbox.clear());

  test('is loaded without a restart, and open connections continue', async () => {
    const agent = new https.Agent({ keepAlive: true, maxSockets: 1, ca: first.cert });
    try {
      const before = await call(changing.address, '/healthz', { agent });
      const second = await makeCertificate();
      // Like renewal tools: write a new file, then rename it.
      for (const [name, content] of [
        ['cert.pem', second.cert],
        ['key.pem', second.private],
      ] as const) {
        renameSync(sandbox.write(`new-${name}`, content), sandbox.path(name));
      }
      await eventually(async () => (await trusts(changing, second)) || undefined, 'the new certificate');
      expect(await trusts(changing, first)).toBe(false);
      const after = await call(changing.address, '/healthz', { agent });
      expect({ status: after.status, port: after.port }).toEqual({ status: 200, port: before.port });
    } finally {
      agent.destroy();
    }
  });

  test('is not loaded as long as its key is missing', async () => {
    const second = await makeCertificate();
    sandbox.write('cert.pem', second.cert);
    await eventually(
      () => /certificate cannot be used/.test(changing.process.stderr) || undefined,
      'a word in the log',
    );
    expect(await trusts(changing, first)).toBe(true);
    sandbox.write('key.pem', second.private);
    await eventually(async () => (await trusts(changing, second)) || undefined, 'the new certificate');
  });
});

function makeCertificate(): Promise<Certificate> {
  return generate([{ name: 'commonName', value: 'wafstat test' }], {
    keyType: 'ec',
    algorithm: 'sha256',
    extensions: [
      { name: 'basicConstraints', cA: true },
      { name: 'subjectAltName', altNames: [{ type: 7, ip: '127.0.0.1' }] },
    ],
  });
}

function serveWith(sandbox: Sandbox, pair: Certificate): Promise<Server> {
  const [cert, key] = [sandbox.write('cert.pem', pair.cert), sandbox.write('key.pem', pair.private)];
  return sandbox.serve(['--tls-cert', cert, '--tls-key', key]);
}

/** Whether a client that trusts only this certificate can connect. */
async function trusts(at: Server, { cert }: Certificate): Promise<boolean> {
  const socket = await handshake(at, { ca: cert }).catch(() => null);
  return socket !== null;
}

/** A connection after its handshake; without `ca` it accepts any certificate. */
function handshake(
  { address }: Server,
  options: Pick<https.AgentOptions, 'minVersion' | 'maxVersion' | 'ciphers' | 'ca'>,
): Promise<TLSSocket> {
  const port = Number(new URL(address).port);
  return new Promise((resolve, reject) => {
    const socket = connect({
      host: '127.0.0.1',
      port,
      rejectUnauthorized: options.ca !== undefined,
      ...options,
    });
    sockets.push(socket);
    socket.on('secureConnect', () => resolve(socket));
    socket.on('error', reject);
  });
}
