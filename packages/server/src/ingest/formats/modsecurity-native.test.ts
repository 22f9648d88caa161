import { expect, test } from 'vitest';
import { createReader } from '../reader.ts';
import { outcomes, readLines } from './fixtures/read-fixture.ts';

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

test('a block is one attack, with what its parts say', () => {
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
  const want = [{ record: { time: Date.UTC(2018, 4, 1, 6, 5) + shift } }];
  expect(readLines(lines)).toMatchObject(want);
  if (shift !== 0) expect(readLines(twice)).toMatchObject(want);
});

test('a body may hold what it likes: only its own boundary ends a block', () => {
  const hostile = [...block('deadbeef', 'x'), '---deadbeef---Z--', '{"time":1}', RULE];
  expect(outcomes(readLines([...block('622ca252', 'a', ...hostile), ...block('622ca252', 'b')]))).toEqual([
    'sqli',
    'sqli',
  ]);
});

test('a block that another one follows before its end has lost it', () => {
  const lines = block('622ca252', 'a');
  expect(outcomes(readLines([...lines.slice(0, 3), ...block('722ca252', 'b')]))).toEqual([
    'unfinished_record',
    'sqli',
  ]);
  // With the part that names the rules it says enough.
  expect(outcomes(readLines([...lines.slice(0, -1), ...block('722ca252', 'b')]))).toEqual(['sqli', 'sqli']);
});

test('a block is kept between two runs, wherever it was left', () => {
  const lines = block('622ca252', 'a', '--deadbeef-Z--');
  for (let cut = 0; cut <= lines.length; cut++) {
    const first = createReader({ format: 'auto' });
    const before = lines.slice(0, cut).flatMap((line) => first.read(line, 0));
    const second = createReader({ format: 'auto' }, first.state());
    const after = lines.slice(cut).flatMap((line) => second.read(line, 0));
    expect(outcomes([...before, ...after])).toEqual(['sqli']);
  }
});

test('while a log is followed, a block waits for its end far longer than the rules of an error log', () => {
  const reader = createReader({ format: 'auto' });
  for (const line of block('622ca252', 'a').slice(0, -1)) reader.read(line, 1_000_000);
  expect(reader.flush(1_000_001)).toEqual([]);
  expect(outcomes(reader.flush(1_060_001))).toEqual(['sqli']);
  expect(reader.flush()).toEqual([]);
});

test('a body without end is given up, and what follows counts', () => {
  const reader = createReader({ format: 'auto' });
  for (const line of block('622ca252', 'a').slice(0, 6)) reader.read(line, 0);
  const drops = Array.from({ length: 17 }, () => reader.read('x'.repeat(1_048_575), 0)).flat();
  expect(outcomes(drops)).toEqual(['unfinished_record', 'unknown_format', 'unknown_format']);
  expect(outcomes(block('722ca252', 'b').flatMap((line) => reader.read(line, 0)))).toEqual(['sqli']);
});
