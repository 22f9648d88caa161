import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import { progressBar } from './command.ts';

const ERASE_LINE = '\r\u001b[K';

function terminal(columns: number) {
  let now = Date.UTC(2026, 6, 1);
  const stderr = Object.assign(new PassThrough({ encoding: 'utf8' }), { isTTY: true, columns });
  return {
    io: { stderr, now: () => now },
    wait(ms: number) {
      now += ms;
    },
    /** What was drawn since the last call. */
    lines: () =>
      String(stderr.read() ?? '')
        .split(ERASE_LINE)
        .slice(1),
  };
}

const megabytes = (bytes: number) => `${bytes / 1e6} MB`;

test('a progress bar shows how much is done, the rates of the last seconds, and the time left', () => {
  const { io, wait, lines } = terminal(120);
  const bar = progressBar(io, 'access.log', 300e6, megabytes);
  bar.advance(0);
  expect(lines()).toEqual([`access.log ${'░'.repeat(30)} 0% 0 MB of 300 MB`]);
  for (let i = 0; i < 10; i++) {
    wait(100);
    bar.advance(10e6, 50_000);
  }
  expect(lines().at(-1)).toBe(
    `access.log ${'█'.repeat(10)}${'░'.repeat(20)} 33% 100 MB of 300 MB, 500,000 lines/s, 100 MB/s, 2 s left`,
  );
  // Slower now: after three seconds, the faster time before does not count.
  for (let i = 0; i < 40; i++) {
    wait(100);
    bar.advance(0.1e6, 100);
  }
  expect(lines().at(-1)).toMatch(/ 35% 104 MB of 300 MB, 1,000 lines\/s, 1 MB\/s, 3 min left$/);
  wait(100);
  bar.advance(200e6);
  expect(lines().at(-1)).toMatch(/ 100% 304 MB of 300 MB, .* 0 s left$/);
  bar.end();
  expect(lines()).toEqual(['']);
});

test.each([
  ['null', null],
  ['0, as of a pipe', 0],
])('a progress bar with a total of %s has rates only, and is drawn ten times a second', (_name, total) => {
  const { io, wait, lines } = terminal(80);
  const bar = progressBar(io, 'standard input', total, megabytes);
  for (let i = 0; i < 100; i++) {
    bar.advance(1e6, 5_000);
    wait(10);
  }
  const drawn = lines();
  expect(drawn).toHaveLength(10);
  expect(drawn.at(-1)).toBe('standard input 91 MB, 500,000 lines/s, 100 MB/s');
});

test('a progress bar is shorter on a narrow terminal, and absent on a very narrow one', () => {
  const draw = (columns: number) => {
    const { io, wait, lines } = terminal(columns);
    const bar = progressBar(io, 'access.log', 100e6, megabytes);
    bar.advance(0);
    wait(1_000);
    bar.advance(50e6, 1_000);
    return lines().at(-1);
  };
  const text = '50% 50 MB of 100 MB, 1,000 lines/s, 50 MB/s, 1 s left';
  expect(draw(76)).toBe(`access.log █████░░░░░ ${text}`);
  expect(draw(66)).toBe(`access.log ${text}`);
});

test('a progress bar stays on one line, and shows no control characters of a file name', () => {
  const { io, lines } = terminal(40);
  progressBar(io, 'a\u001b[2J\nb', 100, String).advance(1);
  const [line = ''] = lines();
  expect(line).toHaveLength(39);
  expect(line).not.toMatch(/\p{Cc}/u);
});

test('without a terminal, there is no progress bar', () => {
  const stderr = new PassThrough();
  const bar = progressBar({ stderr, now: Date.now }, 'access.log', 10, String);
  bar.advance(5, 1);
  bar.end();
  expect(stderr.read()).toBeNull();
});
