import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { runProgram } from './program.ts';

let directory: string;

async function run(...argv: string[]): Promise<string> {
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
  const data = ['--data', join(directory, 'data')];
  const stop = new AbortController().signal;
  const status = await runProgram([...argv, ...data], {
    stdin,
    stdout,
    stderr,
    env: {},
    now: Date.now,
    stop,
  });
  expect(status).toBe(0);
  return String(stderr.read() ?? '');
}

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'wafstat-identity-'));
  expect(await run('init')).toBe('');
});

afterAll(() => rm(directory, { recursive: true }));

test('commands that leave a domain without an administrator say so, and how to add one', async () => {
  const warning = /^wafstat: the domain default no longer has an administrator: .*'wafstat user add NAME/;
  expect(await run('user', 'add', 'second', '--role', 'admin')).toBe('');
  expect(await run('user', 'add', 'reader')).toBe('');
  expect(await run('user', 'disable', 'admin')).toBe('');
  expect(await run('user', 'revoke', 'second', '--role', 'admin')).toMatch(warning);
  // It had none before.
  expect(await run('user', 'delete', 'reader')).toBe('');
  expect(await run('user', 'enable', 'admin')).toBe('');
  expect(await run('user', 'disable', 'admin')).toMatch(warning);
  expect(await run('user', 'enable', 'admin')).toBe('');
  expect(await run('user', 'delete', 'admin')).toMatch(warning);
});
