import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { expect, onTestFinished, test } from 'vitest';
import { runProgram } from './program.ts';

test('the first password is in its file before there is an installation: a crash does not lose it', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'wafstat-serve-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  const [data, file] = [join(directory, 'data'), join(directory, 'password')];
  const before = new Set<string>();
  const now = () => {
    if (existsSync(file) && !existsSync(join(data, 'identity.mdb'))) before.add(readFileSync(file, 'utf8'));
    return Date.now();
  };
  const stopping = new AbortController();
  const [stdin, stdout, stderr] = [new PassThrough(), new PassThrough(), new PassThrough()];
  stdout.on('data', (text) => String(text).includes('listens on') && stopping.abort());
  const options = ['--data', data, '--listen', '127.0.0.1:0', '--initial-password-file', file];
  const status = await runProgram(['serve', ...options], {
    stdin,
    stdout,
    stderr,
    env: {},
    now,
    stop: stopping.signal,
  });
  expect(status).toBe(0);
  expect([...before]).toEqual([expect.stringMatching(/^\S{8,}\n$/)]);
  expect(readFileSync(file, 'utf8')).toBe([...before][0]);
});
