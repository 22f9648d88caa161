/** Alerts of a running service: from a log line to a webhook, on the command line, and through kill -9. */
import { createHmac } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { call, login } from './api.ts';
import { eventually } from './process.ts';
import { Random } from './random.ts';
import { type Installation, ndjson, Sandbox, type Server } from './sandbox.ts';
import { WebhookReceiver } from './webhook-receiver.ts';

const ALERTS = 100;
const KILLS = 3;

let sandbox: Sandbox;
let receiver: WebhookReceiver;
let installation: Installation;
beforeEach(async () => {
  sandbox = new Sandbox();
  receiver = await WebhookReceiver.start();
  installation = await sandbox.init();
});
afterEach(async () => {
  receiver.stop();
  await sandbox.clear();
});

const onProject = (...args: string[]) => [
  ...args,
  '--data',
  sandbox.data,
  '--project',
  installation.project_id,
];
const addAlert = (name: string, ...args: string[]) =>
  sandbox.run(onProject('alert', 'add', name, ...args, '--webhook', receiver.url, '--alert-allow-private'));

async function push({ address }: Server, events: readonly object[]): Promise<void> {
  const api = await login(address, installation);
  const { status } = await call(address, `/ingest/v1/${installation.project_id}`, {
    method: 'POST',
    headers: { 'X-Auth-Token': api.token },
    body: ndjson(events),
  });
  expect(status).toBe(200);
}

const burst = (count: number) => [
  { time: Date.now() - 1_000, host: 'shop.example.com', attack: 'sqli', count },
];

test('a burst of pushed lines reaches the webhook, signed', async () => {
  const { stdout } = await addAlert('flood', '--attacks', '100', '--within', '5m');
  const [, secret = ''] = /secret of its signature {2}(\w{40}) {3}\(shown only once\)/.exec(stdout) ?? [];
  const server = await sandbox.serve(['--alert-allow-private']);
  await push(server, burst(120));
  const { headers, text, body } = await eventually(() => receiver.messages[0], 'the message');
  expect(body).toMatchObject({
    alert: 'flood',
    state: 'open',
    attacks: 120,
    host: 'shop.example.com',
    link: null,
  });
  const hmac = createHmac('sha256', secret).update(text).digest('hex');
  expect(headers['x-wafstat-signature']).toBe(`sha256=${hmac}`);
  const api = await login(server.address, installation);
  const { items } = await api.getJson<{ items: { alert: string; deliveries: object[] }[] }>(
    'waf/alerts/incidents',
  );
  expect(items).toMatchObject([{ alert: 'flood', until: null, deliveries: [{ event: 'open' }] }]);
  const list = await sandbox.run(onProject('alert', 'list'));
  expect(list.stdout).toMatch(
    /flood +100 attacks within 5 minutes +http:\/\/127\.0\.0\.1:\d+\/\*\*\* +open since /,
  );
  expect([server.process.stdout, server.process.stderr].join('')).not.toContain(secret);
  expect(server.process.stderr).not.toContain('/hook');
});

test(`kill -9 of the service, ${KILLS} times while it delivers ${ALERTS} incidents: each arrives under one key`, async () => {
  const random = new Random(9);
  const names = Array.from({ length: ALERTS }, (_, i) => `alert ${i}`);
  let server = await sandbox.serve(['--alert-allow-private']);
  const api = await login(server.address, installation);
  for (const name of names) {
    const rule = { kind: 'threshold', attacks: 100, within_s: 3_600 };
    const body = JSON.stringify({ name, rule, webhook: receiver.url });
    const { status, text } = await api.get('waf/alerts', { method: 'POST', body });
    expect([status, text]).toEqual([200, expect.stringContaining('"secret"')]);
  }
  // Some get no response before the process dies: whether they were delivered is unknown.
  receiver.respond = (response) => void setTimeout(() => response.end(), random.integer(0, 200));
  await push(server, burst(100));
  for (let i = 0; i < KILLS; i++) {
    const before = receiver.messages.length;
    await eventually(() => receiver.messages.length > before || undefined, 'another message');
    await sleep(random.integer(0, 100));
    await server.process.kill();
    server = await sandbox.serve(['--alert-allow-private']);
  }
  await eventually(
    () => names.every((name) => receiver.keys(name, 'open').length > 0) || undefined,
    'all messages',
  );
  for (const name of names) expect([name, receiver.keys(name, 'open').length]).toEqual([name, 1]);
  expect(new Set(receiver.messages.map(({ body }) => body.incident)).size).toBe(ALERTS);
});

describe('on the command line', () => {
  test('alerts are added, listed, tested and deleted', async () => {
    const added = await addAlert('spikes', '--spike', '--host', 'Shop.example.com', '--json');
    const { secret, ...alert } = JSON.parse(added.stdout);
    expect(secret).toMatch(/^\w{40}$/);
    expect(alert).toMatchObject({
      name: 'spikes',
      rule: { kind: 'spike', sensitivity: 3.5, host: 'shop.example.com' },
    });
    const again = await addAlert('spikes', '--spike');
    expect([again.status, again.stderr]).toEqual([
      1,
      expect.stringContaining("already has an alert 'spikes'"),
    ]);
    const [listed] = JSON.parse((await sandbox.run([...onProject('alert', 'list'), '--json'])).stdout);
    expect(listed).toEqual({ ...alert, open_since: null, failed: null });
    const tested = await sandbox.run([...onProject('alert', 'test', 'spikes'), '--alert-allow-private']);
    expect([tested.status, tested.stderr]).toEqual([0, '']);
    await addAlert('lines', '--dropped', '10%', '--within', '1h');
    expect(
      (await sandbox.run([...onProject('alert', 'test', 'lines'), '--alert-allow-private'])).status,
    ).toBe(0);
    expect(receiver.messages.map(({ body }) => body.text)).toEqual([
      expect.stringMatching(
        /^Test of spikes .*: unusually many attacks, 1,000 in 5 minutes, since .*, on shop\.example\.com\.$/,
      ),
      expect.stringMatching(
        /^Test of lines .*: 10% of the log lines within 1 hour were dropped, since .* UTC\.$/,
      ),
    ]);
    await sandbox.run([...onProject('alert', 'delete', 'lines'), '--yes']);
    const refused = await sandbox.run(onProject('alert', 'test', 'spikes'));
    expect([refused.status, refused.stderr]).toEqual([1, expect.stringContaining('127.0.0.1 is a loopback')]);
    expect((await sandbox.run([...onProject('alert', 'delete', 'spikes'), '--yes'])).status).toBe(0);
    expect((await sandbox.run([...onProject('alert', 'list'), '--json'])).stdout).toBe('[]\n');
    const { stdout } = await sandbox.run(['audit', '--data', sandbox.data, '--action', 'alert']);
    expect(stdout).toContain('alert.add');
    expect(stdout).toContain('alert.delete');
    expect(stdout).not.toContain(secret);
  });

  test.each([
    [['--attacks', '5', '--spike', '--mail', 'a@b.example'], 'choose one of --attacks, --spike, --errors'],
    [['--spike'], 'choose one of --webhook (or WAFSTAT_WEBHOOK) and --mail'],
    [['--spike', '--within', '5m', '--mail', 'a@b.example'], '--within does not apply to --spike'],
    [['--dropped', '0%', '--mail', 'a@b.example'], "--dropped is '0%', but must be a share from 1% to 100%"],
  ])('%j is a mistake', async (args, message) => {
    const { status, stderr } = await sandbox.run(onProject('alert', 'add', 'x', ...args));
    expect([status, stderr]).toEqual([2, expect.stringContaining(message)]);
  });

  test.each(['http://127.0.0.1/', 'https://169.254.169.254/', 'https://localhost/'])(
    '%s is refused as a webhook',
    async (target) => {
      const { status, stderr } = await sandbox.run(
        onProject('alert', 'add', 'x', '--spike', '--webhook', target),
      );
      expect([status, stderr]).toEqual([
        1,
        expect.stringContaining('--alert-allow-private of the service and of this command'),
      ]);
    },
  );

  test('replay lists the incidents of stored history, and sends nothing', async () => {
    const time = Date.now() - 5 * 3_600_000;
    await sandbox.ingest(installation.project_id, [
      { time, host: 'a.example', attack: 'xss', count: 150 },
      { time: time + 60_000, host: 'a.example', attack: 'xss', count: 50 },
    ]);
    await addAlert('flood', '--attacks', '200', '--within', '5m');
    await addAlert('silence', '--silent', 'events-1.ndjson');
    const from = new Date(time - 3_600_000).toISOString();
    const { status, stdout, stderr } = await sandbox.run([
      ...onProject('alert', 'replay'),
      '--from',
      from,
      '--json',
    ]);
    expect(status).toBe(0);
    expect(stderr).toContain(
      'silence is left out: only thresholds, spikes and server errors can be replayed',
    );
    const [incident, ...others] = JSON.parse(stdout);
    expect(others).toEqual([]);
    expect(incident).toMatchObject({ alert: 'flood', attacks: 200 });
    expect(incident.since).toBeGreaterThan(time + 60_000);
    expect(incident.since).toBeLessThanOrEqual(time + 120_000);
    expect(receiver.messages).toEqual([]);
  });

  test('report writes one page that loads nothing and escapes what comes from logs', async () => {
    const evil = '<img src=x onerror=alert(1)>';
    const time = Date.now() - 86_400_000;
    await sandbox.ingest(installation.project_id, [
      {
        time,
        host: 'a.example',
        attack: 'xss',
        count: 1_234,
        blocked: true,
        rule: evil,
        url: '/<script>',
        source: '192.0.2.1',
      },
      { time: time - 7 * 86_400_000, host: 'a.example', attack: 'xss', count: 617 },
      // Data of the whole week before, to compare with.
      { time: time - 14 * 86_400_000, host: 'a.example' },
    ]);
    const { status, stdout } = await sandbox.run([...onProject('report'), '--last', '7d']);
    expect(status).toBe(0);
    expect(stdout).toContain('<b>1,234</b><span class="muted">+100%</span>');
    expect(stdout).toContain('a.example');
    expect(stdout).toContain('&#60;img src=x onerror=alert(1)&#62;');
    expect(stdout).not.toMatch(/<script|<img|https?:|url\(/i);
  });
});
