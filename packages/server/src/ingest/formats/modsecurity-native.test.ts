import { describe, expect, test } from 'vitest';
import { outcomes, readLines } from '../../../fixtures/read-fixture.ts';
import { createReader } from '../reader.ts';

const RULE =
  'Message: Warning. Matched. [file "/crs/REQUEST-942-APPLICATION-ATTACK-SQLI.conf"] [line "1"] [id "942100"] ' +
  '[severity "CRITICAL"] [ver "OWASP_CRS/3.3.4"]';

function block(boundary: string, id: string, ...body: string[]): string[] {
  const part = (letter: string) => `--${boundary}-${letter}--`;
  return [
    part('A'),
    `[01/May/2018:08:05:00 +0200] ${id} 192.0.2.7 22387 192.0.2.1 80`,
    part('B'),
    'POST / HTTP/1.1',
    'HOST: shop.example.com',
    part('C'),
    ...body,
    part('H'),
    RULE,
    'Apache-Error: [file "apache2_util.c"] ModSecurity: Warning. [file "x"] [id "1"]',
    part('Z'),
  ];
}

test('a block is one attack, with the data of its parts', () => {
  expect(readLines(block('622ca252', 'a', 'q=1'))).toMatchObject([
    {
      kind: 'record',
      format: 'modsecurity-native',
      record: { time: Date.UTC(2018, 4, 1, 6, 5), host: 'shop.example.com', attack: 'sqli', request: false },
    },
  ]);
});

test.each([
  ['Stopwatch: 1525154700123456 2632 (- - -)', 123],
  ['Stopwatch2: 1525154699876543 2632; combined=1733, p1=659', -124],
  ['Stopwatch: 1525154702000999 2632 (- - -)', 2_000],
  // Beyond two seconds, not the start of this request, or not a time at all.
  ['Stopwatch: 1525154702001000 2632 (- - -)', 0],
  ['Stopwatch: 1525161900123456 2632 (- - -)', 0],
  ['Stopwatch: 152515470 2632 (- - -)', 0],
  ['Stopwatch: soon', 0],
  ['Message: Stopwatch: 1525154700123456 2632', 0],
])('%s moves the second of part A by %i ms', (line, shift) => {
  const lines = block('622ca252', 'a').flatMap((each) => (each === RULE ? [RULE, line] : [each]));
  const twice = [...lines.slice(0, -1), 'Stopwatch2: 1525154701999999 1; p1=1', ...lines.slice(-1)];
  const expected = [{ record: { time: Date.UTC(2018, 4, 1, 6, 5) + shift } }];
  expect(readLines(lines)).toMatchObject(expected);
  if (shift !== 0) expect(readLines(twice)).toMatchObject(expected);
});

test('a body may contain anything: only its own boundary ends a block', () => {
  const hostile = [...block('deadbeef', 'x'), '---deadbeef---Z--', '{"time":1}', RULE];
  expect(outcomes(readLines([...block('622ca252', 'a', ...hostile), ...block('622ca252', 'b')]))).toEqual([
    'sqli',
    'sqli',
  ]);
});

test('a block without an end is dropped when the next one begins', () => {
  const lines = block('622ca252', 'a');
  expect(outcomes(readLines([...lines.slice(0, 3), ...block('722ca252', 'b')]))).toEqual([
    'unfinished_record',
    'sqli',
  ]);
  // Unless it has the part with the rules.
  expect(outcomes(readLines([...lines.slice(0, -1), ...block('722ca252', 'b')]))).toEqual(['sqli', 'sqli']);
});

test('a block continues after a restart at any line', () => {
  const lines = block('622ca252', 'a', '--deadbeef-Z--');
  for (let cut = 0; cut <= lines.length; cut++) {
    const first = createReader({ format: 'auto' });
    const before = lines.slice(0, cut).flatMap((line) => first.read(line, 0));
    const second = createReader({ format: 'auto' }, first.state());
    const after = lines.slice(cut).flatMap((line) => second.read(line, 0));
    expect(outcomes([...before, ...after])).toEqual(['sqli']);
  }
});

test('while a log is followed, a block waits longer for its end than the rules of an error log', () => {
  const reader = createReader({ format: 'auto' });
  for (const line of block('622ca252', 'a').slice(0, -1)) reader.read(line, 1_000_000);
  expect(reader.flush(1_000_001)).toEqual([]);
  expect(outcomes(reader.flush(1_060_001))).toEqual(['sqli']);
  expect(reader.flush()).toEqual([]);
});

test('a body without an end is dropped, and the following lines count', () => {
  const reader = createReader({ format: 'auto' });
  for (const line of block('622ca252', 'a').slice(0, 6)) reader.read(line, 0);
  const drops = Array.from({ length: 17 }, () => reader.read('x'.repeat(1_048_575), 0)).flat();
  expect(outcomes(drops)).toEqual(['unfinished_record', 'unknown_format', 'unknown_format']);
  expect(outcomes(block('722ca252', 'b').flatMap((line) => reader.read(line, 0)))).toEqual(['sqli']);
});

describe('boundaries that a client wrote into an error log', () => {
  const fastcgi =
    '2026/11/15 02:20:43 [error] 15255#15255: *1 FastCGI sent in stderr: "PHP message: unknown user ' + "'";
  const end = '\' in /srv/www/login.php" while reading response header from upstream, client: 192.0.2.9';
  const attack = (i: number) =>
    `2026/11/15 02:20:43 [error] 15255#15255: *${i} [client 192.0.2.7] ModSecurity: Access denied with code 403 ` +
    '(phase 2). Matched "x" [file "/crs/REQUEST-949-BLOCKING-EVALUATION.conf"] [line "81"] [id "949110"] ' +
    `[ver "OWASP_CRS/3.3.4"] [hostname "192.0.2.1"] [uri "/"] [unique_id "17947092${i}.1"] [ref ""], ` +
    'client: 192.0.2.7, server: , request: "GET / HTTP/1.1", host: "shop.example.com"';
  const attacks = Array.from({ length: 10 }, (_, i) => attack(100 + i));
  const access = '192.0.2.7 - - [15/Nov/2026:02:20:43 +0000] "GET / HTTP/1.1" 200 6';
  const head = '[15/Nov/2026:02:20:44 +0000] 1.2 192.0.2.9 33148 192.0.2.1 80';
  const counted = (lines: readonly string[]) =>
    outcomes(readLines(lines)).filter((each) => ['vuln', 'sqli', 'request'].includes(each));

  test.each(['A', 'B', 'C', 'E', 'F', 'H', 'Z'])('hide no line when part %s follows', (part) => {
    for (const front of [['---AAAAAAAA---A--'], ['---AAAAAAAA---A--', head]]) {
      const injected = [fastcgi, ...front, `---AAAAAAAA---${part}--`, end];
      expect(counted([...injected, ...attacks, access])).toHaveLength(11);
      // The client may also write the end of its block.
      expect(counted([...injected, ...attacks, access, '---AAAAAAAA---Z--'])).toHaveLength(11);
      expect(counted([...injected, ...block('622ca252', 'a', 'q=1'), access])).toEqual(['sqli', 'request']);
    }
  });

  test('are recognized after a restart too', () => {
    const lines = [fastcgi, '---AAAAAAAA---A--', head, '---AAAAAAAA---C--', end, ...attacks, access];
    for (let cut = 0; cut <= lines.length; cut++) {
      const first = createReader({ format: 'auto' });
      const before = lines.slice(0, cut).flatMap((line) => first.read(line, 0));
      const second = createReader({ format: 'auto' }, first.state());
      const after = lines.slice(cut).flatMap((line) => second.read(line, 0));
      const found = outcomes([...before, ...after, ...second.flush()]);
      expect(found.filter((each) => each === 'vuln' || each === 'request')).toHaveLength(11);
    }
  });

  test('do not end the block of a request whose body has many of them', () => {
    const body = Array.from({ length: 50 }, (_, i) => [`--deadbe${i + 10}-A--`, head]).flat();
    const found = counted([fastcgi, ...block('622ca252', 'a', ...body), access]);
    expect(found).toEqual(['sqli', 'request']);
  });
});
