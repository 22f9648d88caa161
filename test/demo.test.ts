/** `wafstat demo`: a first start with generated traffic. */
import { existsSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { login } from './api.ts';
import { eventually, wholeLines } from './process.ts';
import { Sandbox } from './sandbox.ts';

const DAY_MS = 86_400_000;

let sandbox: Sandbox;
beforeEach(() => {
  sandbox = new Sandbox();
});
afterEach(() => sandbox.clear());

test('the demo shows progress, has 30 days of traffic, and new events keep arriving', async () => {
  const demo = sandbox.start(['demo', '--data', sandbox.data, '--listen', '127.0.0.1:0']);
  await eventually(() => demo.stderr.includes('Generating sample traffic') || undefined, 'progress');
  const address = (await demo.line('wafstat listens on ')).slice('wafstat listens on '.length);
  const [, user = '', domain = '', password = ''] =
    /user (\S+), domain (\S+), password (\S+)/.exec(await demo.line('login')) ?? [];
  const project_id = (await demo.line('project')).split(/\s+/)[1] ?? '';
  const api = await login(address, { user, domain, password, project_id });
  const now = Date.now();
  const sum = async (from: number, to: number) => {
    const { requests } = await api.getJson<{ requests: { num: number }[] }>(
      `waf/event/timeline?from=${from}&to=${to}`,
    );
    return requests.reduce((total, { num }) => total + num, 0);
  };
  for (const day of [1, 15, 29])
    expect(await sum(now - day * DAY_MS, now - (day - 1) * DAY_MS)).toBeGreaterThan(10_000);
  await eventually(
    async () => (await sum(now + 1_000, now + DAY_MS)) > 0 || undefined,
    'new events',
    240_000,
  );
  // Top lists are kept for 30 days, also in the demo, and their response says so.
  await eventually(async () => {
    const query = `from=${now - 90 * DAY_MS}&to=${now}`;
    const { from } = await api.getJson<{ from: number }>(`waf/overviews/attack/ip?${query}`);
    return from >= now - 30 * DAY_MS || undefined;
  }, 'the retention of top lists');
  const second = await sandbox.run(['demo', '--data', sandbox.data, '--listen', '127.0.0.1:0']);
  expect(second).toMatchObject({ status: 1, stdout: '' });
  expect(wholeLines(second.stderr)).toEqual([
    `wafstat: another process uses ${sandbox.data}, perhaps a running demo: stop it, or use another directory`,
  ]);
  await login(address, { user, domain, password, project_id });
});

test('an address in use is reported before anything is created', async () => {
  const other = new Sandbox();
  const { address } = await other.serve();
  const demo = ['demo', '--data', sandbox.data, '--listen', new URL(address).host];
  const { status, stdout, stderr } = await sandbox.run(demo);
  expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
  expect(wholeLines(stderr)).toEqual([expect.stringContaining('another program listens there')]);
  expect(existsSync(sandbox.data)).toBe(false);
  await other.clear();
});
