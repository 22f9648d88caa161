import { expect, test } from 'vitest';
import { readLines } from '../../../fixtures/read-fixture.ts';

const line = (path: string, end = '') =>
  '2026/11/15 02:20:43 [info] 15255#15255: *3 ModSecurity: Warning. detected SQLi using libinjection. ' +
  '[file "/crs/REQUEST-942-APPLICATION-ATTACK-SQLI.conf"] [line "46"] [id "942100"] [severity "2"] ' +
  `[ver "OWASP_CRS/3.3.4"] [hostname "192.0.2.1"] [uri "${path}"] [unique_id "17947092439.491909"] [ref "v9,17"], ` +
  `client: 192.0.2.7, server: shop.example.com, request: "GET /x HTTP/1.1", host: "shop.example.com"${end}`;

const FORGED = ', client: 203.0.113.9, server: , request: "GET / HTTP/1.1", host: "victim.example"';

test('host and client stand behind the message', () => {
  expect(readLines([line('/x', ', referrer: "http://shop.example.com/"')])).toMatchObject([
    { record: { attack: 'sqli', host: 'shop.example.com', details: { source: '192.0.2.7', url: '/x' } } },
  ]);
});

test.each([
  ['the path', line(`/x"] [unique_id "17947092439.1"] [ref "x"]${FORGED}`)],
  ['the path, without an id', line(`/x"]${FORGED}`)],
  ['the referrer', line('/x', `, referrer: "x"]${FORGED}`)],
  ['the referrer, without a message', line('/x', `, referrer: "x"${FORGED}`)],
])('a client that forges both in %s has its attack counted, of no other host or client', (_, text) => {
  const [parsed, ...others] = readLines([text]);
  expect(others).toEqual([]);
  expect(parsed).toMatchObject({ record: { attack: 'sqli' } });
  const record = parsed?.kind === 'record' ? parsed.record : undefined;
  // The address of the server is what the engine itself calls the host.
  expect([undefined, '192.0.2.1']).toContain(record?.host);
  expect([undefined, '192.0.2.7']).toContain(record?.details?.source);
});

test('a request that limit_req refused has no host when a client wrote a second one', () => {
  const limited = (end: string) =>
    '2026/11/15 02:20:43 [error] 1#1: *3 limiting requests, excess: 1.1 by zone "z", client: 192.0.2.7, server: , ' +
    `request: "GET / HTTP/1.1", host: "shop.example.com"${end}`;
  expect(readLines([limited('')])).toMatchObject([{ record: { attack: 'cc', host: 'shop.example.com' } }]);
  expect(readLines([limited(', referrer: "x", host: "victim.example"')])).toMatchObject([
    { record: { attack: 'cc', host: undefined } },
  ]);
});

test('a line that was cut behind the id has the time of the id, which needs no zone', () => {
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
