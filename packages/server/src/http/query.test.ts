import { describe, expect, test } from 'vitest';
import { parseTimelineQuery, queryOf } from './query.ts';

describe('the query of an address', () => {
  test.each([
    ['/v1', {}],
    ['/v1?', {}],
    ['/v1?a=1&b=2', { a: '1', b: '2' }],
    ['/v1?a=1&a=2', { a: ['1', '2'] }],
    ['/v1?a&b=', { a: '', b: '' }],
    ['/v1?a=b=c', { a: 'b=c' }],
    ['/v1?timezone=+08:00', { timezone: ' 08:00' }],
    ['/v1?timezone=%2B08%3A00', { timezone: '+08:00' }],
    ['/v1?a=%zz&b=%', { a: '%zz', b: '%' }],
    ['/v1?a=%ff', { a: '\ufffd' }],
    ['/v1?a=1?2', { a: '1?2' }],
    ['/v1?__proto__=1', JSON.parse('{"__proto__":"1"}')],
  ])('%s', (url, query) => {
    expect(Object.entries(queryOf({ url }))).toEqual(Object.entries(query));
  });

  test('has no names but those that were sent', () => {
    expect('constructor' in queryOf({ url: '/v1' })).toBe(false);
    expect('constructor' in queryOf({ url: '/v1?a=1' })).toBe(false);
  });

  test('may name a thousand hosts one by one', () => {
    const url = `/v1?from=1&to=2&${Array.from({ length: 2_000 }, (_, i) => `hosts=${i}`).join('&')}`;
    expect(queryOf({ url }).hosts).toHaveLength(2_000);
  });
});

describe('the hosts of a query', () => {
  const hosts = (count: number) => Array.from({ length: count }, (_, i) => String(i));
  const parse = (ids: string[]) => parseTimelineQuery({ from: '1', to: '2', hosts: ids }, 2).hosts;

  test('may be a thousand, and the same one again', () => {
    expect(parse([...hosts(1_000), '7'])).toHaveLength(1_000);
  });

  test('may not be more', () => {
    expect(() => parse(hosts(1_001))).toThrow('hosts has 1001 IDs, but at most 1000 are allowed');
  });
});
