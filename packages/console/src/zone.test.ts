import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  allOffsets,
  changesOnDay,
  formatOffset,
  fromLocal,
  parseOffset,
  parseZone,
  toLocal,
  type Zone,
  zoneName,
  zonesByRegion,
} from './zone.ts';

function zoneOf(id: string): Zone {
  const zone = parseZone(id);
  if (zone === null) throw new Error(`the zone ${id} is unknown`);
  return zone;
}

test('every offset in the list is valid in the API', () => {
  const offsets = allOffsets();
  expect(offsets.at(0)).toBe('-12:00');
  expect(offsets.at(-1)).toBe('+14:00');
  for (const offset of offsets) expect(formatOffset(parseOffset(offset) ?? Number.NaN)).toBe(offset);
});

test('other offsets are not valid', () => {
  expect(['+14:15', '-12:01', '08:00', '+8:00', '+08:60', ''].map(parseOffset)).toEqual(Array(6).fill(null));
});

test('an unknown zone is not a zone', () => {
  expect(['Europe/Atlantis', '', 'x', '+15:00', '-1300'].map(parseZone)).toEqual(Array(5).fill(null));
});

test('a named zone has the offset of the time', () => {
  const berlin = zoneOf('Europe/Berlin');
  expect(formatOffset(berlin.offsetAt(Date.UTC(2026, 6, 1)))).toBe('+02:00');
  expect(formatOffset(berlin.offsetAt(Date.UTC(2026, 0, 1)))).toBe('+01:00');
  expect(formatOffset(zoneOf('Asia/Kathmandu').offsetAt(0))).toBe('+05:30');
});

test('the name of a zone has its offset at the time, and the zones of the list are known', () => {
  const berlin = zoneOf('Europe/Berlin');
  expect(zoneName(Date.UTC(2026, 6, 1), berlin)).toBe('Europe/Berlin (+02:00)');
  expect(zoneName(Date.UTC(2026, 0, 1), berlin)).toBe('Europe/Berlin (+01:00)');
  expect(zoneName(0, zoneOf('+05:45'))).toBe('UTC+05:45');
  expect(zonesByRegion().get('Europe')).toContain('Europe/Berlin');
});

const ZONES = [
  'Europe/Berlin',
  'America/St_Johns',
  'Australia/Lord_Howe',
  'Africa/Casablanca',
  '+05:45',
  'UTC',
];
const zones = fc.constantFrom(...ZONES).map(zoneOf);
const times = fc.integer({ min: Date.UTC(2015, 0, 1), max: Date.UTC(2030, 0, 1) });

test('local time and back is the same local time, unless the clock skipped it', () => {
  fc.assert(
    fc.property(zones, times, (zone, time) => {
      const local = toLocal(time, zone);
      expect(toLocal(fromLocal(local, zone), zone)).toBe(local);
      expect(fromLocal(local, zone)).toBeLessThanOrEqual(time);
    }),
  );
  const skipped = Date.UTC(2026, 2, 29, 2, 30);
  expect(fromLocal(skipped, zoneOf('Europe/Berlin'))).toBe(Date.UTC(2026, 2, 29, 1, 30));
});

test('a day with a clock change is known', () => {
  const at = (day: number) => changesOnDay(Date.UTC(2026, 9, day, 12), zoneOf('Europe/Berlin'));
  expect([24, 25, 26].map(at)).toEqual([false, true, false]);
});
