import fc from 'fast-check';
import { expect, test } from 'vitest';
import { addressOf, HOST_ORDERS, PAGES, type PageName, parseAddress, SERIES, type View } from './address.ts';
import { PRESETS, type PresetName } from './time-span.ts';
import { formatOffset } from './time-zone.ts';

const parse = (path: string) => parseAddress(new URL(path, 'http://localhost'));

const id = fc.stringMatching(/^[A-Za-z0-9_-]{1,64}$/);
const view: fc.Arbitrary<View> = fc.record({
  page: fc.constantFrom(...(Object.keys(PAGES) as PageName[])),
  project: fc.option(id),
  span: fc.oneof(
    fc.record({ preset: fc.constantFrom(...(Object.keys(PRESETS) as PresetName[])) }),
    fc
      .tuple(fc.integer({ min: 0, max: 2e12 }), fc.integer({ min: 1, max: 3e11 }))
      .map(([from, length]) => ({ from, to: from + length })),
  ),
  timezone: fc.option(fc.integer({ min: -720, max: 840 }).map((minutes) => formatOffset(minutes * 60_000))),
  hosts: fc.uniqueArray(id, { maxLength: 5 }),
  hidden: fc.constantFrom([], ['requests' as const], ['attacks' as const], [...SERIES]),
  live: fc.boolean(),
  order: fc.constantFrom(...HOST_ORDERS),
  search: fc.string({ maxLength: 253 }),
  offset: fc.nat(),
});

test('a view survives the way through the address', () => {
  fc.assert(
    fc.property(view, (given) => {
      expect(parse(addressOf(given))).toEqual(given);
    }),
  );
});

test('what is not chosen does not stand in the address', () => {
  expect(addressOf(parse('/console/'))).toBe('/console/');
  expect(addressOf(parse('/console/hosts?range=24hours&live=on&order=requests'))).toBe('/console/hosts');
});

test('what cannot be understood is left out', () => {
  const broken = parse('/console/?from=2&to=1&tz=%2B15:00&host=a/b&project=%00&hide=all&offset=-1&order=x');
  expect(broken).toEqual(parse('/console/'));
  fc.assert(
    fc.property(fc.string(), (query) => {
      addressOf(parse(`/console/?${query.replaceAll('#', '')}`));
    }),
  );
});

test('a plus that nobody encoded is a plus', () => {
  expect(parse('/console/?tz=+08:00').timezone).toBe('+08:00');
});
