import { expect, test } from 'vitest';
import { Recent } from './recent.ts';

test('a full map forgets what was set longest ago, by number and by length', () => {
  const recent = new Recent(3, 10);
  for (const key of ['a', 'b', 'c']) recent.set(key, key);
  recent.set('a', 'again');
  recent.set('d', 'd');
  expect(['a', 'b', 'c', 'd'].map((key) => recent.get(key))).toEqual(['again', undefined, 'c', 'd']);
  recent.set('c', 'x'.repeat(9));
  expect(['a', 'c', 'd'].map((key) => recent.get(key)?.length)).toEqual([undefined, 9, 1]);
  recent.set('e', 'x'.repeat(11));
  expect(['c', 'd', 'e'].map((key) => recent.get(key))).toEqual([undefined, undefined, undefined]);
});
