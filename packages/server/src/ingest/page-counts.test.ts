import fc from 'fast-check';
import { expect, test } from 'vitest';
import { scaled } from '../../../../test/random.ts';
import { attackDetails } from '../attack-details.ts';
import { topUrl } from '../event.ts';
import { PageCounts } from './page-counts.ts';

const normal = (page: string) => topUrl(attackDetails({ url: page })?.url ?? '');

function pagesOf(pages: readonly string[]) {
  const counts = new PageCounts();
  for (const page of pages) counts.add({ time: 0, status: 404, page, count: 1 });
  const [list] = counts.pages(() => null);
  return list ?? { paths: new Map<string, number>(), lost: 0, error: 0 };
}

test('paths that differ only in what is not kept are counted as one', () => {
  const long = '/'.padEnd(300, 'x');
  for (const [frequent, kept] of [
    [(i: number) => `/x;jsessionid=${i}`, '/x;jsessionid=...'],
    [(i: number) => `/eyJhbGciOiJIUzI1NiJ9.${i}`, '/...'],
    [(i: number) => `https://${i}.example.com/a`, '/a'],
    [(i: number) => `${long}${i}`, long.slice(0, 256)],
  ] as const) {
    const others = Array.from({ length: 40 }, (_, i) => `/${i}`);
    const { paths, error } = pagesOf([...Array.from({ length: 5_000 }, (_, i) => frequent(i)), ...others]);
    expect((paths.get(kept) ?? 0) + error).toBe(5_000);
    expect(error).toBe(1);
  }
});

const part = fc.constantFrom(
  ...[
    'a',
    'b',
    '/',
    '.',
    '-',
    '_',
    '%',
    '%3d',
    '%20',
    '=',
    ';sid=',
    ';token=',
    ' ',
    '\\x22',
    ':',
    '@',
    '+',
    '~',
    '*',
  ],
  ...[
    'eyJ',
    'eyJabcdefgh.x',
    'key',
    'http://',
    'HTTPS://a.b',
    '\u00e4',
    '\u{1f600}',
    '\x7f',
    '\u200b',
    '"',
    "'",
    ',',
  ],
  ...['&', '(', '!', '$', '|', '<', '>', '[', '{', 'x'.repeat(254), '\u00fc'.repeat(127)],
);
const anyPage = fc
  .tuple(
    fc.constantFrom('/', '/', '', '*', '-'),
    fc.array(fc.oneof(part, fc.string({ maxLength: 4 })), { maxLength: 6 }),
  )
  .map(([start, parts]) => (start + parts.join('')).replace(/[?#]/g, '') || '/');

test('a path is counted as it is kept', () => {
  fc.assert(
    fc.property(anyPage, (page) => {
      const { paths, lost } = pagesOf([page]);
      expect([...paths, lost]).toEqual(normal(page) === '' ? [1] : [[normal(page), 1], 0]);
    }),
    { numRuns: scaled(3_000) },
  );
});

test('counts are at most the error too small', () => {
  const variant = fc.oneof(
    fc.nat(60).map((n) => `/${n}`),
    fc.tuple(fc.nat(9), fc.nat()).map(([n, secret]) => `/${n};jsessionid=${secret}`),
    fc.tuple(fc.nat(60), fc.nat()).map(([n, host]) => `http://${host}/${n}`),
    fc.nat().map((n) => `/flood/${n}`),
    anyPage,
  );
  const pages = fc
    .tuple(
      fc.array(variant, { minLength: 1, maxLength: 50 }),
      fc.array(fc.nat(), { maxLength: 2_500, size: 'max' }),
    )
    .map(([few, order]) => order.map((n) => (n % 3 === 0 ? `/${n}` : (few[n % few.length] ?? ''))));
  fc.assert(
    fc.property(pages, (drawn) => {
      const exact = new Map<string, number>();
      for (const page of drawn) exact.set(normal(page), (exact.get(normal(page)) ?? 0) + 1);
      const { paths, lost, error } = pagesOf(drawn);
      for (const [path, count] of exact) {
        if (path === '') continue;
        const counted = paths.get(path) ?? 0;
        expect(counted).toBeLessThanOrEqual(count);
        expect(counted + error).toBeGreaterThanOrEqual(count);
      }
      expect([...paths.values()].reduce((sum, count) => sum + count, lost)).toBe(drawn.length);
    }),
    { numRuns: scaled(60) },
  );
});
