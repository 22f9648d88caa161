import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { memoryStore } from '../../../../test/memory-store.ts';
import { scaled } from '../../../../test/random.ts';
import type { AttackDetails, MatchedRule } from '../event.ts';
import { UTC } from '../zone.ts';
import { detectingRule, fileOf, isBlocked, type Match } from './anomaly-score.ts';
import { Sources } from './attacking-sources.ts';
import { exclusionText, hasTarget, targetVariable } from './exclusion.ts';
import { literalExpression, pathPattern, patternExpression } from './path-pattern.ts';
import { type TuningReport, tuningReport } from './tuning.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const NOW = Date.UTC(2026, 10, 16);

interface Attack extends AttackDetails {
  /** Before NOW. */
  agoMs: number;
  host?: string;
  count?: number;
}

/** The report over the last days. */
async function report(
  attacks: readonly Attack[],
  query: { days?: number; threshold?: number; hosts?: string[]; dataDays?: number } = {},
): Promise<TuningReport> {
  const store = memoryStore(() => NOW);
  const names = [...new Set(attacks.map(({ host = 'www.example.com' }) => host))].filter(Boolean);
  const ids = await store.resolveHosts({ project: 'p', hostnames: names, limit: 100 });
  const events = attacks.map(({ agoMs, host = 'www.example.com', count = 1, ...details }) => ({
    time: NOW - agoMs,
    hostId: ids[names.indexOf(host)] ?? null,
    request: false,
    attack: 'sqli' as const,
    count,
    details,
  }));
  await store.append({ project: 'p', source: { name: 's', format: 'events' }, events, dropped: {} });
  const { days = 7, threshold = 5, hosts, dataDays = 30 } = query;
  const first = { time: NOW - dataDays * DAY_MS, hostId: null, request: true, attack: null, count: 1 };
  await store.append({ project: 'p', source: { name: 's', format: 'events' }, events: [first], dropped: {} });
  return tuningReport(store, {
    project: 'p',
    hosts: hosts?.map((name) => ids[names.indexOf(name)] ?? ''),
    from: NOW - days * DAY_MS,
    to: NOW,
    threshold,
    zone: UTC,
    idFrom: 10_000,
  });
}

function critical(id: string, variable?: string): MatchedRule {
  return { id, severity: 'critical', ...(variable !== undefined && { variable }) };
}

test('a report that leaves out requests of users does not say that there is nothing left to tune', async () => {
  const rules = [critical('942100', 'ARGS:q')];
  const { blocking } = await report(users(50, '/1/2/3/4/5/6/7/8/9', rules), { days: 8 });
  expect(blocking).toMatchObject({
    ready: false,
    text: expect.stringContaining('50 attacks of sources that may be users are beyond the limits'),
  });
});

/** Users that each send one request that matches these rules, spread over the last days. */
function users(count: number, url: string, rules: readonly MatchedRule[], first = 0): Attack[] {
  return Array.from({ length: count }, (_, i) => ({
    agoMs: 1 + Math.floor(((i + 0.5) / count) * 6.9 * DAY_MS),
    source: `198.51.${first + Math.floor(i / 250)}.${i % 250}`,
    url,
    rules,
    score: 5 * rules.length,
    blocked: true,
  }));
}

/** A scan: one source, many rules and paths within minutes. */
function scan(source: string, paths: readonly string[], rules: readonly string[], agoMs = HOUR_MS): Attack[] {
  return paths.flatMap((url, p) =>
    rules.map((id, r) => ({
      agoMs: agoMs - p * 1_000 - r,
      source,
      url,
      rules: [critical(id, 'ARGS:q')],
      score: 5,
      blocked: true,
    })),
  );
}

const SCAN_RULES = ['942100', '941100', '932100'];

describe('paths', () => {
  test.each([
    ['/article/42', '/article/*'],
    ['/article/42.html', '/article/*.html'],
    ['/post-17/2026-11-16', '/post-*/*-*-*'],
    ['/u/123e4567-e89b-12d3-a456-426614174000/edit', '/u/*/edit'],
    ['/f/d41d8cd98f00b204e9800998ecf8427e', '/f/*'],
    ['/v1/feed', '/v1/feed'],
    ['/a%20b', '/a%20b'],
    ['/a*b/7', '/a%2Ab/*'],
  ])('%s is %s', (path, pattern) => {
    expect(pathPattern(path)).toBe(pattern);
  });

  test('the expression of a pattern matches its paths, sent or decoded, and no others', () => {
    fc.assert(
      fc.property(fc.webPath(), fc.webPath(), (path, other) => {
        const expression = new RegExp(`^${patternExpression(pathPattern(path))}$`);
        expect(expression.source).toMatch(/^[\x21-\x7e]*$/);
        expect(expression.source).not.toMatch(/["'%]/);
        expect(expression.test(latin1(path))).toBe(true);
        expect(expression.test(Buffer.from(decoded(path)).toString('latin1'))).toBe(true);
        if (pathPattern(other) !== pathPattern(path) && !/[*%]/.test(path + other))
          expect(expression.test(latin1(other))).toBe(false);
      }),
      { numRuns: scaled(500) },
    );
  });
});

/** PCRE matches bytes. */
function latin1(text: string): string {
  return Buffer.from(text).toString('latin1');
}

function decoded(path: string): Buffer {
  return Buffer.from(
    latin1(path).replace(/%([0-9a-f]{2})/gi, (_, hex) => String.fromCharCode(Number.parseInt(hex, 16))),
    'latin1',
  );
}

describe('the predicted verdict', () => {
  const match = (rule: number, variable: string, points = 5): Match => ({ rule, variable, points });
  const without = (...keys: string[]) => {
    return ({ rule, variable }: Match) =>
      keys.includes(`${rule}`) ? 'rule' : keys.includes(`${rule} ${variable}`) ? 'target' : 'nothing';
  };

  test('adds up the points that are left', () => {
    const request = { matches: [match(942100, 'ARGS:q'), match(941100, 'ARGS:q', 3)], score: undefined };
    expect(isBlocked(request, 5)).toBe(true);
    expect(isBlocked(request, 9)).toBe(false);
    expect(isBlocked(request, 5, without('942100 ARGS:q'))).toBe(false);
    expect(isBlocked(request, 5, without('941100 ARGS:q'))).toBe(true);
    expect(isBlocked(request, 5, without('942100 ARGS:id'))).toBe(true);
  });

  test('keeps points of matches that the log lacks, and ignores rules without points', () => {
    // ModSecurity 3 names one of two variables.
    const hidden = { matches: [match(941160, 'ARGS:q')], score: 10 };
    expect(isBlocked(hidden, 5, without('941160 ARGS:q'))).toBe(true);
    expect(isBlocked(hidden, 5, without('941160 ARGS:q'), 'go')).toBe(false);
    expect(isBlocked(hidden, 5, without('941160'))).toBe(false);
    expect(isBlocked(hidden, 5, without(), 'go')).toBe(true);
    // A rule that matched one variable twice.
    const twice = { matches: [match(942100, 'ARGS:q')], score: 10 };
    expect(isBlocked(twice, 5, without('942100 ARGS:q'))).toBe(false);
    expect(isBlocked({ ...twice, score: 25 }, 5, without('942100 ARGS:q'))).toBe(true);
    // One of the rules is above the blocking paranoia level, but the log does not say which.
    const higher = { matches: [match(942100, 'ARGS:q'), match(942432, 'ARGS:q')], score: 5 };
    expect(isBlocked(higher, 5, without('942432 ARGS:q'))).toBe(true);
    expect(isBlocked(higher, 5, without('942432 ARGS:q', '942100 ARGS:q'))).toBe(false);
  });

  test('has another threshold for responses, and counts custom rules', () => {
    const response = { matches: [match(951220, 'RESPONSE_BODY', 4)], score: 0 };
    expect(isBlocked(response, 5)).toBe(true);
    const custom = { matches: [match(10_001, 'REQUEST_URI'), match(942100, 'ARGS:q')], score: 5 };
    expect(isBlocked(custom, 5, without('942100 ARGS:q'))).toBe(true);
    expect(isBlocked(custom, 5, without('942100 ARGS:q', '10001 REQUEST_URI'))).toBe(false);
  });

  test('rules that set up, decide and report detect nothing', () => {
    for (const id of ['901340', '905100', '949110', '959100', '980130', 'SQLi', '', '0942100'])
      expect(detectingRule(id)).toBe(0);
    expect(detectingRule('942100')).toBe(942100);
    expect(detectingRule('10001')).toBe(10_001);
    expect([fileOf(942100), fileOf(10_001), fileOf(12)]).toEqual([942, 100, 12]);
  });
});

describe('a source attacks', () => {
  const sources = new Sources();
  const attacks = (requests: readonly [time: number, path: number, ...rules: number[]][]) => {
    const number = sources.add(`source ${Math.random()}`) ?? -1;
    for (const [time, path, ...rules] of requests) sources.addRequests(number, time, 1, path, rules);
    return sources.isAttacking(number);
  };

  test('with rules of three files over three requests', () => {
    expect(attacks([[1, 1, 942100, 941100, 932100]])).toBe(false);
    expect(
      attacks([
        [1, 1, 942100, 941100, 932100],
        [2, 1],
        [3, 1],
      ]),
    ).toBe(true);
    expect(
      attacks([
        [1, 1, 942100, 942110],
        [2, 1, 942120],
        [3, 1, 941100],
      ]),
    ).toBe(false);
    expect(
      attacks([
        [1, 1, 942100],
        [DAY_MS, 1, 941100],
        [9 * DAY_MS, 1, 932100],
      ]),
    ).toBe(true);
  });

  test('with more than ten paths within an hour', () => {
    const paths = (count: number, stepMs: number) =>
      Array.from({ length: count }, (_, i): [number, number, number] => [i * stepMs, i, 942100]);
    expect(attacks(paths(10, 1))).toBe(false);
    expect(attacks(paths(11, 1))).toBe(true);
    expect(attacks(paths(11, HOUR_MS / 10 - 1))).toBe(true);
    expect(attacks(paths(100, HOUR_MS / 10))).toBe(false);
    expect(attacks([...paths(10, 1), ...paths(10, 1)])).toBe(false);
  });
});

describe('an exclusion', () => {
  const text = { host: 'www.example.com', path: '/comment', variable: 'ARGS:text', rules: [942100, 942130] };

  test('removes the rules from the variable, on a host and a path', () => {
    expect(exclusionText(text, 10_000, ['why'])).toBe(
      '# why\n' +
        'SecRule REQUEST_HEADERS:Host "@rx ^(?i:www\\.example\\.com)\\.?(?::[0-9]*)?$" "id:10000,phase:1,pass,t:none,nolog,chain"\n' +
        '    SecRule REQUEST_FILENAME "@rx ^/comment$" "t:none,ctl:ruleRemoveTargetById=942100;ARGS:text,ctl:ruleRemoveTargetById=942130;ARGS:text"\n',
    );
  });

  test('removes the whole rule if it cannot name the variable', () => {
    const whole = (variable: string, rule = 942100) => !hasTarget(rule, variable);
    expect(
      ['ARGS:a[b].c-d_1', 'REQUEST_HEADERS:User-Agent', 'REQUEST_URI'].filter((name) => whole(name)),
    ).toEqual([]);
    for (const name of [
      '',
      'ARGS',
      'ARGS:',
      'ARGS:a b',
      "ARGS:a'b",
      'ARGS:a,b',
      'ARGS:/a/',
      'TX:1',
      'ARGS:a;ARGS',
    ])
      expect(whole(name)).toBe(true);
    expect(whole('REQUEST_METHOD', 920180)).toBe(true);
    expect(targetVariable('TX:rfi_parameter_ARGS:file')).toBe('ARGS:file');
    expect(targetVariable('MATCHED_VARS:ARGS:q')).toBe('ARGS:q');
    expect(exclusionText({ ...text, host: null, variable: '' }, 1, [])).toBe(
      'SecRule REQUEST_FILENAME "@rx ^/comment$" "id:1,phase:1,pass,t:none,nolog,ctl:ruleRemoveById=942100,ctl:ruleRemoveById=942130"\n',
    );
  });

  test('stays two directives and comments, whatever attackers write', () => {
    const hostile = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.string({
        unit: fc.constantFrom('"', "'", '\\', '\n', '\r', ' ', '#', '%', '{', '}', '$', '*', ',', ';', 'é'),
      }),
      fc.constantFrom(
        '"\nSecRuleEngine Off\n#',
        '\\',
        '%{tx.0}',
        '\u0024{ENV}',
        "',ctl:ruleEngine=Off,'",
        '\u2028x',
        '(?:',
        ']',
      ),
    );
    const variable = fc
      .tuple(fc.constantFrom('', 'ARGS:', 'REQUEST_HEADERS:', 'REQUEST_URI', 'TX:'), hostile)
      .map((parts) => parts.join(''));
    fc.assert(
      fc.property(
        hostile,
        hostile,
        variable,
        fc.array(hostile, { maxLength: 3 }),
        (host, path, name, comments) => {
          const whole = exclusionText(
            { host, path: pathPattern(path), variable: targetVariable(name), rules: [942100] },
            10_000,
            comments,
          );
          expect(whole).toMatch(/^[\x20-\x7e\n]*$/);
          // Apache continues lines at a backslash, in comments too.
          expect(whole).not.toMatch(/\\\n/);
          const lines = whole.split('\n').slice(0, -1);
          const directives = lines.filter((line) => !line.startsWith('# '));
          expect(lines.length).toBe(comments.length + 2);
          expect(
            directives.map((line) => line.replace(/"@rx [^"]*"/, '"@rx"').replace(/;[^"]*/, ';')),
          ).toEqual([
            'SecRule REQUEST_HEADERS:Host "@rx" "id:10000,phase:1,pass,t:none,nolog,chain"',
            expect.stringMatching(
              /^ {4}SecRule REQUEST_FILENAME "@rx" "t:none,ctl:ruleRemove(ById=942100"|TargetById=942100;")$/,
            ),
          ]);
          for (const line of directives) {
            const [, expression = ''] = /"@rx ([^"]*)"/.exec(line) ?? [];
            expect(expression).not.toMatch(/[%{]\{|\$\{|\\["\\]/);
            expect(() => new RegExp(expression.replace('(?i:', '(?:'))).not.toThrow();
          }
          expect(whole).not.toMatch(/RemoveTargetById=942100;(?![A-Z_]+(:[\w.$[\]-]+)?"\n)/);
          expect(new RegExp(`^${literalExpression(host)}$`).test(latin1(host))).toBe(true);
        },
      ),
      { numRuns: scaled(2_000) },
    );
  });
});

describe('the report', () => {
  test('marks what many users send on several days, and names the reasons', async () => {
    const { total, items } = await report(users(40, '/comment', [critical('942100', 'ARGS:text')]));
    expect(total).toBe(1);
    expect(items).toMatchObject([
      {
        rules: ['942100'],
        host: 'www.example.com',
        path: '/comment',
        variable: 'ARGS:text',
        attacks: 40,
        blocked: 40,
        sources: 40,
        days: 7,
        alone: 40,
        likely: 'false_positive',
        reasons: ['40 sources on 7 of 7 days, each with this rule only'],
        opens_attacks: 0,
      },
    ]);
    expect(items[0]?.exclusion).toContain(
      '# false positive: www.example.com/comment, rule 942100, ARGS:text\n' +
        '# 40 sources on 7 of 7 days, each with this rule only. Since 2026-11-09: 40 attacks, 40 of them pass with this exclusion alone.\n',
    );
  });

  test('joins paths that vary, and rules that fire together', async () => {
    const rules = [critical('941100', 'ARGS:html'), critical('942100', 'ARGS:html'), critical('949110')];
    const attacks = users(20, '', rules).map((attack, i) => ({ ...attack, url: `/page/${i}`, score: 10 }));
    const { items } = await report(attacks);
    expect(items).toMatchObject([{ path: '/page/*', rules: ['941100', '942100'], attacks: 20, alone: 20 }]);
  });

  test('what attackers sent never supports an exclusion', async () => {
    const scans = Array.from({ length: 50 }, (_, i) =>
      scan(`203.0.113.${i}`, ['/comment'], SCAN_RULES, (1 + (i % 6)) * DAY_MS),
    ).flat();
    const { items } = await report(scans);
    expect(items).toHaveLength(3);
    for (const item of items) {
      expect(item).toMatchObject({ likely: 'attack', sources: 50, days: 6 });
      expect(item.reasons[0]).toBe('50 attacking sources within 5 days, which matched rules of 3 rule files');
    }
  });

  test('few sources, or one day, are unclear', async () => {
    const few = await report(users(2, '/a', [critical('942100', 'ARGS:q')]));
    expect(few.items).toMatchObject([
      { likely: 'unclear', reasons: ['2 sources on 2 of 7 days, each with this rule only'] },
    ]);
    const burst = users(200, '/a', [critical('942100', 'ARGS:q')]).map((attack) => ({
      ...attack,
      agoMs: DAY_MS + 5,
    }));
    expect((await report(burst)).items).toMatchObject([{ likely: 'unclear', sources: 200, days: 1 }]);
    const unnamed = users(40, '/a', [critical('942100', 'ARGS:q')]).map(({ source: _, ...attack }) => attack);
    expect((await report(unnamed)).items).toMatchObject([
      { likely: 'unclear', sources: 0, reasons: ['the log does not name the sources'] },
    ]);
    const today = users(40, '/a', [critical('942100', 'ARGS:q')]).map((attack, i) => ({
      ...attack,
      agoMs: i + 1,
    }));
    expect((await report(today, { days: 1 })).items).toMatchObject([{ likely: 'false_positive' }]);
  });

  test('says how many attacks an exclusion would open', async () => {
    const attacks = [
      ...users(40, '/search', [critical('942100', 'ARGS:q')]),
      ...scan('203.0.113.1', ['/search'], SCAN_RULES),
    ];
    const { items } = await report(attacks);
    expect(items[0]).toMatchObject({
      likely: 'false_positive',
      attacks: 41,
      opens_attacks: 1,
      reasons: expect.arrayContaining([
        '1 attacking source sent it, too',
        'the exclusion would let 1 attack of attacking sources pass',
      ]),
    });
  });

  test('counts attacks as opened if only the score shows that more matched', async () => {
    const [first] = users(1, '/search', [critical('941160', 'ARGS:q')]);
    const { items } = await report([
      ...users(40, '/search', [critical('941160', 'ARGS:q')]),
      ...scan('203.0.113.1', ['/x'], SCAN_RULES),
      { ...(first as Attack), source: '203.0.113.1', score: 10 },
    ]);
    expect(items[0]).toMatchObject({ path: '/search', alone: 40, attacks: 41, opens_attacks: 1 });
  });

  test('exclusions that open an attack only together are not offered together', async () => {
    const rules = [critical('942100', 'ARGS:a'), critical('941100', 'ARGS:b')];
    const attacks = [
      ...users(40, '/form', rules.slice(0, 1)),
      ...users(30, '/form', rules.slice(1), 2),
      ...scan('203.0.113.1', ['/x'], SCAN_RULES),
      { agoMs: HOUR_MS, source: '203.0.113.1', url: '/form', rules, score: 10 },
    ];
    const { items } = await report(attacks);
    const offered = items.filter(({ likely }) => likely === 'false_positive');
    expect(offered.map(({ rules: [rule], opens_attacks }) => [rule, opens_attacks])).toEqual([
      ['942100', 0],
      ['941100', 1],
    ]);
  });

  test('an exclusion without a variable is broader, and without a host for all hosts', async () => {
    const { items } = await report([
      ...users(20, '/a', [critical('942100')]).map((attack) => ({ ...attack, host: '' })),
      ...scan('203.0.113.1', ['/a'], SCAN_RULES),
    ]);
    expect(items[0]).toMatchObject({ host: '', variable: '', opens_attacks: 1, likely: 'false_positive' });
    expect(items[0]?.reasons).toContain(
      'broader: removes 942100 for the whole path, because the log does not name the variable',
    );
    expect(items[0]?.exclusion).toContain('ctl:ruleRemoveById=942100"');
    expect(items[0]?.exclusion).not.toContain('REQUEST_HEADERS:Host');
  });

  test('rows without verdicts, and what is left out', async () => {
    const { items, left_out, kept_attacks } = await report([
      { agoMs: 1, source: '192.0.2.1', url: '/', rules: [critical('949110')], score: 5 },
      { agoMs: 1, source: '192.0.2.1', rules: [critical('942100', 'ARGS:q')] },
      { agoMs: 1, source: '192.0.2.1', url: '/', rules: [{ id: 'AWS-SQLi' }], count: 3 },
    ]);
    expect([items, left_out, kept_attacks]).toEqual([[], 5, 5]);
  });

  test('covers the chosen hosts and range only', async () => {
    const rule = [critical('942100', 'ARGS:q')];
    const attacks = [
      ...users(10, '/a', rule),
      ...users(20, '/b', rule, 4).map((attack) => ({ ...attack, host: 'shop.example.com' })),
    ];
    expect((await report(attacks, { hosts: ['shop.example.com'] })).items.map(({ path }) => path)).toEqual([
      '/b',
    ]);
    expect((await report(attacks, { days: 0 })).total).toBe(0);
  });

  test('predicts what the engine blocks, by day, and when it can be switched on', async () => {
    const rule = [critical('942100', 'ARGS:q')];
    const wrong = await report([...users(70, '/a', rule), ...scan('203.0.113.1', ['/x'], SCAN_RULES)]);
    expect(wrong.blocking).toMatchObject({
      would_block: 73,
      false_positives: 70,
      ready: false,
      text: 'There are likely false positives. With the engine on, 73 attacks of this range would have been blocked; likely false positives among them: 70.',
    });
    expect(wrong.blocking.days).toHaveLength(7);
    expect(wrong.blocking.days[6]).toEqual({
      day: '2026-11-15',
      attacks: 13,
      would_block: 13,
      false_positives: 10,
    });
    const harmless = await report(
      users(70, '/a', [{ id: '920320', severity: 'notice', variable: 'REQUEST_HEADERS:User-Agent' }]).map(
        ({ score: _, ...attack }) => attack,
      ),
    );
    expect(harmless.blocking).toMatchObject({ would_block: 0, false_positives: 0, ready: true });
    const earlier = users(70, '/a', rule).map((attack) => ({ ...attack, agoMs: attack.agoMs + 8 * DAY_MS }));
    const scans = scan('203.0.113.1', ['/x'], SCAN_RULES);
    expect((await report([...earlier, ...scans], { days: 30 })).blocking).toMatchObject({
      ready: true,
      false_positives: 70,
      text: 'No likely false positive in the last 7 days. With the engine on, 73 attacks of this range would have been blocked; likely false positives among them: 70.',
    });
    expect((await report(earlier, { days: 30 })).blocking).toMatchObject({
      ready: false,
      text: expect.stringMatching(
        /^No attacks are kept of the last 7 days: check that the logs still arrive\./,
      ),
    });
    expect((await report(scans, { days: 2 })).blocking).toMatchObject({
      ready: false,
      text: expect.stringMatching(/^No likely false positive, but this range has less than 7 days of data/),
    });
    // A service that has just been started has not seen the users of the weekend.
    expect((await report(scans, { dataDays: 6 })).blocking.ready).toBe(false);
    expect((await report(scans, { dataDays: 7 })).blocking.ready).toBe(true);
  });

  test('five planted false positives are among the first ten of 10,000 attacks, and marked', async () => {
    const planted = [
      ['/comment', [critical('942100', 'ARGS:text')]],
      ['/search', [critical('932100', 'ARGS:q')]],
      [
        '/cms/page',
        [critical('941100', 'ARGS:html'), critical('941160', 'ARGS:html'), critical('942130', 'ARGS:html')],
      ],
      ['/api/filter', [critical('942190', 'REQUEST_COOKIES:prefs')]],
      ['/upload', [critical('920120', 'FILES:document')]],
    ] as const;
    const random = numbers();
    const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)] as T;
    const files = [911, 913, 920, 921, 930, 931, 932, 933, 941, 942, 944];
    const paths = [
      ...planted.map(([path]) => path),
      '/',
      '/login',
      '/admin.php',
      '/wp-login.php',
      '/xmlrpc.php',
    ];
    const attack = (source: string, agoMs: number): Attack => {
      const rules = Array.from({ length: 1 + Math.floor(random() * 4) }, () =>
        critical(
          `${pick(files)}${100 + 10 * Math.floor(random() * 20)}`,
          pick(['ARGS:q', 'ARGS:text', 'ARGS:html', 'REQUEST_URI', 'REQUEST_COOKIES:prefs']),
        ),
      );
      const url = random() < 0.3 ? `/scan/${random().toString(36).slice(2)}` : pick(paths);
      return { agoMs, source, url, rules, score: 5 * rules.length, blocked: true };
    };
    const attacks: Attack[] = [];
    // Scanners: few sources, in bursts.
    while (attacks.length < 9_000) {
      const [source, start] = [`203.0.113.${Math.floor(random() * 200)}`, 1 + random() * 6.5 * DAY_MS];
      for (let i = 0; i < 100; i++) attacks.push(attack(source, Math.floor(start + i * 1_000)));
    }
    // A botnet: each source sends one or two attacks.
    while (attacks.length < 10_000)
      attacks.push(attack(`192.0.2.${attacks.length % 250}`, Math.floor(1 + random() * 6.9 * DAY_MS)));
    const all = planted.flatMap(([path, rules], i) => users(12 + 10 * i, path, rules, 10 * i));
    const { items } = await report([...attacks, ...all]);
    const first = items
      .slice(0, 10)
      .map(({ path, variable, rules, likely }) => [path, variable, rules, likely]);
    for (const [path, rules] of planted)
      expect(first).toContainEqual([path, rules[0].variable, rules.map(({ id }) => id), 'false_positive']);
  });
});

function numbers(): () => number {
  let state = 1;
  return () => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return state / 0x80000000;
  };
}
