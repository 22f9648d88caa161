/** `--metrics-listen`, scraped by a real Prometheus, and the alert rules with a real Alertmanager. */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { createServer, type Server as HttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json as readJson } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Api, call, login, requestToken, tokenRequest } from './api.ts';
import { eventually, wholeLines } from './process.ts';
import { type Installation, metricsUrl, ndjson, Sandbox, type Server } from './sandbox.ts';
import { freePort } from './web-server.ts';

/** Debian packages and their programs. */
const PACKAGES = ['prometheus', 'prometheus-alertmanager'];
const hasPrometheus = PACKAGES.every((name) => existsSync(`/usr/bin/${name}`));
const DEPLOY = fileURLToPath(new URL('../deploy/prometheus', import.meta.url));

const sandbox = new Sandbox();
let installation: Installation;
let server: Server;
let api: Api;
let url: string;

beforeAll(async () => {
  installation = await sandbox.init();
  const options = ['--workers', '2', '--metrics-listen', '0', '--metrics-hosts', '3'];
  // In a process group, so that no worker survives the test.
  server = await sandbox.serve(options, { group: true });
  api = await login(server.address, installation);
  url = await metricsUrl(server);
});
afterAll(() => sandbox.clear());

async function scrape(): Promise<string> {
  const response = await fetch(url);
  expect([response.status, response.headers.get('content-type')]).toEqual([
    200,
    'text/plain; version=0.0.4; charset=utf-8',
  ]);
  return response.text();
}

/** The first scrape with this line. */
const scrapeUntil = (line: string) =>
  eventually(async () => {
    const text = await scrape();
    return text.split('\n').includes(line) ? text : undefined;
  }, `a scrape with ${line}`);

/** The sum of the series whose line begins with this. */
function sum(text: string, series: string): number {
  const values = text.split('\n').filter((line) => line.startsWith(series));
  return values.reduce((total, line) => total + Number(line.slice(line.lastIndexOf(' '))), 0);
}

const push = (events: readonly object[], source: string) =>
  call(server.address, `/ingest/v1/${api.project}?format=events&source=${source}`, {
    method: 'POST',
    headers: { 'X-Auth-Token': api.token, connection: 'close' },
    body: ndjson(events),
  });

const PROJECT = 'domain="default",project="default"';

describe('metrics of a service with two workers', () => {
  test('include what all workers and other processes count, exactly', async () => {
    // It waits for the first reading of the store, from which the counts start.
    await scrape();
    await push([{ time: Date.now() }], 'first');
    // A new series is zero in its first scrape.
    const before = await scrapeUntil(`wafstat_requests_total{${PROJECT}} 1`);
    const attack = { time: Date.now(), host: 'a.example', attack: 'xss', blocked: true };
    for (let i = 0; i < 10; i++) {
      expect((await push([attack, { time: Date.now() }], `push-${i}`)).status).toBe(200);
    }
    await sandbox.ingest(api.project, [attack, { ...attack, request: false }, attack], '--source', 'file');
    const after = await scrapeUntil(`wafstat_attacks_total{${PROJECT},category="xss"} 13`);
    const increase = (series: string) => sum(after, series) - sum(before, series);
    expect(increase('wafstat_requests_total')).toBe(22);
    expect(increase('wafstat_blocked_attacks_total')).toBe(13);
    expect(increase(`wafstat_ingest_records_total{${PROJECT},format="events"}`)).toBe(23);
    expect(increase('wafstat_store_commit_duration_seconds_count')).toBe(10);
    const route = 'wafstat_http_request_duration_seconds_count{method="POST",route="/ingest/v1/:project_id"';
    expect(increase(route)).toBe(10);
  });

  test('do not decrease when a worker is replaced', async () => {
    for (let i = 0; i < 20; i++) await call(server.address, '/healthz', { headers: { connection: 'close' } });
    const health = 'wafstat_http_request_duration_seconds_count{method="GET",route="/healthz",status="200"}';
    const before = await scrape();
    expect(sum(before, health)).toBe(20);
    // The one that reads the store is among them.
    const workers = await eventually(() => {
      const lines = wholeLines(server.process.stderr).map((line): { pid?: number } => JSON.parse(line));
      const pids = new Set(lines.flatMap(({ pid }) => pid ?? []));
      return pids.size < 2 ? undefined : [...pids];
    }, 'lines of two workers in the log');
    expect(workers).toHaveLength(2);
    for (const pid of workers) {
      const listening = () => server.process.stderr.split('Server listening').length;
      const known = listening();
      process.kill(pid, 'SIGKILL');
      await eventually(() => listening() > known || undefined, 'another worker');
    }
    const after = await scrape();
    for (const counter of [
      health,
      'wafstat_requests_total',
      'wafstat_attacks_total',
      'process_cpu_seconds_total',
    ]) {
      expect(sum(after, counter)).toBeGreaterThanOrEqual(sum(before, counter));
    }
  });

  test('have no series that a request could create', async () => {
    const attempts: [string, string][] = [
      ['GET', '/hostile"} 1\nx{a="'],
      ['PROPFIND', '/v1/x/waf/event/timeline'],
      ['DELETE', '/healthz'],
      ['GET', `/v1/${'9'.repeat(32)}/waf/event/timeline`],
      ['POST', '/ingest/v1/unknown-project'],
    ];
    for (const [method, path] of attempts) {
      await call(server.address, encodeURI(path), { method, headers: { connection: 'close' } });
    }
    await requestToken(server.address, tokenRequest({ ...installation, password: 'wrong' }));
    const text = await scrape();
    expect(text).not.toMatch(/hostile|PROPFIND|9{32}|unknown-project/);
    const http = 'wafstat_http_request_duration_seconds_count';
    expect(sum(text, `${http}{method="other",route="none",status="404"}`)).toBe(1);
    expect(sum(text, `${http}{method="other",route="none",status="405"}`)).toBe(2);
    expect(sum(text, `${http}{method="GET",route="/v1/:project_id/waf/event/timeline",status="401"}`)).toBe(
      1,
    );
    expect(sum(text, 'wafstat_failed_logins_total{reason="wrong_credentials"}')).toBe(1);
  });

  test('are the only page of the listener', async () => {
    const address = new URL(url).origin;
    expect((await call(address, '/')).status).toBe(404);
    expect((await call(address, '/healthz')).status).toBe(404);
    expect((await call(address, '/metrics', { method: 'POST' })).status).toBe(405);
  });
});

test('a wrong address is refused before anything starts', async () => {
  const { port } = new URL(url);
  const other = new Sandbox();
  const serve = async (...args: string[]) => {
    const { status, stderr } = await other.run(['serve', '--data', other.data, ...args]);
    return `${status} ${stderr}`;
  };
  try {
    expect(await serve('--metrics-listen', ':9464')).toMatch(/^[1-9].*must be a port on loopback/);
    expect(await serve('--metrics-hosts', '5')).toMatch(/^[1-9].*--metrics-hosts requires --metrics-listen/);
    expect(await serve('--listen', '127.0.0.1:7777', '--metrics-listen', '7777')).toMatch(
      /^[1-9].*--metrics-listen and --listen use the same port/,
    );
    expect(await serve('--listen', '127.0.0.1:0', '--metrics-listen', port)).toMatch(
      new RegExp(
        `^1 .*cannot listen on 127.0.0.1:${port} \\(--metrics-listen\\): the address is already in use`,
      ),
    );
  } finally {
    await other.clear();
  }
});

describe.skipIf(!hasPrometheus && process.env.CI !== 'true')(
  `with Prometheus (apt-get install ${PACKAGES.join(' ')})`,
  () => {
    const promtool = (args: readonly string[], input?: string) =>
      execFileSync('promtool', args, { encoding: 'utf8', input, cwd: DEPLOY, stdio: 'pipe' });

    test('promtool accepts the metrics without a warning', async () => {
      expect(promtool(['check', 'metrics'], await scrape())).toBe('');
    });

    test('the rules and the example configurations are valid', () => {
      expect(promtool(['check', 'config', 'prometheus.yml'])).toMatch(/SUCCESS: 10 rules found/);
      expect(
        execFileSync('amtool', ['check-config', 'alertmanager.yml'], { cwd: DEPLOY, encoding: 'utf8' }),
      ).toMatch(/SUCCESS/);
    });

    test('each alert fires if it should, and only then', () => {
      const file = fileURLToPath(new URL('prometheus-rules.yml', import.meta.url));
      expect(promtool(['test', 'rules', file])).toMatch(/SUCCESS/);
      const alerts = alertsIn(readFileSync(`${DEPLOY}/wafstat.rules.yml`, 'utf8'));
      for (const { name } of alerts) expect(readFileSync(file, 'utf8')).toContain(`alertname: ${name}\n`);
    });

    test('each alert has a severity, a summary, a description and a runbook section', () => {
      const headings = readFileSync(new URL('../docs/operations.md', import.meta.url), 'utf8').match(
        /^### .*$/gm,
      );
      const alerts = alertsIn(readFileSync(`${DEPLOY}/wafstat.rules.yml`, 'utf8'));
      expect(alerts).toHaveLength(9);
      for (const { name, text } of alerts) {
        expect(headings).toContain(`### ${name}`);
        expect(text).toMatch(/severity: (warning|critical)\n/);
        expect(text).toMatch(/summary: ".+"\n/);
        expect(text).toMatch(/description: ".+\."\n/);
        expect(text).toContain(`runbook_url: docs/operations.md#${name.toLowerCase()}\n`);
      }
    });

    describe('running', () => {
      const started: ChildProcess[] = [];
      const received: { alerts: Alert[] }[] = [];
      let webhook: HttpServer;
      let prometheus: string;

      beforeAll(async () => {
        webhook = createServer(async (request, response) => {
          received.push((await readJson(request)) as { alerts: Alert[] });
          response.end();
        }).listen(0, '127.0.0.1');
        await once(webhook, 'listening');
        const { port } = webhook.address() as AddressInfo;
        const [alertmanager, own] = [`127.0.0.1:${await freePort()}`, `127.0.0.1:${await freePort()}`];
        prometheus = `http://${own}`;
        // The examples, with short intervals and our addresses.
        const example = (name: string, ...changes: [RegExp, string][]) => {
          const text = readFileSync(`${DEPLOY}/${name}`, 'utf8');
          for (const [pattern] of changes) expect(text).toMatch(pattern);
          return sandbox.write(
            name,
            changes.reduce((all, [from, to]) => all.replace(from, to), text),
          );
        };
        const prometheusFile = example(
          'prometheus.yml',
          [/scrape_interval: 15s/, 'scrape_interval: 1s'],
          [/evaluation_interval: 15s/, 'evaluation_interval: 1s'],
          [/127\.0\.0\.1:9464/, new URL(url).host],
          [/127\.0\.0\.1:9093/, alertmanager],
          [/ {2}- wafstat\.rules\.yml/, `  - ${DEPLOY}/wafstat.rules.yml`],
        );
        const alertmanagerFile = example(
          'alertmanager.yml',
          [/group_wait: 30s/, 'group_wait: 0s'],
          [/127\.0\.0\.1:9095/, `127.0.0.1:${port}`],
        );
        const start = (program: string, ...args: string[]) =>
          started.push(spawn(program, args, { cwd: sandbox.directory, stdio: 'ignore' }));
        const listen = '--web.listen-address';
        start(
          'prometheus-alertmanager',
          `--config.file=${alertmanagerFile}`,
          `--storage.path=${sandbox.path('alertmanager')}`,
          `${listen}=${alertmanager}`,
          '--cluster.listen-address=',
        );
        start(
          'prometheus',
          `--config.file=${prometheusFile}`,
          `--storage.tsdb.path=${sandbox.path('prometheus')}`,
          `${listen}=${own}`,
        );
      });
      afterAll(async () => {
        await Promise.all(started.map((child) => (child.kill('SIGKILL') ? once(child, 'exit') : null)));
        webhook.close();
      });

      /** The value of a query, once there is one. */
      const query = (expression: string) =>
        eventually(async () => {
          const url = `${prometheus}/api/v1/query?query=${encodeURIComponent(expression)}`;
          const response = await fetch(url).catch(() => null);
          const body = response?.ok ? ((await response.json()) as QueryResponse) : undefined;
          const value = body?.data.result[0]?.value[1];
          return value === undefined ? undefined : Number(value);
        }, `a result of ${expression}`);

      test('Prometheus scrapes the service', async () => {
        // On a busy machine, a scrape may time out.
        await expect.poll(() => query('up{job="wafstat"}')).toBe(1);
        expect(await query('wafstat_build_info{store="lmdb"}')).toBe(1);
        expect(await query('wafstat_store_writable')).toBe(1);
        expect(await query('wafstat_store_file_bytes{file="statistics"}')).toBeGreaterThan(0);
        expect(await query('wafstat_filesystem_free_bytes < wafstat_filesystem_size_bytes')).toBeGreaterThan(
          0,
        );
      });

      test('Alertmanager receives the alert of a burst, with its runbook', async () => {
        await query('wafstat_attacks_total{category="sqli"}');
        const burst = { time: Date.now(), host: 'a.example', attack: 'sqli', count: 2_000 };
        expect((await push([burst], 'burst')).status).toBe(200);
        const alert = await eventually(
          () =>
            received
              .flatMap(({ alerts }) => alerts)
              .find(({ labels }) => labels.alertname === 'WafstatAttacks'),
          'the alert',
        );
        expect(alert).toMatchObject({
          status: 'firing',
          labels: { severity: 'warning', job: 'wafstat', domain: 'default', project: 'default' },
          annotations: {
            summary: 'Many attacks on default/default',
            runbook_url: 'docs/operations.md#wafstatattacks',
          },
        });
      });
    });
  },
);

interface Alert {
  status: string;
  labels: Record<string, string>;
  annotations: Record<string, string>;
}

interface QueryResponse {
  data: { result: { value: [number, string] }[] };
}

function alertsIn(rules: string): { name: string; text: string }[] {
  const [, ...texts] = rules.split('- alert: ');
  return texts.map((text) => ({ name: text.slice(0, text.indexOf('\n')), text }));
}
