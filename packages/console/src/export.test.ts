import { expect, test } from 'vitest';
import { attackTimelineCurl, attackTypesCurl, csv, timelineCurl } from './export.ts';

test('fields are quoted where needed, and formulas are escaped', () => {
  expect(
    csv([
      ['host', 'n'],
      ['a,"b"', 1],
      ['=1+1', -1],
      ['\n=1', 2],
    ]),
  ).toBe('host,n\r\n"a,""b""",1\r\n\'=1+1,-1\r\n"\'\n=1",2\r\n');
});

const QUERY = { origin: 'http://localhost:8080', project: 'p', from: 1, to: 2, hosts: ['a', 'b'] };

test('the command sends the same query', () => {
  expect(timelineCurl(QUERY, '+08:00')).toBe(
    `curl -H "X-Auth-Token: $TOKEN" 'http://localhost:8080/v1/p/waf/event/timeline?from=1&to=2&timezone=%2B08%3A00&hosts=a&hosts=b'`,
  );
  expect(attackTimelineCurl({ ...QUERY, hosts: [] }, '-03:30')).toBe(
    `curl -H "X-Auth-Token: $TOKEN" 'http://localhost:8080/v1/p/waf/overviews/attack/timeline?from=1&to=2&timezone=-03%3A30'`,
  );
  expect(attackTypesCurl({ ...QUERY, hosts: [] })).toBe(
    `curl -H "X-Auth-Token: $TOKEN" 'http://localhost:8080/v1/p/waf/event/attack/type?from=1&to=2'`,
  );
});
