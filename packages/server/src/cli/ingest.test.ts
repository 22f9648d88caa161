import { readdirSync, readlinkSync, writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { expect, onTestFinished, test } from 'vitest';
import { runProgram } from './program.ts';

const NOW = Date.now();
const LINE = JSON.stringify({ time: NOW, host: 'shop.example' }).padEnd(999);

function isLinkTo(link: string, path: string): boolean {
  try {
    return readlinkSync(link) === path;
  } catch {
    return false;
  }
}

async function run(argv: string[], now = () => NOW) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const stop = new AbortController().signal;
  const status = await runProgram(argv, { stdin: Readable.from([]), stdout, stderr, env: {}, now, stop });
  stdout.end();
  stderr.end();
  return { status, out: await text(stdout), err: await text(stderr) };
}

test('ingest warns once if a file is truncated and written again while it is read', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'wafstat-'));
  onTestFinished(() => rm(directory, { recursive: true }));
  const data = ['--data', join(directory, 'data')];
  expect((await run(['init', ...data, '--json'])).status).toBe(0);
  expect((await run(['project', 'add', 'shop', ...data])).status).toBe(0);

  const file = join(directory, 'access.log');
  writeFileSync(file, `old ${LINE}\n`.repeat(20_000));
  // The clock is read before the file is opened and while it is read.
  const isOpen = () => readdirSync('/proc/self/fd').some((fd) => isLinkTo(join('/proc/self/fd', fd), file));
  let isChanged = false;
  const now = () => {
    if (!isChanged && isOpen()) {
      writeFileSync(file, `${LINE}\n`.repeat(3));
      isChanged = true;
    }
    return NOW;
  };
  const options = [...data, '--project', 'shop', '--format', 'events'];
  const { status, out, err } = await run(['ingest', ...options, file], now);
  expect(err.split('\n').filter((line) => line.startsWith('wafstat:'))).toEqual([
    `wafstat: ${file}: the file was truncated or overwritten while it was read: ` +
      'lines that were not read before are lost, unless you ingest a copy',
  ]);
  expect(out).toMatch(/^accepted +3$/m);
  expect(status).toBe(0);
});
