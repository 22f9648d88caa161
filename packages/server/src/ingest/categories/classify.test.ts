import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { CATEGORIES } from '../../event.ts';
import { type Classification, classify, decide, parseOverrides, type Rule, scoresOf } from './classify.ts';
import { CRS_TABLE, PAYLOAD_CATEGORIES } from './crs-table.ts';

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
const primary = (...rules: Rule[]) => decide(rules.map((each) => classify(each, NONE))).category;

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
    expect(classify(crs(id), NONE).category).toBe(want);
  });

  test('with an id in the range of CRS is custom if nothing else says that it is a CRS rule', () => {
    expect(classify(rule({ id: '942100' }), NONE)).toMatchObject({ category: 'custom' });
    expect(
      classify(rule({ id: '910002', file: '/etc/waf/REQUEST-910-BOT-DETECTION.conf' }), NONE),
    ).toMatchObject({
      category: 'custom',
    });
    expect(classify(rule({ id: '949500', file: '/etc/waf/mine.conf' }), NONE)).toMatchObject({
      category: 'custom',
    });
  });

  test.each<[string, Partial<Rule>, string]>([
    ['its version', { ver: 'OWASP_CRS/4.7.0' }, 'rule id 942xxx'],
    ['its file', { file: '/x/REQUEST-942-APPLICATION-ATTACK-SQLI.conf' }, 'rule id 942xxx'],
    ['the tag of CRS', { tags: ['application-multi', 'OWASP_CRS'] }, 'rule id 942xxx'],
    ['a tag of the same category', { tags: ['attack-sqli'] }, 'rule id 942xxx'],
  ])('is recognized as a CRS rule by %s', (_, fields, because) => {
    expect(classify(rule({ id: '942100', ...fields }), NONE)).toMatchObject({ category: 'sqli', because });
  });

  test('with another id is classified by its tag, then by its file', () => {
    const file = '/x/REQUEST-931-APPLICATION-ATTACK-RFI.conf';
    expect(classify(rule({ tags: ['x', 'attack-xss'], file }), NONE)).toMatchObject({
      category: 'xss',
      because: 'tag attack-xss',
    });
    expect(classify(rule({ file }), NONE)).toMatchObject({ category: 'rfi' });
  });

  test('of CRS 2 is not mistaken for the CRS 3 rule with the same id', () => {
    expect(classify(rule({ id: '959070', ver: 'OWASP_CRS/2.2.9' }), NONE).category).toBe('custom');
  });

  test('that is overridden has the category of the operator, or none', () => {
    const overrides = new Map([
      ['942100', 'custom' as const],
      ['10001', null],
    ]);
    expect(classify(crs('942100'), overrides)).toMatchObject({ category: 'custom', because: 'override' });
    expect(classify(rule({ id: '10001' }), overrides).category).toBeNull();
    expect(classify(crs('942110'), overrides).category).toBe('sqli');
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
    expect(classify(crs('942100', severity), NONE).points).toBe(want);
  });

  test.each([
    ['4', false, 3],
    ['', false, 0],
    ['', true, 5],
    ['5', true, 5],
  ])('of an operator with severity %j, denying %s, has %i points', (severity, denied, want) => {
    expect(classify(rule({ id: '10001', severity, denied }), NONE).points).toBe(want);
  });

  test('of modsecurity.conf-recommended is illegal, whatever its file', () => {
    for (const id of ['200000', '200001', '200002', '200003', '200004', '200005', '200006']) {
      const file = '/etc/modsecurity/modsecurity.conf';
      expect(classify(rule({ id, file }), NONE)).toMatchObject({ category: 'illegal' });
      expect(classify(rule({ id }), NONE)).toMatchObject({ category: 'illegal' });
    }
    expect(classify(rule({ id: '200007' }), NONE)).toMatchObject({ category: 'custom' });
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
    expect(classify(rule({ id, ver, tags }), NONE).level).toBe(want);
  });

  test('with an ID that is not a number has no ID, but its message counts as a verdict', () => {
    const garbage = '941160"][file "/crs/x.conf"][line "200"] - Execution error';
    expect(classify(rule({ id: garbage }), NONE)).toMatchObject({ rule: '', category: null, verdict: true });
  });

  test('of the setup proves nothing if the client may have written its id', () => {
    expect(classify(crs('901001'), NONE).verdict).toBeUndefined();
    expect(classify({ ...crs('901001'), doubtful: true }, NONE)).toMatchObject({ rule: '', verdict: true });
  });
});

describe('a request', () => {
  test('with path traversal is lfi, although one rule sees a command', () => {
    expect(primary(crs('930100'), crs('930110'), crs('930120'), crs('932160'), crs('949110'))).toBe('lfi');
  });

  test('with a command is cmdi, although the first rule sees a file', () => {
    expect(primary(crs('930120'), crs('932100'), crs('932130'))).toBe('cmdi');
  });

  test('of a scanner is robot, although its host is an IP address', () => {
    expect(primary(crs('920350', '4'), crs('913100'))).toBe('robot');
  });

  /** Rules that match together, most of them seen with CRS 3.3.4 of Debian and CRS 4.7. */
  test.each<[want: string, step: string, ...rules: string[]]>([
    // A Java class name in XML: XML looks like markup.
    ['cmdi', 'tie', '941100', '944120'],
    // `cat /etc/hosts` names a file.
    ['cmdi', 'tie', '930120', '932120'],
    // `?page=/etc/passwd` names nothing but a file.
    ['lfi', 'tie', '930120', '932160'],
    ['lfi', 'points', '930100', '930110', '930120', '932160'],
    // Names of Windows commands, such as `time` and `sort`, are words of SQL too.
    ['sqli', 'tie', '932115', '942240'],
    ['sqli', 'tie', '932370', '942350'],
    ['cmdi', 'only', '932115', '932370'],
    // The page of a web shell has scripts.
    ['webshell', 'webshell', '941100', '941160', '941250', '955110'],
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
    const classified = rules.map((text) => {
      const [id = '', severity = '2'] = text.split('/');
      return classify(id.startsWith('200') ? rule({ id, severity }) : crs(id, severity), NONE);
    });
    expect(decide(classified)).toMatchObject({ category, step });
    // Only the tie without a preferred category depends on the order.
    const backwards = decide(classified.toReversed());
    if (category !== 'xss' || step !== 'tie') expect(backwards).toMatchObject({ category, step });
  });

  test('whose only rule has no points is still an attack', () => {
    expect(primary(rule({ id: '10001', severity: '' }))).toBe('custom');
  });

  describe('that a custom rule denied', () => {
    const custom = (denied: boolean) => rule({ id: '10001', severity: '', denied });

    test('is custom unless another category has more points', () => {
      expect(primary(crs('920350', '4'), custom(true))).toBe('custom');
      expect(primary(crs('942100'), custom(true))).toBe('custom');
      expect(primary(crs('942100'), crs('942190'), custom(true))).toBe('sqli');
      expect(decide([crs('920350', '4'), custom(true)].map((each) => classify(each, NONE)))).toMatchObject({
        rule: '10001',
        step: 'denied',
      });
    });

    test('is not custom if the rule only logged it', () => {
      expect(primary(crs('920350', '4'), custom(false))).toBe('illegal');
    });
  });

  describe('without a rule that has a category', () => {
    const cut = rule({ id: '', severity: '' });
    const sums = (text: string) => ({ ...crs('980130'), ...scoresOf(text) });

    test('is not an attack if only setup and score rules matched', () => {
      expect(primary(crs('901001'), sums('(Total Inbound Score: 3 - SQLI=3,XSS=0)'))).toBeNull();
      expect(primary()).toBeNull();
    });

    test('is not an attack if CRS denies everything because it is not set up', () => {
      expect(decide([classify({ ...crs('901001'), denied: true }, NONE)], true).category).toBeNull();
    });

    test('is an attack of unknown kind if there is a verdict, a cut message, or it was blocked', () => {
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

    test('is in that category even if a context rule matched besides the cut message', () => {
      expect(primary(crs('920350', '4'), cut, sums('SQLI=0,XSS=0,RFI=0,LFI=0,RCE=5'))).toBe('cmdi');
      expect(primary(crs('920350', '4'), crs('949110'), sums('SQLI=0,RCE=5'))).toBe('illegal');
    });

    test('is not an attack if the verdict is based on a rule that the operator excluded', () => {
      const overrides = new Map([['942100', null]]);
      const overridden = (...rules: Rule[]) =>
        decide(rules.map((each) => classify(each, overrides))).category;
      expect(overridden(crs('942100'), crs('949110'))).toBeNull();
      expect(overridden(crs('942100'), cut, crs('949110'))).toBe('vuln');
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
    expect(scoresOf(message).sums).toBe(want);
  });

  const classification = fc.record<Classification>({
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
      fc.property(fc.array(classification), (rules) => {
        const { category } = decide(rules);
        const named = rules.flatMap((each) => each.category ?? []);
        const isAttack = named.length > 0 || rules.some(({ verdict }) => verdict);
        expect(category !== null).toBe(isAttack);
        if (named.length > 0) expect(named).toContain(category);
        const isPayload = rules.some(
          ({ category: each, level = 1 }) => each !== null && PAYLOAD_CATEGORIES.has(each) && level === 1,
        );
        if (isPayload && category !== 'custom') expect(PAYLOAD_CATEGORIES).toContain(category);
      }),
    );
  });

  test('is in the same category in whichever order its rules matched, unless it is a tie', () => {
    const shuffled = fc
      .array(classification)
      .chain((all) =>
        fc.tuple(
          fc.constant(all),
          fc.shuffledSubarray(all, { minLength: all.length, maxLength: all.length }),
        ),
      );
    fc.assert(
      fc.property(shuffled, ([rules, others]) => {
        // Only one rule can deny a request, and only one has the sums.
        const [one, other] = [rules, others].map((list) =>
          decide(list.map((each) => ({ ...each, denied: undefined, sums: undefined }))),
        );
        if (one?.step !== 'tie') expect(other?.category).toBe(one?.category);
      }),
    );
  });
});

test('each id, tag and file is in the table once, and files match the ids of their rules', () => {
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

test('overrides set the categories of rules, and "none" excludes a rule', () => {
  const overrides = parseOverrides('{"rules": {"942100": "custom", "900123": "none"}}');
  expect(Object.fromEntries(overrides)).toEqual({ 942100: 'custom', 900123: null });
  expect(parseOverrides('{"rules": {}}').size).toBe(0);
});

test('all mistakes are reported at once', () => {
  const text = '{"rules": {"942100": "SQLI", "x": "none", "1": 5, "2": "xss", "-1": "constructor"}}';
  expect(() => parseOverrides(text)).toThrow(
    /"1" is 5.*"942100" is "SQLI".*"x" is not a rule id.*"-1" is not/s,
  );
});

test.each(['', 'null', '[]', '{}', '{"rules": []}', '{"rules": {}, "more": 1}'])('%j is refused', (text) => {
  expect(() => parseOverrides(text)).toThrow(/it (is not JSON|must be an object with "rules")/);
});
