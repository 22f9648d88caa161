/** Runs the commands of docs/operations.md in their order, on one machine that is a temporary directory. */
import { spawn } from 'node:child_process';
import { appendFileSync, chmodSync, cpSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from 'node:fs';
import { createServer, type Server as HttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CLICKHOUSE, type ClickHouse, startClickHouse } from './clickhouse-server.ts';
import { type Fence, Page } from './pages.ts';
import { PASSWORD, POSTGRES, PostgresServer } from './postgres-server.ts';
import { eventually, PROGRAM, type Process } from './process.ts';
import { Sandbox } from './sandbox.ts';
import {
  APACHE,
  freePort,
  NGINX,
  startApacheWith,
  startNginxWith,
  startProxy,
  type WebServer,
} from './web-server.ts';

const PAGE = new Page('docs/operations.md');

/** Why blocks with `not-run=REASON` are not run. Commands of `systemctl` are: the test starts and stops the service. */
const NOT_RUN: Readonly<Record<string, string>> = {
  cluster: 'needs a Kubernetes cluster; the files of its nodes are followed',
  cloud: 'needs an AWS account; the command on the copied files is run',
  package: 'the tests of the Debian package install and upgrade it',
  systemd: 'needs systemd and its journal',
  keystone: 'needs Keystone; test/keystone.test.ts has the same settings',
};

const RUN = ['run', 'wait', 'follow'];
const FENCES = PAGE.fences.filter(({ language }) => language === 'sh');

test('every command of the operations pages is run, or has a reason in this test', () => {
  expect(PAGE.fenceLines).toBe(2 * PAGE.fences.length);
  const pages = [PAGE, new Page('docs/service.md'), new Page('docs/databases.md')];
  const commands = pages.flatMap(({ fences }) => fences.filter(({ language }) => language === 'sh'));
  const [settings, ...others] = commands;
  expect(settings?.kind).toBe('settings');
  expect(others.filter(({ kind }) => ![...RUN, 'not-run'].includes(kind))).toEqual([]);
  const notRun = others.filter(({ kind }) => kind === 'not-run').map(({ name }) => name);
  expect([...new Set(notRun)].toSorted()).toEqual(Object.keys(NOT_RUN).toSorted());
  for (const page of pages.slice(1)) expect(page.ofKind(...RUN)).toEqual([]);
});

test('names of commands are unique, and every output belongs to one', () => {
  const named = PAGE.ofKind(...RUN).map(({ kind, name }) => `${kind === 'follow' ? 'follow ' : ''}${name}`);
  expect(named.filter((name, i) => named.indexOf(name) !== i)).toEqual([]);
  expect(PAGE.ofKind('output').filter(({ name }) => !named.includes(name))).toEqual([]);
});

test.each(readdirSync(new URL('../docs/', import.meta.url)).filter((name) => name.endsWith('.md')))(
  'the links of docs/%s lead to files and headings that exist',
  (name) => {
    const page = new Page(`docs/${name}`);
    expect(page.links.length).toBeGreaterThan(0);
    expect(page.brokenLinks).toEqual([]);
  },
);

/** `...` stands for any text, or on a line of its own for any number of lines. */
function pattern(documented: string): RegExp {
  const escaped = documented.trimEnd().replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&');
  const lines = escaped.replaceAll(/^\\\.\\\.\\\.\n/gm, '(?:.*\n)*').replace(/\n\\\.\\\.\\\.$/, '(?:\n.*)*');
  return new RegExp(`^${lines.replaceAll('\\.\\.\\.', '.*')}$`);
}

const PROMETHEUS = {
  needs: 'apt-get install prometheus prometheus-alertmanager',
  isInstalled: () => ['promtool', 'amtool'].every((name) => existsSync(`/usr/bin/${name}`)),
};
const COMPONENTS = [NGINX, APACHE, POSTGRES, CLICKHOUSE, PROMETHEUS];
const IS_COMPLETE = COMPONENTS.every((component) => component.isInstalled());
const NEEDS = COMPONENTS.map(({ needs }) => needs).join('; ');

describe.skipIf(!IS_COMPLETE && process.env.CI !== 'true')(
  `commands in their order (needs: ${NEEDS})`,
  () => {
    const sandbox = new Sandbox();
    const webServers: WebServer[] = [];
    const following: { pid: number; ended: Promise<unknown> }[] = [];
    let systemd: HttpServer;
    let service: Process | null = null;
    let postgres: PostgresServer;
    let clickhouse: ClickHouse;
    /** What the page says, and what it is here. Longer texts first. */
    let replaced: [string, string][];

    /** Directories of the machine that the page names. */
    const path = (name: string) => join(sandbox.directory, name);
    const here = (code: string) =>
      replaced
        .reduce((result, [from, to]) => result.replaceAll(from, to), code)
        .replaceAll(/(?<![\w.}])\/(etc|var|srv|backup)\//g, `${sandbox.directory}/$1/`);
    const config = (name: string) => {
      const fence = PAGE.ofKind('config').find((each) => each.name === name);
      if (fence === undefined) throw new Error(`no configuration ${name}`);
      return here(fence.code);
    };

    /** For events of the fixtures, however old they are. */
    const env = { WAFSTAT_RETENTION: '36525d' };

    async function stopService(): Promise<void> {
      service?.signal('SIGTERM');
      await service?.end();
      service = null;
    }

    async function startService(): Promise<void> {
      const lines = readFileSync(path('etc/default/wafstat'), 'utf8').split('\n').filter(Boolean);
      const settings = Object.fromEntries(lines.map((line) => line.split(/=(.*)/s, 2)));
      service = sandbox.start(['serve'], { env: { ...env, ...settings } });
      await service.line('wafstat listens on ');
    }

    beforeAll(async () => {
      for (const name of ['bin', 'etc/default', 'etc/wafstat', 'backup', 'srv/aws-waf/AWSLogs/1/WAFLogs']) {
        mkdirSync(path(name), { recursive: true });
      }
      for (const name of ['nginx', 'apache2', 'coraza', 'containers']) {
        mkdirSync(path(`var/log/${name}`), { recursive: true });
      }
      mkdirSync(path('var/lib'));
      const fixture = (name: string) =>
        readFileSync(new URL(`../packages/server/fixtures/${name}.log`, import.meta.url));
      sandbox.write('var/log/coraza/audit.log', fixture('coraza-json'));
      sandbox.write('srv/aws-waf/AWSLogs/1/WAFLogs/1.log.gz', gzipSync(fixture('aws-waf')));
      sandbox.write(
        'var/log/containers/waf-0_default_nginx-0123.log',
        fixture('nginx-vhost')
          .toString()
          .replaceAll(/^(?=.)/gm, '2026-07-01T12:00:00.123456789Z stdout F '),
      );
      symlinkSync(PROGRAM, path('bin/wafstat'));
    cpSync(new URL('../deploy/prometheus', import.meta.url), path('etc/prometheus'), { recursive: true });

      // What systemd does.
      systemd = createServer(async ({ url = '' }, response) => {
        const [, command = '', unit] = url.split('/');
        try {
          expect([unit, ['start', 'stop', 'restart'].includes(command)]).toEqual(['wafstat', true]);
          if (command !== 'start') await stopService();
          if (command !== 'stop') await startService();
          response.end();
        } catch (error) {
          response.writeHead(500).end(String(error));
        }
      });
      await new Promise<void>((resolve) => systemd.listen(0, '127.0.0.1', resolve));
      const { port: control } = systemd.address() as AddressInfo;
      sandbox.write(
        'bin/systemctl',
        `#!/bin/sh\nexec curl -sS --fail-with-body http://127.0.0.1:${control}/$1/$2\n`,
      );
      chmodSync(path('bin/systemctl'), 0o755);

      [postgres, clickhouse] = await Promise.all([PostgresServer.start(), startClickHouse()]);
      sandbox.write('etc/wafstat/postgres.password', PASSWORD);
      const listen = await freePort();
      replaced = [
        ['https://ch1.example.com:8443', clickhouse.urls[0] ?? ''],
        ['db1.example.com,db2.example.com/wafstat', postgres.url.replace(/.*@/, '')],
        ['127.0.0.1:8090', `127.0.0.1:${await freePort()}`],
        [':8443', `:${await freePort()}`],
        [':9464', `:${await freePort()}`],
        [':8080', `:${listen}`],
        ['0.0.0.0', '127.0.0.1'],
        ['10.0.0.10', '127.0.0.1'],
        ['waf.example.com', 'localhost'],
      ];
      // As the Debian package leaves it, with another port.
      sandbox.write(
        'etc/default/wafstat',
        `WAFSTAT_DATA=${path('var/lib/wafstat')}\nWAFSTAT_LISTEN=127.0.0.1:${listen}\n`,
      );
    });

    afterAll(async () => {
      for (const { pid, ended } of following) {
        process.kill(-pid, 'SIGTERM');
        await ended;
      }
      await Promise.all(webServers.map((server) => server.stop()));
      systemd.close();
      await sandbox.clear();
      await Promise.all([postgres?.stop(), clickhouse?.stop()]);
    });

    function spawnShell({ code }: Fence, detached = false) {
      const [settings] = PAGE.ofKind('settings');
      const child = spawn('/bin/sh', ['-eu'], {
        cwd: sandbox.directory,
        detached,
        env: { ...env, PATH: `${path('bin')}:${process.env.PATH}`, HOME: sandbox.directory },
      });
      child.stdin.end(here(`${settings?.code}${code}`));
      return child;
    }

    async function run(fence: Fence): Promise<{ status: number | null; stdout: string; stderr: string }> {
      const child = spawnShell(fence);
      const ended = new Promise<number | null>((resolve, reject) =>
        child.on('error', reject).on('close', resolve),
      );
      const [stdout, stderr, status] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
      return { status, stdout: stdout.trimEnd(), stderr };
    }

    function follow(fence: Fence): void {
      const child = spawnShell(fence, true);
      const ended = new Promise((resolve) => child.on('close', resolve));
      child.stderr.setEncoding('utf8').on('data', (line: string) => appendFileSync(path('follow.err'), line));
      if (child.pid !== undefined) following.push({ pid: child.pid, ended });
    }

    /** What the machine needs before the command, in addition to the earlier commands. */
    const PREPARE: Readonly<Record<string, () => Promise<void>>> = {
      'follow nginx': () => listenAs(startNginxWith(config('nginx'), config('modsecurity'))),
      'follow apache': () => listenAs(startApacheWith(config('apache'))),
      'run proxy': async () => {
        const proxy = await startProxy(config('proxy'));
        webServers.push(proxy);
        replaced.unshift(['https://waf.example.com/', `https://localhost:${new URL(proxy.address).port}/`]);
      },
      // The page compares the copy with the original, and stops followers before it restores one.
      'run backup': stopFollowing,
    };

    /** The page uses port 80 for every web server. */
    async function listenAs(started: Promise<WebServer>): Promise<void> {
      const server = await started;
      webServers.push(server);
      replaced.unshift(['http://127.0.0.1/', `${server.address}/`]);
    }

    async function stopFollowing(): Promise<void> {
      for (const { pid, ended } of following.splice(0)) {
        process.kill(-pid, 'SIGTERM');
        await ended;
      }
    }

    test.each(
      FENCES.filter(({ kind }) => RUN.includes(kind)).map((fence) => ({
        title: `${fence.kind} ${fence.name}`,
        fence,
      })),
    )('$title', async ({ title, fence }) => {
      await PREPARE[title]?.();
      if (fence.kind === 'follow') return follow(fence);
      const documented = PAGE.ofKind('output').find(({ name }) => name === fence.name);
      const expected = pattern(documented?.code ?? '');
      if (fence.kind === 'wait') {
        await eventually(async () => expected.test((await run(fence)).stdout) || undefined, String(expected));
      } else {
        const { status, stdout, stderr } = await run(fence);
        expect({ status, stderr, stdout }).toMatchObject({ status: 0 });
        expect(stdout).toMatch(expected);
      }
    });
  },
);
