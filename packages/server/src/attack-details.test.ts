import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { applyPrivacy, attackDetails, matchedRule, matchedValue } from './attack-details.ts';
import { type AttackDetails, normalHostname, topUrl } from './event.ts';

test.each([
  ['203.0.113.7', '203.0.113.7'],
  ['203.0.113.7:443', '203.0.113.7'],
  ['2001:DB8:0:0::1', '2001:db8::1'],
  ['[2001:db8::1]:8080', '2001:db8::1'],
  ['::ffff:203.0.113.7', '203.0.113.7'],
  ['unix:', undefined],
  ['fe80::1%eth0', undefined],
  ['', undefined],
])('source %s is stored as %s', (source, expected) => {
  expect(attackDetails({ source })?.source).toBe(expected);
});

test.each([
  ['/a/b?c=d', '/a/b'],
  ['https://www.example.com/a#b', '/a'],
  ['http://www.example.com', '/'],
  ['/a\u202eb\n', '/a%E2%80%AEb%0A'],
  ['/a b ', '/a%20b%20'],
  ['/Grüße/日本語/😀', '/Grüße/日本語/😀'],
  ['@evil.example/a', '/@evil.example/a'],
  ['*', '*'],
  ['-', undefined],
])('URL %s is stored as %s', (url, expected) => {
  expect(attackDetails({ url })?.url).toBe(expected);
});

test.each([
  ['no-break space', '\u00a0'],
  ['soft hyphen', '\u00ad'],
  ['combining grapheme joiner', '\u034f'],
  ['Arabic letter mark', '\u061c'],
  ['Hangul filler', '\u3164'],
  ['half-width Hangul filler', '\uffa0'],
  ['Ogham space', '\u1680'],
  ['zero-width space', '\u200b'],
  ['right-to-left isolate', '\u2067'],
  ['line separator', '\u2028'],
  ['Braille blank', '\u2800'],
  ['ideographic space', '\u3000'],
  ['variation selector', '\ufe0f'],
  ['byte order mark', '\ufeff'],
  ['private use', '\ue000'],
  ['unassigned', '\u{e0fff}'],
  ['tag', '\u{e0041}'],
  ['variation selector 17', '\u{e0100}'],
  ['Khitan filler', '\u{16fe4}'],
  ['null notehead', '\u{1d159}'],
  ['lone surrogate', '\udc00'],
])('%s is visible in URLs and rules, and in no host name', (_, character) => {
  // In UTF-8, a lone surrogate becomes U+FFFD.
  const encoded = encodeURIComponent(Buffer.from(character).toString());
  expect(attackDetails({ url: `/a${character}b`, rule: `a${character}b` })).toEqual({
    url: `/a${encoded}b`,
    rule: `a${encoded}b`,
  });
  expect(normalHostname(`shop${character}.example.com`)).toBeNull();
});

test('without valid fields there are no details', () => {
  expect(attackDetails({ source: '', url: '', rule: '', country: 'Germany' })).toBeUndefined();
});

test.each([
  ['/a?b=1&c=2', undefined, 'b=1&c=2'],
  ['https://www.example.com/a?b=1#c', undefined, 'b=1'],
  ['/a?', undefined, undefined],
  ['/a#b?c', undefined, undefined],
  ['/a', '?b=1', 'b=1'],
  ['/a?b', '', undefined],
  ['/a', "b=1' or 'a\u202e", "b=1'%20or%20'a%E2%80%AE"],
  ['/a', 'user=a&password=S&b=1', 'user=a&password=...&b=1'],
  [undefined, 'b=1', undefined],
])('URL %s with the query %s has the query %s', (url, query, expected) => {
  expect(attackDetails({ url, query })?.query).toBe(expected);
});

test('path and query have 512 bytes together; top lists have the first 256 of the path', () => {
  const path = `/${'a'.repeat(299)}`;
  const details = attackDetails({ url: `${path}?${'b'.repeat(9_999)}` });
  expect(details).toEqual({ url: path, query: 'b'.repeat(212) });
  expect(topUrl(path)).toBe(path.slice(0, 256));
  expect(topUrl('/a')).toBe('/a');
  // 253 ASCII characters, then one of four bytes, which does not fit.
  expect(topUrl(`/${'a'.repeat(252)}😀`)).toBe(`/${'a'.repeat(252)}`);
  expect(attackDetails({ url: `/${'a'.repeat(511)}?b=1` })).toEqual({ url: `/${'a'.repeat(511)}` });
});

test.each([
  [{ method: 'GET', status: '403', score: 5, id: 'a', userAgent: 'b' }],
  [{ method: 'M-SEARCH', status: 100, score: 0, id: 'a', userAgent: 'b' }],
])('%j is kept', (raw) => {
  expect(attackDetails(raw)).toEqual({ ...raw, status: Number(raw.status) });
});

test.each([
  [{ method: 'GET /' }],
  [{ method: 'x'.repeat(33) }],
  [{ status: 0 }],
  [{ status: 'abc' }],
  [{ status: 1_000 }],
  [{ score: -1 }],
  [{ score: 1.5 }],
  [{ score: 1_000_001 }],
  [{ id: '', userAgent: '-' }],
  [{ rules: [] }],
])('%j is not kept', (raw) => {
  expect(attackDetails(raw)).toBeUndefined();
});

describe('matched rules', () => {
  const rules = [{ id: '1' }, { id: '2', variable: 'ARGS:a' }, { id: '2', variable: 'ARGS:b' }];

  test.each([
    [undefined, ['1', '2', '2']],
    ['2', ['2', '1', '2']],
    ['3', ['3', '1', '2', '2']],
  ])('the one that decided is first: %s', (rule, ids) => {
    const details = attackDetails({ rule, rules });
    expect(details?.rules?.map(({ id }) => id)).toEqual(ids);
    expect(details?.rule).toBe(ids[0]);
  });

  test('there are at most 32', () => {
    const many = Array.from({ length: 100 }, (_, i) => ({ id: String(i) }));
    const kept = attackDetails({ rule: '99', rules: many })?.rules ?? [];
    expect(kept).toHaveLength(32);
    expect(kept.slice(0, 2)).toEqual([{ id: '99' }, { id: '0' }]);
  });

  test.each([
    ['2', 'critical'],
    ['CRITICAL', 'critical'],
    ['0', undefined],
    ['emergency', 'emergency'],
    ['8', '8'],
    ['', undefined],
  ])('the severity %s is kept as %s', (severity, expected) => {
    expect(matchedRule({ id: '1', severity }, '1', []).severity).toBe(expected);
  });

  test('of a long value the part that matched is kept, unless it is a part of a secret', () => {
    const long = `${'a'.repeat(200)}<script>&password=S <script2>`;
    expect(matchedValue('short', 'sh')).toBe('short');
    expect(matchedValue('', 'part')).toBe('part');
    expect(matchedValue(long, '<script>')).toBe('<script>');
    expect(matchedValue(long, '=S')).toBe(long);
    expect(matchedValue(long, 's&sos')).toBe(long);
  });
});

describe('privacy options', () => {
  const details = (): AttackDetails => ({
    source: '203.0.113.7',
    url: '/a',
    query: 'b=1',
    rule: '1',
    rules: [
      { id: '1', variable: 'ARGS:b', value: '1' },
      { id: '2', variable: 'REQUEST_URI', value: '/a?b=1' },
      { id: '3', variable: 'REQUEST_HEADERS:X-Forwarded-For', value: '203.0.113.7' },
      { id: '4', variable: 'REMOTE_ADDR', value: '203.0.113.7' },
      { id: '5' },
    ],
  });

  test.each([
    'QUERY_STRING',
    'REQUEST_URI_RAW',
    'RequestUri',
    'RAW_URI',
    'QUERY',
    'URI',
    'REQUEST_HEADERS:Referer',
    'REQUEST_HEADERS:X-Original-URL',
    'ARGS',
    'ARGS:q',
    'ARGS_GET:q',
    'ARGS_NAMES',
    'args',
    'ARG_VALUES:q',
    'ALL_QUERY_ARGS:q',
    'URI_QUERY',
    'QueryString',
    'QueryParamValue:q',
    'AllQueryArguments',
    'params',
    'FULL_REQUEST',
    'MATCHED_VAR',
    'MATCHED_VARS:ARGS:q',
  ])('without queries, values of %s are not kept', (variable) => {
    const kept: AttackDetails = { rules: [{ id: '1', variable, value: '/a?b=1' }] };
    applyPrivacy(kept, { attackQueries: 'off' });
    expect(kept).toEqual({ rules: [{ id: '1', variable }] });
  });

  test.each([
    'ARGS_POST:q',
    'ARGS_POST:url',
    'REQUEST_BODY',
    'REQUEST_HEADERS:User-Agent',
    'REQUEST_FILENAME',
    'PostParamValue:q',
  ])('without queries, values of %s are kept', (variable) => {
    const kept: AttackDetails = { rules: [{ id: '1', variable, value: 'a' }] };
    applyPrivacy(kept, { attackQueries: 'off' });
    expect(kept).toEqual({ rules: [{ id: '1', variable, value: 'a' }] });
  });

  test.each([
    'REQUEST_HEADERS:X-Originating-IP',
    'REQUEST_HEADERS:X-ProxyUser-Ip',
    'REQUEST_HEADERS:True-Client-IP',
    'REQUEST_HEADERS:Via',
    'IP',
    'SocketIp',
    'RemoteAddr',
  ])('without sources, values of %s are not kept', (variable) => {
    const kept: AttackDetails = { rules: [{ id: '1', variable, value: '203.0.113.7' }] };
    applyPrivacy(kept, { attackSources: 'off' });
    expect(kept).toEqual({ rules: [{ id: '1', variable }] });
  });

  test.each([
    ['203.0.113.7', 'a 203.0.113.7 b'],
    ['2001:db8::7', 'a=2001%3ADB8%3A%3A7'],
  ])('without sources, texts with the address %s are not kept', (source, value) => {
    for (const attackSources of ['prefix', 'off'] as const) {
      const kept: AttackDetails = {
        source,
        userAgent: value,
        rules: [
          { id: '1', variable: 'ARGS:q', value },
          { id: '2', variable: 'ARGS:q', value: 'other' },
        ],
      };
      applyPrivacy(kept, { attackSources });
      expect(kept.userAgent).toBeUndefined();
      expect(kept.rules).toEqual([
        { id: '1', variable: 'ARGS:q' },
        { id: '2', variable: 'ARGS:q', value: 'other' },
      ]);
    }
  });

  const valuesWith = (privacy: Parameters<typeof applyPrivacy>[1]) => {
    const kept = details();
    applyPrivacy(kept, privacy);
    expect(kept.rules?.map(({ id }) => id)).toEqual(['1', '2', '3', '4', '5']);
    return [kept.source, kept.query, kept.rules?.map(({ value = 'none' }) => value)];
  };

  test('everything is kept by default', () => {
    const kept = details();
    applyPrivacy(kept, {});
    expect(kept).toEqual(details());
  });

  test.each([
    [
      { attackQueries: 'off' },
      '203.0.113.7',
      undefined,
      ['none', 'none', '203.0.113.7', '203.0.113.7', 'none'],
    ],
    [{ attackValues: 'off' }, '203.0.113.7', 'b=1', ['none', 'none', 'none', 'none', 'none']],
    [{ attackSources: 'prefix' }, '203.0.113.0/24', 'b=1', ['1', '/a?b=1', 'none', 'none', 'none']],
    [{ attackSources: 'off' }, undefined, 'b=1', ['1', '/a?b=1', 'none', 'none', 'none']],
  ] as const)('%j', (privacy, source, query, values) => {
    expect(valuesWith(privacy)).toEqual([source, query, values]);
  });
});

test('details are printable and limited in length, whatever the log contains', () => {
  const text = fc.string({ unit: 'binary', maxLength: 2_000 });
  const rule = fc.record({ id: text, variable: text, value: text, severity: text });
  const raw = fc.record({
    source: text,
    url: text.map((path) => `/${path}`),
    query: fc.option(text, { nil: undefined }),
    rule: text,
    rules: fc.array(rule, { maxLength: 40 }),
    country: text,
    id: text,
    method: text,
    status: text,
    userAgent: text,
  });
  const bytes = (value = '') => Buffer.byteLength(value);
  fc.assert(
    fc.property(raw, (each) => {
      const details = attackDetails({ blocked: true, ...each });
      expect(bytes(details?.url) + bytes(details?.query)).toBeLessThanOrEqual(512);
      expect(bytes(topUrl(details?.url ?? ''))).toBeLessThanOrEqual(256);
      expect(bytes(details?.rule)).toBeLessThanOrEqual(64);
      for (const value of [details?.id, details?.userAgent]) expect(bytes(value)).toBeLessThanOrEqual(128);
      expect(details?.rules?.length ?? 0).toBeLessThanOrEqual(32);
      for (const { id, variable, value, severity } of details?.rules ?? []) {
        expect(bytes(id)).toBeLessThanOrEqual(64);
        for (const limited of [variable, value]) expect(bytes(limited)).toBeLessThanOrEqual(128);
        expect(bytes(severity)).toBeLessThanOrEqual(16);
      }
      expect(JSON.stringify(details)).not.toMatch(/[\p{Cc}\p{Cf}\p{Cs}]|\\u0000/u);
    }),
  );
});
