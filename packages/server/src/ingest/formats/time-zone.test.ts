import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { createReader } from '../reader.ts';
import { parseZone } from './time-zone.ts';

const HOUR_MS = 3_600_000;
const local = (text: string) => Date.parse(`${text}Z`);
const iso = (time: number) => new Date(time).toISOString().slice(0, 19);
const inOrder = (name: string, times: readonly string[]) => {
  const zone = parseZone(name).startLog?.(null);
  return times.map((text) => iso(zone?.toUtc(local(text)) ?? 0));
};

describe('a zone with daylight saving', () => {
  test('is right on both sides of a clock change', () => {
    expect(
      inOrder('Europe/Berlin', [
        '2026-01-15T12:00:00',
        '2026-03-29T01:59:59',
        '2026-03-29T03:00:00',
        '2026-07-01T12:00:00',
        '2026-10-25T01:59:59',
        '2026-10-25T03:00:00',
        '2026-12-01T12:00:00',
      ]),
    ).toEqual([
      '2026-01-15T11:00:00',
      '2026-03-29T00:59:59',
      '2026-03-29T01:00:00',
      '2026-07-01T10:00:00',
      '2026-10-24T23:59:59',
      '2026-10-25T02:00:00',
      '2026-12-01T11:00:00',
    ]);
  });

  test('reads a time that no clock shows with the offset before the change', () => {
    expect(inOrder('Europe/Berlin', ['2026-03-29T02:00:00', '2026-03-29T02:59:59'])).toEqual([
      '2026-03-29T01:00:00',
      '2026-03-29T01:59:59',
    ]);
    // Half an hour, on the other side of the world.
    expect(inOrder('Australia/Lord_Howe', ['2026-10-04T02:15:00', '2026-10-04T02:30:00'])).toEqual([
      '2026-10-03T15:45:00',
      '2026-10-03T15:30:00',
    ]);
  });

  test('reads an ambiguous hour in the order of the lines', () => {
    expect(
      inOrder('Europe/Berlin', [
        '2026-10-25T02:00:00',
        '2026-10-25T02:30:01',
        // Two workers that write at nearly the same time.
        '2026-10-25T02:30:00',
        '2026-10-25T02:59:59',
        '2026-10-25T02:00:00',
        '2026-10-25T02:59:59',
        '2026-10-25T03:00:00',
        '2026-10-25T02:59:59',
      ]),
    ).toEqual([
      '2026-10-25T00:00:00',
      '2026-10-25T00:30:01',
      '2026-10-25T00:30:00',
      '2026-10-25T00:59:59',
      '2026-10-25T01:00:00',
      '2026-10-25T01:59:59',
      '2026-10-25T02:00:00',
      '2026-10-25T01:59:59',
    ]);
    expect(inOrder('America/New_York', ['2026-11-01T01:30:00', '2026-11-01T01:10:00'])).toEqual([
      '2026-11-01T05:30:00',
      '2026-11-01T06:10:00',
    ]);
  });

  test('each log has its own place in the ambiguous hour', () => {
    const zone = parseZone('Europe/Berlin');
    const [one, two] = [zone.startLog?.(null), zone.startLog?.(null)];
    one?.toUtc(local('2026-10-25T02:59:00'));
    expect(iso(one?.toUtc(local('2026-10-25T02:01:00')) ?? 0)).toBe('2026-10-25T01:01:00');
    expect(iso(two?.toUtc(local('2026-10-25T02:01:00')) ?? 0)).toBe('2026-10-25T00:01:00');
  });
});

const ZONES = [
  'Europe/Berlin',
  'America/New_York',
  'Australia/Lord_Howe',
  'Asia/Kathmandu',
  'UTC',
  'America/St_Johns',
];

test('times in order are converted exactly, and a restart anywhere changes nothing', () => {
  const minutes = fc.array(fc.integer({ min: 1, max: 29 }), { minLength: 1, maxLength: 600 });
  const starts = [
    '2026-03-28T12:00',
    '2026-10-24T12:00',
    '2026-10-03T06:00',
    '2026-04-04T06:00',
    '2026-10-31T18:00',
  ];
  fc.assert(
    fc.property(
      fc.constantFrom(...ZONES),
      fc.constantFrom(...starts),
      minutes,
      fc.nat(600),
      (name, start, steps, cut) => {
        const wall = new Intl.DateTimeFormat('sv-SE', {
          timeZone: name,
          dateStyle: 'short',
          timeStyle: 'medium',
        });
        let time = local(`${start}:00`);
        let zone = parseZone(name).startLog?.(null);
        for (const [i, step] of steps.entries()) {
          time += step * 60_000;
          if (i === cut)
            zone = parseZone(name).startLog?.(JSON.parse(JSON.stringify(zone?.state?.() ?? null)));
          expect(zone?.toUtc(local(wall.format(time).replace(' ', 'T')))).toBe(time);
        }
      },
    ),
  );
});

test('a reader keeps state in the ambiguous hour, and none outside of it', () => {
  const line = (time: string) => `2026/10/25 ${time} [error] 1#1: *1 limiting requests, excess: 1, host: "a"`;
  const zone = parseZone('Europe/Berlin');
  const first = createReader({ format: 'nginx-error', zone });
  first.read(line('01:59:00'), 0);
  expect(first.state()).toBe('');
  first.read(line('02:59:00'), 0);
  const second = createReader({ format: 'nginx-error', zone }, first.state());
  expect(second.read(line('02:10:00'), 0)).toMatchObject([
    { record: { time: local('2026-10-25T01:10:00') } },
  ]);
  const third = createReader({ format: 'nginx-error', zone }, second.state());
  expect(third.read(line('02:40:00'), 0)).toMatchObject([{ record: { time: local('2026-10-25T01:40:00') } }]);
  third.read(line('05:00:00'), 0);
  expect(third.state()).toBe('');
});

test('offsets are zones too', () => {
  expect(parseZone('+05:45').toUtc(0)).toBe(-5.75 * HOUR_MS);
  expect(parseZone('-12:00').toUtc(0)).toBe(12 * HOUR_MS);
});

test.each([
  '8',
  '+15:00',
  '-12:01',
  '+08:60',
  'Europe/Berlinn',
  'CEST!',
  '',
  'x'.repeat(65),
  '../etc/passwd',
])('%j is not a zone', (text) => {
  expect(() => parseZone(text)).toThrow('must be an offset like +08:00, from -12:00 to +14:00, or an IANA');
});

test('a million lines need few offset lookups', () => {
  const zone = parseZone('America/Santiago').startLog?.(null);
  const format = Intl.DateTimeFormat.prototype;
  let lookups = 0;
  const original = Object.getOwnPropertyDescriptor(format, 'format') ?? {};
  Object.defineProperty(format, 'format', {
    ...original,
    get() {
      lookups++;
      return original.get?.call(this);
    },
  });
  try {
    for (let i = 0; i < 1_000_000; i++) zone?.toUtc(local('2026-10-24T00:00:00') + i * 250);
  } finally {
    Object.defineProperty(format, 'format', original);
  }
  expect(lookups).toBeGreaterThan(0);
  expect(lookups).toBeLessThan(1_000);
});
