/** Clients of other vendors. */
import { execFile, spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { BasicCredentials } from '@huaweicloud/huaweicloud-sdk-core';
import { ClientBuilder } from '@huaweicloud/huaweicloud-sdk-core/ClientBuilder.js';
import type { HcClient } from '@huaweicloud/huaweicloud-sdk-core/HcClient.js';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Api, type Timeline, tokenRequest } from './api.ts';
import { type Installation, Sandbox, type Server } from './sandbox.ts';

let sandbox: Sandbox;
let installation: Installation;
let server: Server;
let api: Api;
const END = Math.floor(Date.now() / 60_000) * 60_000;
const QUERY = `from=${END - 120_000}&to=${END}`;

beforeEach(async () => {
  sandbox = new Sandbox();
  ({ installation, server, api } = await sandbox.service('--region', 'eu-test'));
  await sandbox.ingest(installation.project_id, [
    { time: END - 90_000, host: 'a.example.com' },
    { time: END - 90_000, host: 'b.example.com', attack: 'sqli' },
    { time: END - 30_000, host: 'c.example.com', attack: 'xss' },
  ]);
});

afterEach(() => sandbox.clear());

test('the vendor’s JavaScript SDK signs a timeline query with two hosts and a time zone', async () => {
  const key = await sandbox.runJson<{ access: string; secret: string }>('key', 'add', '--user', 'admin');
  const ids = await api.hostIds();
  const credentials = new BasicCredentials()
    .withAk(key.access)
    .withSk(key.secret)
    .withProjectId(installation.project_id);
  const client = new ClientBuilder<HcClient>((hcClient: HcClient) => hcClient)
    .withCredential(credentials)
    .withEndpoint(server.address)
    .build();
  const answer = (await client.sendRequest({
    method: 'GET',
    url: '/v1/{project_id}/waf/event/timeline',
    contentType: 'application/json',
    pathParams: { project_id: installation.project_id },
    queryParams: {
      from: END - 120_000,
      to: END,
      timezone: '+08:00',
      hosts: [ids.get('b.example.com'), ids.get('a.example.com')],
    },
    headers: {},
  })) as unknown as Timeline;
  expect(answer.requests).toEqual([
    { time: END - 60_000, num: 2 },
    { time: END, num: 0 },
  ]);
  expect(answer.attacks).toEqual([
    { time: END - 60_000, num: 1 },
    { time: END, num: 0 },
  ]);
});

const PYTHON = '/usr/bin/python3';
const hasKeystoneauth = spawnSync(PYTHON, ['-c', 'import keystoneauth1'], { stdio: 'ignore' }).status === 0;

test.skipIf(!hasKeystoneauth && process.env.CI !== 'true')(
  'keystoneauth works with the identity address alone, and logs in again when its token is revoked (needs: apt-get install python3-keystoneauth1)',
  async () => {
    const given = {
      ...installation,
      identity: `${server.address}/identity`,
      query: QUERY,
      region: 'eu-test',
    };
    const script = fileURLToPath(new URL('keystone-client.py', import.meta.url));
    const printed = await output(PYTHON, [script], JSON.stringify(given));
    const timeline = await api.timeline(QUERY);
    expect(JSON.parse(printed)).toEqual({ first: timeline, second: timeline, renewed: true });
    expect(timeline.attacks.map(({ num }) => num)).toEqual([1, 1]);
  },
);

const hasOpenstack =
  spawnSync(PYTHON, ['-c', 'import openstackclient, openstack'], { stdio: 'ignore' }).status === 0;

test.skipIf(!hasOpenstack && process.env.CI !== 'true').each(['admin', 'reader'] as const)(
  'openstacksdk and the openstack command work for the role %s with any address of the service (needs: apt-get install python3-openstacksdk python3-openstackclient)',
  async (role) => {
    const reader = await sandbox.runJson<{ id: string; password: string }>(
      ...['user', 'add', 'reporter', '--project', 'default', '--role', 'reader'],
    );
    const account =
      role === 'admin'
        ? installation
        : { ...installation, user: 'reporter', user_id: reader.id, password: reader.password };
    const given = {
      ...account,
      address: server.address,
      paths: ['', '/v3', '/', '/identity', '/identity/v3'],
      region: 'eu-test',
      clouds: sandbox.path('clouds.yaml'),
    };
    const script = fileURLToPath(new URL('openstack-client.py', import.meta.url));
    const result = JSON.parse(await output(PYTHON, [script], JSON.stringify(given)));
    const { project_id, domain_id } = installation;
    const url = `${server.address}/v1/${project_id}/connections`;
    expect(result.urls).toEqual(given.paths.map(() => Array(5).fill(url)));
    expect(result.sdk).toEqual([project_id, domain_id, ['default']]);
    const { user_id } = account;
    // From a clouds.yaml and from environment variables, with and without the version.
    expect(result.commands).toEqual(
      Array(4).fill({
        token: [user_id, project_id],
        catalog: ['identity', 'waf'],
        project: project_id,
        projects: ['default'],
        user: user_id,
      }),
    );
    expect(result.administration).toEqual(
      role === 'reader'
        ? 1
        : {
            users: ['admin', 'reporter'],
            'of the domain': ['admin', 'reporter'],
            roles: ['reader', 'ingest', 'admin'],
            assignments: [['reporter@default', 'reader', 'default@default']],
          },
    );
  },
);

test('curl reads with an access key as user and password, and HEAD works too', async () => {
  await sandbox.runJson('user', 'add', 'grafana', '--project', 'default', '--role', 'reader');
  const { access, secret } = await sandbox.runJson<{ access: string; secret: string }>(
    ...['key', 'add', '--user', 'grafana'],
  );
  const url = `${server.address}/v1/${installation.project_id}/waf/event/attack/type?${QUERY}`;
  const user = ['--silent', '--user', `${access}:${secret}`];
  expect(JSON.parse(await output('curl', [...user, url]))).toMatchObject({ xss: 1, sqli: 1 });
  expect(await output('curl', [...user, '--head', url])).toMatch(/^HTTP\/1\.1 200 /);
  // Sends the credentials only after it was asked for them.
  expect(JSON.parse(await output('curl', [...user, '--anyauth', url]))).toMatchObject({ xss: 1 });
  const identity = await output('curl', [...user, '--include', `${server.address}/v3/projects`]);
  expect(identity).toMatch(/^HTTP\/1\.1 401 /);
});

test('curl gets a token with the request of the specification, and queries with it', async () => {
  const headers = await output('curl', [
    ...['--silent', '--dump-header', '-', '--output', '/dev/null'],
    ...['--header', 'Content-Type: application/json'],
    ...['--data', JSON.stringify(tokenRequest(installation))],
    `${server.address}/v3/auth/tokens`,
  ]);
  expect(headers).toMatch(/^HTTP\/1\.1 201 /);
  const token = /^x-subject-token: (.*)$/im.exec(headers)?.[1]?.trim();
  const url = `${server.address}/v1/${installation.project_id}/waf/event/attack/type?${QUERY}`;
  const body = await output('curl', ['--silent', '--header', `X-Auth-Token: ${token}`, url]);
  expect(JSON.parse(body)).toMatchObject({ xss: 1, sqli: 1, cmdi: 0 });
});

function output(command: string, args: string[], stdin = ''): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = execFile(command, args, (error, stdout, stderr) => {
      if (error) reject(new Error(`${command} failed: ${stderr}`));
      else resolve(stdout);
    });
    child.stdin?.end(stdin);
  });
}
