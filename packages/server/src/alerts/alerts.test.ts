import { createHmac } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type IncomingHttpHeaders, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { generate } from 'selfsigned';
import { SMTPServer, type SMTPServerOptions } from 'smtp-server';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import type { Event } from '../event.ts';
import type { NewAlert } from '../identity/administration.ts';
import { type Identity, openIdentity } from '../identity/identity.ts';
import type { Alert, AlertRule, Incident } from '../identity/records.ts';
import type { Store } from '../store/store.ts';
import { isPrivateAddress } from './addresses.ts';
import { type AlertSettings, Evaluator, lastTime } from './alerts.ts';
import { sendWebhook } from './channels.ts';
import { INCIDENTS_KEPT, Incidents, NO_FACTS } from './incidents.ts';
import { replay } from './replay.ts';
import { createReport } from './report.ts';
import { reportPage } from './report-page.ts';
import { parseAlert } from './rules.ts';

const START = Date.UTC(2026, 6, 1, 12);
const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
const THRESHOLD: AlertRule = { kind: 'threshold', attacks: 100, within_s: 300 };

interface Received {
  headers: IncomingHttpHeaders;
  body: string;
}

const clock = { now: START };
let directory: string;
let identity: Identity;
let store: Store;
let project: string;
let received: Received[];
let respond: (count: number) => { status: number; headers?: Record<string, string> } | null;
let receiver: Server;
let url: string;
let logged: { message: string; details: object }[];
const opened: Identity[] = [];

const now = () => clock.now;
const openAnother = async () => {
  const another = await openIdentity(join(directory, 'identity.mdb'), Buffer.alloc(32, 7), now);
  opened.push(another);
  return another;
};

beforeEach(async () => {
  clock.now = START;
  directory = mkdtempSync(join(tmpdir(), 'wafstat-alerts-'));
  identity = await openAnother();
  const names = { domain: 'default', project: 'shop', user: 'admin' };
  project = (await identity.administration.bootstrap(names, 'password')).project.id;
  store = memoryStore(now);
  received = [];
  logged = [];
  respond = () => ({ status: 200 });
  receiver = createServer(async (request, response) => {
    received.push({ headers: request.headers, body: await text(request) });
    const answer = respond(received.length);
    // Null: the receiver hangs.
    if (answer !== null) response.writeHead(answer.status, answer.headers).end();
  });
  await new Promise<void>((resolve) => receiver.listen(0, '127.0.0.1', resolve));
  url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/hook`;
});

afterEach(async () => {
  receiver.closeAllConnections();
  receiver.close();
  for (const each of opened.splice(0)) await each.close();
  rmSync(directory, { recursive: true });
});

const settings: AlertSettings = { allowPrivate: true, smtp: null, publicUrl: 'https://waf.example.com' };
const evaluatorOf = (own = identity, changed: Partial<AlertSettings> = {}) => {
  const log = (details: object, message: string) => void logged.push({ message, details });
  const dependencies = { store, identity: own, settings: { ...settings, ...changed }, now };
  return new Evaluator({ ...dependencies, log: { info: log, warn: log } });
};

const add = (rule: AlertRule, channel: NewAlert['channel'] = { webhook: url }, name = 'flood') =>
  identity.administration.addAlert(project, { name, rule, channel });

const incidents = (): Incident[] =>
  identity.alerts.alerts().flatMap((alert) => identity.alerts.incidentsOf(alert.id));

async function attack(count: number, time = clock.now - 1_000, fields: Partial<Event> = {}, source = 'edge') {
  const event: Event = { time, hostId: null, request: true, attack: 'sqli', count, ...fields };
  await store.append({ project, source: { name: source, format: 'events' }, events: [event], dropped: {} });
}

async function tick(evaluator: Evaluator, afterMs = 10_000) {
  clock.now += afterMs;
  await evaluator.tick();
  await evaluator.idle();
}

test('a threshold opens once, is delivered with its signature, and closes after two quiet windows', async () => {
  const { secret } = await add(THRESHOLD);
  const added = await store.addHost({ project, hostname: 'shop.example.com', limit: 10 });
  const hostId = added.kind === 'full' ? null : added.host.id;
  const evaluator = evaluatorOf();
  await attack(99);
  await tick(evaluator);
  expect(received).toEqual([]);
  await attack(141, clock.now, { hostId, details: { source: '192.0.2.58', rule: '942100', blocked: true } });
  for (let i = 0; i < 3; i++) await tick(evaluator);
  expect(received).toHaveLength(1);
  const [{ headers, body } = { headers: {}, body: '' }] = received;
  const [incident] = incidents();
  expect(JSON.parse(body)).toEqual({
    incident: incident?.id,
    alert: 'flood',
    project: 'shop',
    state: 'open',
    since: START + 20_000,
    until: null,
    attacks: 240,
    usual: null,
    host: 'shop.example.com',
    source: '192.0.2.58',
    category: 'sqli',
    text:
      'flood (project shop): 240 attacks within 5 minutes since 2026-07-01 12:00 UTC, mostly SQL injection, ' +
      'on shop.example.com, from 192.0.2.58, rule 942100 (SQL injection by libinjection).',
    link: `https://waf.example.com/console/?project=${project}&from=${START - 280_000}&to=${START + 320_000}`,
  });
  expect(headers['idempotency-key']).toBe(`${incident?.id}-open`);
  const hmac = createHmac('sha256', secret ?? '')
    .update(body)
    .digest('hex');
  expect(headers['x-wafstat-signature']).toBe(`sha256=${hmac}`);
  // The attacks leave the first window after five minutes, and the second after ten.
  await tick(evaluator, 5 * MINUTE_MS);
  expect(received).toHaveLength(1);
  await tick(evaluator, 5 * MINUTE_MS);
  expect(received.map((one) => one.headers['idempotency-key'])).toEqual([
    `${incident?.id}-open`,
    `${incident?.id}-closed`,
  ]);
  expect(JSON.parse(received[1]?.body ?? '')).toMatchObject({
    state: 'closed',
    until: clock.now,
    attacks: 240,
  });
  await tick(evaluator, DAY_MS);
  expect(received).toHaveLength(2);
});

test('a threshold counts only its category, host and attacks that were not blocked', async () => {
  const added = await store.addHost({ project, hostname: 'a.example', limit: 10 });
  const hostId = added.kind === 'full' ? null : added.host.id;
  await add({ ...THRESHOLD, category: 'xss' }, { webhook: url }, 'category');
  await add({ ...THRESHOLD, host: 'a.example' }, { webhook: url }, 'host');
  await add({ ...THRESHOLD, not_blocked: true }, { webhook: url }, 'not blocked');
  const evaluator = evaluatorOf();
  await attack(200, clock.now, { details: { blocked: true } });
  await tick(evaluator);
  expect(incidents()).toEqual([]);
  const names = async (fields: Partial<Event>) => {
    await attack(100, clock.now, fields);
    await tick(evaluator);
    const alerts = identity.alerts.alerts().filter(({ id }) => identity.alerts.incidentsOf(id).length > 0);
    return alerts.map(({ name }) => name).sort();
  };
  expect(await names({ hostId, details: { blocked: true } })).toEqual(['host']);
  expect(await names({ attack: 'xss', details: { blocked: true } })).toEqual(['category', 'host']);
  expect(await names({ details: {} })).toEqual(['category', 'host', 'not blocked']);
});

test('an alert on a category names the host with the most attacks of that category', async () => {
  const hostId = async (hostname: string) => {
    const added = await store.addHost({ project, hostname, limit: 10 });
    return added.kind === 'full' ? null : added.host.id;
  };
  await add({ ...THRESHOLD, category: 'xss' });
  await attack(500, clock.now, { hostId: await hostId('busy.example') });
  await attack(100, clock.now, { hostId: await hostId('xss.example'), attack: 'xss' });
  await tick(evaluatorOf());
  expect(incidents()[0]).toMatchObject({ category: 'xss', host: 'xss.example' });
});

test('late events open no incident', async () => {
  await add(THRESHOLD);
  await attack(1_000, START - 6 * MINUTE_MS);
  await tick(evaluatorOf());
  expect(incidents()).toEqual([]);
});

test('a process that is killed while it sends leaves the delivery to the next one, which uses the same key', async () => {
  await add(THRESHOLD);
  await attack(100);
  respond = (count) => (count === 1 ? null : { status: 200 });
  const killed = evaluatorOf();
  clock.now += 10_000;
  await killed.tick();
  await expect.poll(() => received.length).toBe(1);
  // It sends nothing more and records no outcome, as after `kill -9`.
  const next = evaluatorOf(await openAnother());
  await tick(next);
  expect(received).toHaveLength(1);
  await tick(next, 20_000);
  const keys = received.map(({ headers }) => headers['idempotency-key']);
  expect(keys).toHaveLength(2);
  expect(new Set(keys).size).toBe(1);
  expect(new Set(received.map(({ body }) => body)).size).toBe(1);
  await tick(next);
  expect(received).toHaveLength(2);
  receiver.closeAllConnections();
  await killed.idle();
  // The late outcome of the first process changes nothing.
  expect(incidents().map(({ deliveries }) => deliveries)).toEqual([
    [expect.objectContaining({ event: 'open', status: 'delivered', attempts: 2 })],
  ]);
});

test('of several processes, one evaluates; after its end another continues at once', async () => {
  await add(THRESHOLD);
  const evaluators = [evaluatorOf(), evaluatorOf(await openAnother()), evaluatorOf(await openAnother())];
  const all = async () => {
    clock.now += 10_000;
    await Promise.all(evaluators.map((each) => each.tick()));
    await Promise.all(evaluators.map((each) => each.idle()));
  };
  await all();
  await attack(100);
  for (let i = 0; i < 5; i++) await all();
  expect(received).toHaveLength(1);
  await evaluators.shift()?.stop();
  clock.now += 10 * MINUTE_MS;
  await all();
  expect(received.map(({ body }) => JSON.parse(body).state)).toEqual(['open', 'closed']);
});

test('alerts are evaluated, however long all of them take together', async () => {
  for (let i = 0; i < 4; i++) await add(THRESHOLD, undefined, `flood ${i}`);
  await attack(100);
  const { count } = store;
  store.count = ((query) => {
    clock.now += 1_500;
    return count.call(store, query);
  }) as Store['count'];
  await tick(evaluatorOf());
  // Longer than the lease.
  expect(clock.now - START).toBeGreaterThan(30_000);
  expect(incidents()).toHaveLength(4);
});

test('receivers of a project that hang do not delay the messages of another', async () => {
  for (let i = 0; i < 20; i++) await add(THRESHOLD, undefined, `flood ${i}`);
  const domain = identity.lookup.project(project)?.domain_id ?? '';
  const other = await identity.administration.addProject(domain, 'other');
  await identity.administration.addAlert(other.id, {
    name: 'flood',
    rule: THRESHOLD,
    channel: { webhook: url },
  });
  await attack(100);
  project = other.id;
  await attack(100);
  const hasTimedOut = () => logged.some(({ message }) => message.includes('not delivered'));
  const timedOutBefore = new Map<string, boolean>();
  respond = () => {
    timedOutBefore.set(JSON.parse(received.at(-1)?.body ?? '').project, hasTimedOut());
    return null;
  };
  clock.now += 10_000;
  const evaluator = evaluatorOf();
  await evaluator.tick();
  await expect.poll(() => [...timedOutBefore.keys()].sort()).toEqual(['other', 'shop']);
  // A message that times out makes room for others.
  expect(timedOutBefore.get('other')).toBe(false);
  // Those that follow need not time out.
  respond = () => ({ status: 200 });
  receiver.closeAllConnections();
  await evaluator.idle();
});

test('failed deliveries are repeated with growing pauses for a day, and then given up', async () => {
  await add(THRESHOLD);
  await attack(100);
  respond = () => ({ status: 500 });
  const evaluator = evaluatorOf();
  await tick(evaluator);
  const pauses: number[] = [];
  for (;;) {
    const next = incidents()[0]?.deliveries[0];
    if (next?.status !== 'waiting') break;
    pauses.push((next.at - clock.now) / 1_000);
    await tick(evaluator, next.at - clock.now - 1);
    expect(received).toHaveLength(pauses.length);
    await tick(evaluator, 1);
  }
  expect(pauses.slice(0, 10)).toEqual([10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600]);
  expect(clock.now - START).toBeGreaterThanOrEqual(DAY_MS);
  const opening = received.filter(({ body }) => JSON.parse(body).state === 'open');
  expect(new Set(opening.map(({ headers }) => headers['idempotency-key'])).size).toBe(1);
  const error = 'the receiver responded with status 500';
  expect(incidents()[0]?.deliveries[0]).toMatchObject({ event: 'open', status: 'failed', error });
  expect(logged.map(({ message }) => message)).toContain('open given up after a day');
  expect(JSON.stringify(logged)).not.toContain('/hook');
});

test('redirects are not followed', async () => {
  const send = () => sendWebhook({ url, secret: 's' }, '{}', 'key', { allowPrivate: true });
  respond = () => ({ status: 302, headers: { Location: url } });
  await expect(send()).rejects.toThrow('status 302: redirects are not followed');
  expect(received).toHaveLength(1);
});

describe('private addresses', () => {
  test.each([
    [
      '127.0.0.1',
      '10.1.2.3',
      '172.16.0.1',
      '172.31.255.255',
      '192.168.1.1',
      '169.254.169.254',
      '0.0.0.0',
      '100.64.0.1',
    ],
    [
      '224.0.0.1',
      '255.255.255.255',
      '::',
      '::1',
      '::ffff:127.0.0.1',
      '::ffff:8.8.8.8',
      '::7f00:1',
      'fe80::1',
      'fe80::1%eth0',
    ],
    ['fd00::1', '64:ff9b::7f00:1', '64:ff9b:1::1', '2002:7f00:1::', '2001:0:1::', 'ff02::1'],
  ])('%s is private', (...addresses) => {
    for (const address of addresses) expect([address, isPrivateAddress(address)]).toEqual([address, true]);
  });

  test.each(['8.8.8.8', '172.15.0.1', '172.32.0.1', '2606:4700::1111', '2001:4860::8888'])(
    '%s is public',
    (address) => {
      expect(isPrivateAddress(address)).toBe(false);
    },
  );

  const webhook =
    (target: string, allowPrivate = false) =>
    () =>
      parseAlert({ name: 'a', rule: THRESHOLD, webhook: target }, allowPrivate);

  test.each([
    'https://127.0.0.1/',
    'https://169.254.169.254/latest/meta-data',
    'https://2130706433/',
    'https://0x7f.1/',
    'https://[::1]/',
    'https://[::ffff:10.0.0.1]/',
    'https://[::ffff:0:10.0.0.1]/',
    'https://localhost/',
    'https://a.localhost/',
  ])('%s is refused when the alert is added, and accepted with --alert-allow-private', (target) => {
    expect(webhook(target)).toThrow(
      /private address: use a public one, or --alert-allow-private of the service/,
    );
    expect(webhook(target, true)).not.toThrow();
  });

  test('plain HTTP is refused, and so are users in the URL and other schemes', () => {
    expect(webhook('http://example.com/')).toThrow('webhook must be https');
    expect(webhook('https://user@example.com/')).toThrow('must not contain a user or password');
    expect(webhook('ftp://example.com/')).toThrow('webhook must be a URL');
  });

  test('nothing connects to an address, or to a name that resolves to one', async () => {
    const { port } = new URL(url);
    for (const host of ['127.0.0.1', '[::ffff:127.0.0.1]', 'localhost', hostname()]) {
      const target = { url: `http://${host}:${port}/`, secret: 's' };
      await expect(sendWebhook(target, '{}', 'key', { allowPrivate: false })).rejects.toThrow(
        'private address',
      );
    }
    await expect(
      sendWebhook({ url: 'http://169.254.169.254/', secret: 's' }, '{}', 'key', { allowPrivate: false }),
    ).rejects.toThrow('169.254.169.254 is a loopback, link-local or private address');
    expect(received).toEqual([]);
  });

  test('a receiver that switches protocols fails like one that does not respond', async () => {
    const switching = createServer(({ socket }) => {
      socket.end('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n');
    });
    await new Promise<void>((resolve) => switching.listen(0, '127.0.0.1', resolve));
    const { port } = switching.address() as AddressInfo;
    const target = { url: `http://127.0.0.1:${port}/`, secret: 's' };
    await expect(sendWebhook(target, '{}', 'key', { allowPrivate: true })).rejects.toThrow(
      'closed the connection without a response',
    );
    switching.close();
  });

  test('an alert whose name resolves to a private address later is not delivered, and says why', async () => {
    await add(THRESHOLD, { webhook: url.replace('127.0.0.1', 'localhost') });
    await attack(100);
    await tick(evaluatorOf(identity, { allowPrivate: false }));
    expect(received).toEqual([]);
    expect(incidents()[0]?.deliveries[0]).toMatchObject({
      status: 'waiting',
      error: expect.stringMatching(/^localhost resolves to an address that is a loopback/),
    });
  });
});

test('names from logs cannot mention, link or format in chats', async () => {
  await add(THRESHOLD, { webhook: url }, 'a <!channel> alert');
  const evil = '<!here>[x](http://evil)*b*&`c`|\u202e';
  await attack(100, undefined, { details: { rule: evil } });
  await tick(evaluatorOf());
  const { text: sentence, alert } = JSON.parse(received[0]?.body ?? '{}');
  expect(alert).toBe('a <!channel> alert');
  expect(sentence).toContain('a &lt;!channel&gt; alert (project shop)');
  expect(sentence).toContain(
    'rule &lt;!here&gt;&#91;x&#93;&#40;http://evil&#41;&#42;b&#42;&amp;&#96;c&#96;&#124;&#92;u202e',
  );
});

describe('other rules', () => {
  test('a silent source opens when it has sent nothing, and closes with its next line', async () => {
    await add({ kind: 'silent', source: 'edge', for_s: 900 });
    const evaluator = evaluatorOf();
    await tick(evaluator);
    await attack(1, START - 3_600_000);
    await attack(1, START);
    await attack(1, clock.now, {}, 'other');
    await tick(evaluator, 14 * MINUTE_MS);
    expect(received).toEqual([]);
    await tick(evaluator, MINUTE_MS);
    expect(JSON.parse(received[0]?.body ?? '')).toMatchObject({
      since: START,
      source: 'edge',
      attacks: null,
      text: 'flood (project shop): no line from the log source edge since 2026-07-01 12:00 UTC.',
    });
    await attack(1);
    await tick(evaluator);
    expect(JSON.parse(received[1]?.body ?? '')).toMatchObject({ state: 'closed', attacks: null });
  });

  test('a source with less history than the rule asks for is not silent', async () => {
    await add({ kind: 'silent', source: 'edge', for_s: 900 });
    await attack(1, START);
    await tick(evaluatorOf(), 3_600_000);
    expect(incidents()).toEqual([]);
  });

  test('dropped lines count by their share in the window, except those that every log has', async () => {
    await add({ kind: 'dropped', percent: 10, within_s: 300 });
    const evaluator = evaluatorOf();
    const drop = (reason: string, count: number, name = 'edge') =>
      store.append({
        project,
        source: { name, format: 'events' },
        events: [],
        dropped: { [reason]: count },
      });
    // What was dropped before the service started does not count.
    await drop('not_json', 1_000);
    await drop('not_json', 3_000, 'another');
    await tick(evaluator);
    for (let i = 0; i < 89; i++) await attack(1);
    await drop('other_log_line', 500);
    await tick(evaluator);
    expect(incidents()).toEqual([]);
    await drop('not_json', 70);
    await tick(evaluator);
    expect(JSON.parse(received[0]?.body ?? '')).toMatchObject({
      text: expect.stringMatching(
        /11% of the log lines within 5 minutes were dropped, since .*, mostly from the log source edge\.$/,
      ),
      source: 'edge',
    });
    for (let i = 0; i < 6; i++) await tick(evaluator, MINUTE_MS);
    expect(received.map(({ body }) => JSON.parse(body).state)).toEqual(['open', 'closed']);
  });

  test('server errors count by their share of the responses with a code, and name the host with the most', async () => {
    await add({ kind: 'errors', percent: 10, within_s: 300 });
    await add({ kind: 'errors', percent: 10, within_s: 300, host: 'a.example' }, undefined, 'a only');
    const [a = null, b = null] = await store.resolveHosts({
      project,
      hostnames: ['a.example', 'b.example'],
      limit: 2,
    });
    const respond = async (hostId: string | null, status: number | undefined, count: number) => {
      const event: Event = { time: clock.now - 1_000, hostId, request: true, attack: null, count, status };
      await store.append({
        project,
        source: { name: 'edge', format: 'events' },
        events: [event],
        dropped: {},
      });
    };
    const evaluator = evaluatorOf();
    // Few responses are chance, and requests without a code tell nothing.
    await respond(b, 502, 19);
    await tick(evaluator);
    expect(incidents()).toEqual([]);
    await respond(a, 200, 150);
    await respond(b, 404, 23);
    await respond(a, undefined, 1_000);
    await tick(evaluator);
    expect(incidents()).toEqual([]);
    await respond(b, 500, 5);
    await tick(evaluator);
    expect(received.map(({ body }) => JSON.parse(body))).toEqual([
      expect.objectContaining({
        state: 'open',
        attacks: null,
        text: expect.stringMatching(
          /: 12% of the responses within 5 minutes are server errors, since .*, on b\.example\.$/,
        ),
      }),
    ]);
    const range = { from: START - MINUTE_MS, to: clock.now + 10 * MINUTE_MS };
    const rule = { kind: 'errors', percent: 10, within_s: 300 } as const;
    expect(await replay(store, project, rule, range)).toEqual([
      { since: START + MINUTE_MS, until: START + 5 * MINUTE_MS, most: expect.closeTo(12.18, 2) },
    ]);
    await tick(evaluator, 5 * MINUTE_MS);
    expect(received.map(({ body }) => JSON.parse(body).state)).toEqual(['open', 'closed']);
  });

  test('a spike opens far above the same hours of the last days, and closes when it is usual again', async () => {
    await add({ kind: 'spike', sensitivity: 3.5 });
    const points = Math.floor((7 * DAY_MS) / (5 * MINUTE_MS));
    for (let i = 1; i <= points; i++) await attack(90 + (i % 20), START - i * 5 * MINUTE_MS);
    const evaluator = evaluatorOf();
    await attack(199, START + 1);
    await tick(evaluator);
    expect(received).toEqual([]);
    await attack(400, START + 2, { details: { source: '192.0.2.58' } });
    await tick(evaluator);
    const open = JSON.parse(received[0]?.body ?? '');
    expect(open).toMatchObject({ state: 'open', since: START, attacks: 599, source: '192.0.2.58' });
    expect(open.text).toContain('unusually many attacks, 599 in 5 minutes, since 2026-07-01 12:00 UTC');
    await tick(evaluator, 5 * MINUTE_MS);
    expect(received).toHaveLength(1);
    await tick(evaluator, 5 * MINUTE_MS);
    expect(received).toHaveLength(2);
    expect(JSON.parse(received[1]?.body ?? '')).toMatchObject({ state: 'closed', attacks: 599 });
  });
});

test('a report has totals, top values and incidents, and what users rather than attackers trigger', async () => {
  await add(THRESHOLD);
  await attack(100);
  await tick(evaluatorOf());
  for (let i = 0; i < 40; i++) {
    const rules = [{ id: '942100', variable: 'ARGS:q', severity: 'critical' }];
    const details = {
      source: `198.51.100.${i}`,
      url: '/search',
      rule: '942100',
      rules,
      score: 5,
      blocked: true,
    };
    await attack(1, START - 1 - Math.floor((i / 40) * 6.5 * DAY_MS), { request: false, details });
  }
  const range = { from: clock.now - 7 * DAY_MS, to: clock.now + 1 };
  const report = await createReport({ store, identity }, { id: project, name: 'shop' }, range);
  expect(report.totals).toEqual({ requests: 100, attacks: 140, blocked: 40 });
  expect(report.before).toBe(null);
  expect(report.rankings.map(({ title, items }) => [title, items[0]?.key])).toEqual([
    ['Categories', 'sqli'],
    ['Hosts', undefined],
    ['Sources', '198.51.100.0'],
    ['Rules', '942100'],
    ['Paths', '/search'],
  ]);
  expect(report.incidents).toMatchObject([{ alert: 'flood', attacks: 100 }]);
  expect(report.candidates).toMatchObject([
    { path: '/search', variable: 'ARGS:q', rules: ['942100'], attacks: 40 },
  ]);
  const page = reportPage(report);
  for (const text of [
    'not compared with the 7 days before: there is no data of all of it',
    '<td>flood</td>',
    '<td>SQL injection</td>',
    '<td>942100 SQL injection by libinjection</td>',
    '<td>/search</td><td>ARGS:q</td><td>942100</td>',
  ])
    expect(page).toContain(text);
  await attack(2, range.from - (range.to - range.from));
  const compared = await createReport({ store, identity }, { id: project, name: 'shop' }, range);
  expect(compared.before).toEqual({ requests: 2, attacks: 2, blocked: 0 });
  expect(reportPage(compared)).toContain(', compared with the 7 days before<');
});

describe('mail', () => {
  let mails: { recipients: string[]; message: string; isSecure: boolean }[];
  let smtp: SMTPServer;
  const start = async (options: SMTPServerOptions = {}) => {
    const { cert, private: key } = await generate([{ name: 'commonName', value: 'localhost' }], {
      keySize: 2048,
    });
    mails = [];
    smtp = new SMTPServer({
      cert,
      key,
      authOptional: true,
      onAuth: ({ username, password }, _session, done) =>
        username === 'alerts' && password === 'secret'
          ? done(null, { user: 'alerts' })
          : done(new Error('refused')),
      onData(stream, session, done) {
        const recipients = session.envelope.rcptTo.map(({ address }) => address);
        text(stream).then((message) => {
          mails.push({ recipients, message, isSecure: session.secure });
          done();
        }, done);
      },
      ...options,
    });
    await new Promise<void>((resolve) => smtp.listen(0, '0.0.0.0', resolve));
    const { port } = smtp.server.address() as AddressInfo;
    return {
      host: '127.0.0.1',
      port,
      secure: false,
      user: 'alerts',
      password: 'secret',
      from: 'waf@example.com',
    };
  };
  afterEach(() => new Promise<void>((resolve) => smtp.close(resolve)));

  test('alerts are sent with STARTTLS, and names cannot add headers', async () => {
    const server = await start();
    await add(THRESHOLD, { mail: 'ops@example.com' });
    await attack(100, undefined, { details: { rule: 'x\r\nBcc: victim@example.com\r\n\r\n<b>' } });
    const evaluator = evaluatorOf(identity, { smtp: server });
    await tick(evaluator);
    expect(mails).toHaveLength(1);
    const [{ recipients, message, isSecure } = { recipients: [], message: '', isSecure: false }] = mails;
    expect(isSecure).toBe(true);
    expect(recipients).toEqual(['ops@example.com']);
    expect(message).toContain('Subject: [wafstat] Alert: flood (shop)\r\n');
    expect(message).toContain(`Message-ID: <${incidents()[0]?.id}-open@example.com>`);
    expect(message).not.toMatch(/^Bcc:/m);
    expect(message.replaceAll('=\r\n', '')).toContain('100 attacks within 5 minutes');
  });

  test('without STARTTLS, a server on another machine gets nothing', async () => {
    const server = await start({ disabledCommands: ['STARTTLS'] });
    const { networkInterfaces } = await import('node:os');
    const own = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
    const address = own.find(({ internal, family }) => !internal && family === 'IPv4')?.address;
    if (address === undefined) return;
    await add(THRESHOLD, { mail: 'ops@example.com' });
    await attack(100);
    await tick(evaluatorOf(identity, { smtp: { ...server, host: address } }));
    expect(mails).toEqual([]);
    expect(incidents()[0]?.deliveries[0]).toMatchObject({
      status: 'waiting',
      error: expect.stringMatching(/STARTTLS/i),
    });
  });

  test('a service without a mail server says so in the history', async () => {
    await start();
    await add(THRESHOLD, { mail: 'ops@example.com' });
    await attack(100);
    await tick(evaluatorOf());
    expect(incidents()[0]?.deliveries[0]?.error).toContain('set --smtp-url and --mail-from of the service');
  });

  test('a mail that is accepted while the service stops is not sent again', async () => {
    let accept = () => {};
    const accepted = new Promise<void>((resolve) => {
      accept = resolve;
    });
    const server = await start({
      onData: (stream, _session, done) => {
        text(stream).then((message) => mails.push({ recipients: [], message, isSecure: true }));
        accepted.then(() => done());
      },
    });
    await add(THRESHOLD, { mail: 'ops@example.com' });
    await attack(100);
    const evaluator = evaluatorOf(identity, { smtp: server });
    clock.now += 10_000;
    await evaluator.tick();
    await expect.poll(() => mails.length).toBe(1);
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    const stopped = evaluator.stop();
    vi.advanceTimersByTime(3_000);
    vi.useRealTimers();
    accept();
    await stopped;
    expect(incidents()[0]?.deliveries).toEqual([
      expect.objectContaining({ status: 'delivered', attempts: 1 }),
    ]);
  });

  test('the weekly report is sent once, with the page as attachment', async () => {
    const server = await start();
    // A Wednesday, 12:00 UTC.
    await add(
      { kind: 'report', minute: 2 * 1_440 + 12 * 60 + 30, timezone: '+00:00' },
      { mail: 'ops@example.com' },
    );
    await attack(1_234, START - DAY_MS, { details: { rule: '<script>alert(1)</script>' } });
    const evaluator = evaluatorOf(identity, { smtp: server });
    await tick(evaluator);
    expect(mails).toEqual([]);
    for (let i = 0; i < 4; i++) await tick(evaluator, 15 * MINUTE_MS);
    expect(mails).toHaveLength(1);
    const { message = '' } = mails[0] ?? {};
    expect(message).toContain('Subject: [wafstat] Report: shop, week to 2026-07-01');
    expect(message).toContain('filename=wafstat-2026-07-01.html');
    expect(message).toContain('1,234');
    for (let i = 0; i < 8; i++) await tick(evaluator, DAY_MS);
    expect(mails).toHaveLength(2);
  });
});

test.each([
  ['+00:00', '2026-07-01T12:00:00Z', '2026-06-29T08:00:00Z'],
  ['+00:00', '2026-06-29T08:00:00Z', '2026-06-29T08:00:00Z'],
  ['+00:00', '2026-06-29T07:59:59Z', '2026-06-22T08:00:00Z'],
  ['Europe/Berlin', '2026-07-01T12:00:00Z', '2026-06-29T06:00:00Z'],
  // The clock changed on Sunday, 2026-10-25.
  ['Europe/Berlin', '2026-10-26T07:30:00Z', '2026-10-26T07:00:00Z'],
  ['Europe/Berlin', '2026-10-25T12:00:00Z', '2026-10-19T06:00:00Z'],
])('in %s at %s, the last Monday 08:00 was at %s', (timezone, at, expected) => {
  expect(new Date(lastTime({ minute: 8 * 60, timezone }, Date.parse(at))).toISOString()).toBe(
    new Date(expected).toISOString(),
  );
});

describe('limits', () => {
  test('a project has at most 100 alerts', async () => {
    for (let i = 0; i < 100; i++) await add(THRESHOLD, { webhook: url }, `alert ${i}`);
    await expect(add(THRESHOLD, { webhook: url }, 'one more')).rejects.toThrow(
      'the project already has 100 alerts',
    );
    await expect(add(THRESHOLD, { webhook: url }, 'alert 1')).rejects.toThrow(
      "already has an alert 'alert 1'",
    );
  });

  test('an alert keeps its last incidents, and those with a delivery to make for longest', async () => {
    const { alert } = await add(THRESHOLD);
    const records = new Incidents(identity.alerts, now);
    const known: string[] = [];
    for (let i = 0; i < INCIDENTS_KEPT + 5; i++) {
      clock.now += 1_000;
      await records.lead();
      const incident = (await records.open(alert, { ...NO_FACTS, since: clock.now })) as Incident;
      known.push(incident.id);
      await records.close(incident, clock.now, null);
      for (const due of records.due()) {
        // The first one is never delivered.
        if (due.incident.id === known[0]) continue;
        await records.claim(due);
        await records.finish(due, null);
      }
      for (const due of records.due()) {
        if (due.incident.id === known[0]) continue;
        await records.claim(due);
        await records.finish(due, null);
      }
    }
    const kept = new Set(incidents().map(({ id }) => id));
    expect(kept.size).toBe(INCIDENTS_KEPT);
    expect(known.filter((id) => !kept.has(id))).toEqual(known.slice(1, 6));
  });
});

test('a deleted alert or project takes its incidents along', async () => {
  const { alert } = await add(THRESHOLD);
  await attack(100);
  await tick(evaluatorOf());
  expect(identity.alerts.incidentsOf(alert.id)).toHaveLength(1);
  await identity.administration.removeAlert(project, 'flood');
  expect(identity.alerts.incidentsOf(alert.id)).toEqual([]);
  const other = await add(THRESHOLD);
  await identity.administration.removeProject(project, store);
  expect(identity.alerts.alerts()).toEqual([]);
  expect(identity.alerts.get('alert', other.alert.id)).toBeUndefined();
});

test('neither the URL nor the secret of a webhook is stored as it is', async () => {
  const { alert, secret } = await add(THRESHOLD, { webhook: `${url}/T000/secret-path` });
  const stored = JSON.stringify(identity.alerts.get('alert', alert.id));
  expect(alert.target).toBe(`${new URL(url).origin}/***`);
  expect(stored).not.toContain('secret-path');
  expect(stored).not.toContain(secret);
  expect(identity.alerts.secretsOf(alert)).toEqual({ url: `${url}/T000/secret-path`, secret });
  expect(() => identity.alerts.secretsOf({ ...alert, id: 'f'.repeat(32) } as Alert)).toThrow();
});

describe('alerts as programs write them', () => {
  const parse = (rule: object, rest: object = { mail: 'ops@example.com' }) =>
    parseAlert({ name: 'a', rule, ...rest }, false);

  test('are read', () => {
    expect(parse({ kind: 'spike' }).rule).toEqual({ kind: 'spike', sensitivity: 3.5 });
    expect(parse({ kind: 'report', at: 'Sun 23:59', timezone: 'europe/berlin' }).rule).toMatchObject({
      minute: 10_079,
    });
    expect(parse({ ...THRESHOLD, host: 'Shop.Example.COM', category: 'xss' }).rule).toMatchObject({
      host: 'shop.example.com',
    });
  });

  test.each([
    [{}, 'rule.kind must be one of threshold, spike'],
    [{ kind: 'threshold', attacks: 0, within_s: 300 }, 'rule.attacks must be a whole number from 1'],
    [
      { kind: 'threshold', attacks: 1, within_s: 30 },
      'rule.within_s must be a multiple of 60 from 60 to 86400',
    ],
    [{ kind: 'threshold', attacks: 1, within_s: 90 }, 'rule.within_s must be a multiple of 60'],
    [{ ...THRESHOLD, category: 'other' }, 'rule.category must be one of xss'],
    [{ ...THRESHOLD, host: 'a b' }, 'rule.host must be a host name'],
    [{ ...THRESHOLD, not_blocked: 'yes' }, 'rule.not_blocked must be true or false'],
    [{ ...THRESHOLD, extra: 1 }, 'unknown field rule.extra'],
    [{ kind: 'spike', sensitivity: 0 }, 'rule.sensitivity must be a number from 1 to 100'],
    [{ kind: 'dropped', percent: 101, within_s: 300 }, 'rule.percent must be a whole number from 1 to 100'],
    [{ kind: 'silent', source: '', for_s: 900 }, 'rule.source must be the name of a log source'],
    [{ kind: 'report', at: 'Monday 8' }, "rule.at must be a day and a time, like 'Mon 08:00'"],
    [{ kind: 'report', at: 'Mon 08:00', timezone: 'Mars' }, 'rule.timezone must be an offset'],
  ])('%j: %s', (rule, message) => {
    expect(() => parse(rule)).toThrow(message);
  });

  test.each([
    [{ mail: 'a@b.example, c@d.example' }, 'mail must be one address'],
    [{ mail: 'a@b.example\r\nBcc: c@d.example' }, 'mail must be one address'],
    [{}, 'needs a webhook or a mail address'],
    [{ mail: 'a@b.example', webhook: 'https://example.com' }, 'one of both'],
  ])('%j: %s', (channel, message) => {
    expect(() => parse(THRESHOLD, channel)).toThrow(message);
  });
});
