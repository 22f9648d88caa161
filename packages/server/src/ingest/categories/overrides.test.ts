import { expect, test } from 'vitest';
import { parseOverrides } from './overrides.ts';

test('rules get the categories that the file says, and "none" takes them out', () => {
  const overrides = parseOverrides('{"rules": {"942100": "custom", "900123": "none"}}');
  expect(Object.fromEntries(overrides)).toEqual({ 942100: 'custom', 900123: null });
  expect(parseOverrides('{"rules": {}}').size).toBe(0);
});

test('all mistakes are told at once', () => {
  const text = '{"rules": {"942100": "SQLI", "x": "none", "1": 5, "2": "xss", "-1": "constructor"}}';
  expect(() => parseOverrides(text)).toThrow(
    /"1" is 5.*"942100" is "SQLI".*"x" is not a rule id.*"-1" is not/s,
  );
});

test.each(['', 'null', '[]', '{}', '{"rules": []}', '{"rules": {}, "more": 1}'])('%j is refused', (text) => {
  expect(() => parseOverrides(text)).toThrow(/it (is not JSON|must be an object with "rules")/);
});
