import { expect, test } from 'vitest';
import { visibleText } from './visible-text.ts';

test('invisible characters are shown as escapes', () => {
  expect(visibleText('shop\u202emoc.elgoog')).toBe('shop\\u202emoc.elgoog');
  expect(visibleText('a\u200bb\u{e0041}')).toBe('a\\u200bb\\udb40\\udc41');
  expect(visibleText('a\u034fb\ufe0fc\u3164d\u2800')).toBe('a\\u034fb\\ufe0fc\\u3164d\\u2800');
  expect(visibleText('münchen.example 漢字 👍')).toBe('münchen.example 漢字 👍');
});
