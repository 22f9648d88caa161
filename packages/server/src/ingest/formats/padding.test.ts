/** Engines cut long messages. Whatever is cut off, an attack stays one attack. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { scaled } from '../../../../../test/random.ts';
import { fixtureLines, outcomes, readFixture, readLines } from '../../../fixtures/read-fixture.ts';

/** ModSecurity 2 cuts a message at this length, then appends host, path and ID of the request. */
const MODSECURITY2_LENGTH_MAX = 1_023;
/** nginx cuts a line at this length. */
const NGINX_LENGTH_MAX = 2_047;

const isAttack = (outcome: string) => !['not_an_attack', 'other_log_line'].includes(outcome);
const attacksIn = (name: string) => outcomes(readFixture(name)).filter(isAttack).length;

/** A long argument name is part of the match description, before the fields of the rule. */
function padded(message: string, padding: string): string {
  const isMatch = /(?:^|: )Warning\. /.test(message) && !/\[id "9[0458]\d{4}"\]/.test(message);
  return isMatch ? message.replace(' [file "', ` ARGS_NAMES:${padding}. [file "`) : message;
}

const paddedAndCut = (message: string, padding: string) =>
  padded(message, padding).slice(0, MODSECURITY2_LENGTH_MAX);

/** Apache appends host, path and ID after a message that ModSecurity 2 cut. */
function paddedLine(line: string, padding: string): string {
  const at = line.indexOf('ModSecurity: ');
  const tail = line.indexOf(' [hostname "');
  if (at === -1 || tail === -1) return line;
  return `${line.slice(0, at)}${paddedAndCut(line.slice(at, tail), padding)}${line.slice(tail)}`;
}

const paddings = fc
  .tuple(fc.constantFrom('A', ';cat /etc/passwd', ' [id "901001"]', '"] [uri "', 'é'), fc.nat(2_500))
  .map(([text, length]) => text.repeat(Math.ceil(length / text.length)).slice(0, length));

describe('a padded attack is still one attack', () => {
  test('in the error log of Apache', () => {
    fc.assert(
      fc.property(paddings, (padding) => {
        // ModSecurity 2 escapes quotes.
        const escaped = padding.replaceAll('"', '\\"');
        const lines = fixtureLines('apache-error.log').map((line) => paddedLine(line, escaped));
        expect(outcomes(readLines(lines)).filter(isAttack)).toHaveLength(attacksIn('apache-error.log'));
      }),
      { numRuns: scaled(50) },
    );
  });

  test('in the JSON audit log of ModSecurity 2', () => {
    fc.assert(
      fc.property(paddings, (padding) => {
        const lines = fixtureLines('modsecurity2-json.log').map((line) => {
          const record = JSON.parse(line);
          const { audit_data } = record;
          const messages = audit_data.messages?.map((each: string) => paddedAndCut(each, padding));
          return JSON.stringify({ ...record, audit_data: { ...audit_data, messages } });
        });
        expect(outcomes(readLines(lines)).filter(isAttack)).toHaveLength(attacksIn('modsecurity2-json.log'));
      }),
      { numRuns: scaled(50) },
    );
  });

  test('in the native audit log of ModSecurity 2', () => {
    fc.assert(
      fc.property(paddings, (padding) => {
        const lines = fixtureLines('modsecurity2-native.log').map((line) =>
          line.startsWith('Message: ') ? `Message: ${paddedAndCut(line.slice(9), padding)}` : line,
        );
        expect(outcomes(readLines(lines)).filter(isAttack)).toHaveLength(
          attacksIn('modsecurity2-native.log'),
        );
      }),
      { numRuns: scaled(50) },
    );
  });

  test('in the error log of nginx', () => {
    fc.assert(
      fc.property(paddings, (padding) => {
        const lines = fixtureLines('nginx-error.log').map((line) =>
          Buffer.from(padded(line, padding)).subarray(0, NGINX_LENGTH_MAX).toString(),
        );
        expect(outcomes(readLines(lines)).filter(isAttack)).toHaveLength(attacksIn('nginx-error.log'));
      }),
      { numRuns: scaled(50) },
    );
  });

  test('in the error log of nginx in detection mode, where all lines are cut', () => {
    const detected = fixtureLines('nginx-error.log').filter((line) => line.includes('Warning. '));
    const attacks = new Set(detected.map((line) => /#\d+: (\*\d+) /.exec(line)?.[1])).size;
    const lines = detected.map((line) => padded(line, 'A'.repeat(2_500)).slice(0, NGINX_LENGTH_MAX));
    expect(outcomes(readLines(lines))).toHaveLength(attacks);
    expect(outcomes(readLines(lines)).filter(isAttack)).toHaveLength(attacks);
  });
});

test('a request whose rules were cut has the category of the highest CRS sum', () => {
  const lines = fixtureLines('apache-error.log').map((line) => paddedLine(line, 'A'.repeat(2_000)));
  const whole = outcomes(readFixture('apache-error.log')).filter(isAttack);
  expect(outcomes(readLines(lines)).filter(isAttack).toSorted()).toEqual(
    // CRS has no sum for scanners.
    whole.map((each) => (each === 'robot' ? 'vuln' : each)).toSorted(),
  );
});

test('an error log of nginx at its default level, which has only verdicts, has all stopped attacks', () => {
  const lines = fixtureLines('nginx-error.log').filter((line) => line.includes('[error]'));
  const denied = lines.filter((line) => line.includes('Access denied')).length;
  const found = outcomes(readLines(lines));
  expect(found.filter((each) => each !== 'cc')).toHaveLength(denied);
  expect(found.filter((each) => each === 'vuln').length).toBeGreaterThan(0);
});

describe('a client that writes the fields of a rule into the name of an argument', () => {
  const FORGED =
    'evil" [file "/crs/REQUEST-901-INITIALIZATION.conf"] [line "1"] [id "901001"] [ver "OWASP_CRS/3.3.4"] ' +
    '[hostname "victim.example"] [uri "/"]';
  /** A rule of the operator's own. */
  const OWN = '[file "/etc/waf/own.conf"] [line "7"] [id "10001"] [msg "own"]';
  const outcomeOf = (...lines: string[]) => outcomes(readLines(lines));
  const hosts = (...lines: string[]) =>
    readLines(lines).map((each) => (each.kind === 'record' ? each.record.host : each.reason));

  for (const outcome of ['Warning.', 'Access denied with code 403 (phase 2).']) {
    for (const name of [`${FORGED}${'A'.repeat(1_000)}`, `${FORGED}${'é'.repeat(500)}`, FORGED]) {
      const message = `${outcome} Pattern match "evil" at ARGS_NAMES:${name}. ${OWN}`;
      const cut = Buffer.from(message).subarray(0, MODSECURITY2_LENGTH_MAX).toString();
      const title = `${outcome} ${name.length}`;

      test(`does not hide its attack in the error log of Apache: ${title}`, () => {
        const line =
          `[Sun Nov 15 02:20:45.013742 2026] [security2:error] [pid 1:tid 2] [client 192.0.2.7:57418] ` +
          `[client 192.0.2.7] ModSecurity: ${cut} [hostname "shop.example.com"] [uri "/"] [unique_id "a"]`;
        expect(outcomeOf(line)).toEqual(['vuln']);
        expect(hosts(line)).toEqual(['shop.example.com']);
        expect(outcomeOf(`${line}, referer: http://shop.example.com/`)).toEqual(['vuln']);
      });

      test(`does not hide its attack in the audit logs of ModSecurity 2: ${title}`, () => {
        const time = '15/Nov/2026:02:20:45 +0000';
        const record = {
          transaction: { time, transaction_id: 'a' },
          audit_data: { messages: [cut], action: { intercepted: outcome !== 'Warning.' } },
        };
        expect(outcomeOf(JSON.stringify(record))).toEqual(['vuln']);
        const head = `[${time}] a 192.0.2.7 1 192.0.2.1 80`;
        const block = ['--f8199378-A--', head, '--f8199378-H--', `Message: ${cut}`, '--f8199378-Z--'];
        expect(outcomeOf(...block)).toEqual(['vuln']);
      });

      test.each([
        '',
        ' [unique_id "1.1"], client: 203.0.113.9, server: , request: "GET / HTTP/1.1", host: "victim.example"',
      ])(`does not hide its attack in the error log of nginx: ${title} %s`, (suffix) => {
        for (const padding of ['', 'A'.repeat(2_500), '"'.repeat(2_500)]) {
          const line =
            `2026/11/15 02:20:43 [error] 1#1: *3 [client 192.0.2.7] ModSecurity: ${outcome} Matched "Operator` +
            ` Rx" against variable ARGS_NAMES:${name}${suffix}${padding} ${OWN} [hostname "192.0.2.1"] [uri "/"] ` +
            '[unique_id "17947092.1"] [ref ""], client: 192.0.2.7, server: , request: "GET / HTTP/1.1", ' +
            'host: "shop.example.com"';
          const written = Buffer.from(line).subarray(0, NGINX_LENGTH_MAX).toString();
          expect(outcomeOf(written)).toEqual(['vuln']);
          expect(hosts(written)).not.toContain('victim.example');
        }
      });
    }
  }

  test('cannot make its attack look like a rule that the operator excluded', () => {
    const forged = 'evil [file "/crs/x.conf"] [id "920350"] [ver "OWASP_CRS/3.3.4"] [hostname "h"] [uri "/"]';
    const line =
      `[Sun Nov 15 02:20:45 2026] [security2:error] [pid 1] [client 192.0.2.7:5] ModSecurity: Warning. ARGS_NAMES:` +
      `${forged} ${OWN} [hostname "shop.example.com"] [uri "/"] [unique_id "a"]`;
    expect(outcomes(readLines([line], { overrides: new Map([['920350', null]]) }))).toEqual(['illegal']);
  });
});
