import { expect, test } from 'vitest';
import { parseRuleText } from './rule-text.ts';

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

test('all that is needed is found, with or without what is said of the request', () => {
  const text = `ModSecurity: Warning. Matched. ${fields('x')}`;
  expect(parseRuleText(text)).toEqual({ rule: RULE, hostname: '', uniqueId: '' });
  expect(parseRuleText(`${text} ${TAIL}`)).toEqual({ rule: RULE, hostname: '192.0.2.1', uniqueId: 'abc' });
  expect(parseRuleText(`${text} ${TAIL} [ref "v1,2"]`)).toMatchObject({ rule: RULE, uniqueId: 'abc' });
});

test.each([
  ['in the value that matched', `Matched (Value: \`"] [file "x"] [id "1"]' ) ${fields('x')} ${TAIL}`],
  ['escaped as \\x22', `Matched. ${fields('\\x22] [id \\x221\\x22] [tag \\x22attack-sqli')} ${TAIL}`],
  ['escaped with a backslash', `Matched. ${fields('\\"] [id \\"1\\"] [tag \\"attack-sqli')} ${TAIL}`],
  ['escaped twice', `Matched. ${fields('\\\\"] [id \\\\"1\\\\"]')} ${TAIL}`],
  ['at the end of a value', `Matched. ${fields('a\\\\')} ${TAIL}`],
  [
    'in a path that is not escaped',
    `Matched. ${fields('x')} [hostname "192.0.2.1"] [uri "/"] [file "x"] [id "1"] [unique_id "1"]"] [unique_id "abc"]`,
  ],
])('text of the client that looks like a field is not taken for one: %s', (_, text) => {
  expect(parseRuleText(text)).toEqual({ rule: RULE, hostname: '192.0.2.1', uniqueId: 'abc' });
});

test('a text that was cut says what it still can', () => {
  const whole = `Matched. ${fields('x')} ${TAIL}`;
  expect(parseRuleText(whole.slice(0, whole.indexOf('[severity')))).toMatchObject({
    rule: { id: '941100', severity: '' },
  });
  expect(parseRuleText(whole.slice(0, whole.indexOf('[id ')))).toBeNull();
  expect(parseRuleText(`${whole.slice(0, -5)}`)).toMatchObject({ rule: RULE, uniqueId: '' });
});

test('what is kept of a rule is small, however much the log says', () => {
  const text = `x [file "${'/a'.repeat(500)}"] [id "${'9'.repeat(500)}"] ${'[tag "t"] '.repeat(500)}[tag "u"]`;
  expect(JSON.stringify(parseRuleText(text)).length).toBeLessThan(600);
});
