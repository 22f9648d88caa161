import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import {
  instructionsFor,
  isLocalOnly,
  PROGRAMS,
  type Program,
  type Target,
  testEvent,
} from './setup-commands.ts';

const TARGET: Target = {
  origin: 'https://waf.example.com:8443',
  project: 'p1',
  program: '/opt/my programs/wafstat',
  options: ['--data', "/srv/it's data"],
  key: { access: 'AK', secret: 'SK' },
};

test.each(Object.keys(PROGRAMS) as Program[])(
  '%s: commands name the program, the installation and the key',
  (name) => {
    const { local, remote } = instructionsFor(name, TARGET);
    const codes = [...local, ...remote].map(({ code }) => code);
    expect(local.length).toBeGreaterThan(0);
    expect(remote.length).toBeGreaterThan(0);
    for (const { code } of local) {
      expect(code).toContain("'/opt/my programs/wafstat' ");
      expect(code).toContain("--data '/srv/it'\\''s data' --project p1 ");
    }
    for (const { code } of remote) expect(code).toMatch(/AK[\s\S]*SK/);
    for (const code of codes) expect(code).not.toMatch(/undefined|(?<!\/dev\/)null/);
  },
);

test.each(['nginx', 'apache', 'coraza'] as const)(
  '%s: the configuration writes the logs to count',
  (name) => {
    const { prepare, local, remote } = instructionsFor(name, TARGET);
    const configuration = prepare.map(({ code }) => code).join('\n');
    const written = [...configuration.matchAll(/(?:access_log|CustomLog|SecAuditLog) (\/\S+?)(?= |;|\n|$)/g)];
    const counted = local.map(({ code }) => code.split(`--source ${name} `)[1]).join(' ');
    expect(counted).toBe(written.map(([, path]) => path).join(' '));
    if (name === 'coraza') return;
    for (const [, path] of written) expect(remote[0]?.code).toContain(`@${path}`);
    const sources = [...(remote[0]?.code ?? '').matchAll(/source=(\w+)/g)].map(([, source]) => source);
    expect(sources).toEqual([name, name]);
  },
);

test.each(['nginx', 'apache', 'aws', 'other'] as const)(
  '%s: a file that is sent again counts once',
  (name) => {
    const codes = instructionsFor(name, TARGET).remote.flatMap(({ code }) => code.split('\n'));
    const pushes = codes.filter((code) => code.startsWith('curl'));
    expect(pushes.length).toBeGreaterThan(0);
    for (const push of pushes)
      expect(push).toMatch(/ -H "Idempotency-Key: \$\(.* < (\S+) \| cut -c1-64\)" --data-binary @\1$/);
  },
);

const HASHES = ['sha256sum', 'shasum'].filter(
  (program) => process.env.CI === 'true' || spawnSync('sh', ['-c', `command -v ${program}`]).status === 0,
);

test.each(HASHES)('the key of a file is its hash where there is only %s', (program) => {
  const directory = mkdtempSync(join(tmpdir(), 'wafstat-setup-'));
  try {
    for (const name of [program, 'cut']) {
      const path = execFileSync('sh', ['-c', `command -v ${name}`], { encoding: 'utf8' }).trim();
      symlinkSync(path, join(directory, name));
    }
    const file = join(directory, 'waf.log');
    writeFileSync(file, 'a line\n');
    const [push = ''] = instructionsFor('other', TARGET).remote.map(({ code }) => code);
    const header = /-H (".*") --data/.exec(push)?.[1]?.replaceAll('/var/log/waf.log', file);
    const printed = execFileSync('/bin/sh', ['-c', `echo ${header}`], {
      env: { PATH: directory },
      encoding: 'utf8',
    });
    const hash = createHash('sha256').update('a line\n').digest('hex');
    expect(printed).toBe(`Idempotency-Key: ${hash}\n`);
  } finally {
    rmSync(directory, { recursive: true });
  }
});

test('the configurations are those of the manual, which a test runs', () => {
  const manual = readFileSync(new URL('../../../docs/operations.md', import.meta.url), 'utf8');
  for (const name of ['nginx', 'apache'] as const)
    for (const { code } of instructionsFor(name, TARGET).prepare)
      expect(manual).toContain(`\n${code}\n\`\`\`\n`);
});

test('loopback addresses are recognized', () => {
  const local = ['http://127.0.0.1:8080', 'http://localhost', 'http://[::1]:8080'];
  const others = ['https://waf.example.com', 'http://127.0.0.1.example.com', 'http://10.0.0.5:8080'];
  expect(local.filter(isLocalOnly)).toEqual(local);
  expect(others.filter(isLocalOnly)).toEqual([]);
});

test('the test event is one attack of now', () => {
  expect(testEvent(TARGET)).toBe(
    `curl --user AK:SK 'https://waf.example.com:8443/ingest/v1/p1?source=test' --data-binary '{"time": '$(date +%s000)', "host": "www.example.com", "attack": "sqli"}'`,
  );
});
