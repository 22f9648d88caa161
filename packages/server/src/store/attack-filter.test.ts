import { expect, test } from 'vitest';
import { AttackBlock } from './attack-block.ts';
import { encodeBlock } from './attack-encode.ts';
import { type AttackFilter, AttackMatcher } from './attack-filter.ts';
import { finish } from './slices.ts';

const KEPT = ['203.0.113.7', '203.0.113.8', '198.51.100.0/24', '2001:db8:1:2::/64', '2001:db8:1::/48'];

/** Large blocks find values by their hashes, small ones compare them. */
test.each([5, 2_000])('sources are selected by address and network, in a block of %i', (length) => {
  const entries = Array.from({ length }, (_, i) => ({
    ...{ id: String(i), time: i, hostId: null, category: 'xss' as const, count: 1, rules: [] },
    source: KEPT[i] ?? `10.0.${i >> 8}.${i & 255}`,
  }));
  const block = AttackBlock.of(0, finish(encodeBlock({ hour: 0, entries, threshold: 0, ranks: [] })));
  const selected = (sources: readonly string[], lists: keyof AttackFilter = 'include') => {
    const filter = { include: {}, exclude: {}, [lists]: { sources } };
    return [...new AttackMatcher(filter).rows(block, 0, length)]
      .filter((i) => i < KEPT.length)
      .map((i) => KEPT[i]);
  };
  const [one, two, prefix, network6, prefix6] = KEPT;
  const expected: [string, unknown[]][] = [
    ['203.0.113.7', [one]],
    ['203.0.113.7/32', [one]],
    ['203.0.113.0/28', [one, two]],
    ['0.0.0.0/0', [one, two, prefix]],
    // The address of a client whose network alone is kept.
    ['198.51.100.9', [prefix]],
    ['198.51.100.128/25', [prefix]],
    ['198.51.101.9', []],
    ['2001:db8:1:2:3:4:5:6', [network6, prefix6]],
    ['2001:db8:1:2::/96', [network6, prefix6]],
    ['2001:db8:1:9::1', [prefix6]],
    ['2001:db8::/32', [network6, prefix6]],
    ['2001:db9::/32', []],
    ['::/0', [network6, prefix6]],
  ];
  for (const [source, rows] of expected) {
    expect({ source, rows: selected([source]) }).toEqual({ source, rows });
    expect(selected([source], 'exclude')).toEqual(KEPT.filter((kept) => !rows.includes(kept)));
  }
  expect(selected(['203.0.113.8', '198.51.100.1'])).toEqual([two, prefix]);
});

test('prefixes of URLs may be prefixes of each other', () => {
  const urls = ['/', '/a', '/a/b', '/ab', '/b', '/b/c', '/c', '*'];
  const entries = urls.map((url, i) => ({
    ...{ id: String(i), time: i, hostId: null, category: 'xss' as const, count: 1, rules: [], url },
  }));
  const block = AttackBlock.of(0, finish(encodeBlock({ hour: 0, entries, threshold: 0, ranks: [] })));
  const selected = (...wanted: string[]) =>
    Array.from(
      new AttackMatcher({ include: { urls: wanted }, exclude: {} }).rows(block, 0, 100),
      (i) => urls[i],
    );
  expect(selected('/a*', '/a/*', '/b/*', '/c')).toEqual(['/a', '/a/b', '/ab', '/b/c', '/c']);
  expect(selected('/b*', '/a/*')).toEqual(['/a/b', '/b', '/b/c']);
  expect(selected('*')).toEqual(urls);
  expect(selected('/d*', '/0*')).toEqual([]);
});
