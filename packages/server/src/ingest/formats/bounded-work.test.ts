/** A line of 1 MiB must not block the event loop, so it takes a bounded number of steps. */
import { afterEach, describe, expect, test, vi } from 'vitest';
import { createReader } from '../reader.ts';

const LENGTH = 1_048_575;

function filled(head: string, unit: string, end = ''): string {
  return head + unit.repeat((LENGTH - head.length - end.length) / unit.length) + end;
}

afterEach(() => vi.restoreAllMocks());

/** The number of searches and comparisons of strings while a line is read. */
function stepsToRead(line: string): number {
  const methods = ['indexOf', 'lastIndexOf', 'startsWith', 'slice'] as const;
  const reader = createReader({ format: 'auto' });
  const spies = methods.map((name) => {
    const original = String.prototype[name] as (...args: unknown[]) => unknown;
    let calls = 0;
    const patched = function (this: string, ...args: unknown[]) {
      calls++;
      return original.apply(this, args);
    };
    Object.defineProperty(String.prototype, name, { value: patched, configurable: true, writable: true });
    return {
      calls: () => calls,
      restore: () =>
        Object.defineProperty(String.prototype, name, {
          value: original,
          configurable: true,
          writable: true,
        }),
    };
  });
  try {
    reader.read(line, 0);
  } finally {
    for (const { restore } of spies) restore();
  }
  return spies.reduce((sum, { calls }) => sum + calls(), 0);
}

const NGINX = '2026/07/01 10:00:00 [error] 1#1: *1 ModSecurity: Warning. ';
const APACHE = '[Sun Feb 21 22:27:04 2021] [x] ModSecurity: Warning. ';
const CADDY = '2026/07/01 10:20:30.100\tERROR\thttp.handlers.waf\t[client "1"] Coraza: Warning. ';

test.each([
  ['brackets', filled('', '[')],
  ['fields', filled('', '[id "x"]')],
  ['times of an access line', filled('192.0.2.7 - - ', '[10/Dec/2025:09:25:32 +0000] ')],
  ['times that do not exist', filled('192.0.2.7 - - ', '[30/Feb/2025:09:25:32 +0000] "')],
  ['fields of nginx', filled(NGINX, ' [id "x"]')],
  ['scores of nginx', filled(`${NGINX} [id "980130"]`, ' [msg "1"]')],
  ['request IDs of nginx', filled(`${NGINX} [id "1"`, '"] [unique_id "1')],
  ['fields of Apache', filled(APACHE, ' [id "x"]')],
  ['referers of Apache', filled(`${APACHE} [id "1"`, '"] [unique_id "1"], referer: x')],
  ['fields of Caddy', filled(CADDY, ' [id "x"]')],
])('1 MiB of %s takes at most 100,000 steps', (_, line) => {
  expect(stepsToRead(line)).toBeLessThan(100_000);
});

describe('deeply nested JSON', () => {
  test.each([
    ['arrays', filled('', '[')],
    ['objects', filled('', '{"a":')],
    ['both', filled('', '{"a":[')],
    ['complete arrays', '['.repeat(LENGTH / 2) + ']'.repeat(LENGTH / 2)],
    ['complete objects', `${'{"a":'.repeat(150_000)}1${'}'.repeat(150_000)}`],
    ['arrays after a string', filled('{"a":"[\\"","b":', '[')],
    ['arrays in syslog', filled('<13>Nov 15 12:02:15 h n: ', '{"a":[')],
  ])('of 1 MiB is dropped without parsing it: %s', (_, line) => {
    const parse = vi.spyOn(JSON, 'parse');
    const reader = createReader({ format: 'auto' });
    const parsed = [...reader.read(line, 0), ...reader.flush()];
    expect(parsed).toMatchObject([{ kind: 'dropped', format: 'none' }]);
    expect(Math.max(0, ...parse.mock.calls.map(([text]) => text.length))).toBeLessThan(32_768);
  });

  test('is read up to 500 levels, and brackets in strings are none', () => {
    const body = '['.repeat(40_000);
    const nested = `${'['.repeat(400)}${']'.repeat(400)}`;
    const line = `{"time":1782864000000,"attack":"sqli","body":"\\"${body}","more":${nested}}`;
    const [parsed] = createReader({ format: 'auto' }).read(line, 0);
    expect(parsed).toMatchObject({ kind: 'record', format: 'events' });
  });
});

test('10,000 lines of broken JSON in one line are not all parsed', () => {
  const MESSAGE = `${'[[[['.repeat(20)}1\n`.repeat(9_000);
  const parse = vi.spyOn(JSON, 'parse');
  const reader = createReader({ format: 'auto' });
  const parsed = reader.read(JSON.stringify({ __REALTIME_TIMESTAMP: '1', MESSAGE }), 0);
  expect(parsed).toHaveLength(9_000);
  expect(parsed.every(({ kind }) => kind === 'dropped')).toBe(true);
  expect(parse.mock.calls.length).toBeLessThan(1_100);
  const access = '192.0.2.7 - - [10/Dec/2025:09:25:32 +0000] "GET / HTTP/1.1" 200';
  expect(reader.read(access, 0)).toMatchObject([{ kind: 'record' }]);
  expect(reader.read('{"time":1,"attack":"xss"}', 0)).toMatchObject([{ kind: 'record' }]);
});

test('an attack counts even if its message is too long to read all of it', () => {
  const reader = createReader({ format: 'auto' });
  const fields = '[file "x.conf"] [id "942100"] [hostname "a"] [uri "/"] [unique_id "b"]';
  reader.read(`${APACHE}${'x'.repeat(100_000)} ${fields}`, 0);
  expect(reader.flush()).toMatchObject([
    { kind: 'record', format: 'apache-error', record: { request: false, host: 'a', details: { url: '/' } } },
  ]);
});

test('an access line may have 16 KiB before its time', () => {
  const line = `"${'x'.repeat(8_192)}" 192.0.2.7 - ${'u'.repeat(8_192)} [10/Dec/2025:09:25:32 +0000] "GET /`;
  expect(createReader({ format: 'auto' }).read(line, 0)).toMatchObject([
    { kind: 'record', format: 'access', record: { time: Date.UTC(2025, 11, 10, 9, 25, 32) } },
  ]);
});
