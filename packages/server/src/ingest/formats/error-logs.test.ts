import { describe, expect, test } from 'vitest';
import { outcomes, readFixture, readLines } from '../../../fixtures/read-fixture.ts';
import { fixedZone } from './time-zone.ts';

describe('nginx', () => {
  const line = (path: string, end = '') =>
    '2026/11/15 02:20:43 [info] 15255#15255: *3 ModSecurity: Warning. detected SQLi using libinjection. ' +
    '[file "/crs/REQUEST-942-APPLICATION-ATTACK-SQLI.conf"] [line "46"] [id "942100"] [severity "2"] ' +
    `[ver "OWASP_CRS/3.3.4"] [hostname "192.0.2.1"] [uri "${path}"] [unique_id "17947092439.491909"] [ref "v9,17"], ` +
    `client: 192.0.2.7, server: shop.example.com, request: "GET /x HTTP/1.1", host: "shop.example.com"${end}`;

  const FORGED = ', client: 203.0.113.9, server: , request: "GET / HTTP/1.1", host: "victim.example"';

  test('host and client follow the message', () => {
    expect(readLines([line('/x', ', referrer: "http://shop.example.com/"')])).toMatchObject([
      { record: { attack: 'sqli', host: 'shop.example.com', details: { source: '192.0.2.7', url: '/x' } } },
    ]);
  });

  test.each([
    ['the path', line(`/x"] [unique_id "17947092439.1"] [ref "x"]${FORGED}`)],
    ['the path, without an id', line(`/x"]${FORGED}`)],
    ['the referrer', line('/x', `, referrer: "x"]${FORGED}`)],
    ['the referrer, without a message', line('/x', `, referrer: "x"${FORGED}`)],
  ])('a client that forges both in %s is still counted, and not for another host or client', (_, text) => {
    const [parsed, ...others] = readLines([text]);
    expect(others).toEqual([]);
    expect(parsed).toMatchObject({ record: { attack: 'sqli' } });
    const record = parsed?.kind === 'record' ? parsed.record : undefined;
    // The engine uses the address of the server as the host.
    expect([undefined, '192.0.2.1']).toContain(record?.host);
    expect([undefined, '192.0.2.7']).toContain(record?.details?.source);
  });

  test('a request rejected by limit_req has no host if a client wrote a second one', () => {
    const limited = (end: string) =>
      '2026/11/15 02:20:43 [error] 1#1: *3 limiting requests, excess: 1.1 by zone "z", client: 192.0.2.7, server: , ' +
      `request: "GET / HTTP/1.1", host: "shop.example.com"${end}`;
    expect(readLines([limited('')])).toMatchObject([{ record: { attack: 'cc', host: 'shop.example.com' } }]);
    expect(readLines([limited(', referrer: "x", host: "victim.example"')])).toMatchObject([
      { record: { attack: 'cc', host: undefined } },
    ]);
  });

  test('a line that was cut after the ID has the time in the ID, which needs no zone', () => {
    const at = (time: string) =>
      line(`/${'x'.repeat(1_500)}`)
        .replace('02:20:43', time)
        .slice(0, 2_047);
    for (const time of ['02:20:43', '04:20:43']) {
      expect(readLines([at(time)])).toMatchObject([{ record: { time: Date.UTC(2026, 10, 15, 2, 20, 43) } }]);
    }
    const other = at('02:20:43').replace('17947092439.491909', '17829000000.491909');
    expect(readLines([other])).toMatchObject([{ record: { time: Date.UTC(2026, 10, 15, 2, 20, 43) } }]);
  });
});

describe('Apache', () => {
  const TIME = Date.UTC(2026, 6, 1, 10, 0, 0);
  const RULE =
    'ModSecurity: Warning. Matched. [file "/crs/REQUEST-942-APPLICATION-ATTACK-SQLI.conf"] [id "942100"] ' +
    '[severity "CRITICAL"] [ver "OWASP_CRS/3.3.4"] [hostname "shop.example.com"] [uri "/"] [unique_id "b"]';
  const CLIENT = '[client 192.0.2.7:4711] [client 192.0.2.7] ';
  const BERLIN = fixedZone(120);

  test.each([
    ['[Wed Jul 01 12:00:00.123456 2026] [security2:error] [pid 16:tid 14] ', TIME + 123],
    ['[Wed Jul 01 10:00:00.123456 2026 +0000] [security2:error] [pid 16:tid 14] ', TIME + 123],
    // `%{cu}t` and `%{c}t`.
    ['[2026-07-01 12:00:00.123456] [security2:error] [pid 16:tid 14] ', TIME + 123],
    ['[2026-07-01 12:00:00] [security2:error] [pid 16:tid 14] ', TIME],
    ['[2026-07-01T12:00:00.123456] [security2:error] ', TIME + 123],
    ['[2026-07-01T12:00:00.123456+02:00] [security2:error] ', TIME + 123],
    ['[2026-07-01T08:00:00-0200] [security2:error] ', TIME],
    ['[2026-07-01 08:00:00.123456 -0200] [security2:error] ', TIME + 123],
    ['[2026-07-01T10:00:00Z] ', TIME],
    ['[Wed Jul 01 12:00:00 2026] [error] [pid 16] apache2_util.c(275): ', TIME],
    // Without the brackets.
    ['2026-07-01 12:00:00.123456 [security2:error] [pid 16] ', TIME + 123],
    ['2026-07-01 12:00:00.123456 security2:error pid 16:tid 14 ', TIME + 123],
    ['2026-07-01T12:00:00 error: ', TIME],
    ['2026-07-01T10:00:00Z | error | 192.0.2.7:4711 ', TIME],
    ['[2026-07-01 12:00:00.123456] error 16 client 2001:db8::7 ', TIME + 123],
  ])('%s', (front, time) => {
    for (const format of ['auto', 'apache-error'] as const) {
      for (const line of [`${front}${CLIENT}${RULE}`, `${front}${RULE}`]) {
        expect(readLines([line], { format, zone: BERLIN })).toMatchObject([
          {
            kind: 'record',
            format: 'apache-error',
            record: { time, attack: 'sqli', host: 'shop.example.com' },
          },
        ]);
      }
    }
  });

  test.each([
    // The client controls the path.
    [
      `[2026-07-01 12:00:00.1] [core:error] [pid 1] ${CLIENT}AH00128: File does not exist: /${RULE}`,
      'other_log_line',
    ],
    [
      `[2026-07-01 12:00:00.1] [core:error] ${CLIENT}AH00128: File does not exist: /a ${RULE}`,
      'other_log_line',
    ],
    [`2026-07-01 12:00:00.1 error AH00128: File does not exist: /a ${RULE}`, 'unknown_format'],
    // Lines of other programs.
    ['2026-07-01 12:00:00 something happened', 'unknown_format'],
    ['[2026-07-01 12:00:00] something happened', 'unknown_format'],
    ['[2026-07-01] [error] x', 'apache-error'],
    [
      `2026-07-01T12:00:00Z web nginx: 192.0.2.7 - - [01/Jul/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 6`,
      'request',
    ],
    [`[2026-02-31 12:00:00] [error] ${RULE}`, 'unknown_format'],
    [`[2026-07-01 12:00:00+9999] [error] ${RULE}`, 'unknown_format'],
  ])('%s is %s', (line, want) => {
    if (want === 'apache-error')
      expect(outcomes(readLines([line], { format: want }))).toEqual(['unknown_format']);
    else expect(outcomes(readLines([line]))).toEqual([want]);
  });

  test('a line of any length takes linear time', () => {
    for (const front of ['[2026-07-01 12:00:00] ', '2026-07-01 12:00:00 ']) {
      for (const part of ['[', '[] ', 'error ', '1 ', '1:', 'a:']) {
        expect(readLines([front + part.repeat(1_000_000 / part.length)])).toHaveLength(1);
      }
    }
  });

  describe('a forged referer', () => {
    const line = (name: string, id: string, referer = '') =>
      `[Wed Jul 01 12:00:00.123456 2026] [security2:error] [pid 16:tid 14] ${CLIENT}ModSecurity: Warning. Pattern match ` +
      `"evil" at ARGS_NAMES:${name}. [file "/etc/waf/own.conf"] [line "7"] [id "10001"] [hostname "shop.example.com"] ` +
      `[uri "/"] [unique_id "${id}"]${referer}`;
    const record = { attack: 'custom', details: { source: '192.0.2.7' } };

    test('in an argument does not hide the attack', () => {
      const lines = Array.from({ length: 10 }, (_, i) => line('evil"], referer: x', `a${i}`));
      expect(readLines(lines)).toMatchObject(
        lines.map(() => ({ record: { ...record, host: 'shop.example.com' } })),
      );
      const withReferer = lines.map((each) => `${each}, referer: http://shop.example.com/`);
      expect(readLines(withReferer)).toHaveLength(10);
    });

    test.each([
      ['evil"] [unique_id "z"], referer: x', ''],
      ['evil', ', referer: x"] [hostname "victim.example"] [uri "/"] [unique_id "z"], referer: y'],
      ['evil', ', referer: x"] [hostname "victim.example"] [uri "/"] [unique_id "z"]'],
    ])('with an ID neither joins attacks nor moves them to another host: %s %s', (name, referer) => {
      const lines = Array.from({ length: 10 }, (_, i) => line(name, `a${i}`, referer));
      expect(readLines(lines)).toMatchObject(lines.map(() => ({ record: { ...record, host: undefined } })));
      expect(outcomes(readLines([lines[0] ?? '', lines[0] ?? '']))).toEqual(['custom']);
    });

    test('before an ID that Apache cut off is not trusted', () => {
      const cut = (i: number) =>
        line(`evil"] [unique_id "z"], referer: ${'x'.repeat(i)}`, 'a')
          .replace('[uri "/"]', `[uri "/${'x'.repeat(8_100)}"]`)
          .slice(0, 8_191);
      const [first] = readLines([cut(1)]);
      expect(first).toMatchObject({ record: { host: undefined } });
    });
  });
});

test('Caddy with Coraza: joins rules by ID, next to access lines, as JSON and as on a terminal', () => {
  const parsed = readFixture('caddy.log');
  expect(outcomes(parsed)).toEqual(['other_log_line', 'request', 'sqli']);
  expect(parsed.map(({ format }) => format)).toEqual(['caddy', 'access-json', 'caddy']);
  expect(parsed[2]).toMatchObject({
    record: {
      time: Date.UTC(2026, 6, 1, 10, 20, 30, 456),
      host: 'shop.example.com',
      details: { blocked: true, source: '192.0.2.7', url: '/', rule: '942100' },
    },
  });
  const onTerminal = readFixture('caddy-terminal.log', { zone: fixedZone(60) });
  expect(outcomes(onTerminal)).toEqual(['other_log_line', 'sqli']);
  expect(onTerminal[1]).toMatchObject({
    record: { time: Date.UTC(2026, 6, 1, 10, 20, 30, 456) - 3_600_000 },
  });
});
