import fc from 'fast-check';
import { expect, test } from 'vitest';
import { csv } from './csv.ts';

test('CSV has a header, and lines that end in CR LF', () => {
  expect(csv(['category', 'count'], [['xss', 12_345]])).toBe('category,count\r\nxss,12345\r\n');
});

test('any text survives a round trip, with an apostrophe before a formula', () => {
  const formula = fc.constantFrom('=', '+', '-', '@', '\t', '\r').chain((c) => fc.string().map((s) => c + s));
  const rows = fc.array(fc.array(fc.oneof(fc.string(), formula), { minLength: 2, maxLength: 2 }));
  const guarded = (text: string) =>
    `${/^[=+\-@\t\r]/.test(text) ? "'" : ''}${text.replace(/([;\t\r\n])([=+\-@])/g, "$1'$2")}`;
  fc.assert(
    fc.property(rows, (texts) => {
      expect(parse(csv(['a', 'b'], texts))).toEqual([['a', 'b'], ...texts.map((row) => row.map(guarded))]);
    }),
  );
});

test('text has no formula for a spreadsheet that divides it at semicolons or tabs', () => {
  const rows = [['/x;=1+1'], ['/x\t=1+1'], ['/x;y;-1'], ['a-b=c']];
  expect(csv(['url'], rows)).toBe('url\r\n"/x;\'=1+1"\r\n"/x\t\'=1+1"\r\n"/x;y;\'-1"\r\na-b=c\r\n');
  fc.assert(
    fc.property(
      fc.array(fc.array(fc.string({ unit: fc.constantFrom(...';\t=+-@,"\r\na\'') }), { minLength: 1 })),
      (texts) => {
        for (const cell of csv(['a'], texts).split(/[;\t\r\n]/)) expect(cell).not.toMatch(/^[=+\-@]/);
      },
    ),
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
