import fc from 'fast-check';
import { expect, test } from 'vitest';
import { printable } from './printable.ts';

test('bidirectional, zero-width and control characters are escaped', () => {
  expect(printable('a\u202eb\u009bc\u2028d')).toBe('a\\u202eb\\u009bc\\u2028d');
  expect(printable('a\u001b[2J\tb\r\nc\ud800')).toBe('a\\u001b[2J\\u0009b\\u000d\\u000ac\\ud800');
  expect(printable('x\u{e0041}')).toBe('x\\udb40\\udc41');
  expect(printable('münchen.example 漢字')).toBe('münchen.example 漢字');
});

test('JSON keeps its meaning', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      const json = printable(JSON.stringify({ text }));
      expect(json).not.toMatch(/[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/u);
      expect(JSON.parse(json)).toEqual({ text });
    }),
  );
});
