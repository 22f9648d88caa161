import { expect, test } from 'vitest';
import { ruleName, ruleUrl } from './rules.ts';

test('rules of the Core Rule Set have a URL by ID', () => {
  expect(ruleUrl('942100')).toBe(
    'https://raw.githubusercontent.com/coreruleset/coreruleset/main/rules/REQUEST-942-APPLICATION-ATTACK-SQLI.conf#:~:text=id%3A942100',
  );
});

test.each([
  ['942100', 'SQL injection by libinjection'],
  ['920350', 'Host is an IP address'],
  ['920190', 'Range: invalid last byte'],
  ['921130', 'Response splitting'],
  // Without a name of its own.
  ['942999', 'SQL injection'],
  ['100001', ''],
  ['constructor', ''],
])('the name of rule %s is %j', (id, name) => {
  expect(ruleName(id)).toBe(name);
});

test.each(['', '1', '10001', '9421000', '942100 ', '999999', '942_00', 'constructor'])(
  'rule %j has none',
  (id) => {
    expect(ruleUrl(id)).toBe(null);
  },
);
