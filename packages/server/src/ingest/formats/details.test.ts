/** What each format delivers of an attack, with the names of the normal form. docs/log-formats.md has the table. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { readLines, recordsOf } from '../../../fixtures/read-fixture.ts';
import { eventFields } from './events.ts';

/** The details of the only attack in these lines. */
function detailsIn(...lines: readonly (string | object)[]): object {
  const texts = lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line)));
  const attacks = recordsOf(readLines(texts)).filter(({ attack }) => attack !== null);
  expect(attacks).toHaveLength(1);
  return eventFields(attacks[0]?.details ?? {});
}

const BROWSER = 'Mozilla/5.0 (X11; Linux x86_64)';

/** A rule of ModSecurity 3, as in its JSON. */
function rule3(ruleId: string, message: string, match: string, data: string) {
  const file = `/etc/crs/rules/REQUEST-${ruleId.slice(0, 3)}-X.conf`;
  return { message, details: { ruleId, match, data, file, severity: '2', ver: 'OWASP_CRS/4.7.0', tags: [] } };
}

const LFI = rule3(
  '930100',
  'Path Traversal Attack',
  "Matched \"Operator `Rx' with parameter `\\.\\./' against variable `ARGS:file' (Value: `../../etc/passwd' )",
  'Matched Data: ../ found within ARGS:file: ../../etc/passwd',
);
const AGENT = rule3(
  '920320',
  'Missing User Agent Header',
  "Matched \"Operator `Eq' with parameter `0' against variable `REQUEST_HEADERS:User-Agent' (Value: `' )",
  '',
);
const VERDICT3 = rule3('949110', 'Inbound Anomaly Score Exceeded (Total Score: 10)', '', '');

const LFI_KEPT = {
  id: '930100',
  severity: 'critical',
  variable: 'ARGS:file',
  value: '../../etc/passwd',
};

function modsecurity3({
  uri = '/download?file=../../etc/passwd&token=S',
  messages = [AGENT, LFI, VERDICT3],
} = {}) {
  return {
    transaction: {
      client_ip: '192.0.2.7',
      time_stamp: 'Wed Jul  1 10:20:30 2026',
      unique_id: '178290123012.345678',
      request: { method: 'GET', uri, headers: { Host: 'shop.example.com', 'user-agent': BROWSER } },
      response: { http_code: 403 },
      producer: { secrules_engine: 'Enabled' },
      messages,
    },
  };
}

test('ModSecurity 3, JSON', () => {
  expect(detailsIn(modsecurity3())).toEqual({
    blocked: true,
    source: '192.0.2.7',
    id: '178290123012.345678',
    method: 'GET',
    url: '/download?file=../../etc/passwd&token=...',
    status: 403,
    user_agent: BROWSER,
    score: 10,
    rule: '930100',
    rules: [
      LFI_KEPT,
      { id: '920320', severity: 'critical', variable: 'REQUEST_HEADERS:User-Agent' },
      { id: '949110', severity: 'critical' },
    ],
  });
});

const FIELDS = '[file "/etc/crs/rules/REQUEST-930-APPLICATION-ATTACK-LFI.conf"] [line "30"] [id "930100"]';
const LFI_TEXT =
  `Warning. Pattern match "\\.\\./" at ARGS:file. ${FIELDS} [msg "Path Traversal Attack"] ` +
  '[data "Matched Data: ../ found within ARGS:file: ../../etc/passwd"] [severity "CRITICAL"] [ver "OWASP_CRS/3.3.4"]';
const VERDICT_TEXT =
  'Access denied with code 403 (phase 2). Operator GE matched 5 at TX:anomaly_score. ' +
  '[file "/etc/crs/rules/REQUEST-949-BLOCKING-EVALUATION.conf"] [line "1"] [id "949110"] ' +
  '[msg "Inbound Anomaly Score Exceeded (Total Score: 5)"] [severity "CRITICAL"] [ver "OWASP_CRS/3.3.4"]';
const BY_2 = {
  blocked: true,
  source: '192.0.2.7',
  id: 'akTpbsCoAAEAAAAA',
  status: 403,
  score: 5,
  rule: '930100',
  rules: [LFI_KEPT, { id: '949110', severity: 'critical', variable: 'TX:anomaly_score' }],
};
const REQUEST_LINE = 'GET /download?file=../../etc/passwd HTTP/1.1';
const BY_REQUEST_LINE = { method: 'GET', url: '/download?file=../../etc/passwd', user_agent: BROWSER };

test('ModSecurity 2, JSON', () => {
  const line = {
    transaction: {
      time: '01/Jul/2026:10:20:30 +0000',
      transaction_id: BY_2.id,
      remote_address: '192.0.2.7',
    },
    request: {
      request_line: REQUEST_LINE,
      headers: { Host: 'shop.example.com', 'User-Agent': BROWSER },
    },
    response: { status: 403 },
    audit_data: { messages: [LFI_TEXT, VERDICT_TEXT], action: { intercepted: true } },
  };
  expect(detailsIn(line)).toEqual({ ...BY_2, ...BY_REQUEST_LINE });
});

test('ModSecurity, native', () => {
  const lines = [
    '--622ca252-A--',
    `[01/Jul/2026:10:20:30 +0000] ${BY_2.id} 192.0.2.7 22387 192.0.2.1 80`,
    '--622ca252-B--',
    REQUEST_LINE,
    'Host: shop.example.com',
    `user-agent: ${BROWSER}`,
    '--622ca252-F--',
    'HTTP/1.1 403 Forbidden',
    'X-Text: HTTP/1.1 200 OK',
    '--622ca252-H--',
    `Message: ${LFI_TEXT}`,
    `Message: ${VERDICT_TEXT}`,
    'Action: Intercepted (phase 2)',
    '--622ca252-Z--',
  ];
  expect(detailsIn(...lines)).toEqual({ ...BY_2, ...BY_REQUEST_LINE });
});

test('Coraza, JSON', () => {
  const { LFI_DATA, line } = coraza();
  expect(detailsIn(line)).toEqual({
    blocked: true,
    source: '192.0.2.7',
    id: 'AbCdEfGhIjKlMnOp',
    method: 'POST',
    url: '/download?a=1',
    status: 403,
    user_agent: BROWSER,
    score: 5,
    rule: '930100',
    rules: [LFI_KEPT, { id: '949110' }],
  });
  expect(LFI_DATA.data).toContain('found within');
});

function coraza() {
  const LFI_DATA = {
    id: 930100,
    file: '@owasp_crs/REQUEST-930-APPLICATION-ATTACK-LFI.conf',
    data: LFI.details.data,
    severity: 2,
    ver: 'OWASP_CRS/4.7.0',
    tags: [],
  };
  const line = {
    transaction: {
      unix_timestamp: 1_782_901_230_456_789_000,
      id: 'AbCdEfGhIjKlMnOp',
      client_ip: '192.0.2.7',
      request: {
        method: 'POST',
        uri: '/download?a=1',
        headers: { host: ['shop.example.com'], 'user-agent': [BROWSER] },
      },
      response: { status: 403 },
      is_interrupted: true,
    },
    messages: [
      { message: 'Path Traversal Attack', data: LFI_DATA },
      {
        message: '',
        data: {
          ...LFI_DATA,
          id: 949110,
          msg: 'Inbound Anomaly Score Exceeded (Total Score: 5)',
          data: '',
          severity: 0,
        },
      },
    ],
  };
  return { LFI_DATA, line };
}

/** The rest of a message of ModSecurity in an error log. */
function tail(uri: string, id = BY_2.id): string {
  return `[hostname "shop.example.com"] [uri "${uri}"] [unique_id "${id}"]`;
}

const NGINX = '2026/07/01 10:20:30 [error] 34#34: *8 [client 192.0.2.7] ModSecurity: ';

function nginxSuffix(request = REQUEST_LINE): string {
  return `, client: 192.0.2.7, server: shop.example.com, request: "${request}", host: "shop.example.com"`;
}

test('error log of nginx', () => {
  const lines = [LFI_TEXT, VERDICT_TEXT].map(
    (text) => `${NGINX}${text} ${tail('/download')}${nginxSuffix()}`,
  );
  expect(detailsIn(...lines)).toEqual({
    ...BY_2,
    method: 'GET',
    url: '/download?file=../../etc/passwd',
  });
});

test('error log of Apache', () => {
  const head =
    '[Wed Jul 01 10:20:30.123456 2026] [security2:error] [pid 1:tid 2] [client 192.0.2.7:999] [client 192.0.2.7]';
  const lines = [LFI_TEXT, VERDICT_TEXT].map((text) => `${head} ModSecurity: ${text} ${tail('/download')}`);
  expect(detailsIn(...lines)).toEqual({ ...BY_2, url: '/download' });
});

test('limit_req of nginx', () => {
  const line = `2026/07/01 10:20:30 [error] 34#34: *8 limiting requests, excess: 0.5 by zone "one"${nginxSuffix('POST /a"b?c=1 HTTP/1.1')}`;
  expect(detailsIn(line)).toEqual({
    blocked: true,
    source: '192.0.2.7',
    method: 'POST',
    url: '/a"b?c=1',
    rule: 'limit_req',
  });
});

test('Caddy', () => {
  const msg =
    '[client "192.0.2.7"] Coraza: Warning. Path Traversal Attack [file "@owasp_crs/REQUEST-930-APPLICATION-ATTACK-LFI.conf"] ' +
    `[line "30"] [id "930100"] [data "${LFI.details.data}"] [severity "critical"] [ver "OWASP_CRS/4.7.0"] ` +
    '[hostname "shop.example.com"] [uri "/download?a=1"] [unique_id "AbCdEfGhIjKlMnOp"]\n';
  expect(detailsIn({ level: 'error', ts: 1_782_901_230.4, logger: 'http.handlers.waf', msg })).toEqual({
    blocked: false,
    source: '192.0.2.7',
    id: 'AbCdEfGhIjKlMnOp',
    url: '/download?a=1',
    rule: '930100',
    rules: [LFI_KEPT],
  });
});

test('AWS WAF', () => {
  const line = {
    timestamp: 1_782_901_230_456,
    webaclId: 'arn:aws:wafv2:eu-west-1:123456789012:regional/webacl/example/1',
    terminatingRuleId: 'injections',
    terminatingRuleType: 'REGULAR',
    action: 'BLOCK',
    terminatingRuleMatchDetails: [
      {
        conditionType: 'SQL_INJECTION',
        location: 'ALL_QUERY_ARGS',
        matchedFieldName: 'q',
        matchedData: ['1', 'OR', '1'],
      },
    ],
    ruleGroupList: [],
    nonTerminatingMatchingRules: [
      {
        ruleId: 'watch',
        action: 'COUNT',
        ruleMatchDetails: [
          { conditionType: 'XSS', location: 'HEADER', matchedFieldName: 'cookie', matchedData: ['S'] },
        ],
      },
    ],
    responseCodeSent: 405,
    httpRequest: {
      clientIp: '192.0.2.7',
      country: 'NL',
      headers: [
        { name: 'Host', value: 'shop.example.com' },
        { name: 'User-Agent', value: BROWSER },
      ],
      uri: '/search',
      args: 'q=1%20OR%201&api_key=S',
      httpMethod: 'GET',
      requestId: '1-6a44e9-0123456789abcdef',
    },
  };
  expect(detailsIn(line)).toEqual({
    blocked: true,
    source: '192.0.2.7',
    country: 'NL',
    id: '1-6a44e9-0123456789abcdef',
    method: 'GET',
    url: '/search?q=1%20OR%201&api_key=...',
    status: 405,
    user_agent: BROWSER,
    rule: 'injections',
    rules: [
      { id: 'injections', variable: 'ALL_QUERY_ARGS:q', value: '1 OR 1' },
      { id: 'watch', variable: 'HEADER:cookie', value: '...' },
    ],
  });
});

test('AWS load balancers', () => {
  const line =
    'https 2026-07-01T10:20:31.456789Z app/example/50dc 192.0.2.7:50000 - 0.000 0.001 0.000 403 - 34 366 ' +
    `"GET https://shop.example.com:443/search?q=1 HTTP/1.1" "${BROWSER}" - - arn:aws:x "Root=1-6a45-1" "shop.example.com" "-" ` +
    '0 2026-07-01T10:20:30.456000Z "waf" "-" "-" "-" "-" "-" "-" TID_1';
  expect(detailsIn(line)).toEqual({
    blocked: true,
    source: '192.0.2.7',
    id: 'Root=1-6a45-1',
    method: 'GET',
    url: '/search?q=1',
    status: 403,
    user_agent: BROWSER,
  });
});

describe('Cloudflare', () => {
  const request = {
    ClientIP: '192.0.2.7',
    ClientCountry: 'nl',
    ClientRequestHost: 'shop.example.com',
    ClientRequestMethod: 'GET',
    ClientRequestPath: '/search',
    ClientRequestUserAgent: BROWSER,
    EdgeResponseStatus: 403,
    RayID: '9a00000000000002',
  };
  const kept = {
    blocked: true,
    source: '192.0.2.7',
    country: 'NL',
    id: '9a00000000000002',
    method: 'GET',
    url: '/search?q=1',
    status: 403,
    user_agent: BROWSER,
  };

  test('requests', () => {
    const line = {
      ...request,
      ClientRequestURI: '/search?q=1',
      EdgeStartTimestamp: '2026-07-01T10:20:30Z',
      SecurityActions: ['block', 'log'],
      SecuritySources: ['firewallManaged', 'firewallManaged'],
      SecurityRuleIDs: ['0a0a', '0b0b'],
      SecurityRuleID: '0b0b',
      SecurityRuleDescription: 'SQLi - Comparison',
    };
    expect(detailsIn(line)).toEqual({ ...kept, rule: '0b0b', rules: [{ id: '0b0b' }, { id: '0a0a' }] });
  });

  test('firewall events', () => {
    const line = {
      ...request,
      ClientRequestQuery: '?q=1',
      Datetime: '2026-07-01T10:20:30Z',
      Action: 'block',
      Source: 'firewallmanaged',
      RuleID: '0a0a',
      Description: '942100: SQL Injection Attack Detected via libinjection',
    };
    expect(detailsIn(line)).toEqual({ ...kept, rule: '942100', rules: [{ id: '942100' }] });
  });
});

describe('Azure', () => {
  test('Application Gateway', () => {
    const properties = {
      clientIp: '192.0.2.7',
      requestUri: '/search?q=1',
      ruleSetType: 'OWASP CRS',
      ruleSetVersion: '3.2',
      hostname: 'shop.example.com',
      transactionId: 'aa11',
    };
    const line = (ruleId: string, action: string, message: string, details: object) => ({
      timeStamp: '2026-07-01T10:20:30Z',
      category: 'ApplicationGatewayFirewallLog',
      properties: { ...properties, ruleId, action, message, details },
    });
    expect(
      detailsIn(
        line('942130', 'Matched', 'SQL Injection Attack', {
          message: 'Pattern match (?i)x at ARGS.',
          data: '{1=1 found within [ARGS:q:a: 1=1]}',
        }),
        line('942100', 'Matched', 'SQL Injection Attack', {
          message: 'Detect Sql Injection at ARGS.',
          data: '{s&1c found within [ARGS:password:S],[ARGS:q:1=1]}',
        }),
        line('920350', 'Matched', 'Host header is a numeric IP address', {
          message: 'Warning. Pattern match "^[\\\\d.:]+$" at REQUEST_HEADERS:Host ....',
          data: '192.0.2.1',
        }),
        line('949110', 'Blocked', 'Mandatory rule. Inbound Anomaly Score Exceeded (Total Score: 13)', {}),
      ),
    ).toEqual({
      blocked: true,
      source: '192.0.2.7',
      id: 'aa11',
      url: '/search?q=1',
      score: 13,
      rule: '942130',
      rules: [
        { id: '942130', variable: 'ARGS:q', value: 'a: 1=1' },
        { id: '942100', variable: 'ARGS:password', value: '...' },
        { id: '920350', variable: 'REQUEST_HEADERS:Host', value: '192.0.2.1' },
        { id: '949110' },
      ],
    });
  });

  test('Front Door', () => {
    const line = {
      time: '2026-07-01T10:20:30Z',
      category: 'FrontDoorWebApplicationFirewallLog',
      properties: {
        clientIP: '192.0.2.7',
        socketIP: '192.0.2.7',
        requestUri: 'https://shop.example.com:443/search?q=1',
        ruleName: 'Microsoft_DefaultRuleSet-2.1-SQLI-942100',
        action: 'Block',
        host: 'shop.example.com',
        trackingReference: '20260701T102030Z-1',
        policyMode: 'prevention',
        details: { matches: [{ matchVariableName: 'QueryParamValue:q', matchVariableValue: "1' or 1=1" }] },
      },
    };
    expect(detailsIn(line)).toEqual({
      blocked: true,
      source: '192.0.2.7',
      id: '20260701T102030Z-1',
      url: '/search?q=1',
      rule: '942100',
      rules: [{ id: '942100', variable: 'QueryParamValue:q', value: "1' or 1=1" }],
    });
  });
});

test('Google Cloud Armor', () => {
  const line = {
    insertId: '83gmkdftgh8t5',
    timestamp: '2026-07-01T10:20:30.123456Z',
    resource: { type: 'http_load_balancer' },
    httpRequest: {
      requestMethod: 'GET',
      requestUrl: 'https://shop.example.com/search?q=1',
      status: 403,
      userAgent: BROWSER,
    },
    jsonPayload: {
      remoteIp: '192.0.2.7',
      enforcedSecurityPolicy: {
        name: 'policy',
        priority: 1_000,
        outcome: 'DENY',
        preconfiguredExprIds: ['owasp-crs-v030301-id942100-sqli'],
        matchedFieldType: 'ARG_VALUES',
        matchedFieldName: 'q',
        matchedFieldValue: "1' or 1=1",
      },
    },
  };
  expect(detailsIn(line)).toEqual({
    blocked: true,
    source: '192.0.2.7',
    id: '83gmkdftgh8t5',
    method: 'GET',
    url: '/search?q=1',
    status: 403,
    user_agent: BROWSER,
    rule: '942100',
    rules: [{ id: '942100', variable: 'ARG_VALUES:q', value: "1' or 1=1" }],
  });
});

test('NAXSI', () => {
  const line =
    '2026/07/01 10:20:30 [error] 34#34: *8 NAXSI_FMT: ip=192.0.2.7&server=shop.example.com&rid=00112233&uri=%2Fsearch&' +
    'config=block&cscore0=$SQL&score0=8&zone0=HEADERS&id0=11&var_name0=&zone1=ARGS&id1=1000&var_name1=q';
  expect(detailsIn(`${line}${nginxSuffix('GET /search?q=1 HTTP/1.1')}`)).toEqual({
    blocked: true,
    source: '192.0.2.7',
    id: '00112233',
    method: 'GET',
    url: '/search?q=1',
    rule: '1000',
    rules: [
      { id: '1000', variable: 'ARGS:q' },
      { id: '11', variable: 'HEADERS' },
    ],
  });
});

test("the vendor's logs (LTS)", () => {
  const line = {
    hostid: '0123456789abcdef0123456789abcdef',
    http_host: 'shop.example.com',
    time_iso8601: '2026-07-01T18:20:30+08:00',
    category: 'attack',
    attack: 'sqli',
    action: 'block',
    rule: '010001',
    requestid: 'bbbb',
    method: 'GET',
    sip: '192.0.2.7',
    uri: '/search',
    args: 'q=1',
    status: '403',
    user_agent: BROWSER,
    location: 'params',
    hit_data: "1' or 1=1",
    'attack-time': '2026-07-01T10:20:30.000Z',
  };
  expect(detailsIn(line)).toEqual({
    blocked: true,
    source: '192.0.2.7',
    id: 'bbbb',
    method: 'GET',
    url: '/search?q=1',
    status: 403,
    user_agent: BROWSER,
    rule: '010001',
    rules: [{ id: '010001', variable: 'params', value: "1' or 1=1" }],
  });
});

test('Envoy', () => {
  const line = {
    start_time: '2026-07-01T10:20:30.456Z',
    authority: 'shop.example.com',
    method: 'GET',
    path: '/search?q=1',
    response_code: 429,
    response_flags: 'RL',
    request_id: '9f69865b',
    user_agent: BROWSER,
    downstream_remote_address: '192.0.2.7:4711',
  };
  expect(detailsIn(line)).toEqual({
    blocked: true,
    source: '192.0.2.7',
    id: '9f69865b',
    method: 'GET',
    url: '/search?q=1',
    status: 429,
    user_agent: BROWSER,
  });
});

describe('the normal form', () => {
  const event = {
    blocked: true,
    source: '192.0.2.7',
    country: 'NL',
    id: 'a1',
    method: 'GET',
    url: '/search?q=1',
    status: 403,
    rule: '942100',
    rules: [{ id: '942100', variable: 'ARGS:q', value: '1=1', severity: 'critical' }, { id: '949110' }],
    score: 5,
    user_agent: BROWSER,
  };
  const line = (fields: object) => ({ time: 1_782_901_230_456, attack: 'sqli', ...fields });

  test('has all fields', () => {
    expect(detailsIn(line(event))).toEqual(event);
  });

  test('a rule alone works, and rules alone name the one that decided', () => {
    expect(detailsIn(line({ rule: '1' }))).toEqual({ rule: '1' });
    expect(detailsIn(line({ rules: [{ id: '1' }, { id: '2' }] }))).toEqual({
      rule: '1',
      rules: [{ id: '1' }, { id: '2' }],
    });
    expect(detailsIn(line({ rules: [], id: null }))).toEqual({});
  });

  test('secrets are masked', () => {
    const rules = [{ id: '1', variable: 'ARGS:token', value: 'S' }];
    expect(detailsIn(line({ url: '/a?token=S', user_agent: 'Bearer S', rules }))).toEqual({
      url: '/a?token=...',
      user_agent: 'Bearer ...',
      rule: '1',
      rules: [{ id: '1', variable: 'ARGS:token', value: '...' }],
    });
  });

  test('what a client chooses never drops an attack', () => {
    const rules = Array.from({ length: 33 }, (_, i) => ({ id: String(i + 1) }));
    expect(detailsIn(line({ method: 'GET /', user_agent: '-', rules }))).toEqual({
      rule: '1',
      rules: rules.slice(0, 32),
    });
    expect(detailsIn(line({ method: '', user_agent: '' }))).toEqual({});
  });

  test.each([
    [{ id: '' }],
    [{ id: 1 }],
    [{ status: '403' }],
    [{ status: 99 }],
    [{ score: -1 }],
    [{ score: '5' }],
    [{ user_agent: 1 }],
    [{ rules: {} }],
    [{ rules: ['942100'] }],
    [{ rules: [{ id: '' }] }],
    [{ rules: [{ id: 1 }] }],
    [{ rules: [{ id: '1', value: 1 }] }],
    [{ method: 1 }],
  ])('%j is malformed', (fields) => {
    expect(readLines([JSON.stringify(line(fields))])).toMatchObject([{ reason: 'bad_details' }]);
  });
});

describe('what a client writes stays in its own fields', () => {
  test('an argument cannot forge the ID, the method or the score of its request', () => {
    const forged = LFI_TEXT.replace(
      'ARGS:file: ../../etc/passwd',
      'ARGS:file: ../"] [severity "0"] [msg "Inbound Anomaly Score Exceeded (Total Score: 9999)"] [data "x',
    );
    const lines = [forged, VERDICT_TEXT].map(
      (text) => `${NGINX}${text} ${tail('/download')}${nginxSuffix()}`,
    );
    expect(detailsIn(...lines)).toMatchObject({ id: BY_2.id, method: 'GET', score: 5 });
  });

  test('a forged suffix leaves method and query out', () => {
    const forged = LFI_TEXT.replace(
      '../../etc/passwd',
      `../"], client: 198.51.100.1, server: a, request: "DELETE /x?y HTTP/1.1", host: "a`,
    );
    const details = detailsIn(`${NGINX}${forged} ${tail('/download')}${nginxSuffix()}`);
    expect(details).toMatchObject({ source: '192.0.2.7', url: '/download' });
    expect(details).not.toHaveProperty('method');
  });

  test('a request line cannot end the real one', () => {
    const request = 'GET /download?a=", host: "evil.example.com HTTP/1.1';
    const details = detailsIn(`${NGINX}${LFI_TEXT} ${tail('/download')}${nginxSuffix(request)}`);
    expect(details).toMatchObject({ method: 'GET', url: '/download?a=' });
  });

  test('a question mark in a decoded path does not begin a query', () => {
    const head =
      '[Wed Jul 01 10:20:30.123456 2026] [security2:error] [client 192.0.2.7:999] [client 192.0.2.7]';
    const line = `${head} ModSecurity: ${LFI_TEXT} ${tail('/a?password')}`;
    expect(detailsIn(line)).toMatchObject({ url: '/a' });
  });

  test('an argument name cannot hide that the value is a secret', () => {
    const data = 'Matched Data: x found within ARGS:a: found within ARGS:password: S';
    const line = modsecurity3({ messages: [{ ...LFI, details: { ...LFI.details, data } }] });
    expect(JSON.stringify(detailsIn(line))).not.toContain('S"');
  });

  test('a long name cannot hide that the value is a secret', () => {
    const data = `Matched Data: S found within ARGS:json.${'a.'.repeat(99)}password: S`;
    const line = modsecurity3({ messages: [{ ...LFI, details: { ...LFI.details, data } }] });
    expect(JSON.stringify(detailsIn(line))).not.toContain('S"');
  });

  test('a later line with a secret masks the values that repeated it', () => {
    const texts = ['ARGS:confirm', 'ARGS:password'].map((variable) =>
      LFI_TEXT.replaceAll('ARGS:file', variable).replace('../../etc/passwd', '../hunter2'),
    );
    const lines = texts.map((text) => `${NGINX}${text} ${tail('/download')}${nginxSuffix()}`);
    expect(detailsIn(...lines)).toMatchObject({
      rules: [
        { variable: 'ARGS:confirm', value: '...' },
        { variable: 'ARGS:password', value: '...' },
      ],
    });
  });

  test('names of rules are cut, and the one that decided is in the list once', () => {
    const line = {
      ClientRequestHost: 'shop.example.com',
      RayID: '9a00000000000003',
      Datetime: '2026-07-01T10:20:30Z',
      Action: 'block',
      Source: 'waf',
      RuleID: `a\u0000${'b'.repeat(100)}`,
    };
    const rule = `a%00${'b'.repeat(60)}`;
    expect(detailsIn(line)).toMatchObject({ rule, rules: [{ id: rule }] });
  });

  test('fields are printable and short, whatever the log contains', () => {
    const text = fc.string({ unit: 'binary', maxLength: 300 });
    const bytes = (value: unknown) => Buffer.byteLength(String(value ?? ''));
    fc.assert(
      fc.property(text, text, text, text, (id, variable, value, path) => {
        const data = `Matched Data: ${value} found within ARGS:${variable}: ${value}`;
        const audit = modsecurity3({ uri: path, messages: [{ ...LFI, details: { ...LFI.details, data } }] });
        const cloudflare = {
          ClientRequestHost: 'shop.example.com',
          ClientRequestPath: path,
          ClientRequestUserAgent: value,
          RayID: id,
          Datetime: '2026-07-01T10:20:30Z',
          Action: 'block',
          Source: 'waf',
          RuleID: variable,
        };
        const event = { time: 1_782_901_230_456, attack: 'xss', url: `/${path}`, user_agent: value };
        for (const line of [audit, cloudflare, event]) {
          const kept = detailsIn(line) as Record<string, unknown> & { rules?: Record<string, unknown>[] };
          expect(JSON.stringify(kept)).not.toMatch(/[\p{Cc}\p{Cf}\p{Cs}]|\\u/u);
          expect(bytes(kept.url)).toBeLessThanOrEqual(513);
          for (const each of [kept.id, kept.user_agent]) expect(bytes(each)).toBeLessThanOrEqual(128);
          for (const rule of [{ id: kept.rule }, ...(kept.rules ?? [])]) {
            expect(bytes(rule.id)).toBeLessThanOrEqual(64);
            expect(bytes(rule.variable)).toBeLessThanOrEqual(128);
            expect(bytes(rule.value)).toBeLessThanOrEqual(128);
          }
        }
      }),
    );
  });

  test('a megabyte in every field is cut', () => {
    const long = 'a'.repeat(300_000);
    const data = `Matched Data: ${long} found within ARGS:${long}: ${long}`;
    const details = detailsIn(
      modsecurity3({ uri: `/${long}?${long}`, messages: [{ ...LFI, details: { ...LFI.details, data } }] }),
    );
    expect(JSON.stringify(details).length).toBeLessThan(1_500);
  });
});

describe('what matched', () => {
  const ruleIn = (details: object) => {
    const { rules } = detailsIn(
      modsecurity3({ messages: [{ ...LFI, details: { ...LFI.details, ...details } }] }),
    ) as {
      rules: object[];
    };
    return rules[0];
  };

  test.each([
    ['from the data', { match: '', data: 'Matched Data: a found within ARGS:q: abc' }, 'ARGS:q', 'abc'],
    [
      'of a variable without a name',
      { data: 'Matched Data: a found within REQUEST_URI: /abc' },
      'REQUEST_URI',
      '/abc',
    ],
    ['without its value', { data: 'Matched Data: abc found within ARGS:q' }, 'ARGS:q', 'abc'],
    ['as name and value', { data: 'REQUEST_HEADERS:X-A=abc' }, 'REQUEST_HEADERS:X-A', 'abc'],
    ['from the operator', { data: '' }, 'ARGS:file', '../../etc/passwd'],
    ['with its own data', { data: 'a=b' }, 'ARGS:file', 'a=b'],
    ['nowhere', { match: 'detected XSS using libinjection.', data: 'abc' }, undefined, undefined],
    [
      'after ModSecurity 2',
      { match: 'Match of "eq 0" against "ARGS:q" required.', data: '' },
      'ARGS:q',
      undefined,
    ],
    [
      'by bytes',
      { match: 'Found 3 byte(s) in REQUEST_URI outside range: 1-255.', data: '' },
      'REQUEST_URI',
      undefined,
    ],
  ])('%s', (_, details, variable, value) => {
    expect(ruleIn(details)).toEqual({
      id: '930100',
      severity: 'critical',
      ...(variable && { variable }),
      ...(value && { value }),
    });
  });

  test('a rule that matches several variables is in the list for each', () => {
    const other = { ...LFI, details: { ...LFI.details, data: 'Matched Data: a found within ARGS:b: a' } };
    expect(detailsIn(modsecurity3({ messages: [LFI, LFI, other] }))).toMatchObject({
      rules: [LFI_KEPT, { ...LFI_KEPT, variable: 'ARGS:b', value: 'a' }],
    });
  });
});
