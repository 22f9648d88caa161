import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { CATEGORIES } from '../../event.ts';
import { categoryOfSums, decide, type Judgement, judge, primaryCategory, type Rule } from './judge.ts';
import { CRS_TABLE, PAYLOAD_CATEGORIES } from './table.ts';

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
    ['', null],
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
    ['0', 5],
    ['emergency', 5],
    ['', 5],
    ['constructor', 5],
  ])('of CRS and severity %j has %i points', (severity, want) => {
    expect(judge(crs('942100', severity), NONE).points).toBe(want);
  });

  test.each([
    ['4', false, 3],
    ['', false, 0],
    ['', true, 5],
    ['5', true, 5],
  ])('of an operator with severity %j, denying %s, has %i points', (severity, denied, want) => {
    expect(judge(rule({ id: '10001', severity, denied }), NONE).points).toBe(want);
  });

  test('of modsecurity.conf-recommended is illegal, in whichever file it stands', () => {
    for (const id of ['200000', '200001', '200002', '200003', '200004', '200005', '200006']) {
      const file = '/etc/modsecurity/modsecurity.conf';
      expect(judge(rule({ id, file }), NONE)).toMatchObject({ category: 'illegal' });
      expect(judge(rule({ id }), NONE)).toMatchObject({ category: 'illegal' });
    }
    expect(judge(rule({ id: '200007' }), NONE)).toMatchObject({ category: 'custom' });
  });

  test.each([
    ['942100', 'OWASP_CRS/3.3.4', [], 1],
    ['942432', 'OWASP_CRS/3.3.4', [], 4],
    ['942432', 'OWASP_CRS/3.3.4', ['paranoia-level/2'], 2],
    ['942432', 'OWASP_CRS/3.3.4', ['paranoia-level/9'], 4],
    ['920300', 'OWASP_CRS/3.3.4', [], 2],
    ['920300', 'OWASP_CRS/4.7.0', [], 3],
    ['932236', 'OWASP_CRS/4.7.0', [], 2],
    ['10001', '', [], undefined],
  ])('%s of %s with tags %j has paranoia level %s', (id, ver, tags, want) => {
    expect(judge(rule({ id, ver, tags }), NONE).level).toBe(want);
  });

  test('with an ID that is not a number is no rule, but its message counts', () => {
    const garbage = '941160"][file "/crs/x.conf"][line "200"] - Execution error';
    expect(judge(rule({ id: garbage }), NONE)).toMatchObject({ rule: '', category: null, verdict: true });
  });

  test('of set-up proves nothing when the client may have written its number', () => {
    expect(judge(crs('901001'), NONE).verdict).toBeUndefined();
    expect(judge({ ...crs('901001'), doubtful: true }, NONE)).toMatchObject({ rule: '', verdict: true });
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

  /** Rules as they match together, most of them on Debian's CRS 3.3.4 and on CRS 4.7. */
  test.each<[want: string, step: string, ...rules: string[]]>([
    // A Java class name in XML: XML looks like markup.
    ['cmdi', 'tie', '941100', '944120'],
    // `cat /etc/hosts` names a file.
    ['cmdi', 'tie', '930120', '932120'],
    // `?page=/etc/passwd` names nothing but a file.
    ['lfi', 'tie', '930120', '932160'],
    ['lfi', 'points', '930100', '930110', '930120', '932160'],
    ['xss', 'tie', '941100', '942100'],
    ['sqli', 'points', '941100', '942100', '942140'],
    // Strict rules match nearly everything.
    ['xss', 'level', '920273', '941100', '942130', '942370', '942430', '942431', '942432'],
    ['cmdi', 'level', '920273', '932115', '942150', '942410', '942432'],
    ['webshell', 'payload', '920271', '933110'],
    ['vuln', 'level', '921120', '932200', '942430'],
    ['robot', 'level', '913100', '942430', '942432'],
    ['robot', 'points', '913100', '920350/4'],
    ['illegal', 'only', '920180/4', '920300/5', '920272'],
    // A multipart header that is not allowed, full of special characters.
    ['illegal', 'level', '922110', '920273', '942432/4'],
    ['sqli', 'payload', '920273', '942432/4'],
    ['illegal', 'only', '920350/4', '200003/0'],
  ])('is %s, by the step "%s": %s %s %s %s %s %s %s', (category, step, ...rules) => {
    const judgements = rules.map((text) => {
      const [id = '', severity = '2'] = text.split('/');
      return judge(id.startsWith('200') ? rule({ id, severity }) : crs(id, severity), NONE);
    });
    expect(decide(judgements)).toMatchObject({ category, step });
    // Only the tie without a preferred category depends on the order.
    const backwards = decide(judgements.toReversed());
    if (category !== 'xss' || step !== 'tie') expect(backwards).toMatchObject({ category, step });
  });

  test('whose only rule has no points is an attack all the same', () => {
    expect(primary(rule({ id: '10001', severity: '' }))).toBe('custom');
  });

  describe('that an own rule denied', () => {
    const own = (denied: boolean) => rule({ id: '10001', severity: '', denied });

    test('is custom unless another category has more points', () => {
      expect(primary(crs('920350', '4'), own(true))).toBe('custom');
      expect(primary(crs('942100'), own(true))).toBe('custom');
      expect(primary(crs('942100'), crs('942190'), own(true))).toBe('sqli');
      expect(decide([crs('920350', '4'), own(true)].map((each) => judge(each, NONE)))).toMatchObject({
        rule: '10001',
        step: 'denied',
      });
    });

    test('is not custom when the rule only logged it', () => {
      expect(primary(crs('920350', '4'), own(false))).toBe('illegal');
    });
  });

  describe('of which no rule has a category', () => {
    const cut = rule({ id: '', severity: '' });
    const sums = (text: string) => ({ ...crs('980130'), sums: categoryOfSums(text) });

    test('is no attack when only set-up and scores tell of it', () => {
      expect(primary(crs('901001'), sums('(Total Inbound Score: 3 - SQLI=3,XSS=0)'))).toBeNull();
      expect(primary()).toBeNull();
    });

    test('is no attack when CRS denies everything because it is not set up', () => {
      expect(decide([judge({ ...crs('901001'), denied: true }, NONE)], true).category).toBeNull();
    });

    test('is an attack of unknown kind when there is a verdict, a cut message, or it was stopped', () => {
      expect(primary(crs('949110'))).toBe('vuln');
      expect(primary(crs('959100'))).toBe('vuln');
      expect(primary(cut)).toBe('vuln');
      expect(decide([], true).category).toBe('vuln');
    });

    test('is in the category with the highest sum', () => {
      expect(primary(cut, crs('949110'), sums('SQLI=0,XSS=0,RFI=0,LFI=5,RCE=20,PHPI=0'))).toBe('cmdi');
      expect(primary(crs('949110'), sums('SQLI=15,XSS=5'))).toBe('sqli');
      expect(primary(crs('949110'), sums('SQLI=0,XSS=0'))).toBe('vuln');
    });

    test('is in that category even if a context rule is known beside the cut message', () => {
      expect(primary(crs('920350', '4'), cut, sums('SQLI=0,XSS=0,RFI=0,LFI=0,RCE=5'))).toBe('cmdi');
      expect(primary(crs('920350', '4'), crs('949110'), sums('SQLI=0,RCE=5'))).toBe('illegal');
    });

    test('is no attack when the verdict rests on a rule that the operator excluded', () => {
      const overrides = new Map([['942100', null]]);
      const judged = (...rules: Rule[]) => primaryCategory(rules.map((each) => judge(each, overrides)));
      expect(judged(crs('942100'), crs('949110'))).toBeNull();
      expect(judged(crs('942100'), cut, crs('949110'))).toBe('vuln');
    });
  });

  test.each([
    ['(Total Inbound Score: 25 - SQLI=0,XSS=0,RFI=0,LFI=5,RCE=20,PHPI=0,HTTP=0,SESS=0): 25, 0, 0, 0', 'cmdi'],
    [
      'Anomaly Scores: (Inbound Scores: blocking=8, detection=8, per_pl=8-0-0-0, threshold=5) - (Outbound Scores: ' +
        'blocking=0, detection=0, per_pl=0-0-0-0, threshold=4) - (SQLI=5, XSS=0, RFI=0, LFI=0, RCE=0, PHPI=0, HTTP=0, ' +
        'SESS=0, COMBINED_SCORE=8)',
      'sqli',
    ],
    ['SQLI=0,XSS=0,RFI=0,LFI=0,RCE=5,PHPI=5,HTTP=0', 'cmdi'],
    ['SQLI=,XSS=,RFI=', undefined],
    ['no sums', undefined],
  ])('%s: the sums say %s', (message, want) => {
    expect(categoryOfSums(message)).toBe(want);
  });

  const judgement = fc.record<Judgement>({
    rule: fc.stringMatching(/^\d{1,6}$/),
    points: fc.constantFrom(0, 2, 3, 4, 5),
    category: fc.option(fc.constantFrom(...CATEGORIES)),
    because: fc.constant(''),
    level: fc.constantFrom(undefined, 1, 2, 3, 4),
    verdict: fc.constantFrom(undefined, true),
    denied: fc.constantFrom(undefined, true),
    sums: fc.constantFrom(undefined, 'sqli', 'cmdi'),
  });

  test('is in a category of one of its rules, and a payload category if one has level 1', () => {
    fc.assert(
      fc.property(fc.array(judgement), (judgements) => {
        const { category } = decide(judgements);
        const named = judgements.flatMap((each) => each.category ?? []);
        const isAttack = named.length > 0 || judgements.some(({ verdict }) => verdict);
        expect(category !== null).toBe(isAttack);
        if (named.length > 0) expect(named).toContain(category);
        const isPayload = judgements.some(
          ({ category: each, level = 1 }) => each !== null && PAYLOAD_CATEGORIES.has(each) && level === 1,
        );
        if (isPayload && category !== 'custom') expect(PAYLOAD_CATEGORIES).toContain(category);
      }),
    );
  });

  test('is in the same category in whichever order its rules matched, unless it is a tie', () => {
    const shuffled = fc
      .array(judgement)
      .chain((all) =>
        fc.tuple(
          fc.constant(all),
          fc.shuffledSubarray(all, { minLength: all.length, maxLength: all.length }),
        ),
      );
    fc.assert(
      fc.property(shuffled, ([judgements, others]) => {
        // Only one rule can deny a request, and only one has the sums.
        const [one, other] = [judgements, others].map((list) =>
          decide(list.map((each) => ({ ...each, denied: undefined, sums: undefined }))),
        );
        if (one?.step !== 'tie') expect(other?.category).toBe(one?.category);
      }),
    );
  });
});

test('the table says each thing once, and knows every file by the number of its rules', () => {
  for (const names of [
    CRS_TABLE.flatMap(({ rules, engineRules = [] }) => [...rules, ...engineRules]),
    CRS_TABLE.flatMap(({ tags = [] }) => tags),
    CRS_TABLE.flatMap(({ files = [] }) => files),
  ]) {
    expect(new Set(names).size).toBe(names.length);
  }
  for (const { rules, files = [] } of CRS_TABLE) {
    for (const file of files) expect(rules).toContain(`${/-(\d{3})-/.exec(file)?.[1]}xxx`);
  }
});
