import { ATTACK_TYPES } from '@wafstat/client';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { FILTER_FIELDS, type Filter, type FilterField } from './filters.ts';
import { PRESETS, type PresetName } from './time-range.ts';
import { changed, OPENED, PAGES, type PageName, parseView, SORTS, SPLITS, urlOf, type View } from './view.ts';
import { browserZone, formatOffset } from './zone.ts';

const parse = (path: string) => parseView(new URL(path, 'http://localhost'));

const id = fc.stringMatching(/^[A-Za-z0-9_-]{1,64}$/);
/** Values of filters; attackers choose rules and URLs. */
const VALUES: Readonly<Record<FilterField, fc.Arbitrary<string>>> = {
  category: fc.constantFrom(...ATTACK_TYPES),
  action: fc.constantFrom('block', 'log'),
  source: fc.oneof(fc.ipV4(), fc.ipV6(), fc.constant('2001:db8::/64')),
  url: fc.string({ maxLength: 99 }).map((text) => `/${text.replaceAll('?', '')}`),
  rule: fc.string({ minLength: 1, maxLength: 99 }).map((text) => text.replaceAll(',', '+')),
  country: fc.constantFrom('DE', 'FR'),
  status: fc.constantFrom('403', '200'),
  method: fc.constantFrom('GET', 'M-SEARCH', '-X'),
};
const filtersOf = (field: FilterField): fc.Arbitrary<Filter[]> =>
  fc.uniqueArray(fc.record({ field: fc.constant(field), value: VALUES[field], isExcluded: fc.boolean() }), {
    maxLength: 3,
    selector: ({ value, isExcluded }) => `${isExcluded} ${value}`,
  });

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
  threshold: fc.integer({ min: 1, max: 10_000 }),
  compared: fc.constantFrom('previous', 'week', '2026-11-10'),
  filters: fc.tuple(...FILTER_FIELDS.map(filtersOf)).map((all) => all.flat()),
  by: fc.constantFrom(...SPLITS),
  open: fc.option(
    fc.oneof(
      fc.record({
        kind: fc.constantFrom(...OPENED.filter((kind) => kind !== 'network')),
        value: fc.string({ minLength: 1, maxLength: 512 }),
      }),
      fc.record({ kind: fc.constantFrom('source', 'url', 'rule', 'network'), value: fc.constant(null) }),
    ),
  ),
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

test('another page or project closes the side panel, and every change removes the problems', () => {
  const opened = parse('/console/?open=source:192.0.2.1&range=x');
  expect(opened.open).toEqual({ kind: 'source', value: '192.0.2.1' });
  expect(changed(opened, { live: false })).toMatchObject({ problems: [], open: opened.open });
  expect(changed(opened, { page: 'hosts' }).open).toBeNull();
  expect(changed(opened, { project: 'p' }).open).toBeNull();
});

test('defaults are left out of the URL, except for the time zone', () => {
  expect(urlOf(parse('/console/?tz=UTC'))).toBe('/console/?tz=UTC');
  expect(urlOf(parse('/console/hosts?range=24hours&live=on&tz=UTC'))).toBe('/console/hosts?tz=UTC');
  expect(urlOf(parse('/console/'))).toBe(`/console/?tz=${encodeURIComponent(browserZone().id)}`);
});

test('invalid parameters are ignored and listed', () => {
  const given = [
    ...['tz=+15:00', 'host=a/b', 'project=a b', 'sort=x', 'by=x', 'tv=x', 'live=x'],
    ...['category=other', 'category=-x', 'range=bogus', 'compare=2026-13-01', 'open=attack', 'open=x:1'],
    ...['source=x', 'url=a', 'rule=', 'country=-x', 'status=42', 'action=pass', 'method=a b'],
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
