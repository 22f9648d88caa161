/** Runs the commands of docs/operations.md in their order, on one machine that is a temporary directory. */
import { spawn, spawnSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { createServer, type Server as HttpServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Fence, outputPattern, Page } from './pages.ts';
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

const RUN = ['run', 'wait'];
const FENCES = PAGE.fences.filter(({ language }) => language === 'sh');

test('every command of the operations pages is run, or has a reason in this test', () => {
  expect(PAGE.fenceLines).toBe(2 * PAGE.fences.length);
  const pages = [PAGE, new Page('docs/service.md'), new Page('docs/databases.md')];
  const commands = pages.flatMap(({ fences }) => fences.filter(({ language }) => language === 'sh'));
  expect(commands.filter(({ kind }) => ![...RUN, 'not-run'].includes(kind))).toEqual([]);
  const notRun = commands.filter(({ kind }) => kind === 'not-run').map(({ name }) => name);
  expect([...new Set(notRun)].toSorted()).toEqual(Object.keys(NOT_RUN).toSorted());
  for (const page of pages.slice(1)) expect(page.ofKind(...RUN)).toEqual([]);
});

test('names of commands are unique, and every output belongs to one', () => {
  const named = PAGE.ofKind(...RUN).map(({ name }) => name);
  expect(named.filter((name, i) => named.indexOf(name) !== i)).toEqual([]);
  expect(PAGE.ofKind('output').filter(({ name }) => !named.includes(name))).toEqual([]);
});

test('links of all pages lead to files and headings that exist', () => {
  const listed = spawnSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '*.md']);
  const names = listed.stdout.toString().split('\n').filter(Boolean);
  expect(names).toContain('docs/operations.md');
  const broken = names.flatMap((name) => new Page(name).brokenLinks.map((link) => `${name}: ${link}`));
  expect(broken).toEqual([]);
});

const PROMETHEUS = {
  needs: 'apt-get install prometheus prometheus-alertmanager',
  isInstalled: () => ['promtool', 'amtool'].every((name) => existsSync(`/usr/bin/${name}`)),
};
const COMPONENTS = [NGINX, APACHE, POSTGRES, PROMETHEUS];
const IS_COMPLETE = COMPONENTS.every((component) => component.isInstalled());
const NEEDS = COMPONENTS.map(({ needs }) => needs).join('; ');

describe.skipIf(!IS_COMPLETE && process.env.CI !== 'true')(
  `commands in their order (needs: ${NEEDS})`,
  () => {
    const sandbox = new Sandbox();
    const webServers: WebServer[] = [];
    const units = new Map<string, Process>();
    const enabled = new Set(['wafstat']);
    let systemd: HttpServer;
    let postgres: PostgresServer;
    /** What the page says, and what it is here. Longer texts first. */
    let replaced: [string, string][];

    /** Directories of the machine that the page names. */
    const path = (name: string) => join(sandbox.directory, name);
    const here = (code: string) =>
      replaced
        .reduce((result, [from, to]) => result.replaceAll(from, to), code)
        .replaceAll(/(?<![\w.}])\/(etc|var|srv|backup|root)\//g, `${sandbox.directory}/$1/`);
    const config = (name: string) => {
      const fence = PAGE.ofKind('config').find((each) => each.name === name);
      if (fence === undefined) throw new Error(`no configuration ${name}`);
      return here(fence.code);
    };

    /** For events of the fixtures, however old they are. */
    const env = { WAFSTAT_RETENTION: '36525d' };

    /** As systemd reads it. */
    function readEnvironment(name: string): Record<string, string> {
      const lines = readFileSync(path(name), 'utf8').split('\n').filter(Boolean);
      return Object.fromEntries(lines.map((line) => line.split(/=(.*)/s, 2)));
    }

    async function startUnit(unit: string): Promise<void> {
      const settings = { ...env, ...readEnvironment('etc/default/wafstat') };
      const [, source] = /^wafstat-follow@(\w+)$/.exec(unit) ?? [];
      if (source === undefined) {
        expect(unit).toBe('wafstat');
        const service = sandbox.start(['serve'], { env: settings });
        units.set(unit, service);
        await service.line('wafstat listens on ');
      } else {
        const { PROJECT = '', FILES = '' } = readEnvironment(`etc/wafstat/follow/${source}`);
        const args = ['follow', '--project', PROJECT, '--source', source, ...FILES.split(' ')];
        units.set(unit, sandbox.start(args, { env: settings }));
      }
    }

    async function stopUnit(unit: string): Promise<void> {
      const process = units.get(unit);
      units.delete(unit);
      process?.signal('SIGTERM');
      const ended = await process?.end();
      // A process that is stopped while it starts ends by the signal.
      if (ended?.signal !== 'SIGTERM') expect(ended?.status).toBe(0);
    }

    /** What systemd does for `systemctl`. */
    async function control(...[command = '', ...args]: string[]): Promise<void> {
      const names = args.filter((arg) => arg !== '--now');
      const selected = names.flatMap((name) =>
        name.endsWith('@*') ? [...units.keys()].filter((unit) => unit.startsWith(name.slice(0, -1))) : [name],
      );
      expect(['start', 'stop', 'restart', 'enable']).toContain(command);
      for (const unit of selected) {
        if (units.has(unit) && command !== 'start') await stopUnit(unit);
        if (command !== 'stop') await startUnit(unit);
        if (command === 'enable') enabled.add(unit);
      }
    }

    beforeAll(async () => {
      for (const name of [
        'bin',
        'etc/default',
        'etc/wafstat/follow',
        'backup',
        'root',
        'srv/aws-waf/AWSLogs/1/WAFLogs',
      ]) {
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

      systemd = createServer((request, response) => {
        text(request)
          .then((line) => control(...line.split(' ')))
          .then(
            () => response.end(),
            (error) => response.writeHead(500).end(String(error)),
          );
      });
      await new Promise<void>((resolve) => systemd.listen(0, '127.0.0.1', resolve));
      const { port } = systemd.address() as AddressInfo;
      program('systemctl', `curl -sS --fail-with-body --data "$*" http://127.0.0.1:${port}/`);
      // The one of the Debian package also changes the user.
      program('wafstat-admin', `set -a; . ${path('etc/default/wafstat')}; set +a; exec wafstat "$@"`);
      // This machine may have no such user.
      program('chown', `[ "$1" = root:wafstat ] && [ -f "$2" ]`);

      postgres = await PostgresServer.start();
      sandbox.write('etc/wafstat/postgres.password', PASSWORD);
      const listen = await freePort();
      replaced = [
        ['db1.example.com,db2.example.com/wafstat', postgres.url.replace(/.*@/, '')],
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
      await startUnit('wafstat');
    });

    afterAll(async () => {
      await Promise.all(webServers.map((server) => server.stop()));
      systemd.close();
      await sandbox.clear();
      await postgres?.stop();
    });

    function program(name: string, code: string): void {
      chmodSync(sandbox.write(`bin/${name}`, `#!/bin/sh\n${code}\n`), 0o755);
    }

    async function run({ code }: Fence): Promise<{ status: number | null; stdout: string; stderr: string }> {
      const child = spawn('/bin/sh', ['-eu'], {
        cwd: sandbox.directory,
        env: { ...env, PATH: `${path('bin')}:${process.env.PATH}`, HOME: path('root') },
      });
      child.stdin.end(here(code));
      const ended = new Promise<number | null>((resolve, reject) =>
        child.on('error', reject).on('close', resolve),
      );
      const [stdout, stderr, status] = await Promise.all([text(child.stdout), text(child.stderr), ended]);
      return { status, stdout: stdout.trimEnd(), stderr };
    }

    /** What the machine needs before the command, in addition to the earlier commands. */
    const PREPARE: Readonly<Record<string, () => Promise<void>>> = {
      'run nginx-follow': () => listenAs(startNginxWith(config('nginx'), config('modsecurity'))),
      'run apache-follow': () => listenAs(startApacheWith(config('apache'))),
      'run proxy': async () => {
        const proxy = await startProxy(config('proxy'));
        webServers.push(proxy);
        replaced.unshift(['https://waf.example.com/', `https://localhost:${new URL(proxy.address).port}/`]);
      },
    };

    /** The page uses port 80 for every web server. */
    async function listenAs(started: Promise<WebServer>): Promise<void> {
      const server = await started;
      webServers.push(server);
      replaced.unshift(['http://127.0.0.1/', `${server.address}/`]);
    }

    test.each(
      FENCES.filter(({ kind }) => RUN.includes(kind)).map((fence) => ({
        title: `${fence.kind} ${fence.name}`,
        fence,
      })),
    )('$title', async ({ title, fence }) => {
      await PREPARE[title]?.();
      const documented = PAGE.ofKind('output').find(({ name }) => name === fence.name);
      const expected = outputPattern(documented?.code ?? '');
      if (fence.kind === 'wait') {
        await eventually(async () => expected.test((await run(fence)).stdout) || undefined, String(expected));
      } else {
        const { status, stdout, stderr } = await run(fence);
        expect({ status, stderr, stdout }).toMatchObject({ status: 0 });
        expect(stdout).toMatch(expected);
      }
      // What a task stops, it starts again.
      expect(new Set(units.keys())).toEqual(enabled);
    });
  },
);
