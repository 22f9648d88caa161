import { ATTACK_TYPES } from '@wafstat/client';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { PRESETS, type PresetName } from './time-range.ts';
import {
  countedCategories,
  PAGES,
  type PageName,
  parseView,
  SORTS,
  toggleCategory,
  urlOf,
  type View,
} from './view.ts';
import { browserZone, formatOffset } from './zone.ts';

const parse = (path: string) => parseView(new URL(path, 'http://localhost'));

const id = fc.stringMatching(/^[A-Za-z0-9_-]{1,64}$/);
const view: fc.Arbitrary<View> = fc.record({
  page: fc.constantFrom(...(Object.keys(PAGES) as PageName[])),
  project: fc.option(id),
  selectedRange: fc.oneof(
    fc.record({ preset: fc.constantFrom(...(Object.keys(PRESETS) as PresetName[])) }),
    fc
      .tuple(fc.integer({ min: 0, max: 2e12 }), fc.integer({ min: 1, max: 3e11 }))
      .map(([from, length]) => ({ from, to: from + length })),
  ),
  timezone: fc.oneof(
    fc.integer({ min: -720, max: 840 }).map((minutes) => formatOffset(minutes * 60_000)),
    fc.constantFrom('Europe/Berlin', 'America/St_Johns', 'UTC'),
  ),
  hosts: fc.uniqueArray(id, { maxLength: 5 }),
  categories: fc.subarray(ATTACK_TYPES.slice(0, 6)),
  excluded: fc.subarray(ATTACK_TYPES.slice(6)),
  byHost: fc.boolean(),
  tv: fc.boolean(),
  live: fc.boolean(),
  sort: fc.option(fc.constantFrom(...SORTS)),
  search: fc.string({ maxLength: 253 }),
  problems: fc.constant([]),
});

test('a view survives a round trip through the URL', () => {
  fc.assert(
    fc.property(view, (given) => {
      expect(parse(urlOf(given))).toEqual(given);
    }),
  );
});

test('a category is included, excluded, and both again without it', () => {
  const all = parse('/console/');
  const only = { ...all, ...toggleCategory(all, 'sqli', 'categories') };
  expect(countedCategories(only)).toEqual(['sqli']);
  expect(countedCategories({ ...only, ...toggleCategory(only, 'xss', 'categories') })).toEqual([
    'sqli',
    'xss',
  ]);
  const without = { ...only, ...toggleCategory(only, 'sqli', 'excluded') };
  expect(without).toMatchObject({ categories: [], excluded: ['sqli'] });
  expect(countedCategories(without)).toEqual(ATTACK_TYPES.filter((name) => name !== 'sqli'));
  expect({ ...without, ...toggleCategory(without, 'sqli', 'excluded') }).toEqual(all);
  expect({ ...only, ...toggleCategory(only, 'sqli', 'categories') }).toEqual(all);
});

test('defaults are left out of the URL, except for the time zone', () => {
  expect(urlOf(parse('/console/?tz=UTC'))).toBe('/console/?tz=UTC');
  expect(urlOf(parse('/console/hosts?range=24hours&live=on&tz=UTC'))).toBe('/console/hosts?tz=UTC');
  expect(urlOf(parse('/console/'))).toBe(`/console/?tz=${encodeURIComponent(browserZone().id)}`);
});

test('invalid parameters are ignored and listed', () => {
  const given = [
    ...['tz=+15:00', 'host=a/b', 'project=a b', 'sort=x', 'by=x', 'tv=x', 'live=x'],
    ...['category=other', 'category=-x', 'range=bogus'],
  ];
  const broken = parse(`/console/?${given.join('&').replace('+', '%2B')}`);
  expect(broken).toEqual({ ...parse('/console/'), problems: expect.anything() });
  expect(broken.problems.toSorted()).toEqual(given.toSorted());
  fc.assert(
    fc.property(fc.string(), (query) => {
      urlOf(parse(`/console/?${query.replaceAll('#', '')}`));
    }),
  );
});

test.each([
  ['from=abc', ['from=abc']],
  ['from=abc&to=2', ['from=abc']],
  ['from=2&to=1', ['from=2&to=1']],
  ['from=1', ['from=1&to=']],
  ['from=1&to=2', []],
])('%s: what is not a range is listed', (query, problems) => {
  expect(parse(`/console/?${query}`).problems).toEqual(problems);
});

test('an unencoded plus is a plus', () => {
  expect(parse('/console/?tz=+08:00').timezone).toBe('+08:00');
});

test('a range is at most as long as the API allows', () => {
  const dayMs = 86_400_000;
  expect(parse(`/console/?from=0&to=${3_653 * dayMs}`).selectedRange).toEqual({ from: 0, to: 3_653 * dayMs });
  expect(parse(`/console/?from=0&to=${3_653 * dayMs + 1}`).selectedRange).toEqual({ preset: '24hours' });
});
