/** Events older than the retention are deleted and refused. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { login, sum } from './api.ts';
import { eventually } from './process.ts';
import { Sandbox } from './sandbox.ts';

const HOUR_MS = 3_600_000;

let sandbox: Sandbox;
beforeEach(() => {
  sandbox = new Sandbox();
});
afterEach(() => sandbox.clear());

test('a server with a shorter retention deletes older events and refuses new ones of that age', async () => {
  const now = Date.now();
  const times = [now - 50 * HOUR_MS, now - 20 * HOUR_MS, now - 3 * HOUR_MS, now - 1_000];
  const installation = await sandbox.init();
  await sandbox.ingest(
    installation.project_id,
    times.map((time) => ({ time, host: 'a.example', attack: 'xss' })),
  );

  const { address } = await sandbox.serve(['--retention', '10h']);
  const api = await login(address, installation);
  const [id] = (await api.hostIds()).values();
  const all = `from=${now - 100 * HOUR_MS}&to=${now + 1}`;
  const count = async (filter: string) => sum((await api.timeline(`${all}${filter}`)).requests);
  await eventually(async () => (await count('')) === 2 || undefined, 'the deletion of old events');
  expect(await count(`&hosts=${id}`)).toBe(2);
  expect(await api.distribution(all)).toMatchObject({ xss: 2 });

  const late = [now - 49 * HOUR_MS, now - 4 * HOUR_MS].map((time) => ({ time }));
  const { stdout } = await sandbox.ingest(installation.project_id, late, '--source', 'late');
  expect(stdout).toMatch(/^accepted +1$/m);
  expect(stdout).toMatch(/^ +too_old +1$/m);
  expect(await count('')).toBe(3);

  const { horizon } = JSON.parse(
    (await sandbox.run(['horizon', '--data', sandbox.data, '--json'])).stdout,
  ) as { horizon: number };
  const old = [{ time: now - 48 * HOUR_MS, host: 'old.example', attack: 'xss' }];
  const ingest = (source: string) => sandbox.ingest(installation.project_id, old, '--source', source);
  const refused = await ingest('old');
  expect(refused.stdout).toMatch(/^accepted +0\nrequests +0\nattacks +0\ndropped +1\n/);
  expect(refused.stderr).toContain(
    ', line 1: the event is older than the retention time, or before the horizon',
  );
  expect(refused.stderr).toContain(`before ${new Date(horizon).toISOString()}, the horizon of this store`);
  expect(refused.stderr).toContain("'wafstat horizon --set TIME'");
  expect(refused.stderr).not.toContain('explain');

  // What the message says.
  const time = new Date(now - 60 * HOUR_MS).toISOString();
  await sandbox.run(['horizon', '--data', sandbox.data, '--set', time]);
  expect((await ingest('again')).stdout).toMatch(/^accepted +1$/m);
});

test('ingest refuses events older than its own retention', async () => {
  const { api, installation } = await sandbox.service();
  const now = Date.now();
  const events = [now - 5 * HOUR_MS, now - HOUR_MS].map((time) => ({ time }));
  const { stdout, stderr } = await sandbox.ingest(installation.project_id, events, '--retention', '2h');
  expect(stdout).toMatch(/^ +too_old +1$/m);
  expect(stderr).toContain('line 1: ');
  expect(stderr).toContain('the limit of --retention');
  expect(await api.getJson('connections')).toMatchObject({ items: [{ events: 1, dropped: { too_old: 1 } }] });
});
