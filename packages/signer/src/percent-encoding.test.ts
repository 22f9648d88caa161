import fc from 'fast-check';
import { expect, test } from 'vitest';
import { percentDecode, percentEncode, percentEncodeAscii } from './percent-encoding.ts';

const anyText = fc.string({ unit: 'binary' });
const textOf = (bytes: Uint8Array) => new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes);

test.each([
  ['AZaz09-_.~', 'AZaz09-_.~'],
  [' ', '%20'],
  ['+', '%2B'],
  ["!*'()/", '%21%2A%27%28%29%2F'],
  ['一', '%E4%B8%80'],
  ['😀', '%F0%9F%98%80'],
  ['a\ud800b', 'a%EF%BF%BDb'],
  ['', ''],
])('%j is encoded as %s', (text, encoded) => {
  expect(percentEncode(text)).toBe(encoded);
});

test.each([
  ['%', '%'],
  ['%%41', '%A'],
  ['100%', '100%'],
  ['%4', '%4'],
  ['%zz', '%zz'],
  ['%4z%7E', '%4z~'],
  ['%e4%b8%80', '一'],
  ['a+b', 'a+b'],
])('%j decodes to %j, whatever is malformed stays', (encoded, text) => {
  expect(textOf(percentDecode(encoded))).toBe(text);
});

test('ASCII is encoded the same by the shorter way', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary-ascii' }), (text) => {
      expect(percentEncodeAscii(text)).toBe(percentEncode(text));
    }),
  );
});

test('any text comes back from its encoded form, lone surrogates as the replacement character', () => {
  const withSurrogates = fc
    .array(fc.oneof(anyText, fc.constantFrom('\ud800', '\udfff', '%')))
    .map((all) => all.join(''));
  fc.assert(
    fc.property(withSurrogates, (text) => {
      expect(textOf(percentDecode(percentEncode(text)))).toBe(textOf(new TextEncoder().encode(text)));
    }),
  );
});

test('any bytes come back from their encoded form, so those that are no UTF-8 stay apart', () => {
  fc.assert(
    fc.property(fc.uint8Array(), (bytes) => {
      expect(percentDecode(percentEncode(bytes))).toEqual(bytes);
    }),
  );
});

test('the encoded form of valid text is the one of encodeURIComponent, with five characters more', () => {
  const strict = (text: string) =>
    encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  fc.assert(
    fc.property(anyText, (text) => {
      expect(percentEncode(text)).toBe(strict(text));
    }),
  );
});
