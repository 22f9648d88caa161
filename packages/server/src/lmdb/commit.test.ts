import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from 'vitest';
import { CommitFailed, Committer } from './commit.ts';
import { openLmdb } from './files.ts';

let directory: string;
let path: string;
let holder: ChildProcess | null = null;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'wafstat-commit-'));
  path = join(directory, 'file.mdb');
});
afterEach(() => {
  holder?.kill('SIGKILL');
  holder = null;
  rmSync(directory, { recursive: true, force: true });
});

/** The default wait is long enough for a busy machine. */
function openCounter(options: { lockWaitMsMax?: number } = {}) {
  const { root, table, checkPath } = openLmdb(path);
  const counts = table<number, string>('counts', { encoding: 'json' });
  const count = (name: string) => {
    counts.putSync(name, (counts.get(name) ?? 0) + 1);
    return counts.get(name);
  };
  const committer = new Committer({
    path,
    root: () => root,
    checkPath,
    reopen: async () => {},
    probe: () => counts.putSync('probe', 0),
    ...options,
  });
  return { counts, count, committer };
}

/** Another process that holds the write lock until it is released. */
async function holdLock(): Promise<{ release(): Promise<void> }> {
  const program = `
    import { open } from 'lmdb';
    import { readSync, writeSync } from 'node:fs';
    const root = open({ path: ${JSON.stringify(path)}, noSubdir: true, maxDbs: 16, overlappingSync: false });
    root.transactionSync(() => { writeSync(1, 'locked'); readSync(0, Buffer.alloc(1)); });
  `;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
    cwd: import.meta.dirname,
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  holder = child;
  await once(child.stdout, 'data');
  return {
    async release() {
      child.stdin.end('x');
      await once(child, 'exit');
    },
  };
}

test('concurrent changes are all made, and one that fails does not affect the others', async () => {
  const { count, counts, committer } = openCounter();
  const failing = committer.run(() => {
    count('a');
    throw new Error('no');
  });
  const all = [committer.run(() => count('a')), failing, committer.run(() => count('a'))];
  expect((await Promise.allSettled(all)).map(({ status }) => status)).toEqual([
    'fulfilled',
    'rejected',
    'fulfilled',
  ]);
  expect(counts.get('a')).toBe(2);
  await committer.check();
  await committer.close();
});

test('a change that was rejected because it waited too long for the lock is never made', async () => {
  const { count, counts, committer } = openCounter({ lockWaitMsMax: 500 });
  await committer.run(() => count('a'));
  const other = await holdLock();
  const refused = await Promise.allSettled([
    committer.run(() => count('a')),
    committer.run(() => count('a')),
  ]);
  for (const result of refused) {
    expect(result).toMatchObject({ reason: { trouble: 'another process holds the write lock' } });
  }
  await expect(committer.check()).rejects.toBeInstanceOf(CommitFailed);
  expect(counts.get('a')).toBe(1);

  // Waits after the rejected ones, and is made once.
  await other.release();
  await expect.poll(() => committer.run(() => count('b')).catch(() => null)).toBe(1);
  expect(counts.get('a')).toBe(1);
  await committer.check();
  await committer.close();
});

test('a process that was itself stopped does not blame another', async () => {
  const { count, committer } = openCounter({ lockWaitMsMax: 500 });
  const change = committer.run(() => count('a'));
  // Longer than the wait: to the timers, this is what a stopped process looks like.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_000);
  expect(await change).toBe(1);
  await committer.close();
});

test('after MDB_PANIC the file is reopened, and the outcome is reported as unknown', async () => {
  const lmdbError = (message: string, code: number) => Object.assign(new Error(message), { code });
  // How lmdb-js behaves if it cannot write the header of the file.
  const broken = {
    async childTransaction() {
      const commitError = Promise.reject(lmdbError('Input/output error', 5));
      throw Object.assign(new Error('Commit failed'), { commitError });
    },
    resetReadTxn() {},
    get() {
      throw lmdbError('Invalid argument: MDB_PANIC', 22);
    },
  };
  const { root, checkPath } = openLmdb(path);
  // Only these methods are called.
  let current = broken as unknown as typeof root;
  const committer = new Committer({
    path,
    root: () => current,
    checkPath,
    async reopen() {
      current = root;
    },
    probe: () => {},
  });
  // The clock stands still until the test sets it: a machine may pause for longer than the second.
  vi.useFakeTimers({ toFake: ['performance'] });
  onTestFinished(() => {
    vi.useRealTimers();
  });
  await expect(committer.run(() => 1)).rejects.toMatchObject({
    outcomeUnknown: true,
    message: expect.stringContaining('whether the change was made is unknown'),
  });
  // Rejected for a second, without another attempt.
  await expect(committer.run(() => 1)).rejects.toMatchObject({ outcomeUnknown: false });
  await expect(committer.check()).rejects.toBeInstanceOf(CommitFailed);
  vi.advanceTimersByTime(1_000);
  await committer.check();
  expect(await committer.run(() => 1)).toBe(1);
  await committer.close();
});

test('opening and closing an existing file needs no lock', async () => {
  const first = openCounter();
  await first.committer.run(() => first.count('a'));
  await first.committer.close();
  const other = await holdLock();
  const second = openCounter();
  expect(second.counts.get('a')).toBe(1);
  await second.committer.close();
  await other.release();
});

test('a process that waited for the lock while the file was replaced changes nothing', async () => {
  const { count, committer } = openCounter();
  await committer.run(() => count('a'));
  const other = await holdLock();
  const change = committer.run(() => count('a'));
  change.catch(() => {});
  // What compact does, with the lock.
  copyFileSync(path, `${path}.compact`);
  renameSync(`${path}.compact`, path);
  rmSync(`${path}-lock`);
  await other.release();
  await expect(change).rejects.toMatchObject({
    trouble: 'a file of the data directory was deleted or replaced',
  });
  await expect(committer.check()).rejects.toBeInstanceOf(CommitFailed);
  await committer.close();
});
