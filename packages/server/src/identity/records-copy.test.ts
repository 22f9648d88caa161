import { expect, test } from 'vitest';
import { RecordsCopy } from './records-copy.ts';

function copyOf(expiries: readonly number[]): RecordsCopy {
  const copy = new RecordsCopy();
  const changes = expiries.map((value, i) => ({ kind: 'revoked' as const, id: `t${i}`, value }));
  copy.apply({ from: -1, to: 0, changes, isWhole: true });
  return copy;
}

test('expired revocations are found in groups, the oldest first, without those that are kept', () => {
  const expiries = Array.from({ length: 1_290 }, (_, i) => 1_290 - i);
  expect(copyOf(expiries.slice(1)).expiredTokens(5_000, 1_280, 1_000)).toEqual([]);
  const found = copyOf(expiries).expiredTokens(5_000, 1_280, 1_000);
  expect(found).toEqual(Array.from({ length: 10 }, (_, i) => `t${1_289 - i}`));
  expect(copyOf(expiries).expiredTokens(5_000, 1_280, 4)).toEqual(found.slice(0, 4));
  expect(copyOf(expiries).expiredTokens(3, 1_280, 1_000)).toEqual(found.slice(0, 2));
});

test('an update of an earlier state does not replace newer records', () => {
  const copy = copyOf([10]);
  for (const value of [20, null])
    copy.apply({ from: 0, to: 1, changes: [{ kind: 'revoked', id: 't0', value }], isWhole: false });
  expect([copy.get('revoked', 't0'), copy.number]).toEqual([20, 1]);
});

test('revocations that have not expired are never found, and later ones are', () => {
  const copy = copyOf([10, 20, 30]);
  expect(copy.expiredTokens(10, 0, 9)).toEqual([]);
  expect(copy.expiredTokens(10, 0, 9)).toEqual([]);
  expect(copy.expiredTokens(11, 0, 9)).toEqual(['t0']);
  copy.apply({ from: 0, to: 1, changes: [{ kind: 'revoked', id: 'new', value: 5 }], isWhole: false });
  expect(copy.expiredTokens(6, 0, 9)).toEqual(['new']);
});
