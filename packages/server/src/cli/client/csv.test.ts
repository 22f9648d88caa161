import fc from 'fast-check';
import { expect, test } from 'vitest';
import { csv } from './csv.ts';

test('CSV has a header, and lines that end in CR LF', () => {
  expect(csv(['category', 'count'], [['xss', 12_345]])).toBe('category,count\r\nxss,12345\r\n');
});

test('any text comes back from CSV as it went in', () => {
  const rows = fc.array(fc.array(fc.string(), { minLength: 2, maxLength: 2 }));
  fc.assert(
    fc.property(rows, (texts) => {
      expect(parse(csv(['a', 'b'], texts))).toEqual([['a', 'b'], ...texts]);
    }),
  );
});

/** By the grammar of RFC 4180, for rows of more than one field. */
function parse(text: string): string[][] {
  const rows: string[][] = [[]];
  for (const [, quoted, bare, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r\n)/g)) {
    rows.at(-1)?.push(quoted === undefined ? (bare ?? '') : quoted.replaceAll('""', '"'));
    if (end === '\r\n') rows.push([]);
  }
  return rows.slice(0, -1);
}
