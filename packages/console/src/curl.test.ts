import { expect, test } from 'vitest';
import { attackTypesCurl, timelineCurl } from './curl.ts';

const QUESTION = { origin: 'http://localhost:8080', project: 'p', from: 1, to: 2, hosts: ['a', 'b'] };

test('the command asks the same question', () => {
  expect(timelineCurl(QUESTION, '+08:00')).toBe(
    `curl -H "X-Auth-Token: $TOKEN" 'http://localhost:8080/v1/p/waf/event/timeline?from=1&to=2&timezone=%2B08%3A00&hosts=a&hosts=b'`,
  );
  expect(attackTypesCurl({ ...QUESTION, hosts: [] })).toBe(
    `curl -H "X-Auth-Token: $TOKEN" 'http://localhost:8080/v1/p/waf/event/attack/type?from=1&to=2'`,
  );
});
