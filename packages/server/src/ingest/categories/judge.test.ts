import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { CATEGORIES } from '../../event.ts';
import { judge, primaryCategory, type Rule } from './judge.ts';
import { CRS_TABLE } from './table.ts';

const NONE = new Map();
const rule = (fields: Partial<Rule>): Rule => ({
  id: '1',
  severity: '2',
  ver: '',
  file: '',
  tags: [],
  ...fields,
});
const crs = (id: string, severity = '2') => rule({ id, severity, ver: 'OWASP_CRS/3.3.4' });
const primary = (...rules: Rule[]) => primaryCategory(rules.map((each) => judge(each, NONE)));

describe('a rule', () => {
  test.each([
    ['942100', 'sqli'],
    ['932160', 'cmdi'],
    ['933100', 'cmdi'],
    ['933110', 'webshell'],
    ['933111', 'webshell'],
    ['944140', 'webshell'],
    ['955100', 'webshell'],
    ['9502110', 'webshell'],
    ['9504110', 'robot'],
    ['9514110', 'cc'],
    ['921110', 'vuln'],
    ['920350', 'illegal'],
    ['949110', null],
    ['901001', null],
    ['980130', null],
    ['999123', 'custom'],
    ['10001', 'custom'],
  ])('%s of CRS is %s', (id, want) => {
    expect(judge(crs(id), NONE).category).toBe(want);
  });

  test('in the range of CRS is its own when nothing says that it is of CRS', () => {
    expect(judge(rule({ id: '942100' }), NONE)).toMatchObject({ category: 'custom' });
    expect(
      judge(rule({ id: '910002', file: '/etc/waf/REQUEST-910-BOT-DETECTION.conf' }), NONE),
    ).toMatchObject({
      category: 'custom',
    });
    expect(judge(rule({ id: '949500', file: '/etc/waf/mine.conf' }), NONE)).toMatchObject({
      category: 'custom',
    });
  });

  test.each<[string, Partial<Rule>, string]>([
    ['its version', { ver: 'OWASP_CRS/4.7.0' }, 'rule id 942xxx'],
    ['the file it stands in', { file: '/x/REQUEST-942-APPLICATION-ATTACK-SQLI.conf' }, 'rule id 942xxx'],
    ['the tag of CRS', { tags: ['application-multi', 'OWASP_CRS'] }, 'rule id 942xxx'],
    ['a tag of the same category', { tags: ['attack-sqli'] }, 'rule id 942xxx'],
  ])('is known to be of CRS by %s', (_, fields, because) => {
    expect(judge(rule({ id: '942100', ...fields }), NONE)).toMatchObject({ category: 'sqli', because });
  });

  test('with another number goes by its tag, then by its file', () => {
    const file = '/x/REQUEST-931-APPLICATION-ATTACK-RFI.conf';
    expect(judge(rule({ tags: ['x', 'attack-xss'], file }), NONE)).toMatchObject({
      category: 'xss',
      because: 'tag attack-xss',
    });
    expect(judge(rule({ file }), NONE)).toMatchObject({ category: 'rfi' });
  });

  test('of CRS 2 is not taken for the rule of CRS 3 that has its number', () => {
    expect(judge(rule({ id: '959070', ver: 'OWASP_CRS/2.2.9' }), NONE).category).toBe('custom');
  });

  test('that is overridden is what the operator says, or nothing', () => {
    const overrides = new Map([
      ['942100', 'custom' as const],
      ['10001', null],
    ]);
    expect(judge(crs('942100'), overrides)).toMatchObject({ category: 'custom', because: 'override' });
    expect(judge(rule({ id: '10001' }), overrides).category).toBeNull();
    expect(judge(crs('942110'), overrides).category).toBe('sqli');
  });

  test.each([
    ['2', 5],
    ['5', 2],
    ['CRITICAL', 5],
    ['critical', 5],
    ['ERROR', 4],
    ['Warning', 3],
    ['notice', 2],
    ['0', 0],
    ['emergency', 0],
    ['', 0],
    ['constructor', 0],
  ])('of severity %j has %i points', (severity, want) => {
    expect(judge(crs('942100', severity), NONE).points).toBe(want);
  });
});

describe('a request', () => {
  test('with a path out of the folder is a file inclusion, although one rule sees a command', () => {
    expect(primary(crs('930100'), crs('930110'), crs('930120'), crs('932160'), crs('949110'))).toBe('lfi');
  });

  test('with a command is a command injection, although the first rule sees a file', () => {
    expect(primary(crs('930120'), crs('932100'), crs('932130'))).toBe('cmdi');
  });

  test('of a scanner is a robot, although the host is an address', () => {
    expect(primary(crs('920350', '4'), crs('913100'))).toBe('robot');
  });

  test('with as many points in two categories is in the one whose rule matched first', () => {
    expect(primary(crs('941100'), crs('942100'))).toBe('xss');
    expect(primary(crs('942100'), crs('941100'))).toBe('sqli');
  });

  test('whose only rule has no points is an attack all the same', () => {
    expect(primary(rule({ id: '10001', severity: '' }))).toBe('custom');
  });

  test('that matched nothing but set-up and verdicts is none', () => {
    expect(primary(crs('901001'), crs('949110'))).toBeNull();
    expect(primary()).toBeNull();
  });

  test('is in a category with the most points, whatever the rules', () => {
    const judgement = fc.record({
      rule: fc.string(),
      points: fc.constantFrom(0, 2, 3, 4, 5),
      category: fc.option(fc.constantFrom(...CATEGORIES)),
      because: fc.constant(''),
    });
    fc.assert(
      fc.property(fc.array(judgement), (judgements) => {
        const sum = (category: string | null) =>
          judgements
            .filter((each) => each.category === category)
            .reduce((total, { points }) => total + points, 0);
        const best = primaryCategory(judgements);
        const named = judgements.flatMap(({ category }) => category ?? []);
        expect(best === null).toBe(named.length === 0);
        for (const category of named) expect(sum(category)).toBeLessThanOrEqual(sum(best));
      }),
    );
  });
});

test('the table says each thing once, and knows every file by the number of its rules', () => {
  for (const names of [
    CRS_TABLE.flatMap(({ rules }) => rules),
    CRS_TABLE.flatMap(({ tags = [] }) => tags),
    CRS_TABLE.flatMap(({ files = [] }) => files),
  ]) {
    expect(new Set(names).size).toBe(names.length);
  }
  for (const { rules, files = [] } of CRS_TABLE) {
    for (const file of files) expect(rules).toContain(`${/-(\d{3})-/.exec(file)?.[1]}xxx`);
  }
});
