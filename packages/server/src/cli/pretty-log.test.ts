import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import { logFormatter } from './pretty-log.ts';

const TIME = new Date(2026, 6, 1, 14, 3, 7).getTime();
const terminal = (isTTY: boolean, env = {}) => ({ stderr: Object.assign(new PassThrough(), { isTTY }), env });
const json = (fields: object) =>
  `${JSON.stringify({ level: 40, time: TIME, pid: 1, hostname: 'vm', ...fields })}\n`;

test('on a terminal, lines are for people', () => {
  const { isPretty, format } = logFormatter(undefined, terminal(true, { NO_COLOR: '1' }));
  expect(isPretty).toBe(true);
  expect(format(json({ msg: 'the disk is full' }))).toBe('14:03:07 warn the disk is full\n');
  expect(
    format(json({ level: 50, msg: 'it broke', err: { message: 'no', stack: 'Error: no\n  at x' } })),
  ).toBe('14:03:07 error it broke\nError: no\n  at x\n');
  expect(format(json({ level: 50, msg: 'request failed', reqId: 'a1', err: { type: 'string' } }))).toBe(
    '14:03:07 error request failed (request a1)\n',
  );
  const audit = { user: 'admin', action: 'user.add', object: { type: 'user', name: 'ann' }, outcome: 'done' };
  expect(format(json({ level: 30, audit, msg: 'audit' }))).toBe(
    '14:03:07 info audit: admin: user.add user ann (done)\n',
  );
  expect(format(json({ msg: 'a name \u001b[2J from a request\n' }))).toBe(
    '14:03:07 warn a name \\u001b[2J from a request\\u000a\n',
  );
});

test('levels have colors if the terminal allows them', () => {
  expect(logFormatter(undefined, terminal(true)).format(json({ msg: 'x' }))).toContain(
    '\u001b[33mwarn\u001b[39m',
  );
  expect(logFormatter('pretty', terminal(false)).format(json({ msg: 'x' }))).toBe('14:03:07 warn x\n');
});

test('elsewhere, and on request, lines stay JSON', () => {
  const line = json({ msg: 'the disk is full' });
  expect(logFormatter(undefined, terminal(false))).toMatchObject({ isPretty: false });
  expect(logFormatter(undefined, terminal(false)).format(line)).toBe(line);
  expect(logFormatter('json', terminal(true)).format(line)).toBe(line);
});
