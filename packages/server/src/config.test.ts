import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { readSettings, SETTINGS, type SettingName, SettingsError, variableOf } from './config.ts';
import { isLoopback } from './loopback.ts';

const ALL: SettingName[] = [
  'data',
  'listen',
  'tlsCert',
  'tlsKey',
  'insecureHttp',
  'workers',
  'retention',
  'publicUrl',
  'store',
  'clickhouseUrl',
  'clickhouseInsecureHttp',
];

function problems(
  given: Partial<Record<SettingName, string>>,
  env: Record<string, string> = {},
): readonly string[] {
  try {
    readSettings(ALL, ['data'], (name) => given[name], env);
    return [];
  } catch (error) {
    if (error instanceof SettingsError) return error.problems;
    throw error;
  }
}

describe('settings', () => {
  test('come from the command line, then the environment, then the table', () => {
    const env = { WAFSTAT_DATA: '/env', WAFSTAT_WORKERS: '3' };
    const settings = readSettings(ALL, ['data'], (name) => (name === 'data' ? '/line' : undefined), env);
    expect(settings).toMatchObject({ data: '/line', workers: 3, listen: { host: '127.0.0.1', port: 8080 } });
    expect(settings.tlsCert).toBeUndefined();
  });

  test('are all reported at once when they are wrong, each by the name it was given under', () => {
    const env = { WAFSTAT_RETENTION: 'forever' };
    expect(problems({ listen: 'nowhere', workers: '0', publicUrl: 'ftp://x' }, env)).toEqual([
      '--data (or WAFSTAT_DATA) is required',
      "--listen is 'nowhere', but must be HOST:PORT, like 127.0.0.1:8080 or [::1]:8080",
      "--workers is '0', but must be a whole number from 1 to 256",
      "WAFSTAT_RETENTION is 'forever', but must be a time like 180d or 36h, from 1h to 36525d",
      "--public-url is 'ftp://x', but must be an address like https://waf.example.com",
    ]);
  });

  test('of ClickHouse fit together, stay on loopback without TLS, and show no password', () => {
    const [data, store] = ['x', 'clickhouse'];
    expect(problems({ data, store, clickhouseUrl: 'http://127.0.0.1:8123,http://[::1]:8124' })).toEqual([]);
    expect(problems({ data, store })).toEqual([expect.stringMatching(/needs --clickhouse-url/)]);
    expect(problems({ data, clickhouseUrl: 'http://127.0.0.1:8123' })).toEqual([
      '--clickhouse-url is for --store clickhouse, but the store is lmdb',
    ]);
    const far = { data, store, clickhouseUrl: 'https://a:8443,http://b:8123' };
    expect(problems(far)).toEqual([
      expect.stringMatching(/http:\/\/b:8123 sends password and counts in the clear/),
    ]);
    expect(problems({ ...far, clickhouseInsecureHttp: 'true' })).toEqual([]);
    const [told = ''] = problems({ data, store, clickhouseUrl: 'http://waf:sesame@127.0.0.1:8123' });
    expect(told).toMatch(/must not hold a user or password/);
    expect(told).not.toContain('sesame');
  });

  test('plain HTTP stays on loopback unless someone says that TLS is done in front', () => {
    expect(problems({ data: 'd', listen: '127.0.0.1:1' })).toEqual([]);
    expect(problems({ data: 'd', listen: '[::1]:1' })).toEqual([]);
    expect(problems({ data: 'd', listen: '0.0.0.0:1' })[0]).toMatch(/reachable from outside/);
    expect(problems({ data: 'd', listen: 'waf.example.com:1' })[0]).toMatch(/reachable from outside/);
    expect(problems({ data: 'd', listen: '0.0.0.0:1', insecureHttp: 'true' })).toEqual([]);
    expect(problems({ data: 'd', tlsCert: 'package.json' })).toEqual([
      '--tls-cert and --tls-key go together',
    ]);
  });

  test('a file that is not there is named', () => {
    expect(problems({ data: 'd', tlsCert: '/nonexistent', tlsKey: '/nonexistent' })).toEqual([
      "--tls-cert is '/nonexistent', but cannot be read (ENOENT)",
      "--tls-key is '/nonexistent', but cannot be read (ENOENT)",
    ]);
  });

  test('every flag and variable stands in the documentation', () => {
    const page = readFileSync(new URL('../../../docs/configuration.md', import.meta.url), 'utf8');
    for (const name of Object.keys(SETTINGS) as SettingName[]) {
      expect(page).toContain(`\`${SETTINGS[name].flag.split(' ')[0]}`);
      expect(page).toContain(`\`${variableOf(name)}\``);
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
