import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { instructionsFor, PROGRAMS, type Program, type Target, testEvent } from './setup-commands.ts';

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
    for (const code of codes) expect(code).not.toMatch(/undefined|null/);
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
  },
);

test('the configurations are those of the manual, which a test runs', () => {
  const manual = readFileSync(new URL('../../../docs/operations.md', import.meta.url), 'utf8');
  for (const name of ['nginx', 'apache'] as const)
    for (const { code } of instructionsFor(name, TARGET).prepare)
      expect(manual).toContain(`\n${code}\n\`\`\`\n`);
});

test('the test event is one attack of now', () => {
  expect(testEvent(TARGET)).toBe(
    `curl --user AK:SK 'https://waf.example.com:8443/ingest/v1/p1?source=test' --data-binary '{"time": '$(date +%s000)', "host": "www.example.com", "attack": "sqli"}'`,
  );
});
