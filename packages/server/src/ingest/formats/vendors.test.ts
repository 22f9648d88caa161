/** Logs of vendors and proxies: fixtures in their documented shape, and what must hold beyond one line. */
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { fixtureLines, outcomes, readFixture, readLines } from '../../../fixtures/read-fixture.ts';
import { createReader } from '../reader.ts';
import { LOG_FORMATS, type LogRecord, type Parsed } from './format.ts';
import { fixedZone } from './time-zone.ts';

const TIME = Date.UTC(2026, 6, 1, 10, 20, 30);
const HOST = 'shop.example.com';

function records(parsed: readonly Parsed[]): LogRecord[] {
  return parsed.flatMap((each) => (each.kind === 'record' ? [each.record] : []));
}

function attacks(parsed: readonly Parsed[]) {
  return records(parsed)
    .filter(({ attack }) => attack !== null)
    .map(({ attack, details }) => [attack, details?.blocked, details?.rule]);
}

/** The format names of these fixtures: nothing else may take their lines. */
test.each([
  ['cloudflare.log', 'cloudflare'],
  ['azure-waf.log', 'azure-waf'],
  ['cloud-armor.log', 'cloud-armor'],
  ['aws-alb.log', 'aws-alb'],
  ['cloudfront.log', 'cloudfront'],
  ['envoy.log', 'envoy'],
  ['traefik.log', 'traefik'],
  ['traefik-clf.log', 'access'],
  ['haproxy.log', 'haproxy'],
  ['haproxy-clf.log', 'access'],
  ['naxsi.log', 'naxsi'],
  ['aws-waf.log', 'aws-waf'],
  ['lts.log', 'lts'],
  ['coraza-json.log', 'coraza-json'],
  ['nginx-json.log', 'access-json'],
  ['nginx-combined.log', 'access'],
  ['nginx-vhost.log', 'access'],
  ['apache-common.log', 'access'],
  ['apache-vhost.log', 'access'],
  ['nginx-error.log', 'nginx-error'],
  ['apache-error.log', 'apache-error'],
  ['modsecurity2-json.log', 'modsecurity2-json'],
  ['modsecurity3-json.log', 'modsecurity3-json'],
  ['modsecurity2-native.log', 'modsecurity-native'],
  ['modsecurity3-native.log', 'modsecurity-native'],
] as const)('%s is recognized as %s, and reads the same when the format is given', (name, format) => {
  const parsed = readFixture(name);
  expect(new Set(parsed.map((each) => each.format))).toEqual(new Set([format]));
  expect(readFixture(name, { format })).toEqual(parsed);
});

test('docs/log-formats.md has a row for every format', () => {
  const page = readFileSync(new URL('../../../../../docs/log-formats.md', import.meta.url), 'utf8');
  for (const format of LOG_FORMATS) expect(page).toMatch(new RegExp(`^\\| \\[\`${format}\`\\]`, 'm'));
});

describe('Cloudflare', () => {
  test('whatever the order of the objects, there are as many requests and attacks', () => {
    const lines = fixtureLines('cloudflare.log');
    const anyOrder = fc.shuffledSubarray(lines, { minLength: lines.length });
    fc.assert(
      fc.property(anyOrder, (some) => {
        const found = records(readLines(some));
        expect(found.filter(({ request }) => request)).toHaveLength(7);
        expect(found.filter(({ attack }) => attack !== null)).toHaveLength(7);
      }),
    );
  });

  test('requests and firewall events in one stream: one request and at most one attack for each Ray ID', () => {
    const parsed = readFixture('cloudflare.log');
    expect(outcomes(parsed)).toEqual([
      'request',
      'request + sqli',
      'request + robot',
      'request + xss',
      'request',
      'request + cc',
      'request + whiteblackip',
      'whiteblackip',
      'cmdi',
    ]);
    for (const record of records(parsed)) expect(record).toMatchObject({ time: TIME, host: HOST });
    const [, sqli, , watched] = records(parsed);
    expect(sqli?.details).toEqual({
      blocked: true,
      source: '192.0.2.7',
      url: '/',
      country: 'NL',
      rule: '0a00000000000000000000000000000a',
    });
    expect(watched?.details?.blocked).toBe(false);
  });

  const event = (fields: object) =>
    JSON.stringify({
      Action: 'block',
      ClientRequestHost: HOST,
      Datetime: '2026-07-01T10:20:30Z',
      Description: 'XSS, HTML Injection - Script Tag',
      RayID: 'r',
      RuleID: '1',
      Source: 'firewallmanaged',
      ...fields,
    });
  const request = (fields: object = {}) =>
    JSON.stringify({ ClientRequestHost: HOST, EdgeStartTimestamp: TIME * 1e6, RayID: 'r', ...fields });

  test('the request counts although its attack was counted long before it came', () => {
    const other = event({ RayID: 'other', Datetime: '2026-07-01T10:21:00Z' });
    const parsed = readLines([event({}), other, request({ SecurityAction: 'block' })]);
    expect(outcomes(parsed)).toEqual(['xss', 'request', 'xss']);
  });

  test('a request that is no attack by itself leaves the attack to a later event', () => {
    expect(outcomes(readLines([request(), event({ Action: 'log' })]))).toEqual(['request', 'xss']);
  });

  test.each([
    ['block', 'xss', true],
    ['challenge', 'xss', true],
    ['managedchallenge', 'xss', true],
    ['jschallengefailed', 'xss', true],
    ['connectionclose', 'xss', true],
    ['log', 'xss', false],
    ['simulate', 'xss', false],
    ['challengesolved', 'xss', false],
    ['managedchallengeinteractivesolved', 'xss', false],
  ])('action %s is an attack', (Action, category, blocked) => {
    expect(attacks(readLines([event({ Action })]))).toEqual([[category, blocked, '1']]);
  });

  test.each(['allow', 'skip', 'bypass', 'managedchallengebypassed', 'unknown'])(
    'action %s is no attack',
    (Action) => {
      expect(outcomes(readLines([event({ Action })]))).toEqual(['not_an_attack']);
      expect(outcomes(readLines([request({ SecurityAction: Action })]))).toEqual(['request']);
    },
  );

  test.each([
    ['ratelimit', '', 'cc'],
    ['l7ddos', 'HTTP requests from known botnet', 'cc'],
    ['firewallcustom', 'SQLi', 'custom'],
    ['ip', '', 'whiteblackip'],
    ['zonelockdown', '', 'whiteblackip'],
    ['botmanagement', '', 'robot'],
    ['uablock', '', 'robot'],
    ['validation', '', 'illegal'],
    ['apishieldschemavalidation', '', 'illegal'],
    ['waf', 'Wordpress - Broken Access Control, File Inclusion', 'lfi'],
    ['waf', 'Apache Struts - Remote Code Execution', 'cmdi'],
    ['waf', 'PHP - Webshell', 'webshell'],
    ['firewallmanaged', '941100: XSS Attack Detected via libinjection', 'xss'],
    ['firewallmanaged', '949110: Inbound Anomaly Score Exceeded', 'vuln'],
    ['firewallmanaged', 'Vulnerability in some product', 'vuln'],
    ['something new', '', 'vuln'],
  ])('source %s with %j is %s', (Source, Description, category) => {
    expect(outcomes(readLines([event({ Source, Description })]))).toEqual([category]);
  });

  test('a country that Cloudflare does not know is left out', () => {
    const [record] = records(readLines([event({ ClientCountry: 'xx' })]));
    expect(record?.details).not.toHaveProperty('country');
  });
});

describe('Azure', () => {
  test('rules of one request are one attack, access logs are requests', () => {
    const parsed = readFixture('azure-waf.log');
    expect(outcomes(parsed)).toEqual([
      'request',
      'not_an_attack',
      'request',
      'sqli',
      'webshell',
      'robot',
      'custom',
      'xss',
      'custom',
      'vuln',
    ]);
    for (const record of records(parsed)) expect(record).toMatchObject({ host: HOST });
    expect(attacks(parsed)).toEqual([
      ['sqli', true, '942100'],
      ['webshell', false, '99005002'],
      ['robot', true, 'Bot100200'],
      ['custom', true, 'blockpartner'],
      ['xss', true, '941100'],
      ['custom', false, 'blockcountries'],
      ['vuln', false, '99001001'],
    ]);
    expect(records(parsed)[2]?.details).toMatchObject({ source: '192.0.2.7', url: '/' });
  });

  const rule = (properties: object, category = 'FrontDoorWebApplicationFirewallLog') =>
    JSON.stringify({
      time: '2026-07-01T10:20:30Z',
      category,
      properties: { host: HOST, ruleName: 'own', action: 'Block', trackingReference: 't', ...properties },
    });

  test.each([
    ['limitlogins', 'custom'],
    ['RateLimitLogin', 'cc'],
    ['DefaultRuleSet-1.0-SQLI-942100', 'sqli'],
    ['Microsoft_DefaultRuleSet-2.1-General-200002', 'illegal'],
    ['Microsoft_DefaultRuleSet-2.1-MS-ThreatIntel-AppSec-99030001', 'lfi'],
    ['Microsoft_BotManagerRuleSet-1.1-UnknownBots-Bot300500', 'robot'],
    ['Microsoft_HTTPDDoSRuleSet-1.0-ExcessiveRequests-500100', 'cc'],
    ['Microsoft_DefaultRuleSet-2.1-BLOCKING-EVALUATION-949110', 'vuln'],
  ])('Front Door rule %s is %s', (ruleName, category) => {
    expect(outcomes(readLines([rule({ ruleName })]))).toEqual([category]);
  });

  test.each([
    ['Block', true],
    ['Redirect', true],
    ['JSChallengeIssued', true],
    ['Log', false],
    ['AnomalyScoring', false],
    ['logandscore', false],
    ['JSChallengePass', false],
  ])('Front Door action %s: blocked %s', (action, blocked) => {
    expect(attacks(readLines([rule({ action })]))).toEqual([['custom', blocked, 'own']]);
  });

  test('what was allowed is no attack; what lacks a rule is no record', () => {
    expect(outcomes(readLines([rule({ action: 'Allow' })]))).toEqual(['not_an_attack']);
    expect(outcomes(readLines([rule({ ruleName: '' })]))).toEqual(['bad_record']);
  });

  test('a request between two places of Front Door is not counted', () => {
    const line = rule({ isReceivedFromClient: false }, 'FrontDoorAccessLog');
    expect(outcomes(readLines([line]))).toEqual(['same_request']);
  });

  test('rules without the ID of a request count one by one', () => {
    const line = rule({ trackingReference: '' });
    expect(outcomes(readLines([line, line]))).toEqual(['custom', 'custom']);
  });

  test('a verdict weighs less than any rule, also when it comes first', () => {
    const verdict = 'Microsoft_DefaultRuleSet-2.1-BLOCKING-EVALUATION-949110';
    const lines = [verdict, 'Microsoft_DefaultRuleSet-2.1-PROTOCOL-ENFORCEMENT-920300'].map((ruleName) =>
      rule({ ruleName }),
    );
    expect(outcomes(readLines(lines))).toEqual(['illegal']);
  });

  test('the number of CRS 2 is not read as one of CRS 3', () => {
    const properties = {
      ruleId: '950901',
      ruleSetType: 'OWASP',
      ruleSetVersion: '2.2.9',
      ruleGroup: 'crs_41_sql',
    };
    const line = rule(
      { ...properties, action: 'Blocked', transactionId: 't' },
      'ApplicationGatewayFirewallLog',
    );
    expect(outcomes(readLines([line]))).toEqual(['vuln']);
  });
});

test('Google Cloud Armor: every object is a request; what a policy refused, or would have, is an attack', () => {
  const parsed = readFixture('cloud-armor.log');
  expect(outcomes(parsed)).toEqual([
    'request',
    'request + sqli',
    'request + cc',
    'request',
    'request + xss',
    'request + custom',
    'request + whiteblackip',
    'request + cc',
    'request + cmdi',
    'request + robot',
  ]);
  for (const record of records(parsed)) expect(record).toMatchObject({ time: TIME + 123, host: HOST });
  expect(attacks(parsed).map(([, blocked]) => blocked)).toEqual([
    true,
    true,
    false,
    ...Array.from({ length: 5 }, () => true),
  ]);
  expect(records(parsed)[1]?.details).toEqual({
    blocked: true,
    source: '192.0.2.7',
    url: '/search',
    rule: '942100',
    country: 'NL',
  });
});

test('the operator decides over rules of CRS in the logs of vendors too', () => {
  const overrides = new Map([['942100', null]]);
  expect(outcomes(readFixture('cloud-armor.log', { overrides }))[1]).toBe('request');
});

test('AWS load balancers: every line is a request; one that AWS WAF refused is an attack', () => {
  const parsed = readFixture('aws-alb.log');
  expect(outcomes(parsed)).toEqual(['request', 'request', 'request + vuln', 'request', 'request']);
  const hosts = records(parsed).map(({ host, time }) => `${host?.split(':')[0]} ${time - TIME}`);
  expect(new Set(hosts)).toEqual(new Set([`${HOST} 456`]));
  expect(records(parsed)[2]?.details).toEqual({ blocked: true, source: '192.0.2.7', url: '/' });
  const [line = ''] = fixtureLines('aws-alb.log');
  expect(outcomes(readLines([line.slice(0, 100)]))).toEqual(['bad_record']);
  expect(outcomes(readLines([line.slice(0, 200)]))).toEqual(['request']);
  expect(outcomes(readLines([line.replaceAll('2026-07-01T', '2026-07-01 ')]))).toEqual(['unknown_format']);
});

test.each([
  '\\',
  '\\" \\"',
  'a\\x22 \\x22-\\x22 0 2026-07-01T10:20:30.1Z \\x22forward\\x22',
  '" "',
  'x" "-" "-" 0',
])('a user agent %j does not hide that AWS WAF refused the request', (agent) => {
  const line = fixtureLines('aws-alb.log')[2]?.replace('example/1', agent) ?? '';
  expect(outcomes(readLines([line]))).toEqual(['request + vuln']);
});

test('AWS load balancers: a request that is no HTTP has the host of the balancer', () => {
  const [line = ''] = fixtureLines('aws-alb.log');
  const malformed = line.replace(/"[A-Z]+ http[^"]*"/, `"- http://${HOST}:80- -"`);
  expect(malformed).not.toBe(line);
  expect(records(readLines([malformed]))[0]?.host).toBe(`${HOST}:80`);
});

describe('CloudFront', () => {
  test('columns as the header names them, and JSON', () => {
    const parsed = readFixture('cloudfront.log');
    expect(outcomes(parsed)).toEqual(['request', 'request', 'request', 'request']);
    for (const record of records(parsed)) expect(record).toMatchObject({ time: TIME, host: HOST });
  });

  test('the columns are remembered, also in another process', () => {
    const [header = '', line = ''] = fixtureLines('cloudfront.log').slice(-2);
    const first = createReader({ format: 'auto' });
    expect(first.read(header, 0)).toEqual([]);
    const second = createReader({ format: 'auto' }, first.state());
    expect(records(second.read(line, 0))).toMatchObject([{ time: TIME, host: HOST }]);
    expect(outcomes(readLines([line]))).toEqual(['bad_time']);
  });

  test('without a header the columns are those of standard logs', () => {
    const lines = fixtureLines('cloudfront.log').slice(2, 4);
    for (const record of records(readLines(lines))) expect(record).toMatchObject({ time: TIME, host: HOST });
  });
});

test('Envoy: every object is a request, one over a rate limit an attack too', () => {
  const parsed = readFixture('envoy.log');
  expect(outcomes(parsed)).toEqual(['request', 'request', 'request + cc', 'request']);
  for (const record of records(parsed)) expect(record).toMatchObject({ time: TIME + 456, host: HOST });
  expect(records(parsed)[2]?.details).toEqual({ blocked: true, source: '192.0.2.7', url: '/' });
});

test('Traefik: every object and every line is a request', () => {
  for (const record of records(readFixture('traefik.log')))
    expect(record).toMatchObject({ time: TIME + 456, host: HOST, request: true });
  expect(outcomes(readFixture('traefik-clf.log'))).toEqual(['request', 'request']);
});

describe('HAProxy', () => {
  test('requests, with the host out of the URL, the first captured header or the TLS handshake', () => {
    const parsed = readFixture('haproxy.log');
    expect(outcomes(parsed)).toEqual([
      'request',
      'request',
      'request',
      'request',
      'request',
      'other_log_line',
      'request',
      'request',
    ]);
    expect(records(parsed).map(({ host }) => host)).toEqual([
      HOST,
      HOST,
      undefined,
      'www.example.com:18183',
      'www.example.com',
      '[::1]:18186',
      undefined,
    ]);
  });

  test('times are local', () => {
    const [line = ''] = fixtureLines('haproxy.log');
    expect(records(readLines([line], { zone: fixedZone(60) }))).toMatchObject([
      { time: Date.UTC(2026, 10, 15, 11, 18, 13, 490) },
    ]);
  });

  test('a captured header that is no host is not taken for one', () => {
    const [line = ''] = fixtureLines('haproxy.log');
    for (const captured of ['Mozilla/5.0 (X11)', '', '-', 'a b']) {
      const other = line.replace('{shop.example.com', `{${captured}`);
      expect(records(readLines([other]))).toMatchObject([{ host: undefined }]);
    }
  });
});

describe('NAXSI', () => {
  test('one attack for each request, in the category with the highest score', () => {
    const parsed = readFixture('naxsi.log');
    expect(outcomes(parsed)).toEqual([
      'same_request',
      'sqli',
      'xss',
      'illegal',
      'lfi',
      'same_request',
      'same_request',
      'rfi',
      'custom',
    ]);
    for (const record of records(parsed)) expect(record).toMatchObject({ time: TIME, host: HOST });
    expect(attacks(parsed)).toEqual([
      ['sqli', true, '1000'],
      ['xss', false, '1302'],
      ['illegal', true, '11'],
      ['lfi', true, '1200'],
      ['rfi', false, '1101'],
      ['custom', true, '10001'],
    ]);
  });

  test('a line that was cut, or that a Host header spoils, is an attack all the same', () => {
    const head = '2026/07/01 10:20:30 [error] 1#1: *1 ';
    expect(
      outcomes(readLines([`${head}NAXSI_FMT: ip=192.0.2.7&server=x, client: y&uri=/&cscore0=$SQL`])),
    ).toEqual(['vuln']);
    expect(
      outcomes(
        readLines([`${head}{"ip":"192.0.2.7","mode":"block","score":{"$SQL":8},"match":[{"zone":"AR`]),
      ),
    ).toEqual(['sqli']);
  });

  test('a Host header does not change how its own attack counts', () => {
    const line = fixtureLines('naxsi.log')[1] ?? '';
    const forged = line.replace('server=', 'server=a&config=learning&cscore0=$EVADE&score0=99&id0=10001&x=');
    expect(attacks(readLines([forged]))).toEqual([['sqli', true, '1000']]);
  });

  test('text of a client cannot turn a line of ModSecurity into one of NAXSI', () => {
    const line = fixtureLines('nginx-error.log').find((each) => each.includes('[id "942100"]')) ?? '';
    const forged = line.replace('[data "', '[data "*1 NAXSI_EXLOG: ip=x');
    expect(readLines([forged]).map(({ format }) => format)).toEqual(['nginx-error']);
  });
});

test('records in an envelope count one by one, several envelopes on a line too, up to the limit', () => {
  const event = `{"time":${TIME}}`;
  expect(outcomes(readLines([`{"records":[${event},${event}]}{"records":[${event}]}`]))).toHaveLength(3);
  const many = outcomes(readLines([`{"records":[${`${event},`.repeat(10_000)}${event}]}`]));
  expect(many).toHaveLength(10_001);
  expect(many.at(-1)).toBe('too_many_records');
});
