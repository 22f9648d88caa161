import { expect, test } from 'vitest';
import { allOffsets, formatOffset, parseOffset } from './time-zone.ts';

test('every offset that can be chosen is one of the API', () => {
  const offsets = allOffsets();
  expect(offsets.at(0)).toBe('-12:00');
  expect(offsets.at(-1)).toBe('+14:00');
  for (const offset of offsets) expect(formatOffset(parseOffset(offset) ?? Number.NaN)).toBe(offset);
});

test('others are none', () => {
  expect(['+14:15', '-12:01', '08:00', '+8:00', '+08:60', ''].map(parseOffset)).toEqual(Array(6).fill(null));
});
