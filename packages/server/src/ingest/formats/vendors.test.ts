/** Logs of cloud vendors: fixtures in their documented shape, and what must hold across lines. */
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  attacksOf,
  fixtureLines,
  outcomes,
  readFixture,
  readLines,
  recordsOf,
} from '../../../fixtures/read-fixture.ts';
import { createReader } from '../reader.ts';
import { LOG_FORMATS } from './format.ts';

const TIME = Date.UTC(2026, 6, 1, 10, 20, 30);
const HOST = 'shop.example.com';

test.each([
  ['cloudflare.log', 'cloudflare'],
  ['azure-waf.log', 'azure-waf'],
  ['cloud-armor.log', 'cloud-armor'],
  ['aws-alb.log', 'aws-alb'],
  ['cloudfront.log', 'cloudfront'],
  ['envoy.log', 'envoy'],
  ['envoy-text.log', 'envoy'],
  ['iis.log', 'iis'],
  ['zoraxy.log', 'zoraxy'],
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
] as const)('%s is recognized as %s, and the result is the same if the format is given', (name, format) => {
  const parsed = readFixture(name);
  expect(new Set(parsed.map((each) => each.format))).toEqual(new Set([format]));
  expect(readFixture(name, { format })).toEqual(parsed);
});

test('docs/log-formats.md has a row for every format', () => {
  const page = readFileSync(new URL('../../../../../docs/log-formats.md', import.meta.url), 'utf8');
  for (const format of LOG_FORMATS) expect(page).toMatch(new RegExp(`^\\| \\[\`${format}\`\\]`, 'm'));
});

describe('Cloudflare', () => {
  test('the order of the objects does not change the number of requests and attacks', () => {
    const lines = fixtureLines('cloudflare.log');
    const anyOrder = fc.shuffledSubarray(lines, { minLength: lines.length });
    fc.assert(
      fc.property(anyOrder, (some) => {
        const found = recordsOf(readLines(some));
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
      'same_request',
      'whiteblackip',
      'cmdi',
    ]);
    for (const record of recordsOf(parsed)) expect(record).toMatchObject({ time: TIME, host: HOST });
    const [, sqli, , watched] = recordsOf(parsed);
    expect(sqli?.details).toEqual({
      blocked: true,
      source: '192.0.2.7',
      url: '/',
      country: 'NL',
      rule: '0a00000000000000000000000000000a',
      rules: [{ id: '0a00000000000000000000000000000a' }],
      id: '9a00000000000002',
      method: 'GET',
      query: 'a=1',
      status: 403,
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

  test('a request that follows its counted attack still counts', () => {
    const other = event({ RayID: 'other', Datetime: '2026-07-01T10:21:00Z' });
    const parsed = readLines([event({}), other, request({ SecurityAction: 'block' })]);
    expect(outcomes(parsed)).toEqual(['xss', 'request', 'xss']);
  });

  test('an event after a request without an attack counts as the attack', () => {
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
    expect(attacksOf(readLines([event({ Action })]))).toEqual([[category, blocked, '1']]);
  });

  test.each(['allow', 'skip', 'bypass', 'managedchallengebypassed', 'unknown'])(
    'action %s is not an attack',
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

  test('an unknown country is left out', () => {
    const [record] = recordsOf(readLines([event({ ClientCountry: 'xx' })]));
    expect(record?.details).not.toHaveProperty('country');
  });
});

describe('Azure', () => {
  test.each(['time', 'timeStamp', 'timestamp', 'TimeGenerated'])('the time may be in %s', (name) => {
    const properties = { hostName: 'shop.example.com' };
    const fields = { [name]: '2026-07-01T10:20:30Z', category: 'FrontDoorAccessLog', properties };
    expect(recordsOf(readLines([JSON.stringify(fields)]))).toMatchObject([
      { time: Date.UTC(2026, 6, 1, 10, 20, 30), host: 'shop.example.com', request: true },
    ]);
  });

  test('the source is the address of the connection, not one that a client wrote into a header', () => {
    const forged = fixtureLines('azure-waf.log')
      .filter((line) => line.includes('"socketIP"'))
      .map((line) => line.replace(/"clientI[Pp]":"[^"]*"/, '"clientIP":"192.0.2.99"'));
    const sources = recordsOf(readLines(forged)).flatMap(({ details }) => details?.source ?? []);
    expect(sources.length).toBeGreaterThan(0);
    expect(sources).not.toContain('192.0.2.99');
  });

  test('the rules of a request are one attack; access logs are requests', () => {
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
    for (const record of recordsOf(parsed)) expect(record).toMatchObject({ host: HOST });
    expect(attacksOf(parsed)).toEqual([
      ['sqli', true, '942100'],
      ['webshell', false, '99005002'],
      ['robot', true, 'Bot100200'],
      ['custom', true, 'blockpartner'],
      ['xss', true, '941100'],
      ['custom', false, 'blockcountries'],
      ['vuln', false, '99001001'],
    ]);
    expect(recordsOf(parsed)[2]?.details).toMatchObject({ source: '192.0.2.7', url: '/' });
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
    expect(attacksOf(readLines([rule({ action })]))).toEqual([['custom', blocked, 'own']]);
  });

  test('an allowed request is not an attack, and a record needs a rule', () => {
    expect(outcomes(readLines([rule({ action: 'Allow' })]))).toEqual(['not_an_attack']);
    expect(outcomes(readLines([rule({ ruleName: '' })]))).toEqual(['bad_record']);
  });

  test('a request between two Front Door locations is not counted', () => {
    const line = rule({ isReceivedFromClient: false }, 'FrontDoorAccessLog');
    expect(outcomes(readLines([line]))).toEqual(['same_request']);
  });

  test('rules without a request ID count separately', () => {
    const line = rule({ trackingReference: '' });
    expect(outcomes(readLines([line, line]))).toEqual(['custom', 'custom']);
  });

  test('a verdict weighs less than any rule, even if it comes first', () => {
    const verdict = 'Microsoft_DefaultRuleSet-2.1-BLOCKING-EVALUATION-949110';
    const lines = [verdict, 'Microsoft_DefaultRuleSet-2.1-PROTOCOL-ENFORCEMENT-920300'].map((ruleName) =>
      rule({ ruleName }),
    );
    expect(outcomes(readLines(lines))).toEqual(['illegal']);
  });

  test('a rule number of CRS 2 is not read as one of CRS 3', () => {
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

test('Cloud Armor: the source is the address of the connection, not one that a client wrote into a header', () => {
  const forged = fixtureLines('cloud-armor.log').map((line) =>
    line.replace(
      '"securityPolicyRequestData":{',
      '"securityPolicyRequestData":{"userIpInfo":{"source":"True-Client-IP","ipAddress":"192.0.2.99"},',
    ),
  );
  expect(forged.join()).toContain('192.0.2.99');
  const sources = recordsOf(readLines(forged)).flatMap(({ details }) => details?.source ?? []);
  expect(new Set(sources)).toEqual(new Set(['192.0.2.7']));
});

test('Google Cloud Armor: every object is a request; one that a policy refused, or would have refused, is also an attack', () => {
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
  for (const record of recordsOf(parsed)) expect(record).toMatchObject({ time: TIME + 123, host: HOST });
  expect(attacksOf(parsed).map(([, blocked]) => blocked)).toEqual([
    true,
    true,
    false,
    ...Array.from({ length: 5 }, () => true),
  ]);
  expect(recordsOf(parsed)[1]?.details).toEqual({
    blocked: true,
    source: '192.0.2.7',
    url: '/search',
    rule: '942100',
    rules: [{ id: '942100' }],
    country: 'NL',
    id: 'example',
    method: 'GET',
    query: 'a=1',
    status: 403,
    userAgent: 'example/1',
  });
});

test('overrides also apply to CRS rules in vendor logs', () => {
  const overrides = new Map([['942100', null]]);
  expect(outcomes(readFixture('cloud-armor.log', { overrides }))[1]).toBe('request');
});

test("the vendor's logs: the access log gives requests, the attack log attacks", () => {
  const parsed = readFixture('lts.log');
  expect(outcomes(parsed)).toEqual(['request', 'request', 'lfi', 'whiteblackip', 'robot', 'vuln']);
  for (const each of parsed) {
    expect(each).toMatchObject({ record: { time: TIME, host: 'shop.example.com', hostId: undefined } });
  }
  const details = parsed.map((each) => (each.kind === 'record' ? each.record.details : null));
  expect(details.slice(0, 2)).toEqual([undefined, undefined]);
  const common = { source: '192.0.2.7', url: '/', rule: '040002', rules: [{ id: '040002' }], method: 'GET' };
  expect(details.slice(2)).toEqual(
    [true, false, true, true].map((blocked, i) => ({ blocked, ...common, id: 'bcde'.charAt(i).repeat(32) })),
  );
});

test("the vendor's attack log: two alarms of one request are one attack", () => {
  const alarm = (attack: string) =>
    JSON.stringify({
      category: 'attack',
      hostid: 'h',
      attack,
      requestid: 'r',
      'attack-time': '2026-07-01T10:20:30Z',
    });
  expect(outcomes(readLines([alarm('xss'), alarm('sqli')]))).toEqual(['xss', 'same_request']);
  expect(outcomes(readLines([alarm('')]))).toEqual(['bad_record']);
  expect(readLines([alarm('xss')])).toMatchObject([{ record: { host: undefined, hostId: 'h' } }]);
});

test('AWS WAF: every object is a request, blocked and counted ones are also attacks', () => {
  const parsed = readFixture('aws-waf.log');
  expect(outcomes(parsed)).toEqual([
    'request',
    'request + xss',
    'request + cc',
    'request + sqli',
    'request + custom',
    'request + illegal',
    'request + robot',
    'request + whiteblackip',
  ]);
  for (const each of parsed) {
    expect(each).toMatchObject({ format: 'aws-waf', record: { time: TIME + 456, host: 'shop.example.com' } });
  }
  const details = parsed.map((each) => (each.kind === 'record' ? each.record.details : null));
  expect(details[0]).toBeUndefined();
  expect(details[1]).toEqual({
    blocked: true,
    source: '192.0.2.7',
    url: '/',
    rule: 'CrossSiteScripting_QUERYARGUMENTS',
    rules: [{ id: 'CrossSiteScripting_QUERYARGUMENTS' }, { id: 'AWS-AWSManagedRulesCommonRuleSet' }],
    country: 'NL',
    id: '1',
    method: 'GET',
    userAgent: 'example/1',
  });
  // Rules that count let the request through.
  const blocked = details.slice(1).map((each) => each?.blocked);
  expect(blocked).toContain(false);
});

test('AWS load balancers: every line is a request; one that AWS WAF refused is also an attack', () => {
  const parsed = readFixture('aws-alb.log');
  expect(outcomes(parsed)).toEqual(['request', 'request', 'request + vuln', 'request', 'request']);
  const hosts = recordsOf(parsed).map(({ host, time }) => `${host?.split(':')[0]} ${time - TIME}`);
  expect(new Set(hosts)).toEqual(new Set([`${HOST} 456`]));
  expect(recordsOf(parsed)[2]?.details).toEqual({
    blocked: true,
    source: '192.0.2.7',
    id: 'Root=1-6a45-1',
    method: 'GET',
    url: '/',
    query: 'a=%27',
    status: 403,
    userAgent: 'example/1',
  });
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
])('user agent %j does not hide that AWS WAF refused the request', (agent) => {
  const line = fixtureLines('aws-alb.log')[2]?.replace('example/1', agent) ?? '';
  expect(outcomes(readLines([line]))).toEqual(['request + vuln']);
});

test('AWS load balancers: a request that is not HTTP has the host of the load balancer', () => {
  const [line = ''] = fixtureLines('aws-alb.log');
  const malformed = line.replace(/"[A-Z]+ http[^"]*"/, `"- http://${HOST}:80- -"`);
  expect(malformed).not.toBe(line);
  expect(recordsOf(readLines([malformed]))[0]?.host).toBe(`${HOST}:80`);
});

describe('CloudFront', () => {
  test('reads columns named by the header, and JSON', () => {
    const parsed = readFixture('cloudfront.log');
    expect(outcomes(parsed)).toEqual(['request', 'request', 'request', 'request']);
    for (const record of recordsOf(parsed)) expect(record).toMatchObject({ time: TIME, host: HOST });
  });

  test('the columns are part of the reader state', () => {
    const [header = '', line = ''] = fixtureLines('cloudfront.log').slice(-2);
    const first = createReader({ format: 'auto' });
    expect(first.read(header, 0)).toEqual([]);
    const second = createReader({ format: 'auto' }, first.state());
    expect(recordsOf(second.read(line, 0))).toMatchObject([{ time: TIME, host: HOST }]);
    expect(outcomes(readLines([line]))).toEqual(['bad_time']);
  });

  test('without a header, the columns are those of standard logs', () => {
    const lines = fixtureLines('cloudfront.log').slice(2, 4);
    for (const record of recordsOf(readLines(lines)))
      expect(record).toMatchObject({ time: TIME, host: HOST });
  });
});

test('logs of other vendors are not read as events just because they have a time', () => {
  const azure = {
    time: '2026-07-01T10:20:30Z',
    category: 'FrontDoorHealthProbeLog',
    properties: {},
  };
  const google = { timestamp: '2026-07-01T10:20:30Z', httpRequest: { status: 403 }, jsonPayload: {} };
  expect(outcomes(readLines([azure, google].map((each) => JSON.stringify(each))))).toEqual([
    'unknown_format',
    'unknown_format',
  ]);
});
