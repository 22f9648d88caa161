import { expect, test } from 'vitest';
import { csv, curlCommand, fileName, wafstatCommand } from './export.ts';
import { fixedZone } from './zone.ts';

test('fields are quoted where needed, and formulas are escaped', () => {
  expect(
    csv([
      ['host', 'n'],
      ['a,"b"', 1],
      ['=1+1', -1],
      ['\n=1', 2],
      ['/x;=1', 3],
    ]),
  ).toBe('host,n\r\n"a,""b""",1\r\n\'=1+1,-1\r\n"\'\n\'=1",2\r\n"/x;\'=1",3\r\n');
});

const QUERY = { origin: 'http://localhost:8080', project: 'p', from: 1, to: 2, hosts: ['a', 'b'] };

test('the commands send the same query', () => {
  expect(curlCommand({ ...QUERY, path: 'event/timeline', parameters: { timezone: '+08:00' } })).toBe(
    `curl -H "X-Auth-Token: $TOKEN" 'http://localhost:8080/v1/p/waf/event/timeline?from=1&to=2&hosts=a&hosts=b&timezone=%2B08%3A00'`,
  );
  expect(wafstatCommand('timeline --by category', QUERY)).toBe(
    'wafstat timeline --by category --project p --from 1 --to 2 --host a --host b',
  );
});

test('files are named after project and range', () => {
  const range = { from: Date.UTC(2026, 10, 14), to: Date.UTC(2026, 10, 15) };
  expect(fileName('my/shop ü', 'timeline', range, fixedZone(3_600_000), 'csv')).toBe(
    'my-shop-ü-timeline-20261114T0100-20261115T0100.csv',
  );
});
