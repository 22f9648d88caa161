import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ruleName, ruleUrl } from './names.ts';

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

/** Debian's package of the Core Rule Set. */
const CRS = '/usr/share/modsecurity-crs/rules';
const hasCrs = existsSync(CRS);
if (!hasCrs)
  console.warn('no Core Rule Set, so its rule IDs are not compared: apt-get install modsecurity-crs');

/** Rules of version 4, which Debian does not have yet. */
const NEWER =
  `920221 920451 920520 920521 920540 920610 921210 921220 921240 921250 922130 930121 930140 931131
  932125 932131 932161 932175 932205 932206 932210 932220 932230 932231 932235 932236 932237 932238 932239 932240
  932250 932260 932300 932301 932310 932311 932320 932321 932330 932331 932370 932371 932380 933135 933152 933153
  933211 934101 934110 934120 934130 934131 934140 934150 934160 934170 934180 934190 941181 941390 941400 942131
  942151 942152 942321 942362 942441 942520 942521 942522 942530 942540 942550 942560 944140 944150 944151 944152
  944260 949111 953101 955100 956100 959101 980170`.split(/\s+/);

test.skipIf(!hasCrs && process.env.CI !== 'true')('every rule with a name exists, and logs a message', () => {
  const text = readdirSync(CRS)
    .filter((name) => name.endsWith('.conf'))
    .map((name) => readFileSync(join(CRS, name), 'utf8'))
    .join('\n')
    .replaceAll('\\\n', '');
  const logged = text
    .split('\n')
    .filter((line) => !line.startsWith('#') && line.includes("msg:'"))
    .flatMap((line) => /\bid:(\d+)/.exec(line)?.[1] ?? []);
  expect(logged.length).toBeGreaterThan(200);
  const named = Array.from({ length: 90 }, (_, i) => String(910 + i)).flatMap((file) => {
    const group = ruleName(`${file}999`);
    const ids = Array.from({ length: group === '' ? 0 : 999 }, (_, i) => file + String(i).padStart(3, '0'));
    return ids.filter((id) => ruleName(id) !== group);
  });
  expect(named.length).toBeGreaterThan(300);
  expect(named.filter((id) => !logged.includes(id) && !NEWER.includes(id))).toEqual([]);
});
