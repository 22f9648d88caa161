/** A wrapped line counts like the bare line, and a bare line is not changed. */
import { readdirSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test, vi } from 'vitest';
import { scaled } from '../../../../test/random.ts';
import { fixtureLines, outcomes, parseLines, readLines } from '../../fixtures/read-fixture.ts';
import type { Parsed } from './formats/format.ts';
import { LINE_BYTES_MAX, LineBlock } from './lines.ts';
import { createReader, STATE_LENGTH_MAX } from './reader.ts';
import { BARE, Unwrapper } from './unwrap.ts';

const FIXTURES = readdirSync(new URL('../../fixtures/', import.meta.url)).filter((name) =>
  name.endsWith('.log'),
);
const ACCESS = 'shop.example.com 192.0.2.7 - - [01/Jul/2026:10:20:30 +0000] "GET / HTTP/1.1" 200 6';
const REQUEST = { time: Date.UTC(2026, 6, 1, 10, 20, 30), host: 'shop.example.com', request: true };
const RUNTIME_PART_BYTES = 16_384;

/** Wraps one line of a stream; `cut` splits it if the wrapper supports parts. */
type Wrap = (line: string, stream: 'stdout' | 'stderr', cut: (line: string) => string[]) => string[];

const whole =
  (wrap: (line: string, stream: string) => string): Wrap =>
  (line, stream) => [wrap(line, stream)];
const parts =
  (wrap: (part: string, stream: string, isLast: boolean) => string): Wrap =>
  (line, stream, cut) =>
    cut(line).map((part, i, all) => wrap(part, stream, i === all.length - 1));

const docker = parts((part, stream, isLast) =>
  JSON.stringify({ log: isLast ? `${part}\n` : part, stream, time: '2026-07-01T12:00:00.123456789Z' }),
);
const cri = parts(
  (part, stream, isLast) => `2026-07-01T12:00:00.123456789Z ${stream} ${isLast ? 'F' : 'P'} ${part}`,
);
const compose = whole((line, stream) => `web-${stream}-1  | ${line}`);
const syslog = whole((line, stream) => `<13>Nov  5 12:02:15 edge ${stream}[123]: ${line}`);

const csv = whole((line) => `"${line.replaceAll('"', '""')}"`);

const WRAPS: Record<string, Wrap> = {
  csv,
  'csv with another column': whole((line) => `"${line.replaceAll('"', '""')}",200`),
  docker,
  'docker with attributes': parts((part, stream, isLast) =>
    JSON.stringify({
      log: isLast ? `${part}\r\n` : part,
      stream,
      attrs: { tag: 'x' },
      time: '2026-07-01T12:00:00Z',
    }),
  ),
  'docker in another order, with spaces': parts(
    (part, stream, isLast) =>
      `{ "time": "2026-07-01T12:00:00Z", "stream": "${stream}", "log": ${JSON.stringify(isLast ? `${part}\n` : part)} }`,
  ),
  'docker with attributes first': parts((part, stream, isLast) =>
    JSON.stringify({
      attrs: { tag: 'x' },
      stream,
      time: '2026-07-01T12:00:00Z',
      log: isLast ? `${part}\n` : part,
    }),
  ),
  'docker by fluentd': parts((log, source, isLast) =>
    JSON.stringify({
      container_name: '/web',
      source,
      log,
      container_id: 'abc',
      ...(!isLast && { partial_message: 'true' }),
    }),
  ),
  cri,
  'cri with an offset and tags': parts(
    (part, stream, isLast) => `2026-07-01T12:00:00+02:00 ${stream} ${isLast ? 'F:x' : 'P:x'} ${part}`,
  ),
  'syslog with a priority': syslog,
  'syslog of nginx without a host': whole((line, stream) => `<190>Nov 15 12:02:15 ${stream}: ${line}`),
  'syslog in a file': whole((line, stream) => `Nov 15 12:02:15 2001:db8::7 docker/${stream}.1[7]: ${line}`),
  'syslog in a file, ISO': whole(
    (line, stream) => `2026-07-01T12:00:00.123456+02:00 edge ${stream}: ${line}`,
  ),
  'syslog in a file, received as RFC 5424': whole((line, stream) => `Nov 15 12:02:15 edge ${stream} ${line}`),
  'syslog in a file, ISO, received as RFC 5424': whole(
    (line, stream) => `2026-07-01T12:00:00.123456+02:00 edge ${stream}[123] ${line}`,
  ),
  'syslog RFC 5424': whole(
    (line, stream) => `<165>1 2026-07-01T12:00:00.003Z edge ${stream} 123 ID47 - ${line}`,
  ),
  'syslog RFC 5424 with data and a byte order mark': whole(
    (line, stream) =>
      `<165>1 2026-07-01T12:00:00Z edge ${stream} - - [a@1 b="] \\" \\] ["][c@1 d="e"] \ufeff${line}`,
  ),
  'syslog RFC 5424 with nothing but the line': whole((line, stream) => `<14>1 - - ${stream} - - - ${line}`),
  'syslog with a length': whole((line, stream) => {
    const message = `<165>1 2026-07-01T12:00:00Z edge ${stream} - - - ${line}`;
    return `${Buffer.byteLength(message)} ${message}`;
  }),
  compose,
  'compose in colour': whole((line, stream) => `\u001b[36mweb-${stream}-1        | \u001b[0m${line}`),
  'compose 1 in colour': whole((line, stream) => `\u001b[33;1mweb_${stream}_1  |\u001b[0m ${line}`),
  'compose with times': whole(
    (line, stream) => `${stream}.1.x@node  | 2026-07-01T12:00:00.123456789Z ${line}`,
  ),
  journald: parts((part, stream, isLast) =>
    JSON.stringify({
      __CURSOR: 's',
      __REALTIME_TIMESTAMP: '1782900000000000',
      _STREAM_ID: stream,
      ...(!isLast && { _LINE_BREAK: 'line-max' }),
      MESSAGE: part,
    }),
  ),
  'journald of docker, as bytes': parts((part, stream, isLast) =>
    JSON.stringify({
      MESSAGE: [...Buffer.from(part)],
      PRIORITY: stream === 'stdout' ? '6' : '3',
      CONTAINER_ID: 'abc',
      ...(!isLast && { CONTAINER_PARTIAL_MESSAGE: 'true' }),
      __REALTIME_TIMESTAMP: '1782900000000000',
    }),
  ),
  'docker in cri': (line, stream, cut) => docker(line, stream, cut).flatMap((each) => cri(each, stream, cut)),
  'compose in syslog': (line, stream, cut) =>
    compose(line, stream, cut).flatMap((each) => syslog(each, stream, cut)),
  'syslog in docker': (line, stream, cut) =>
    syslog(line, stream, cut).flatMap((each) => docker(each, stream, cut)),
};

const uncut = (line: string) => [line];

/** Cuts between characters: a character that a runtime splits is already replaced in its output. */
function cutEvery(line: string, lengths: readonly number[]): string[] {
  const found: string[] = [];
  const characters = [...line];
  for (let i = 0; characters.length > 0; i++)
    found.push(characters.splice(0, lengths[i % lengths.length] ?? 1).join(''));
  return found.length === 0 ? [''] : found;
}

/** Reads lines as from a file, which trims them. */
function readAsFile(lines: readonly string[], options: Parameters<typeof readLines>[1] = {}): Parsed[] {
  const block = new LineBlock(Buffer.from(`${lines.join('\n')}\n`), 1);
  return readLines(
    [...block].map(({ text }) => text),
    options,
  );
}

function withoutWrappers(parsed: readonly Parsed[]): Parsed[] {
  return parsed.map(({ wrapper: _, ...each }) => each);
}

/** Sorted, because the content of two streams does not depend on how they were mixed. */
function sorted(parsed: readonly Parsed[]): string[] {
  return withoutWrappers(parsed)
    .map((each) => JSON.stringify(each))
    .toSorted();
}

const fixture = fc.constantFrom(...FIXTURES);
/** Logs whose records are independent of other logs, so that two logs can be mixed. */
const independentLog = fc.constantFrom(
  'nginx-combined.log',
  'apache-vhost.log',
  'nginx-json.log',
  'aws-waf.log',
);
const wrap = fc.constantFrom(...Object.keys(WRAPS)).map((name) => ({ name, wrap: WRAPS[name] ?? docker }));
const lengths = fc.array(fc.integer({ min: 1, max: 400 }), { minLength: 1, maxLength: 5 });

describe.each(Object.keys(WRAPS))('in %s', (name) => {
  const wrapLine = WRAPS[name] ?? docker;

  test.each(FIXTURES)('the lines of %s count as without the wrapper', (file) => {
    const lines = fixtureLines(file);
    const wrapped = lines.flatMap((line) => wrapLine(line, 'stdout', uncut));
    expect(withoutWrappers(readAsFile(wrapped))).toEqual(readLines(lines));
  });
});

test('lines cut anywhere are joined', () => {
  fc.assert(
    fc.property(fixture, wrap, lengths, (file, { wrap: wrapLine }, some) => {
      const lines = fixtureLines(file);
      const wrapped = lines.flatMap((line) => wrapLine(line, 'stderr', (text) => cutEvery(text, some)));
      expect(withoutWrappers(readAsFile(wrapped))).toEqual(readLines(lines));
    }),
    { numRuns: scaled(150) },
  );
});

test('two streams in one log do not affect each other, wherever a batch ends', () => {
  fc.assert(
    fc.property(
      fixture,
      independentLog,
      wrap.filter(({ name }) => !name.startsWith('csv')),
      lengths,
      fc.infiniteStream(fc.boolean()),
      fc.nat(),
      (one, other, { wrap: wrapLine }, some, choice, end) => {
        const cut = (text: string) => cutEvery(text, some);
        const out = fixtureLines(one).flatMap((line) => wrapLine(line, 'stdout', cut));
        const err = fixtureLines(other).flatMap((line) => wrapLine(line, 'stderr', cut));
        const mixed: string[] = [];
        while (out.length > 0 || err.length > 0) {
          const next = (choice.next().value ? out : err).shift() ?? out.shift() ?? err.shift();
          if (next !== undefined) mixed.push(next);
        }
        const first = createReader({ format: 'auto' });
        const at = end % (mixed.length + 1);
        const before = mixed.slice(0, at).flatMap((line) => first.read(line, 0));
        const second = createReader({ format: 'auto' }, first.state());
        const parsed = [
          ...before,
          ...mixed.slice(at).flatMap((line) => second.read(line, 0)),
          ...second.flush(),
        ];
        expect(sorted(parsed)).toEqual(
          sorted([...parseLines(fixtureLines(one)), ...parseLines(fixtureLines(other))]),
        );
        expect(second.state() === '' || second.state().includes('"parts":[]')).toBe(true);
      },
    ),
    { numRuns: scaled(150) },
  );
});

test.each(['docker', 'cri', 'journald'])('a long line in parts of 16 KiB counts: %s', (name) => {
  const line = `${ACCESS.slice(0, -1)}${'é x'.repeat(100_000)}`;
  const cut = (text: string) => cutEvery(text, [RUNTIME_PART_BYTES]);
  const wrapped = (WRAPS[name] ?? docker)(line, 'stdout', cut);
  expect(wrapped.length).toBeGreaterThan(15);
  expect(readAsFile(wrapped)).toMatchObject([{ record: REQUEST, format: 'access' }]);
});

describe('a line without a wrapper', () => {
  const isBare = (line: string) => new Unwrapper().unwrap(line, BARE, 0) === null;

  test.each(FIXTURES)('is not changed: %s', (file) => {
    expect(fixtureLines(file).filter((line) => !isBare(line))).toEqual([]);
  });

  test.each([
    ACCESS,
    '{"time":1782900000000,"log":"x"}',
    '{"time":1782900000000,"host":"a.example.com","log":"x","stream":"y"}',
    '{"time":"2026-07-01T12:00:00Z","stream":"stdout","log":"x\\n","request":true}',
    '{"stream":"stdout","time":"2026-07-01T12:00:00Z","message":"\\"log\\""}',
    '{"log":"GET / 200\\n","stream":"stdout","time":"2026-07-01T12:00:00Z","host":"a.example.com"}',
    '{"log":"x","time":"2026-07-01T12:00:00Z"}',
    '{"log":{"a":1},"stream":"stdout","time":"2026-07-01T12:00:00Z"}',
    '{"log":"x\\n","stream":"other","time":"2026-07-01T12:00:00Z"}',
    '{"level":"info","ts":1668790188.22,"logger":"http.log","msg":"x","container_id":"y","log":"z"}',
    '{"MESSAGE":"x","time":1782900000000}',
    '2026-07-01 12:00:00 stdout F line',
    'shop.example.com | 192.0.2.7 | [01/Jul/2026:10:20:30 +0000] "GET /',
    '<13>nothing',
    '<165>1 2026-07-01T12:00:00Z edge app - - [a b="] line',
    'Now 1 2 3: x',
    '12 <13',
  ])('is not changed: %s', (line) => {
    expect(isBare(line)).toBe(true);
  });

  test('is parsed as a whole if it looks wrapped, but no format matches the content', () => {
    for (const line of [
      'shop.example.com  | [01/Jul/2026:10:20:30 +0000] "GET / HTTP/1.1"',
      '2026-07-01T12:00:00Z shop.example.com 192.0.2.7 [01/Jul/2026:10:20:30 +0000] "GET / HTTP/1.1"',
      '2026-07-01T12:00:00Z shop.example.com 192.0.2.7 "GET / HTTP/1.1" [01/Jul/2026:10:20:30 +0000] "x"',
    ]) {
      expect(isBare(line)).toBe(false);
      expect(readLines([line])).toEqual([{ kind: 'record', record: expect.anything(), format: 'access' }]);
    }
  });
});

describe('a native block', () => {
  const block = fixtureLines('modsecurity2-native.log');
  const end = block.findIndex((line) => line.endsWith('-Z--')) + 1;
  const head = block.slice(0, 2);
  const boundary = head[0]?.slice(0, 11) ?? '';
  const forged = docker(ACCESS, 'stdout', uncut);

  test('keeps a line of a body that looks wrapped', () => {
    const body = [...head, `${boundary}C--`, ...forged, ...block.slice(2, end)];
    const unforged = readLines(body.filter((line) => !forged.includes(line)));
    expect(readLines(body)).toEqual(unforged);
    const wrapped = body.flatMap((line) => cri(line, 'stdout', uncut));
    expect(withoutWrappers(readLines(wrapped))).toEqual(unforged);
  });

  test('of one stream does not take lines of another stream or without a wrapper', () => {
    const lines = block.slice(0, end).flatMap((line) => docker(line, 'stdout', uncut));
    const mixed = [...lines.slice(0, 5), ...docker(ACCESS, 'stderr', uncut), ACCESS, ...lines.slice(5)];
    expect(outcomes(readLines(mixed)).filter((each) => each === 'request')).toHaveLength(2);
    expect(readLines(mixed)).toHaveLength(3);
  });

  test('is closed if too many streams have an open block', () => {
    const many = Array.from({ length: 20 }, (_, i) => `web-${i}  | ${head[0]}`);
    const reader = createReader({ format: 'auto' });
    const parsed = many.flatMap((line) => reader.read(line, 0));
    expect(outcomes(parsed)).toEqual(Array.from({ length: 12 }, () => 'bad_record'));
    expect(reader.flush()).toHaveLength(8);
  });
});

describe('parts', () => {
  const part = (log: string, stream = 'stdout') =>
    JSON.stringify({ log, stream, time: '2026-07-01T12:00:00Z' });

  test('of a line beyond the limit are one drop, and the next line is counted', () => {
    const long = Array.from({ length: 100 }, () => part('x'.repeat(RUNTIME_PART_BYTES)));
    const parsed = readLines([...long, part('end\n'), part(`${ACCESS}\n`)]);
    expect(outcomes(parsed)).toEqual(['line_too_long', 'request']);
    expect(outcomes(readLines(long))).toEqual(['line_too_long']);
  });

  test('up to the limit are joined', () => {
    const rest = ['y'.repeat(LINE_BYTES_MAX - ACCESS.length - 1), '\n'];
    expect(outcomes(readLines([part(ACCESS), ...rest.map((text) => part(text))]))).toEqual(['request']);
    expect(outcomes(readLines([part(ACCESS), part('y'), ...rest.map((text) => part(text))]))).toEqual([
      'line_too_long',
    ]);
  });

  test('whose rest never comes are dropped at the end, or after a minute', () => {
    expect(outcomes(readLines([part(ACCESS)]))).toEqual(['unfinished_record']);
    const reader = createReader({ format: 'auto' });
    reader.read(part(ACCESS), 1_000_000);
    expect(reader.flush(1_060_000)).toEqual([]);
    expect(outcomes(reader.flush(1_060_001))).toEqual(['unfinished_record']);
    expect(reader.state()).toBe('');
    reader.read(part(ACCESS), 1_000_000);
    expect(reader.flush(undefined, { partsBefore: 1_000_000 })).toEqual([]);
    expect(outcomes(reader.read(part('\n'), 1_000_000))).toEqual(['request']);
  });

  test('stay within the limits of memory and state, and each dropped line is reported once', () => {
    const reader = createReader({ format: 'auto' });
    let dropped = 0;
    for (let i = 0; i < 200; i++) {
      const line = `<13>Nov 15 12:02:15 edge app${i % 40}: ${part('\u0001"é'.repeat(20_000 + i))}`;
      dropped += reader.read(line, 0).length;
      expect(reader.state().length).toBeLessThan(STATE_LENGTH_MAX);
    }
    expect(dropped + reader.flush().length).toBe(200);
  });

  test('of a single character take linear time', () => {
    const reader = createReader({ format: 'auto' });
    const copied = vi.spyOn(Buffer.prototype, 'copy');
    const joined = vi.spyOn(Buffer, 'concat');
    for (let i = 0; i < 20_000; i++) reader.read(part('x'), 0);
    expect(outcomes(reader.read(part(` ${ACCESS}\n`), 0))).toEqual(['request']);
    expect(copied.mock.calls.length + joined.mock.calls.length).toBeLessThan(30);
    copied.mockRestore();
    joined.mockRestore();
  });
});

describe('the content', () => {
  test('of journald can have several lines, or be omitted', () => {
    const journald = (MESSAGE: unknown) =>
      JSON.stringify({ MESSAGE, __REALTIME_TIMESTAMP: '1782900000000000' });
    expect(outcomes(readLines([journald(`${ACCESS}\n\n${ACCESS}`)]))).toEqual(['request', 'request']);
    for (const message of [null, ['x'], {}])
      expect(outcomes(readLines([journald(message)]))).toEqual(['bad_record']);
    expect(readLines([journald([...Buffer.from(ACCESS), 0xff])])).toMatchObject([{ record: REQUEST }]);
  });

  test('of syslog with lengths can be several messages', () => {
    const message = `<13>Nov 15 12:02:15 edge nginx: ${ACCESS} é`;
    const frame = `${Buffer.byteLength(message)} ${message}`;
    expect(outcomes(readLines([`${frame}${frame}${frame}`]))).toEqual(['request', 'request', 'request']);
    expect(outcomes(readLines([`9999 ${message}`]))).toEqual(['request']);
    expect(outcomes(readLines([`${frame}nonsense`]))).toEqual(['request', 'unknown_format']);
  });

  test('of syslog with lengths can be text that is not UTF-8', () => {
    const head = Buffer.from('<13>Nov 15 12:02:15 edge nginx: ');
    // An invalid byte, an incomplete character, a plain character, and the replacement character itself.
    const texts = ['\xff', '\xe2\x82\xff', 'x', '\xef\xbf\xbd'].map((text) => Buffer.from(text, 'latin1'));
    fc.assert(
      fc.property(
        fc.array(fc.array(fc.constantFrom(...texts), { maxLength: 9 }), { maxLength: 5 }),
        (messages) => {
          const frames = messages.map((some) => {
            const message = Buffer.concat([head, Buffer.from(`${ACCESS} "`), ...some, Buffer.from('"')]);
            return Buffer.concat([Buffer.from(`${message.length} `), message]);
          });
          const line = Buffer.concat(frames).toString();
          expect(outcomes(line === '' ? [] : readLines([line]))).toEqual(messages.map(() => 'request'));
        },
      ),
    );
  });

  test('of syslog with lengths cannot be mistaken for the next message', () => {
    const forged = '9 <13>nonsense';
    const message = `<13>Nov 15 12:02:15 edge nginx: ${ACCESS} ${'\ufffd'.repeat(forged.length)}${forged}`;
    // Each replacement character was one byte.
    const frame = `${Buffer.byteLength(message) - 2 * forged.length} ${message}`;
    expect(outcomes(readLines([`${frame}${frame}`]))).toEqual(['request', 'request']);
  });

  test('of syslog gets back the tabs of Caddy that rsyslog escaped, and no others', () => {
    const lines = fixtureLines('caddy-terminal.log');
    for (const prefix of ['Nov 15 12:02:15 edge caddy: ', '<13>1 - edge caddy - - -  ']) {
      const escaped = lines.map((line) => `${prefix}${line.replaceAll('\t', '#011')}`);
      expect(withoutWrappers(readLines(escaped))).toEqual(readLines(lines));
    }
    const event = `{"time":${REQUEST.time},"host":"a#011b"}`;
    expect(readLines([`Nov 15 12:02:15 edge app: ${event}`])).toMatchObject([{ record: { host: 'a#011b' } }]);
  });

  test('names its wrappers, the inner one first', () => {
    const [line = ''] = docker(ACCESS, 'stdout', uncut).flatMap((each) => cri(each, 'stdout', uncut));
    expect(readLines([line])).toMatchObject([{ format: 'access', wrapper: 'docker in cri' }]);
    expect(readLines(['web-1  | nonsense'])).toMatchObject([{ format: 'none', wrapper: 'compose' }]);
  });

  test('is unwrapped a limited number of times', () => {
    let line = ACCESS;
    for (let i = 0; i < 5; i++) line = docker(line, 'stdout', uncut)[0] ?? '';
    expect(outcomes(readLines([line]))).toEqual(['unknown_format']);
  });
});

describe('a time before an access line with a virtual host', () => {
  const rest = '- - [15/Nov/2026:09:25:32 +0000] "GET / HTTP/1.1" 200 6';

  test.each([
    ['shop.example.com 192.0.2.7', 'shop.example.com'],
    ['shop.example.com:443 192.0.2.7', 'shop.example.com:443'],
    ['shop.example.com 2001:db8::7', 'shop.example.com'],
    ['shop.example.com 192.0.2.7, 198.51.100.4', 'shop.example.com'],
    // Without a virtual host, or with a syslog tag.
    ['192.0.2.7', undefined],
    ['web nginx: 192.0.2.7', undefined],
    ['web nginx[12]: shop.example.com 192.0.2.7', 'shop.example.com'],
  ])('%s', (front, host) => {
    for (const time of ['2026-11-15T12:00:00.123456789Z', '2026-11-15T12:00:00+01:00']) {
      expect(readLines([`${time} ${front} ${rest}`])).toMatchObject([
        { kind: 'record', format: 'access', record: { host, request: true } },
      ]);
    }
  });
});
