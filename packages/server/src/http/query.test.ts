import { describe, expect, test } from 'vitest';
import { createReader } from '../ingest/reader.ts';
import { ingestQueryParser, parseTimelineQuery, parseTotalsQuery, queryOf } from './query.ts';

describe('the query of a URL', () => {
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

  test('has no properties except the parameters', () => {
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

  test('may be a thousand, not counting repetitions', () => {
    expect(parse([...hosts(1_000), '7'])).toHaveLength(1_000);
  });

  test.each([
    ['hosts[]=a&hosts[]=b&hosts=c', ['a', 'b', 'c']],
    ['hosts[0]=a&hosts[1]=b', ['a', 'b']],
    ['hosts%5B0%5D=a&hosts%5B10%5D=b,a', ['a', 'b']],
    ['instances[0]=a&instances[1]=b', ['a', 'b']],
    ['hosts[0]=a&hosts[1]=b&instances=b,a', ['a', 'b']],
  ])('may be a list as clients write it: %s', (query, ids) => {
    expect(parseTimelineQuery(queryOf({ url: `/?from=1&to=2&${query}` }), 2).hosts).toEqual(ids);
  });

  test('are checked in every form of a list', () => {
    for (const name of ['hosts[0]', 'hosts[]']) {
      expect(() => parseTimelineQuery({ from: '1', to: '2', [name]: 'a.b' }, 2)).toThrow("hosts is 'a.b'");
    }
    expect(() => parseTimelineQuery({ from: '1', to: '2', 'hosts[0]': 'a', 'instances[0]': 'b' }, 2)).toThrow(
      'hosts and instances both filter by host ID, but differ',
    );
  });

  test.each([
    ...[
      'host',
      'Hosts',
      'host_id',
      'hostid',
      'host_ids',
      'hostname',
      'domain',
      'domains',
      'Host[]',
      'host[0]',
    ],
    ...[
      'host-id',
      'host.id',
      'hosts_id',
      'hostsId',
      'hosts.0',
      'hosts[a]',
      'hosts[0][id]',
      'hosts ',
      'instance-id',
    ],
  ])('may not be given as %s: the response would be that of the whole project', (name) => {
    expect(() => parseTimelineQuery({ from: '1', to: '2', [name]: 'a' }, 2)).toThrow(
      `there is no parameter '${name}': use hosts, with the IDs of hosts`,
    );
  });

  test.each(['policy-name', 'attack.type', 'attackType', 'source-ip', 'client.ip', 'category[0]'])(
    'are the only filter: %s is an error',
    (name) => {
      expect(() => parseTimelineQuery({ from: '1', to: '2', [name]: 'a' }, 2)).toThrow(
        `there is no parameter '${name}': hosts is the only filter of this call`,
      );
    },
  );

  test.each(['_', 'enterprise_project_id', 'locale', 'page', 'project', 'x-request-id'])(
    'are not meant by %s, which is ignored',
    (name) => {
      expect(parseTimelineQuery({ from: '1', to: '2', [name]: 'a' }, 2).hosts).toBeUndefined();
    },
  );

  test('may not be more than a thousand', () => {
    expect(() => parse(hosts(1_001))).toThrow('hosts has 1001 IDs, but at most 1000 are allowed');
  });
});

describe('the time zone', () => {
  const parse = (timezone: string | string[]) => parseTimelineQuery({ from: '1', to: '2', timezone }, 2).zone;

  test.each([
    ['+00:00', '+00:00', 0],
    ['-00:00', '+00:00', 0],
    ['+08:00', '+08:00', 480],
    [' 08:00', '+08:00', 480],
    ['+05:45', '+05:45', 345],
    ['-12:00', '-12:00', -720],
    ['+14:00', '+14:00', 840],
    ['-03:30', '-03:30', -210],
    ['Europe/Berlin', 'Europe/Berlin', 60],
    ['europe/berlin', 'Europe/Berlin', 60],
    ['Etc/GMT 8', 'Etc/GMT+8', -480],
    ['UTC', 'UTC', 0],
  ])('%j is %s', (text, name, minutes) => {
    const zone = parse(text);
    expect([zone.name, zone.offsetAt(0) / 60_000 + 0]).toEqual([name, minutes]);
  });

  test.each([
    '',
    '8',
    '+8:00',
    ' 8:00',
    '08:00',
    '+08:60',
    '+14:01',
    '-12:01',
    '+08:00 ',
    '+0800',
    'Nowhere',
    '../x',
  ])('%j is refused', (text) => {
    const message =
      'must be an offset like +08:00, from -12:00 to +14:00, or an IANA time zone name like Europe/Berlin; in a URL, write + as %2B';
    for (const parseQuery of [parseTimelineQuery, parseTotalsQuery]) {
      expect(() => parseQuery({ from: '1', to: '2', timezone: text }, 2)).toThrow(
        `timezone is '${text}', but ${message}`,
      );
    }
  });

  test('may be given once, also where it has no effect', () => {
    for (const parseQuery of [parseTimelineQuery, parseTotalsQuery]) {
      expect(() => parseQuery({ from: '1', to: '2', timezone: ['+08:00', '+08:00'] }, 2)).toThrow(
        'timezone is given 2 times; give it at most once',
      );
    }
  });
});

describe('the time zone and pattern of a push', () => {
  const pattern = '$host [$time_local] $status';

  test('of which a limited number is cached', () => {
    const parse = ingestQueryParser();
    const first = parse({ pattern }).pattern;
    expect(parse({ pattern }).pattern).toBe(first);
    for (let i = 0; i < 60; i++) parse({ pattern: `${pattern} x${i}` });
    expect(parse({ pattern }).pattern).not.toBe(first);
  });

  test('are refused each time if they are wrong', () => {
    const parse = ingestQueryParser();
    for (let i = 0; i < 2; i++) {
      expect(() => parse({ timezone: 'Nowhere' })).toThrow("timezone is 'Nowhere'");
      expect(() => parse({ pattern: '$host' })).toThrow("pattern is '$host'");
    }
  });

  test('share no state between two logs in the repeated hour of a clock change', () => {
    const parse = ingestQueryParser();
    const timeOf = (clock: string, reader: ReturnType<typeof createReader>) =>
      reader.read(`{"time":"2026-10-25T${clock}","status":200}`, 0);
    const reader = () =>
      createReader({ format: 'access-json', zone: parse({ timezone: 'Europe/Berlin' }).zone });
    const [one, other] = [reader(), reader()];
    timeOf('02:50:00', one);
    // Local time went back in the first log only.
    expect(timeOf('02:10:00', one)).toMatchObject([{ record: { time: Date.UTC(2026, 9, 25, 1, 10) } }]);
    expect(timeOf('02:10:00', other)).toMatchObject([{ record: { time: Date.UTC(2026, 9, 25, 0, 10) } }]);
  });
});
