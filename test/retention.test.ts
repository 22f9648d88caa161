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

  const { address, process } = await sandbox.serve(['--retention', '10h']);
  const api = await login(address, installation);
  const [id] = (await api.hostIds()).values();
  const all = `from=${now - 100 * HOUR_MS}&to=${now + 1}`;
  const count = async (filter: string) => sum((await api.timeline(`${all}${filter}`)).requests);
  await eventually(async () => (await count('')) === 2 || undefined, 'the deletion of old events');
  await eventually(
    () => /"level":40,.*--retention 10h hides 40 hours of events/.test(process.stderr) || undefined,
    'the warning',
  );
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
  const time = new Date(now - 48 * HOUR_MS).toISOString();
  expect(refused.stderr).toContain(
    `the oldest is from ${time}. To count them, in this order: start the server with --retention 4d or longer; ` +
      `move the horizon back with 'wafstat horizon --set ${time}' and the same --data or --store; run this command with another --source.\n`,
  );
  expect(refused.stderr).not.toContain('explain');

  // What the message says.
  await sandbox.run(['horizon', '--data', sandbox.data, '--set', time]);
  expect((await ingest('again')).stdout).toMatch(/^accepted +1$/m);
});

test('the advice for lines that are too old is complete', async () => {
  const { installation, server } = await sandbox.service();
  const now = Date.now();
  const events = [now - 300 * 24 * HOUR_MS, now - 200 * 24 * HOUR_MS].map((time) => ({ time }));
  const ingest = (...args: string[]) => sandbox.ingest(installation.project_id, events, ...args);
  await eventually(async () => {
    const { horizon } = await sandbox.runJson<{ horizon: number }>('horizon');
    return horizon > now - 200 * 24 * HOUR_MS || undefined;
  }, 'a horizon');
  const { stderr } = await ingest();
  const time = new Date(now - 300 * 24 * HOUR_MS).toISOString();
  expect(stderr).toMatch(
    new RegExp(
      `the limit of --retention; the oldest is from ${time}. To count them, in this order: ` +
        'start the server with --retention 302d or longer; ' +
        `move the horizon back with 'wafstat horizon --set ${time}' and the same --data or --store; ` +
        'run this command with --retention 302d and another --source.\\n$',
    ),
  );

  await server.process.kill();
  await sandbox.serve(['--retention', '302d']);
  await sandbox.run(['horizon', '--data', sandbox.data, '--set', time]);
  const { stdout } = await ingest('--retention', '302d', '--source', 'other');
  expect(stdout).toMatch(/^accepted +2$/m);
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

test('an old record that is complete only at the end of the log is reported with a line', async () => {
  await sandbox.init();
  const denied =
    '2020/01/01 10:00:00 [error] 1#1: *1 [client 192.0.2.1] ModSecurity: Access denied with code 403 (phase 2). ' +
    'Matched "x" [id "942100"] [tag "attack-sqli"] [uri "/"] [unique_id "1577"], client: 192.0.2.1, server: a';
  const log = sandbox.write('error.log', `\n${denied}\n`);
  const args = ['ingest', '--data', sandbox.data, '--project', 'default', log];
  const { stdout, stderr } = await sandbox.run(args);
  expect(stdout).toMatch(/^ +too_old +1$/m);
  expect(stderr).toContain(`${log}, line 2: the event is older than the retention time`);
});
