import fc from 'fast-check';
import { expect, test } from 'vitest';
import { csv } from './csv.ts';

test('CSV has a header, and lines that end in CR LF', () => {
  expect(csv(['category', 'count'], [['xss', 12_345]])).toBe('category,count\r\nxss,12345\r\n');
});

test('any text survives a round trip, with an apostrophe before a formula', () => {
  const formula = fc.constantFrom('=', '+', '-', '@', '\t', '\r').chain((c) => fc.string().map((s) => c + s));
  const rows = fc.array(fc.array(fc.oneof(fc.string(), formula), { minLength: 2, maxLength: 2 }));
  const guarded = (text: string) => (/^[=+\-@\t\r]/.test(text) ? `'${text}` : text);
  fc.assert(
    fc.property(rows, (texts) => {
      expect(parse(csv(['a', 'b'], texts))).toEqual([['a', 'b'], ...texts.map((row) => row.map(guarded))]);
    }),
  );
});

test('numbers are never taken for formulas', () => {
  expect(csv(['n'], [[-1]])).toBe('n\r\n-1\r\n');
});

/** Parses rows of more than one field by the grammar of RFC 4180. */
function parse(text: string): string[][] {
  const rows: string[][] = [[]];
  for (const [, quoted, bare, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n)/g)) {
    rows.at(-1)?.push(quoted === undefined ? (bare ?? '') : quoted.replaceAll('""', '"'));
    if (end === '\r\n') rows.push([]);
  }
  return rows.slice(0, -1);
}
