import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { flagOf, readOptions, sourceOf, UsageError } from './cli/options.ts';
import { SERVICE_OPTIONS, serviceConflicts } from './config.ts';
import { isLoopback } from './loopback.ts';

const OPTIONS = SERVICE_OPTIONS;
type Given = Partial<Record<keyof typeof OPTIONS, string>>;

function problems(given: Given, env: Record<string, string> = {}): readonly string[] {
  try {
    const onCommandLine = (name: keyof typeof OPTIONS) => given[name];
    const source = sourceOf(OPTIONS, onCommandLine, env);
    readOptions(OPTIONS, onCommandLine, env, (values) => serviceConflicts(values, source));
    return [];
  } catch (error) {
    if (error instanceof UsageError) return error.problems;
    throw error;
  }
}

describe('service options', () => {
  test('come from the command line, then the environment, then the default', () => {
    const env = { WAFSTAT_DATA: '/env', WAFSTAT_WORKERS: '3' };
    const settings = readOptions(OPTIONS, (name) => (name === 'data' ? '/line' : undefined), env);
    expect(settings).toMatchObject({ data: '/line', workers: 3, listen: { host: '127.0.0.1', port: 8080 } });
    expect(settings.tlsCert).toBeUndefined();
  });

  test('are all reported at once if they are invalid, each by its option or variable', () => {
    const env = { WAFSTAT_RETENTION: 'forever' };
    expect(problems({ listen: 'nowhere', workers: '0', publicUrl: 'ftp://x' }, env)).toEqual([
      "--workers is '0', but must be a whole number from 1 to 256",
      "--listen is 'nowhere', but must be a port on loopback, like 8080, or HOST:PORT, like 10.0.0.5:8080 or [::1]:8080",
      "--public-url is 'ftp://x', but must be a URL like https://waf.example.com",
      "WAFSTAT_RETENTION is 'forever', but must be a time like 180d or 36h, from 1h to 36525d",
      '--data (or WAFSTAT_DATA) is required',
    ]);
  });

  test('are shown without credentials and without the query of a URL', () => {
    for (const [name, value] of [
      ['publicUrl', 'https://waf.example.com/?token=sesame'],
      ['publicUrl', 'waf.example.com?token=sesame'],
      ['publicUrl', 'https://waf.example.com/#sesame'],
      ['publicUrl', 'https://open:sesame@waf.example.com/?token=sesame'],
    ] as const) {
      const [problem = ''] = problems({ data: 'x', [name]: value });
      expect(problem).toMatch(/ is '[^']*\?\*\*\*', but must /);
      expect(problem).not.toContain('sesame');
    }
    const env = { WAFSTAT_PUBLIC_URL: 'https://waf.example.com/?token=sesame' };
    expect(problems({ data: 'x' }, env)).toEqual([
      "WAFSTAT_PUBLIC_URL is 'https://waf.example.com/?***', but must be a URL without '?' and '#', like https://waf.example.com",
    ]);
  });

  test('of PostgreSQL must be consistent, use TLS beyond loopback, and have no password on the command line', () => {
    const [data, store] = ['x', 'postgres'];
    const near = 'postgres://waf@127.0.0.1:5433/statistics';
    expect(problems({ data, store, postgresUrl: near })).toEqual([]);
    expect(problems({ data, store, postgresUrl: 'postgres://waf@/statistics?host=/run/postgresql' })).toEqual(
      [],
    );
    expect(problems({ data, store })).toEqual([expect.stringMatching(/requires --postgres-url/)]);
    expect(problems({ data, postgresUrl: near })).toEqual([
      '--postgres-url requires --store postgres, but the store is lmdb',
    ]);
    const secret = 'postgres://waf:sesame@127.0.0.1/statistics';
    const [problem = ''] = problems({ data, store, postgresUrl: secret });
    expect(problem).toMatch(/must not contain a password, because `ps` shows it/);
    expect(problem).not.toContain('sesame');
    expect(problems({ data, store }, { WAFSTAT_POSTGRES_URL: secret })).toEqual([]);
    const far = 'postgres://waf@db1.example,db2.example:6432/statistics';
    expect(problems({ data, store, postgresUrl: far })).toEqual([]);
    const plain = { data, store, postgresUrl: `${far}?sslmode=disable` };
    expect(problems(plain)).toEqual([
      expect.stringMatching(/send counts, password hashes and keys to db1.example unencrypted/),
    ]);
    expect(problems({ ...plain, postgresInsecure: 'true' })).toEqual([]);
    for (const [url, reason] of [
      ['http://127.0.0.1/x', /must be a URL like postgres:/],
      ['postgres://127.0.0.1/x', /must have a user and a database/],
      // Without the part of a password that looks like a parameter.
      ['postgres://waf:open?sesame@db/x', /must have a user and a database$/],
      ['postgres://waf:100%@db/x', /write it as %25/],
      [`${near}?sslmode=require`, /sslmode=require: must be verify-full or disable/],
      [`${near}?ssl=true`, /unknown parameter ssl/],
      ['postgres://waf@db:99999/x', /has the server 'db:99999'/],
    ] as const) {
      expect(problems({ data, store, postgresUrl: url })).toEqual([expect.stringMatching(reason)]);
    }
    for (const malformed of [
      'postgres:waf:sesame@db/x',
      'waf:sesame@db/x',
      'postgres://waf@db/x?password=sesame',
      'postgres://waf:open\nsesame@db/x/y',
      'host=db user=waf password=sesame dbname=x',
      "host=db user=waf password='open sesame' dbname=x",
    ]) {
      expect(problems({ data, store, postgresUrl: malformed })).toEqual([
        expect.not.stringContaining('sesame'),
      ]);
    }
  });

  test('allow plain HTTP beyond loopback only with --insecure-http', () => {
    expect(problems({ data: 'd', listen: '127.0.0.1:1' })).toEqual([]);
    expect(problems({ data: 'd', listen: '[::1]:1' })).toEqual([]);
    expect(problems({ data: 'd', listen: '0.0.0.0:1' })[0]).toMatch(/reachable from other machines/);
    expect(problems({ data: 'd', listen: 'waf.example.com:1' })[0]).toMatch(/reachable from other machines/);
    expect(problems({ data: 'd', listen: '0.0.0.0:1', insecureHttp: 'true' })).toEqual([]);
    expect(problems({ data: 'd', tlsCert: 'package.json' })).toEqual([
      '--tls-cert and --tls-key require each other',
    ]);
  });

  test('listen on loopback unless they name a host, and never twice on one port', () => {
    for (const name of ['listen', 'healthListen', 'metricsListen'] as const) {
      const read = (text: string) =>
        readOptions(OPTIONS, (each) => ({ data: 'd', insecureHttp: 'true', [name]: text })[each], {})[name];
      expect(read('9464')).toEqual({ host: '127.0.0.1', port: 9464 });
      expect(read('0.0.0.0:9464')).toEqual({ host: '0.0.0.0', port: 9464 });
      expect(read('[::1]:0')).toEqual({ host: '::1', port: 0 });
      for (const wrong of [':9464', '99999', '', 'localhost', '-1', '9464x'])
        expect(problems({ data: 'd', [name]: wrong })).toEqual([
          expect.stringMatching(/must be a port on loopback, like 8080, or HOST:PORT/),
        ]);
    }
    const same = (one: string, other: string) =>
      `--${one} and --${other} use the same port 9464: choose different ones`;
    const on = (addresses: object) => problems({ data: 'd', insecureHttp: 'true', ...addresses });
    expect(on({ listen: '127.0.0.1:9464', metricsListen: '9464' })).toEqual([
      same('metrics-listen', 'listen'),
    ]);
    expect(on({ listen: '9464', healthListen: '[::]:9464' })).toEqual([same('health-listen', 'listen')]);
    expect(on({ healthListen: '0.0.0.0:9464', metricsListen: '9464' })).toEqual([
      same('metrics-listen', 'health-listen'),
    ]);
    expect(on({ listen: '0.0.0.0:9464', metricsListen: '[::1]:9464' })).toEqual([]);
    expect(on({ listen: '0', metricsListen: '0' })).toEqual([]);
    expect(problems({ data: 'd', metricsHosts: '5' })).toEqual(['--metrics-hosts requires --metrics-listen']);
    expect(problems({ data: 'd', metricsListen: '9464', metricsHosts: '1001' })).toEqual([
      "--metrics-hosts is '1001', but must be a whole number from 0 to 1000",
    ]);
  });

  test('name a file that does not exist', () => {
    expect(problems({ data: 'd', tlsCert: '/nonexistent', tlsKey: '/nonexistent' })).toEqual([
      "--tls-cert is '/nonexistent', but cannot be read (ENOENT)",
      "--tls-key is '/nonexistent', but cannot be read (ENOENT)",
    ]);
  });

  test('are documented, each with its variable', () => {
    const page = readFileSync(new URL('../../../docs/configuration.md', import.meta.url), 'utf8');
    const rows = page.split('\n').filter((line) => line.startsWith('| `--'));
    for (const option of Object.values(SERVICE_OPTIONS)) {
      const name = new RegExp(`^\\| \`${flagOf(option)}[ \`]`);
      expect(rows.find((row) => name.test(row))).toContain(`| \`${option.env}\` |`);
    }
  });

  test.each([
    ['127.0.0.1', true],
    ['127.9.9.9', true],
    ['::1', true],
    ['localhost', true],
    ['0.0.0.0', false],
    ['::', false],
    ['127.0.0.1.example.com', false],
  ])('%s is loopback: %s', (host, want) => {
    expect(isLoopback(host)).toBe(want);
  });
});
