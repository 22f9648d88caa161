import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { CommitFailed, Committer } from './commit.ts';
import { openLmdb } from './open.ts';

let folder: string;
let path: string;
let holder: ChildProcess | null = null;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'wafstat-commit-'));
  path = join(folder, 'file.mdb');
});
afterEach(() => {
  holder?.kill('SIGKILL');
  holder = null;
  rmSync(folder, { recursive: true, force: true });
});

function openCounter() {
  const { root, table } = openLmdb(path);
  const counts = table<number, string>('counts', { encoding: 'json' });
  const count = (name: string) => {
    counts.putSync(name, (counts.get(name) ?? 0) + 1);
    return counts.get(name);
  };
  const committer = new Committer({
    path,
    root: () => root,
    reopen: async () => {},
    probe: () => counts.putSync('probe', 0),
    lockWaitMsMax: 50,
  });
  return { counts, count, committer };
}

/** Another process, in the middle of a transaction until it is told to go on. */
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

test('changes that come together are all made, and one that fails takes none with it', async () => {
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

test('a change that is refused because it waited too long for the lock is never made', async () => {
  const { count, counts, committer } = openCounter();
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

  // Waits behind the refused ones, and is made once.
  await other.release();
  await expect.poll(() => committer.run(() => count('b')).catch(() => null)).toBe(1);
  expect(counts.get('a')).toBe(1);
  await committer.check();
  await committer.close();
});

test('a file that LMDB has given up on is opened again, and the outcome is said to be unknown', async () => {
  const lmdbError = (message: string, code: number) => Object.assign(new Error(message), { code });
  // As lmdb-js behaves when the header of the file cannot be written.
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
  const { root } = openLmdb(path);
  // Only these methods are called.
  let current = broken as unknown as typeof root;
  const committer = new Committer({
    path,
    root: () => current,
    async reopen() {
      current = root;
    },
    probe: () => {},
  });
  await expect(committer.run(() => 1)).rejects.toMatchObject({
    outcomeUnknown: true,
    message: expect.stringContaining('whether the change was made is unknown'),
  });
  // Refused for a second, without another attempt.
  await expect(committer.run(() => 1)).rejects.toMatchObject({ outcomeUnknown: false });
  await expect.poll(() => committer.check().then(() => 'works'), { timeout: 5_000 }).toBe('works');
  expect(await committer.run(() => 1)).toBe(1);
  await committer.close();
});

test('opening and closing need no lock, once the file is there', async () => {
  const first = openCounter();
  await first.committer.run(() => first.count('a'));
  await first.committer.close();
  const other = await holdLock();
  const second = openCounter();
  expect(second.counts.get('a')).toBe(1);
  await second.committer.close();
  await other.release();
});
