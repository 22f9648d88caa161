import { execFileSync } from 'node:child_process';
import { closeSync, constants, createReadStream, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { LogStream } from './log-stream.ts';

let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-log-'));
});

afterEach(() => rmSync(directory, { recursive: true }));

test('lines arrive complete and in order', async () => {
  const path = join(directory, 'log');
  const fd = openSync(path, 'w');
  const log = new LogStream(fd, () => 0);
  const lines = Array.from({ length: 10_000 }, (_, i) => `{"line":${i},"text":"${'x'.repeat(i % 300)}"}`);
  for (const line of lines) log.writeAccess(`${line}\n`);
  await log.flush();
  expect(readFileSync(path, 'utf8').trimEnd().split('\n')).toEqual(lines);
  closeSync(fd);
});

test('if the reader stalls, access lines are dropped and counted, and warnings are kept', async () => {
  const path = join(directory, 'pipe');
  execFileSync('mkfifo', [path]);
  // Opened for reading too, so that there is a reader that does not read yet.
  const fd = openSync(path, constants.O_RDWR);
  const log = new LogStream(fd, () => 0);
  const line = `{"level":30,"text":"${'x'.repeat(1_000)}"}\n`;
  const accessLines = 10_000;
  for (let i = 0; i < accessLines; i++) {
    log.writeAccess(line);
    if (i % 1_000 === 0) {
      log.lastLevel = 50;
      log.write(`{"level":50,"error":${i}}\n`);
    }
  }
  let [received, dropped, errors] = [0, 0, 0];
  for await (const text of createInterface({ input: createReadStream(path) })) {
    const { level, msg, error } = JSON.parse(text);
    if (level === 30) received++;
    if (error !== undefined) errors++;
    if (msg !== undefined) {
      dropped += Number(/dropped (\d+) log lines/.exec(msg)?.[1]);
      if (received + dropped === accessLines) break;
    }
  }
  expect(errors).toBe(10);
  expect(dropped).toBeGreaterThan(0);
  expect(received).toBeGreaterThan(3_000);
  expect(received + dropped).toBe(accessLines);
  closeSync(fd);
});
