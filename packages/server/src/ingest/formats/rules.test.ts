import { expect, test } from 'vitest';
import { parseRuleText } from './rules.ts';

const FILE = '[file "/crs/REQUEST-941-APPLICATION-ATTACK-XSS.conf"] [line "38"]';
const TAIL = '[hostname "192.0.2.1"] [uri "/"] [unique_id "abc"]';
const RULE = {
  id: '941100',
  severity: '2',
  ver: 'OWASP_CRS/3.3.4',
  file: '/crs/REQUEST-941-APPLICATION-ATTACK-XSS.conf',
  tags: ['attack-xss', 'OWASP_CRS'],
};
const fields = (data: string) =>
  `${FILE} [id "941100"] [rev ""] [msg "XSS"] [data "${data}"] [severity "2"] [ver "OWASP_CRS/3.3.4"] [maturity "0"] ` +
  '[tag "attack-xss"] [tag "OWASP_CRS"]';

test('finds all fields, with or without those of the request', () => {
  const text = `ModSecurity: Warning. Pattern match "a" at ARGS:q. ${fields('x')}`;
  const rule = { ...RULE, variable: 'ARGS:q', value: 'x' };
  expect(parseRuleText(text)).toEqual({ rule, hostname: '', uri: '', uniqueId: '' });
  expect(parseRuleText(`${text} ${TAIL}`)).toEqual({
    rule,
    hostname: '192.0.2.1',
    uri: '/',
    uniqueId: 'abc',
  });
  expect(parseRuleText(`${text} ${TAIL} [ref "v1,2"]`)).toMatchObject({ rule, uniqueId: 'abc' });
});

test.each([
  [
    'in the value that matched',
    `Warning. Matched (Value: \`"] [file "x"] [id "1"]' ) ${fields('x')} ${TAIL}`,
  ],
  [
    'escaped as \\x22',
    `Warning. Matched. ${fields('\\x22] [id \\x221\\x22] [tag \\x22attack-sqli')} ${TAIL}`,
  ],
  [
    'escaped with a backslash',
    `Warning. Matched. ${fields('\\"] [id \\"1\\"] [tag \\"attack-sqli')} ${TAIL}`,
  ],
  ['escaped twice', `Warning. Matched. ${fields('\\\\"] [id \\\\"1\\\\"]')} ${TAIL}`],
  ['at the end of a value', `Warning. Matched. ${fields('a\\\\')} ${TAIL}`],
  [
    'in a path that is not escaped',
    `Warning. Matched. ${fields('x')} [hostname "192.0.2.1"] [uri "/"] [file "x"] [id "1"] [unique_id "1"]"] [unique_id "abc"]`,
  ],
])('client text that looks like a field is ignored: %s', (_, text) => {
  expect(parseRuleText(text)).toMatchObject({ rule: RULE, hostname: '192.0.2.1', uniqueId: 'abc' });
});

test('a text that was cut gives the fields that are left', () => {
  const whole = `Warning. Matched. ${fields('x')} ${TAIL}`;
  expect(parseRuleText(whole.slice(0, whole.indexOf('[severity')))).toMatchObject({
    rule: { id: '941100', severity: '' },
  });
  const file = '/crs/REQUEST-941-APPLICATION-ATTACK-XSS.conf';
  const beforeId = whole.slice(0, whole.indexOf('[id '));
  expect(parseRuleText(beforeId)).toMatchObject({ rule: { id: '', file, doubtful: true } });
  expect(parseRuleText('Warning. Matched at ARGS_NAMES:aaaa')).toMatchObject({ rule: { id: '', file: '' } });
  expect(parseRuleText(`${whole.slice(0, -5)}`)).toMatchObject({ rule: RULE, uniqueId: '' });
});

test('a rule is small, however long its text is', () => {
  const text = `Warning. [file "${'/a'.repeat(500)}"] [id "${'9'.repeat(500)}"] ${'[tag "t"] '.repeat(500)}[tag "u"]`;
  expect(JSON.stringify(parseRuleText(text)).length).toBeLessThan(600);
});

test('ModSecurity 2 appends host, path and ID to a message that it cut', () => {
  const text = `Warning. Pattern match at ARGS_NAMES:${'a'.repeat(1_000)} ${TAIL}`;
  expect(parseRuleText(text)).toMatchObject({
    rule: { id: '', doubtful: true },
    hostname: '192.0.2.1',
    uri: '/',
    uniqueId: 'abc',
  });
});

test('distinguishes denials from warnings, and reads the sums of CRS', () => {
  expect(parseRuleText(`Access denied with code 403 (phase 2). ${fields('x')}`)?.rule.denied).toBe(true);
  expect(parseRuleText(`Warning. Access denied ${fields('x')}`)?.rule.denied).toBeUndefined();
  const scores = 'Warning. Matched. [file "x"] [id "980130"] [msg "(Total 5 - SQLI=0,XSS=5,RFI=0)"]';
  expect(parseRuleText(scores)?.rule.sums).toBe('xss');
});

test.each([
  'Rule 7f4b25d7f608 [id "941160"][file "/crs/x.conf"][line "200"] - Execution error - PCRE limits exceeded (-47): (null).',
  'ModSecurity: Rule 7f4b [id "941160"] [file "x"] - Execution error - PCRE limits exceeded [hostname "h"] [uri "/"] [unique_id "a"]',
  'JSON parsing error: lexical error [id "1"]',
  'Audit log: Failed to lock global mutex',
  '',
])('another message is not a match: %s', (text) => {
  expect(parseRuleText(text)).toBeNull();
});

test('a client that writes the fields cannot make its attack look like a setup rule', () => {
  const forged = ' [file "x"] [id "901001"] [ver "OWASP_CRS/3.3.4"]';
  for (const text of [`Warning. ARGS:${forged} ${fields('x')}`, `Warning. ${'a'.repeat(1_000)}${forged}`]) {
    expect(parseRuleText(text)?.rule.doubtful).toBe(true);
  }
});
