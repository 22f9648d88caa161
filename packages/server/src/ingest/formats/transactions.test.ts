import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { outcomes } from '../../../fixtures/read-fixture.ts';
import { rememberedRequests, withoutSameRequest } from '../../cli/explain.ts';
import { createReader, STATE_LENGTH_MAX } from '../reader.ts';
import type { Parsed } from './format.ts';

/** A matched rule in the error log of Apache. */
function match(id: string, rule: string, at = 0): string {
  const clock = new Date(Date.UTC(2026, 6, 1, 10) + at * 1_000).toISOString().slice(11, 19);
  return (
    `[Wed Jul 01 ${clock} 2026] [security2:error] [pid 1] [client 192.0.2.7:1] ModSecurity: Warning. Matched. ` +
    `[file "/crs/x.conf"] [line "1"] [id "${rule}"] [severity "CRITICAL"] [ver "OWASP_CRS/3.3.4"] ` +
    `[hostname "shop.example.com"] [uri "/"] [unique_id "${id}"]`
  );
}

/** The same request in the audit log. */
function audit(id: string, ...rules: string[]): string {
  return JSON.stringify({
    transaction: {
      time_stamp: 'Wed Jul  1 10:00:00 2026',
      unique_id: id,
      request: { headers: { hOsT: 'shop.example.com' } },
      messages: rules.map((ruleId) => ({ details: { ruleId, severity: '2', ver: 'OWASP_CRS/3.3.4' } })),
    },
  });
}

const reading = () => {
  const reader = createReader({ format: 'auto' });
  const requests = rememberedRequests();
  const counted = (parsed: Parsed[]) => outcomes(parsed.map((each) => withoutSameRequest(each, requests)));
  return {
    reader,
    read: (...lines: string[]) => counted(lines.flatMap((line) => reader.read(line, 0))),
    flush: (before?: number) => counted(reader.flush(before)),
  };
};

describe('the rules of one request', () => {
  test('are one attack, in the category with the most points, each rule once', () => {
    const { read, flush } = reading();
    const lines = [
      match('a', '941100'),
      match('b', '942100'),
      match('a', '942100'),
      match('a', '942140'),
      match('a', '942100'),
    ];
    expect(read(...lines, match('a', '949110'))).toEqual([]);
    expect(flush()).toEqual(['sqli', 'sqli']);
  });

  test('that follow after it was counted do not count again', () => {
    const { read, flush } = reading();
    read(match('a', '941100'));
    expect(flush()).toEqual(['xss']);
    expect(read(match('a', '942100'))).toEqual([]);
    expect(flush()).toEqual(['same_request']);
  });

  test('that make it an attack count even after a verdict that did not', () => {
    const { read, flush } = reading();
    read(match('a', '980130'));
    expect(flush()).toEqual(['not_an_attack']);
    read(match('a', '942100'));
    expect(flush()).toEqual(['sqli']);
  });

  test('are complete when the log has moved on', () => {
    const { read } = reading();
    expect(read(match('a', '942100'), match('b', '941100', 5), match('c', '941100', 11))).toEqual(['sqli']);
  });

  test('are one attack even if they arrive slowly', () => {
    const { read, flush } = reading();
    const lines = [match('a', '942100'), match('a', '942110', 11), match('a', '949110', 60)];
    expect(read(...lines)).toEqual(['sqli', 'same_request']);
    expect(flush()).toEqual(['same_request']);
  });

  test('are complete when none has arrived for a while in a followed log', () => {
    const reader = createReader({ format: 'auto' });
    reader.read(match('a', '942100'), 1_000);
    reader.read(match('b', '941100'), 1_100);
    reader.read(match('a', '942110'), 1_200);
    expect(outcomes(reader.flush(1_150))).toEqual(['xss']);
    expect(outcomes(reader.flush(1_201))).toEqual(['sqli']);
  });

  test('are complete soon in a followed log, whenever the clock is set back or forward', () => {
    const step = fc.oneof(fc.nat(300), fc.integer({ min: -4_000_000, max: 4_000_000 }));
    fc.assert(
      fc.property(fc.array(step, { minLength: 1, maxLength: 60 }), (steps) => {
        const reader = createReader({ format: 'auto' });
        let now = 1e9;
        let counted = 0;
        const flush = () => {
          const hasPending = reader.hasPending(now - 400, now);
          const flushed = reader.flush(now - 400, { now }).length;
          expect(hasPending).toBe(flushed > 0);
          counted += flushed;
        };
        for (const [i, ms] of steps.entries()) {
          now += ms;
          counted += reader.read(match(`r${i}`, '942100'), now).length;
          flush();
        }
        now += 401;
        flush();
        expect(counted).toBe(steps.length);
      }),
    );
  });
});

describe('one request in two logs of the same stream', () => {
  test('counts once, with the rules of both, if the error log came first', () => {
    const { read, flush } = reading();
    expect(read(match('a', '949110'), match('a', '942100'), audit('a', '941100', '941110'))).toEqual(['xss']);
    expect(read(match('b', '942100'), audit('b'))).toEqual(['sqli']);
    expect(flush()).toEqual([]);
  });

  test('counts once if the audit log came first', () => {
    const { read, flush } = reading();
    expect(read(audit('a', '941100'), match('a', '942100'))).toEqual(['xss']);
    expect(flush()).toEqual(['same_request']);
  });

  test('counts once if the error log was counted before the audit log came', () => {
    const { read, flush } = reading();
    read(match('a', '942100'));
    expect(flush()).toEqual(['sqli']);
    expect(read(audit('a', '942100'))).toEqual(['same_request']);
  });

  test('is a different request if the same log has the ID again: clients may choose the ID', () => {
    const { read, flush } = reading();
    const lines = Array.from({ length: 100 }, () => audit('a', '941100'));
    expect(read(...lines)).toEqual(lines.map(() => 'xss'));
    expect(
      read(match('b', '942100'), audit('b', '942100'), match('b', '942100'), audit('b', '942100')),
    ).toEqual(['sqli', 'sqli']);
    read(match('c', '942100'));
    expect(flush()).toEqual(['sqli']);
    expect(read(audit('c', '942100'), audit('c', '942100'))).toEqual(['same_request', 'sqli']);
  });

  test('is a different request if the same ID comes much later', () => {
    const { read, flush } = reading();
    expect(read(audit('a', '941100'), match('a', '942100', 301))).toEqual(['xss']);
    expect(flush()).toEqual(['sqli']);
  });

  test('is never the same without an ID', () => {
    expect(reading().read(audit('', '941100'), audit('', '941100'))).toEqual(['xss', 'xss']);
  });
});

describe('a line that nginx cut', () => {
  const line = (rest: string, connection = 8) =>
    `2026/07/01 10:00:00 [error] 34#34: *${connection} ModSecurity: Warning. [file "/crs/x.conf"] [line "1"] ` +
    `[id "942100"] [severity "2"] [ver "OWASP_CRS/3.3.4"]${rest}`;
  const cut = (connection?: number) => line(` [tag "${'x'.repeat(2_000)}`, connection);
  const whole = (connection?: number) =>
    line(
      ' [hostname "192.0.2.1"] [uri "/"] [unique_id "a"], client: 192.0.2.7, host: "shop.example.com"',
      connection,
    );

  test('belongs to the request on its connection, whichever line comes first', () => {
    for (const lines of [
      [cut(), whole()],
      [whole(), cut()],
      [cut(), cut()],
    ]) {
      const { read, flush } = reading();
      expect(read(...lines)).toEqual([]);
      expect(flush()).toEqual(['sqli']);
    }
  });

  test('is a request of its own on another connection', () => {
    const { read, flush } = reading();
    read(cut(8), whole(9));
    expect(flush()).toEqual(['sqli', 'sqli']);
  });

  test('belongs to the next request on a keep-alive connection, once the first was denied', () => {
    const denied = whole().replace('Warning.', 'Access denied with code 403 (phase 2).');
    const { read, flush } = reading();
    read(cut(), denied, cut(), denied.replace('[unique_id "a"]', '[unique_id "b"]'));
    expect(flush()).toEqual(['sqli', 'sqli']);
  });

  test('is not lost if all lines of both requests were cut', () => {
    const denied = cut().replace('Warning.', 'Access denied with code 403 (phase 2).');
    const { read, flush } = reading();
    expect([...read(cut(), denied, cut(), denied, cut()), ...flush()]).toEqual(['sqli', 'sqli', 'sqli']);
  });

  test('or forged belongs to the request on its connection, and counts', () => {
    const forged =
      '2026/07/01 10:00:00 [info] 34#34: *8 ModSecurity: Warning. ARGS_NAMES:x [file "x"] [id "901001"] ' +
      '[ver "OWASP_CRS/3.3.4"] [hostname "h"] [uri "/"] [unique_id "z"], client: 192.0.2.9 [file "/crs/x.conf"] ' +
      '[id "942100"] [hostname "h"] [uri "/"] [unique_id "a"], client: 192.0.2.7, host: "shop.example.com"';
    const { read, flush } = reading();
    read(forged, forged);
    expect(flush()).toEqual(['vuln']);
    read(forged, whole());
    expect(flush()).toEqual(['sqli']);
  });

  test('counts even if it does not name the rule', () => {
    const { read, flush } = reading();
    const matched = `2026/07/01 10:00:00 [info] 34#34: *8 ModSecurity: Warning. Matched ${'A'.repeat(2_000)}`;
    expect(read(matched, matched)).toEqual([]);
    expect(flush()).toEqual(['vuln']);
  });

  test('is dropped if it is short: the rest of it may follow', () => {
    const text = whole();
    expect(reading().read(text.slice(0, text.indexOf('[unique_id')))).toEqual(['bad_record']);
  });
});

describe('requests on a keep-alive connection', () => {
  const line = (rule: string, id: string, path = '/', client = '192.0.2.7', host = 'shop.example.com') =>
    `2026/07/01 10:00:00 [info] 34#34: *7 ModSecurity: Warning. Matched. [file "/crs/x.conf"] [line "1"] ` +
    `[id "${rule}"] [severity "2"] [ver "OWASP_CRS/3.3.4"] [hostname "192.0.2.1"] [uri "${path}"] ` +
    `[unique_id "${id}"] [ref ""], client: ${client}, server: , request: "GET / HTTP/1.1", host: "${host}"`;
  const request = (id: string, path?: string) =>
    ['942100', '942190', '949110', '980130'].map((rule) => line(rule, id, path));
  const many = Array.from({ length: 20 }, (_, i) => `17829000${10 + i}.1`);

  test.each([
    ['/x"], client: '],
    ['/x"] [unique_id "17829000.1"] [ref "x"], client: 203.0.113.9, server: , host: "victim.example"'],
  ])('are separate attacks, however their path is forged: %s', (path) => {
    const { read, flush } = reading();
    const found = [...read(...many.flatMap((id) => request(id, path))), ...flush()];
    expect(found).toEqual(many.map(() => 'sqli'));
  });

  test('are separate attacks if all of their lines were cut', () => {
    const { read, flush } = reading();
    const lines = many.flatMap((id) =>
      request(id, `/${'x'.repeat(2_000)}`).map((each) => each.slice(0, 2_047)),
    );
    expect([...read(...lines), ...flush()]).toEqual(many.map(() => 'sqli'));
  });

  test('are not joined with those of other clients, and give them no host', () => {
    const { reader } = reading();
    const forged = line('942100', '17829000.1', '/x"], client: 203.0.113.9, host: "victim.example"');
    const lines = [forged, line('942100', '17829000.2', '/', '198.51.100.4', 'bank.example')];
    const parsed = [...lines.flatMap((each) => reader.read(each, 0)), ...reader.flush()];
    expect(parsed).toMatchObject([
      { record: { attack: 'sqli', host: undefined } },
      { record: { attack: 'sqli', host: 'bank.example', details: { source: '198.51.100.4' } } },
    ]);
  });

  test('count once with the audit log, even if the error log is cut or forged', () => {
    for (const path of [`/${'x'.repeat(1_500)}`, '/x"], client: ']) {
      const { read, flush } = reading();
      const lines = request('17829000.1', path).map((each) => each.slice(0, 2_047));
      expect([...read(...lines, audit('17829000.1', '942100')), ...flush()]).toEqual(['sqli']);
      expect([...read(audit('17829000.2', '942100')), ...flush()]).toEqual(['sqli']);
    }
  });
});

describe('the details of an attack', () => {
  const RULES = ['942100', '949110'].map((id) => ({ id, severity: 'critical' }));
  const line = (rule: string, outcome: string, uri: string) =>
    match('a', rule).replace('Warning.', outcome).replace('[uri "/"]', `[uri "${uri}"]`);
  const record = (...lines: string[]) => {
    const { reader } = reading();
    const [first] = [...lines.flatMap((each) => reader.read(each, 0)), ...reader.flush()];
    return first?.kind === 'record' ? first.record : undefined;
  };

  test('come from all lines: any of them may say that it was stopped', () => {
    const denied = line('949110', 'Access denied with code 403 (phase 2).', '/b');
    for (const lines of [
      [denied, line('942100', 'Warning.', '/b')],
      [line('942100', 'Warning.', '/b'), denied],
    ]) {
      expect(record(...lines)?.details).toEqual({
        blocked: true,
        source: '192.0.2.7',
        url: '/b',
        rule: '942100',
        rules: RULES,
        id: 'a',
        status: 403,
      });
    }
    expect(record(match('a', '942100'))?.details?.blocked).toBe(false);
  });

  test('come from both logs of a mixed stream', () => {
    const denied = line('949110', 'Access denied with code 403 (phase 2).', '/b');
    expect(record(denied, audit('a', '942100'))?.details).toEqual({
      blocked: true,
      source: '192.0.2.7',
      url: '/b',
      rule: '942100',
      rules: RULES,
      id: 'a',
      status: 403,
    });
  });

  test('include how the category was chosen', () => {
    expect(record(match('a', '920350'), match('a', '942100'))?.decision).toMatchObject({
      category: 'sqli',
      rule: '942100',
      step: 'payload',
    });
  });
});

test('a custom rule that denied the request wins over a protocol rule, in an error log and in an audit log', () => {
  const own = match('a', '10001')
    .replace('Warning.', 'Access denied with code 403 (phase 1).')
    .replace('[severity "CRITICAL"] [ver "OWASP_CRS/3.3.4"] ', '');
  const { read, flush } = reading();
  read(match('a', '920350').replace('CRITICAL', 'WARNING'), own);
  expect(flush()).toEqual(['custom']);
  const record = JSON.parse(audit('b', '920350', '10001'));
  Object.assign(record.transaction, {
    producer: { secrules_engine: 'Enabled' },
    response: { http_code: 403 },
  });
  const [first, second] = record.transaction.messages;
  Object.assign(first.details, { severity: '4' });
  Object.assign(second.details, { severity: '0', ver: '' });
  expect(read(JSON.stringify(record))).toEqual(['custom']);
  record.transaction.unique_id = 'c';
  record.transaction.producer.secrules_engine = 'DetectionOnly';
  expect(read(JSON.stringify(record))).toEqual(['illegal']);
});

describe('a rule 980130 that says that the score was exceeded', () => {
  const scores = (
    id: string,
    message = 'Inbound Anomaly Score Exceeded (Total Inbound Score: 20 - SQLI=0,XSS=20)',
  ) => match(id, '980130').replace('[severity', `[msg "${message}"] [severity`);

  test('is an attack of the category with the highest sum, if it is alone', () => {
    const { read, flush } = reading();
    read(scores('a'), scores('b', 'Inbound Anomaly Score (Total Inbound Score: 3 - SQLI=0,XSS=3)'));
    expect(flush()).toEqual(['xss', 'not_an_attack']);
    const record = JSON.parse(audit('c', '980130'));
    record.transaction.messages[0].message =
      'Inbound Anomaly Score Exceeded (Total Inbound Score: 5 - SQLI=5,XSS=0)';
    expect(read(JSON.stringify(record))).toEqual(['sqli']);
  });

  test('is not a second attack next to the verdict and the rules of its request', () => {
    const { read, flush } = reading();
    read(match('a', '949110'), scores('a'), match('b', '942100'), match('b', '949110'), scores('b'));
    expect(flush()).toEqual(['xss', 'sqli']);
    read(scores('a'), scores('b'));
    expect(flush()).toEqual(['same_request', 'same_request']);
  });
});

test('a setup rule that denies every request is not an attack, in an error log and in an audit log', () => {
  const { read, flush } = reading();
  read(match('a', '901001').replace('Warning.', 'Access denied with code 500 (phase 1).'));
  expect(flush()).toEqual(['not_an_attack']);
  const record = JSON.parse(audit('b', '901001'));
  record.transaction.is_interrupted = true;
  expect(read(JSON.stringify(record))).toEqual(['not_an_attack']);
});

test('the state is bounded, and no request is lost', () => {
  const reader = createReader({ format: 'auto' });
  const counted = new Set<string>();
  for (let i = 0; i < 1_000; i++) {
    const id = `${i}${'x'.repeat(i % 2 ? 5_000 : 10)}`;
    for (let rule = 0; rule < (i < 100 ? 40 : 8); rule++) {
      for (const each of reader.read(match(id, `942${100 + rule}`), 0)) {
        if (each.kind === 'record') counted.add(String(counted.size));
      }
    }
  }
  const state = reader.state();
  expect(state.length).toBeGreaterThan(100_000);
  expect(state.length).toBeLessThan(STATE_LENGTH_MAX);
  expect(counted.size + reader.flush().length).toBe(1_000);
});

test('a reader restored from its state continues as if nothing had happened', () => {
  const line = fc.oneof(
    fc
      .tuple(fc.constantFrom('a', 'b', 'c'), fc.constantFrom('941100', '942100', '949110'), fc.nat(20))
      .map((args) => match(...args)),
    fc
      .tuple(fc.constantFrom('a', 'b', 'c'), fc.constantFrom('941100', '949110'))
      .map(([id, rule]) => audit(id, rule)),
    fc.constant('--622ca252-A--'),
    fc.constant('--622ca252-Z--'),
  );
  fc.assert(
    fc.property(fc.array(line), fc.nat(), (lines, cut) => {
      const straight = createReader({ format: 'auto' });
      const expected = [...lines.flatMap((each) => straight.read(each, 0)), ...straight.flush()];
      const at = cut % (lines.length + 1);
      const first = createReader({ format: 'auto' });
      const before = lines.slice(0, at).flatMap((each) => first.read(each, 0));
      const second = createReader({ format: 'auto' }, first.state());
      const after = lines.slice(at).flatMap((each) => second.read(each, 0));
      expect(JSON.parse(JSON.stringify([...before, ...after, ...second.flush()]))).toEqual(
        JSON.parse(JSON.stringify(expected)),
      );
      expect(second.state()).toBe(straight.state());
    }),
  );
});
