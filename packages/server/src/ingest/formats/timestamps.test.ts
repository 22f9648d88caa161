import { expect, test } from 'vitest';
import { fixedZone } from './time-zone.ts';
import {
  CommonTimeParser,
  parseAnyTime,
  parseAsctime,
  parseCommonTime,
  parseEpoch,
  parseLocalTime,
} from './timestamps.ts';

const TIME = Date.UTC(2017, 4, 13, 12, 39, 31);

test.each([
  ['13/May/2017:12:39:31 +0000', TIME],
  ['13/May/2017:08:39:31 -0400', TIME],
  // ModSecurity 2 west of Greenwich.
  ['13/May/2017:08:39:31 --0400', TIME],
  ['13/May/2017:18:09:31 +0530', TIME],
  // ModSecurity 2 in zones of half and quarter hours: the rest of the hour in seconds.
  ['13/May/2017:18:09:31 +051800', TIME],
  ['13/May/2017:18:24:31 +052700', TIME],
  ['13/May/2017:09:09:31 --03-1800', TIME],
  ['13/May/2017:09:09:31 --03-30', TIME],
  ['13/May/2017:18:09:31 +053000', TIME],
  ['13/May/2017:12:39:31.749507 +0000', TIME + 749],
  ['31/Feb/2017:12:39:31 +0000', null],
  ['13/Foo/2017:12:39:31 +0000', null],
  ['13/May/2017:24:39:31 +0000', null],
  ['13/May/2017:12:39:31 +0099', null],
  ['13/May/2017:12:39:31', null],
  ['', null],
])('%s in an access or audit log', (text, want) => {
  expect(parseCommonTime(text)).toBe(want);
});

test('a local time is in the zone of the log', () => {
  expect(parseAsctime('Sat May 13 12:39:31 2017', fixedZone(0))).toBe(TIME);
  expect(parseAsctime('Sat May 13 18:09:31.749507 2017', fixedZone(330))).toBe(TIME + 749);
  expect(parseAsctime('Sat May  6 12:39:31 2017', fixedZone(0))).toBe(TIME - 7 * 86_400_000);
  expect(parseLocalTime('2017/05/13 08:39:31', fixedZone(-240))).toBe(TIME);
  expect(parseLocalTime('2017-05-13T12:39:31.5', fixedZone(0))).toBe(TIME + 500);
  expect(parseAsctime('Sat May 32 12:39:31 2017', fixedZone(0))).toBeNull();
  expect(parseLocalTime('2017/02/29 12:39:31', fixedZone(0))).toBeNull();
});

test.each([
  [1_494_679_171, TIME],
  [1_494_679_171.749, TIME + 749],
  ['1494679171.749', TIME + 749],
  [1_494_679_171_749, TIME + 749],
  [1_494_679_171_749_507, TIME + 749],
  [1_494_679_171_749_507_000, TIME + 749],
  [1e300, null],
  [-1, null],
  [Number.NaN, null],
  ['x', null],
  [true, null],
  [null, null],
])('%s since the epoch: the size gives the unit', (value, want) => {
  expect(parseEpoch(value)).toBe(want);
});

test('parseAnyTime reads all of these forms', () => {
  for (const text of [
    '2017-05-13T12:39:31Z',
    '2017-05-13T12:39:31',
    '13/May/2017:12:39:31 +0000',
    '[13/May/2017:12:39:31 +0000]',
    '1494679171',
  ]) {
    expect(parseAnyTime(text, fixedZone(0))).toBe(TIME);
  }
  expect(parseAnyTime('2017-05-13T20:39:31', fixedZone(480))).toBe(TIME);
  for (const other of ['yesterday', '', {}, [], undefined, 'x'.repeat(1_000_000)]) {
    expect(parseAnyTime(other, fixedZone(0))).toBeNull();
  }
});

test('CommonTimeParser agrees with parseCommonTime, in whatever order times come', () => {
  const commonTime = new CommonTimeParser();
  for (const text of [
    '13/May/2017:12:39:31 +0000',
    '13/May/2017:12:39:59 +0000',
    '13/May/2017:12:39:59 +0100',
    '13/May/2017:12:40:00 +0100',
    '13/May/2017:12:39:00 --400',
    '13/May/2017:12:39:60 +0000',
    '13/May/2017:12:39:3x +0000',
    '13/May/2017:12:39x31 +0000',
    '99/May/2017:12:39:31 +0000',
    '13/May/2017:12:39',
    '13/May/2017:12:39:31 +0000',
  ]) {
    expect(commonTime.parseAt(`[${text}]`, 1), text).toBe(parseCommonTime(text));
  }
});
