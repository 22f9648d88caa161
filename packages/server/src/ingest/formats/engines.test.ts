/** Logs that real engines wrote for known requests (fixtures/make-fixtures.mjs) are parsed as those requests. */
import { describe, expect, test } from 'vitest';
import { fixtureLines, outcomes, readFixture, readLines } from '../../../fixtures/read-fixture.ts';
import { fixedZone } from './time-zone.ts';

const BY_NGINX = ['sqli', 'lfi', 'cmdi', 'robot', 'custom', 'not_an_attack', 'xss', 'xss'];
const BY_APACHE = ['sqli', 'robot', 'custom', 'not_an_attack', 'xss', 'xss'];

describe('access logs', () => {
  test.each([
    ['nginx-combined.log', 'access', undefined],
    ['nginx-vhost.log', 'access', 'shop.example.com'],
    ['nginx-json.log', 'access-json', 'shop.example.com'],
    ['apache-common.log', 'access', undefined],
    ['apache-vhost.log', 'access', 'shop.example.com'],
  ])('%s: every line is a request', (name, format, host) => {
    const parsed = readFixture(name);
    expect(parsed).toHaveLength(fixtureLines(name).length);
    for (const each of parsed)
      expect(each).toMatchObject({ kind: 'record', format, record: { request: true } });
    const hosts = parsed.map((each) => (each.kind === 'record' ? each.record.host?.split(':')[0] : ''));
    expect(hosts[1]).toBe(host);
  });
});

describe('audit logs', () => {
  test.each([
    ['modsecurity3-json.log', 'modsecurity3-json', BY_NGINX],
    ['modsecurity3-native.log', 'modsecurity-native', BY_NGINX],
    ['modsecurity2-json.log', 'modsecurity2-json', BY_APACHE],
    ['modsecurity2-native.log', 'modsecurity-native', BY_APACHE],
  ] as const)('%s: one attack per flagged request, none for others', (name, format, want) => {
    const parsed = readFixture(name);
    // Apache's threads write in any order.
    expect(outcomes(parsed).toSorted()).toEqual(want.toSorted());
    expect(new Set(parsed.map((each) => each.format))).toEqual(new Set([format]));
    for (const each of parsed) {
      if (each.kind !== 'record') continue;
      expect(each.record.host).toBe(each.record.attack === 'robot' ? '127.0.0.1' : 'shop.example.com');
    }
    expect(outcomes(readFixture(name, { format })).toSorted()).toEqual(want.toSorted());
  });

  test('a request has the same time in every log', () => {
    const times = (name: string) =>
      readFixture(name).flatMap((each) => (each.kind === 'record' ? [each.record.time] : []));
    const [first = 0] = times('nginx-json.log');
    for (const name of ['modsecurity3-json.log', 'nginx-error.log']) {
      // The zone does not matter: the ID has the time.
      for (const each of readFixture(name, { zone: fixedZone(480) })) {
        if (each.kind === 'record' && each.record.attack !== 'cc')
          expect(Math.abs(each.record.time - first)).toBeLessThan(5_000);
      }
    }
  });
});

describe('error logs', () => {
  test('nginx-error.log: the rules of a request are one attack, and so is a rejected request', () => {
    const parsed = readFixture('nginx-error.log').filter((each) => each.kind === 'record');
    expect(outcomes(parsed).toSorted()).toEqual(
      ['cc', ...BY_NGINX.filter((each) => each !== 'not_an_attack')].toSorted(),
    );
    for (const { record } of parsed) {
      expect(record.host).toBe(record.attack === 'robot' ? '127.0.0.1' : 'shop.example.com');
    }
  });

  test('apache-error.log: the rules of a request are one attack, in any time zone', () => {
    const parsed = readFixture('apache-error.log').filter((each) => each.kind === 'record');
    expect(outcomes(parsed).toSorted()).toEqual(
      BY_APACHE.filter((each) => each !== 'not_an_attack').toSorted(),
    );
    const [utc] = parsed;
    const [east] = readFixture('apache-error.log', { zone: fixedZone(480) }).filter(
      (each) => each.kind === 'record',
    );
    expect((utc?.record.time ?? 0) - (east?.record.time ?? 0)).toBe(480 * 60_000);
  });

  test('other lines of an error log are dropped as other_log_line', () => {
    const drops = readFixture('nginx-error.log').filter(({ kind }) => kind === 'dropped');
    expect(new Set(outcomes(drops))).toEqual(new Set(['other_log_line']));
  });
});

test('a stream of several logs counts each request and each attack once', () => {
  const logs = ['nginx-combined.log', 'nginx-error.log', 'modsecurity3-json.log'].map(fixtureLines);
  const mixed = Array.from({ length: Math.max(...logs.map(({ length }) => length)) }, (_, i) =>
    logs.flatMap((lines) => lines[i] ?? []),
  ).flat();
  const counted = outcomes(readLines(mixed).filter(({ kind }) => kind === 'record'));
  expect(counted.filter((each) => each === 'request')).toHaveLength(logs[0]?.length ?? 0);
  expect(counted.filter((each) => each !== 'request').toSorted()).toEqual(
    ['cc', ...BY_NGINX.filter((each) => each !== 'not_an_attack')].toSorted(),
  );
});

test('every matched CRS rule is known by its number, although the engine omits its tags', () => {
  for (const each of readFixture('modsecurity3-json.log')) {
    for (const { rule, because } of each.kind === 'record' ? (each.record.evidence ?? []) : []) {
      expect(because).toMatch(rule === '10001' ? /not a CRS rule/ : /^rule id/);
    }
  }
});

describe('details of an attack', () => {
  test.each([
    ['modsecurity3-json.log'],
    ['modsecurity3-native.log'],
    ['modsecurity2-json.log'],
    ['modsecurity2-native.log'],
    ['nginx-error.log'],
    ['apache-error.log'],
  ])('%s has the outcome, source, path and deciding rule', (name) => {
    const records = readFixture(name).flatMap((each) => (each.kind === 'record' ? [each.record] : []));
    const rules: Record<string, RegExp> = { sqli: /^942/, xss: /^941/, custom: /^10001$/, robot: /^9131/ };
    for (const { attack, details } of records) {
      expect(details).toMatchObject({ blocked: true, source: '127.0.0.1' });
      expect(details?.rule).toMatch(rules[attack ?? ''] ?? /./);
      expect(details?.country).toBeUndefined();
    }
    const paths = (category: string) =>
      records.filter(({ attack }) => attack === category).map(({ details }) => details?.url);
    expect(paths('custom')).toEqual(['/own-rule']);
    expect(paths('sqli')).toEqual(['/']);
    expect(paths('cc')).toEqual(paths('cc').map(() => '/limited'));
  });

  test('are the same in every log of the same requests', () => {
    const detailsIn = (name: string, ...omitted: string[]) =>
      readFixture(name)
        .flatMap((each) => (each.kind === 'record' && each.record.attack !== 'cc' ? [each.record] : []))
        // Logs differ in how they write quotes in a path, and line ends in a value.
        .filter(({ details }) => !/["%]/.test(details?.url ?? ''))
        .filter(({ details }) => !JSON.stringify(details).includes('--deadbeef'))
        .map(({ attack, details }) => {
          // The native logs are those of other requests.
          const fields = Object.entries(details ?? {}).filter(
            ([field]) => !['id', ...omitted].includes(field),
          );
          return JSON.stringify([attack, fields.toSorted()]);
        })
        .toSorted();
    const notInNginx = ['userAgent'];
    const notInApache = ['userAgent', 'method', 'query'];
    const [json3, json2] = ['modsecurity3-json.log', 'modsecurity2-json.log'];
    expect(detailsIn('modsecurity3-native.log')).toEqual(detailsIn(json3));
    expect(detailsIn('nginx-error.log')).toEqual(detailsIn(json3, ...notInNginx));
    expect(detailsIn('modsecurity2-native.log')).toEqual(detailsIn(json2));
    expect(detailsIn('apache-error.log', ...notInApache)).toEqual(detailsIn(json2, ...notInApache));
  });
});
