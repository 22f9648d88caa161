import fc from 'fast-check';
import { expect, test } from 'vitest';
import { isSourceName, printable } from './printable.ts';

test('bidirectional, zero-width and control characters are escaped', () => {
  expect(printable('a\u202eb\u009bc\u2028d')).toBe('a\\u202eb\\u009bc\\u2028d');
  expect(printable('a\u001b[2J\tb\r\nc\ud800')).toBe('a\\u001b[2J\\u0009b\\u000d\\u000ac\\ud800');
  expect(printable('x\u{e0041}')).toBe('x\\udb40\\udc41');
  expect(printable('münchen.example 漢字')).toBe('münchen.example 漢字');
});

test.each([
  ['a combining grapheme joiner', '\u034f'],
  ['a variation selector', '\ufe0f'],
  ['another variation selector', '\u{e0100}'],
  ['a Hangul filler', '\u3164'],
  ['a halfwidth Hangul filler', '\uffa0'],
  ['a Hangul syllable filler', '\u115f'],
  ['a Khmer inherent vowel', '\u17b4'],
  ['a Mongolian vowel separator', '\u180e'],
  ['a braille blank', '\u2800'],
  ['a tag', '\u{e0041}'],
  ['a private character', '\ue000'],
  ['a space that is not the usual one', '\u00a0'],
])('%s is escaped, and has no place in names', (_, character) => {
  expect(printable(`a${character}b`)).toMatch(/^a(\\u[0-9a-f]{4})+b$/);
  expect(isSourceName(`a${character}b`)).toBe(false);
});

test('names of sources have 1 to 128 characters', () => {
  for (const name of ['a', 'nginx on web-1', 'münchen', '漢字', 'x'.repeat(128)])
    expect(isSourceName(name)).toBe(true);
  for (const name of ['', ' ', 'x'.repeat(129), 'a\nb', 'a\u202eb', '\ud800'])
    expect(isSourceName(name)).toBe(false);
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
