import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { scaled } from '../../../../../test/random.ts';
import { renderLiterals } from './server.ts';

describe('literals', () => {
  test('are rendered by type', () => {
    expect(renderLiterals('SELECT {a:UInt32}, {b:String}', { a: 7, b: 'x' })).toBe(
      "SELECT CAST(7 AS UInt32), CAST('x' AS String)",
    );
    expect(renderLiterals('{a:Array(String)} {b:Array(UInt64)}', { a: ["it's", '\\'], b: [] })).toBe(
      "CAST(['it\\'s','\\\\'] AS Array(String)) CAST([] AS Array(UInt64))",
    );
  });

  test('are a list after IN, which must not be empty', () => {
    expect(renderLiterals('x NOT IN {a:Array(UInt32)}', { a: [1, 2] })).toBe('x NOT IN (1,2)');
    expect(() => renderLiterals('x IN {a:Array(UInt32)}', { a: [] })).toThrow(/a is empty/);
  });

  test('no string breaks out of its quotes', () => {
    fc.assert(
      fc.property(hostileText, (text) => {
        const literal = renderLiterals('{text:String}', { text });
        // What a server reads: up to the next quote without a backslash before it.
        const read = /^CAST\('((?:[^'\\\0]|\\['\\0])*)' AS String\)$/.exec(literal)?.[1];
        expect(read?.replace(/\\(.)/gs, (_, one) => (one === '0' ? '\0' : one))).toBe(text);
      }),
      { numRuns: scaled(1_000) },
    );
  });

  test('a value that looks like a placeholder is not replaced', () => {
    const rendered = renderLiterals('{a:String} {b:String}', { a: '{b:String}', b: "'" });
    expect(rendered).toBe("CAST('{b:String}' AS String) CAST('\\'' AS String)");
  });

  test.each([
    ['{a:String}', { a: 1 }],
    ['{a:UInt32}', { a: '1' }],
    ['{a:UInt32}', { a: -1 }],
    ['{a:UInt32}', { a: 2 ** 32 }],
    ['{a:UInt64}', { a: 1.5 }],
    ['{a:UInt64}', { a: Number.NaN }],
    ['{a:Array(UInt64)}', { a: ['1'] }],
    ['{a:Array(String)}', { a: 'x' }],
    ['{a:Float64}', { a: 1 }],
    ['{a:String}', {}],
  ])('%s with %o is refused', (sql, values) => {
    expect(() => renderLiterals(sql, values as never)).toThrow(TypeError);
  });
});

const hostileText = fc.string({
  unit: fc.oneof(
    fc.constantFrom("'", '\\', '\0', '\n', '{', '}', '--', ';', "\\'"),
    fc.string({ maxLength: 3 }),
  ),
});
