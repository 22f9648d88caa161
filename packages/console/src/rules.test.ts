import { expect, test } from 'vitest';
import { ruleUrl } from './rules.ts';

test('rules of the Core Rule Set have a URL by ID', () => {
  expect(ruleUrl('942100')).toBe(
    'https://raw.githubusercontent.com/coreruleset/coreruleset/main/rules/REQUEST-942-APPLICATION-ATTACK-SQLI.conf#:~:text=id%3A942100',
  );
});

test.each(['', '1', '10001', '9421000', '942100 ', '999999', '942_00', 'constructor'])(
  'rule %j has none',
  (id) => {
    expect(ruleUrl(id)).toBe(null);
  },
);
