/** Runs the snippets of docs/clients.md as a reader would, and compares what they print with the numbers of the oracle. */
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, symlinkSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type KnownEvent, Oracle } from './oracle.ts';
import { Page } from './pages.ts';
import { KEEP_ALL, Sandbox } from './sandbox.ts';

const DAY_MS = 86_400_000;
const FROM = Date.UTC(2026, 0, 1);
const RANGE = { from: FROM, to: FROM + DAY_MS, offsetMinutes: 0, hostnames: undefined };
const TODAY = Math.floor(Date.now() / DAY_MS) * DAY_MS;

function event(time: number, hostname: string, rest: Partial<KnownEvent>): KnownEvent {
  return { time, hostname, request: true, attack: null, count: 1, ...rest };
}

const EVENTS: readonly KnownEvent[] = [
  event(FROM + 8 * 3_600_000, 'shop.example.com', { count: 1_200 }),
  event(FROM + 8 * 3_600_000 + 30_500, 'shop.example.com', { attack: 'sqli', count: 40, blocked: true }),
  event(FROM + 12 * 3_600_000, 'api.example.com', { count: 800 }),
  event(FROM + 12 * 3_600_000 + 10_250, 'api.example.com', { attack: 'xss', count: 25, blocked: false }),
  event(FROM + DAY_MS - 1, 'shop.example.com', { attack: 'robot', count: 10, blocked: true }),
  event(FROM - 1, 'shop.example.com', { attack: 'lfi', count: 999 }),
  event(FROM + DAY_MS, 'shop.example.com', { attack: 'lfi', count: 999 }),
  // The same on both days: `yesterday` may begin while the test runs.
  ...[TODAY - DAY_MS, TODAY].flatMap((day) => [
    event(day, 'api.example.com', {}),
    event(day + 3_600_000, 'api.example.com', { attack: 'cc' }),
    event(day + 7_200_000, 'shop.example.com', { attack: 'webshell' }),
  ]),
];
const oracle = new Oracle(EVENTS);
const numbers = (call: string, range = RANGE) => JSON.stringify(oracle.expected(call, range));
const pairs = (call: string, range = RANGE) =>
  (oracle.expected(call, range) as { key: string; num: number }[]).map(({ key, num }) => `${key} ${num}`);

const PAGE = new Page('docs/clients.md');
const SNIPPETS = [...new Set(PAGE.ofKind('run').map(({ name }) => name))];

const YESTERDAY = { ...RANGE, from: TODAY - DAY_MS, to: TODAY };

/** What each snippet prints; the documentation shows the same. */
const EXPECTED: Readonly<Record<string, () => string>> = {
  token: () => numbers('event/attack/type'),
  basic: () => numbers('event/attack/num'),
  cron: () => pairs('overviews/statistics', YESTERDAY).join('\n'),
  'node-sdk': () => {
    const { total, items } = oracle.expected('overviews/attack/top-domains', RANGE) as {
      total: number;
      items: { key: string; num: number }[];
    };
    return `${total} [ ${items.map(({ key, num }) => `'${key}: ${num}'`).join(', ')} ]`;
  },
  keystoneauth: () => python(numbers('overviews/attack/action-types')),
  openstacksdk: () => `${python(numbers('event/request/peak'))} ['api.example.com', 'shop.example.com']`,
  openstack: () =>
    `identity identity\nwaf waf\npremium-waf premium-waf\ndefault\nTrue\ndefault\nreporter\n${numbers('event/attack/num')}`,
  client: () => pairs('overviews/statistics').join('\n'),
  csv: () => {
    const { xss, sqli } = oracle.distribution(RANGE);
    return `category,count\nxss,${xss}\nsqli,${sqli}`;
  },
};

function python(json: string): string {
  return json.replaceAll('"', "'").replaceAll(/([:,])(?=.)/g, '$1 ');
}

test('every snippet is run by this test, or marked as not run', () => {
  const unmarked = PAGE.fences.filter(({ kind, name }) =>
    ['run', 'output'].includes(kind) ? !/^[a-z-]+$/.test(name) : !['settings', 'not-run'].includes(kind),
  );
  expect(unmarked).toEqual([]);
  expect(PAGE.fenceLines).toBe(2 * PAGE.fences.length);
  const documented = PAGE.ofKind('output').map(({ name }) => name);
  expect(documented).toEqual(SNIPPETS.filter((name) => name !== 'user'));
  expect(Object.keys(EXPECTED)).toEqual(SNIPPETS.filter((name) => name !== 'user'));
});

test('every section with a snippet that is not run says so in its text', () => {
  const sections = PAGE.text.split(/^## /m).filter((section) => / not-run$/m.test(section));
  expect(sections.length).toBeGreaterThan(0);
  for (const section of sections) {
    expect(section.replaceAll(/^```.*?^```$/gms, '')).toMatch(/\bnot run\b/i);
  }
});

/** The command that runs the code on standard input. */
const INTERPRETERS: Readonly<Record<string, readonly [string, ...string[]]>> = {
  sh: ['/bin/sh', '-eu'],
  js: [process.execPath, '--input-type=module'],
  python: ['/usr/bin/python3'],
};

/** Debian packages, and a file of each. */
const NEEDS: Readonly<Record<string, readonly [debianPackage: string, file: string]>> = {
  cron: ['jq', '/usr/bin/jq'],
  keystoneauth: ['python3-keystoneauth1', '/usr/lib/python3/dist-packages/keystoneauth1'],
  openstacksdk: ['python3-openstacksdk', '/usr/lib/python3/dist-packages/openstack'],
  openstack: ['python3-openstackclient', '/usr/lib/python3/dist-packages/openstackclient'],
};

describe('a snippet prints what the documentation shows', () => {
  let sandbox: Sandbox;
  let env: Record<string, string>;

  beforeAll(async () => {
    sandbox = new Sandbox();
    const { installation, server } = await sandbox.service(...KEEP_ALL);
    const events = EVENTS.map(({ hostname, attack, ...rest }) => ({
      ...rest,
      host: hostname,
      ...(attack === null ? {} : { attack }),
    }));
    await sandbox.ingest(installation.project_id, events, ...KEEP_ALL);
    symlinkSync(fileURLToPath(new URL('../node_modules', import.meta.url)), sandbox.path('node_modules'));

    env = { WAFSTAT_PROJECT: installation.project_id };
    const printed = await run('user');
    const password = /^password (\S+)/m.exec(printed)?.[1] ?? '';
    const [, row = ''] = readFileSync(sandbox.path('key.csv'), 'utf8').split('\n');
    const [, access = '', secret = ''] = row.split(',');
    env = {
      ...env,
      WAFSTAT_URL: server.address,
      WAFSTAT_REGION: 'default',
      WAFSTAT_DOMAIN: installation.domain,
      WAFSTAT_USER: 'reporter',
      WAFSTAT_PASSWORD: password,
      WAFSTAT_AK: access,
      WAFSTAT_SK: secret,
      FROM: String(RANGE.from),
      TO: String(RANGE.to),
    };
  });

  afterAll(() => sandbox.clear());

  /** Runs the fences of a snippet one after the other in the same directory, and returns what the last one prints. */
  async function run(name: string): Promise<string> {
    let printed = '';
    for (const { language, code } of PAGE.ofKind('run').filter((fence) => fence.name === name)) {
      const [command, ...args] = INTERPRETERS[language] ?? ['false'];
      const child = spawn(command, args, {
        cwd: sandbox.directory,
        env: {
          PATH: process.env.PATH ?? '',
          // No settings of the person who runs the tests.
          HOME: sandbox.directory,
          npm_config_update_notifier: 'false',
          ...env,
        },
      });
      child.stdin.end(code);
      const ended = new Promise<number | null>((resolve, reject) =>
        child.on('error', reject).on('close', resolve),
      );
      const [stdout, stderr, status] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
      expect({ name, status, stderr }).toEqual({ name, status: 0, stderr: '' });
      printed = stdout.replaceAll('\r\n', '\n').trimEnd();
    }
    return printed;
  }

  test('the settings are the variables that the snippets get', () => {
    const [settings] = PAGE.ofKind('settings');
    const names = [...(settings?.code ?? '').matchAll(/\b([A-Z_]+)=/g)].map(([, name]) => name);
    expect(names.toSorted()).toEqual(Object.keys(env).toSorted());
    expect(settings?.code).toContain(`export FROM=${env.FROM} TO=${env.TO} `);
  });

  for (const [name, expected] of Object.entries(EXPECTED)) {
    const [needed, file = '/'] = NEEDS[name] ?? [];
    const isMissing = !existsSync(file);
    const title = needed === undefined ? name : `${name} (needs: apt-get install ${needed})`;
    test.skipIf(isMissing && process.env.CI !== 'true')(title, async () => {
      const printed = await run(name);
      const documented = PAGE.ofKind('output').find((fence) => fence.name === name);
      expect(printed).toBe(expected());
      expect(documented?.code.trimEnd()).toBe(printed);
    });
  }
});
