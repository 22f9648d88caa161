import { expect, test } from 'vitest';
import { zoneOf } from './zone.ts';

test('a named zone is set up once, and a limited number is cached', () => {
  const first = zoneOf('Europe/Berlin');
  expect(zoneOf('Europe/Berlin')).toBe(first);
  for (const name of Intl.supportedValuesOf('timeZone').slice(0, 60)) zoneOf(name);
  expect(zoneOf('Europe/Berlin')).not.toBe(first);
});

test('changes are found between any two times, to the second', () => {
  const iso = (time: number) => new Date(time).toISOString();
  const year = zoneOf('Europe/Berlin').changesIn(Date.UTC(2026, 0, 1), Date.UTC(2027, 0, 1));
  const [winter, summer] = [3_600_000, 7_200_000];
  expect(year.map(({ at, ...offsets }) => [iso(at), offsets])).toEqual([
    ['2026-03-29T01:00:00.000Z', { before: winter, after: summer }],
    ['2026-10-25T01:00:00.000Z', { before: summer, after: winter }],
  ]);
  const at = Date.parse('2026-03-29T01:00:00Z');
  const between = (from: number, to: number) => zoneOf('Europe/Berlin').changesIn(at + from, at + to).length;
  expect([between(-1, 1), between(0, 1), between(-1, 0), between(-1_000, 1_000)]).toEqual([1, 0, 0, 1]);
  // An offset with seconds, and a change by 44 minutes and 30 seconds.
  expect(zoneOf('Africa/Monrovia').changesIn(0, Date.UTC(1973, 0, 1))).toEqual([
    { at: Date.parse('1972-01-07T00:44:30Z'), before: -2_670_000, after: 0 },
  ]);
  expect(zoneOf('Asia/Kathmandu').changesIn(Date.UTC(2000, 0, 1), Date.UTC(2030, 0, 1))).toEqual([]);
});
