import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CATEGORIES } from '../event.ts';
import { AttackBlock, encodeBlock } from './attack-block.ts';
import { type AttackEntry, compareEntries } from './attack-entries.ts';
import { HOUR_MS } from './store.ts';

const HOUR = 490_000;

const text = fc
  .string({ unit: 'grapheme', minLength: 1, maxLength: 20 })
  .map((value) => value.replaceAll('\0', ' '));
const rule = fc.record({ id: text, variable: text, value: text, severity: text }, { requiredKeys: ['id'] });
const entry: fc.Arbitrary<AttackEntry> = fc.record(
  {
    id: fc.oneof(fc.constant(''), text),
    time: fc.integer({ min: 0, max: HOUR_MS - 1 }).map((ms) => HOUR * HOUR_MS + ms),
    hostId: fc.oneof(fc.constant(null), text),
    category: fc.constantFrom(...CATEGORIES),
    count: fc.oneof(fc.constant(1), fc.integer({ min: 1, max: 2 ** 40 })),
    rules: fc.array(rule, { maxLength: 4 }),
    blocked: fc.boolean(),
    source: text,
    country: text,
    method: text,
    url: text,
    query: text,
    status: fc.nat(),
    score: fc.nat(),
    userAgent: text,
  },
  { requiredKeys: ['id', 'time', 'hostId', 'category', 'count', 'rules'] },
);

describe('a block of attacks', () => {
  it('has the entries that were encoded', () => {
    fc.assert(
      fc.property(fc.array(entry, { minLength: 1, maxLength: 400 }), fc.nat(), (entries, threshold) => {
        const sorted = entries.sort(compareEntries);
        const block = new AttackBlock(HOUR, encodeBlock(HOUR, sorted, threshold));
        expect(block.entries()).toEqual(sorted);
        expect([block.length, block.threshold]).toEqual([sorted.length, threshold]);
        expect([block.first, block.last]).toEqual([sorted[0]?.time, sorted.at(-1)?.time]);
      }),
    );
  });

  it('is rejected or readable when it is damaged', () => {
    const entries = fc.sample(entry, 50).sort(compareEntries);
    const whole = encodeBlock(HOUR, entries, 0);
    fc.assert(
      fc.property(fc.nat(whole.length - 1), fc.nat(255), (at, byte) => {
        const damaged = Buffer.from(whole);
        damaged[at] = byte;
        try {
          new AttackBlock(HOUR, damaged).entries();
        } catch (error) {
          expect(error).toBeInstanceOf(Error);
        }
      }),
    );
  });

  it('takes at most 60 bytes per entry of usual traffic', () => {
    const pick = <T>(values: readonly T[], n: number) => values[n % values.length] as T;
    const hosts = Array.from({ length: 10 }, () => randomBytes(16).toString('hex'));
    const words = ['login', 'search', 'admin', 'cart', 'api', 'users', 'items', 'orders', 'images', 'static'];
    const entries = Array.from({ length: 1_000 }, (_, i): AttackEntry => {
      const random = randomBytes(8).readUInt32LE(0);
      return {
        id: `${1_764_000_000 + i}.${String(random % 1_000_000).padStart(6, '0')}`,
        time: HOUR * HOUR_MS + i * 3_600 + (random % 3_600),
        hostId: pick(hosts, random),
        category: pick(CATEGORIES, random >> 3),
        count: 1,
        blocked: random % 4 > 0,
        source: `203.0.113.${random % 50}`,
        country: pick(['DE', 'US', 'CN', 'FR'], random >> 5),
        method: pick(['GET', 'POST'], random >> 7),
        url: `/${pick(words, random >> 2)}/${pick(words, random >> 6)}/${(random >> 9) % 10}`,
        query: '',
        status: 403,
        score: 5 * (1 + (random % 4)),
        userAgent: pick(['curl/8.5.0', 'sqlmap/1.8', 'Mozilla/5.0 (X11; Linux x86_64)'], random >> 4),
        rules: Array.from({ length: 1 + (i % 2) }, () => ({
          id: String(942_100 + (random % 50) * 10),
          variable: pick(['ARGS:q', 'ARGS:id', 'REQUEST_HEADERS:User-Agent'], random >> 11),
          value: randomBytes(10).toString('hex'),
          severity: '2',
        })),
      };
    });
    expect(encodeBlock(HOUR, entries, 0).length / entries.length).toBeLessThan(60);
  });
});
