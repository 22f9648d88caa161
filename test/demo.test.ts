/** `wafstat demo`: a first start with generated traffic. Uses the demo of the console tests: it takes seconds to start. */
import { existsSync } from 'node:fs';
import { afterEach, beforeEach, expect, inject, test } from 'vitest';
import { login } from './api.ts';
import { eventually, wholeLines } from './process.ts';
import { Sandbox } from './sandbox.ts';

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

let sandbox: Sandbox;
beforeEach(() => {
  sandbox = new Sandbox();
});
afterEach(() => sandbox.clear());

test('the demo shows progress, has 30 days of traffic, and new events keep arriving', async () => {
  const { address, project_id, account, directory, stderr } = inject('demo');
  expect(stderr).toContain('Generating sample traffic');
  const api = await login(address, { ...account, project_id });
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
  const { sentence, bursts } = await api.getJson<{ sentence: string; bursts: object[] }>(
    'waf/overviews/situation',
  );
  expect(sentence).toMatch(
    /^(Quiet: [\d,]+ attacks? in the last hour, usually|Since \d\d:\d\d: .+ on \w+\.example\.com from) /,
  );
  expect(bursts.length).toBeGreaterThan(0);
  // Top lists are kept for 30 days, and ten minutes until the next pass, also in the demo. Their response says so.
  await eventually(async () => {
    const query = `from=${now - 90 * DAY_MS}&to=${now}`;
    const { from } = await api.getJson<{ from: number }>(`waf/overviews/attack/ip?${query}`);
    return from >= now - 30 * DAY_MS - 10 * MINUTE_MS || undefined;
  }, 'the retention of top lists');
  // The directory is checked before the address, which is in use, too.
  const second = await sandbox.run(['demo', '--data', directory, '--listen', new URL(address).host]);
  expect(second).toMatchObject({ status: 1, stdout: '' });
  expect(wholeLines(second.stderr)).toEqual([
    `wafstat: another process is using ${directory}, perhaps a running demo: stop it, or use another directory`,
  ]);
  await login(address, { ...account, project_id });
});

test('an address in use is reported before anything is created', async () => {
  const other = new Sandbox();
  const { address } = await other.serve();
  const demo = ['demo', '--data', sandbox.data, '--listen', new URL(address).host];
  const { status, stdout, stderr } = await sandbox.run(demo);
  expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
  expect(wholeLines(stderr)).toEqual([expect.stringContaining('the address is already in use')]);
  expect(existsSync(sandbox.data)).toBe(false);
  await other.clear();
});

test('Ctrl-C while traffic is generated ends the demo without further messages', async () => {
  const generating = 'Generating sample traffic: 30 days, in a few seconds ...';
  const interrupt = async (data: string) => {
    const demo = sandbox.start(['demo', '--data', data]);
    await eventually(() => demo.stderr.includes(generating) || undefined, 'the start of the generation');
    demo.signal('SIGINT');
    return demo.end();
  };
  let ended = await interrupt(sandbox.data);
  // Again, if this process paused until the traffic was generated.
  for (let i = 0; i < 5 && ended.stdout.includes('wafstat listens on'); i++)
    ended = await interrupt(sandbox.path(`again-${i}`));
  const { status, stdout, stderr } = ended;
  expect({ status, stdout }).toEqual({ status: 0, stdout: '' });
  expect(wholeLines(stderr).filter((line) => !line.includes(' is in use; using port '))).toEqual([
    generating,
  ]);
});
