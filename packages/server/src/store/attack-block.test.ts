import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { CATEGORIES } from '../event.ts';
import { AttackBlock, headLength } from './attack-block.ts';
import { encodeBlock } from './attack-encode.ts';
import { type AttackEntry, compareEntries } from './attack-entries.ts';
import { type AttackFilter, AttackMatcher } from './attack-filter.ts';
import { finish } from './slices.ts';
import { HOUR_MS, StoreDamaged } from './store.ts';

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

function encode(entries: readonly AttackEntry[], threshold = 0): Buffer {
  const ranks = threshold > 0 ? entries.map((_, i) => i + 1) : [];
  return finish(encodeBlock({ hour: HOUR, entries, threshold, ranks }));
}

describe('a block of attacks', () => {
  it('has the entries that were encoded', () => {
    fc.assert(
      fc.property(fc.array(entry, { minLength: 1, maxLength: 400 }), fc.nat(), (entries, threshold) => {
        const sorted = entries.sort(compareEntries);
        const block = AttackBlock.of(HOUR, encode(sorted, threshold));
        // Single ones, of a block that has not been unpacked.
        expect(sorted.map((_, i) => block.entry(i))).toEqual(sorted);
        expect(block.entries()).toEqual(sorted);
        expect([block.length, block.threshold]).toEqual([sorted.length, threshold]);
        expect([block.first, block.last]).toEqual([sorted[0]?.time, sorted.at(-1)?.time]);
      }),
    );
  });

  it('is rejected or readable when it is damaged', () => {
    const entries = fc.sample(entry, 50).sort(compareEntries);
    const whole = encode(entries);
    fc.assert(
      fc.property(fc.nat(whole.length - 1), fc.nat(255), (at, byte) => {
        const damaged = Buffer.from(whole);
        damaged[at] = byte;
        const isSame = damaged.equals(whole);
        if (at >= headLength(whole) && !isSame)
          expect(() => AttackBlock.of(HOUR, damaged).checkSections()).toThrow(StoreDamaged);
        try {
          AttackBlock.of(HOUR, damaged).entries();
        } catch (error) {
          expect(error).toBeInstanceOf(Error);
        }
      }),
    );
  });

  it('finds values by their hashes in a large block', () => {
    const time = HOUR * HOUR_MS;
    const entries = Array.from({ length: 3_000 }, (_, i): AttackEntry => {
      const rules = [{ id: String(i % 9) }, { id: String(i % 11) }];
      return { id: String(i), time, hostId: null, category: 'xss', count: 1, url: `/${i % 1_000}`, rules };
    });
    const block = AttackBlock.of(HOUR, encode(entries.sort(compareEntries)));
    const rows = (include: AttackFilter['include'], exclude = {}) =>
      Array.from(new AttackMatcher({ include, exclude }).rows(block, 0, Number.POSITIVE_INFINITY), (i) =>
        block.entry(i),
      );
    expect(rows({ urls: ['/7', '/none'] })).toEqual(entries.filter(({ url }) => url === '/7'));
    expect(rows({ urls: ['/70', '/71'], rules: ['3'] })).toEqual(
      entries.filter(({ url, rules }) => /^.7[01]$/.test(url ?? '') && rules.some(({ id }) => id === '3')),
    );
    expect(rows({}, { rules: ['10', '5'] })).toEqual(
      entries.filter(({ rules }) => !rules.some(({ id }) => id === '10' || id === '5')),
    );
    const many = Array.from({ length: 100 }, (_, i) => `/${i * 20}`);
    expect(rows({ urls: many })).toEqual(entries.filter(({ url = '' }) => many.includes(url)));
    expect(rows({ urls: ['/none'] })).toEqual([]);
    expect(rows({}, { urls: ['/none'] })).toHaveLength(3_000);
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
    expect(encode(entries).length / entries.length).toBeLessThan(60);
  });
});
