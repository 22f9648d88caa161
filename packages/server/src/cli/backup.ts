/** `backup` and `compact`: copies of the data files. */
import { hash } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { hostname } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import type { RootDatabase } from 'lmdb';
import { AUDIT_FILE } from '../audit/audit-file.ts';
import { DIRECTORY } from '../config.ts';
import { commitSync, openLmdb, openReadOnly, processesWith } from '../lmdb/files.ts';
import { lastTransaction } from '../lmdb/pages.ts';
import { inspectStatistics } from '../store/lmdb/schema.ts';
import { walkPages } from '../store/lmdb/verify.ts';
import { closing, command, printResult, UserError, warn } from './command.ts';
import {
  fileExists,
  identityFile,
  isInitialised,
  MASTER_KEY_VARIABLE,
  masterKeyFile,
  requireDirectory,
  statisticsFile,
} from './data-directory.ts';
import { describeFinding, verifyDirectory } from './maintenance.ts';
import { JSON_OUTPUT, option, required, text } from './options.ts';

export const backupCommand = command({
  examples: ['wafstat backup --data ./data --to /backup/wafstat-2026-07-01'],
  options: {
    data: DIRECTORY,
    to: required(option('--to <dir>', 'directory for the backup; must be empty or not exist', text)),
    json: JSON_OUTPUT,
  },
  async run({ to, json, ...given }, _operands, io) {
    const data = requireDirectory(given.data, io);
    if (!isInitialised(data)) throw new UserError(`${data} is not a wafstat data directory`);
    const target = resolve(to);
    if (`${target}/`.startsWith(`${resolve(data)}/`))
      throw new UserError(`--to ${to} is inside the data directory: use a directory outside of it`);
    if (existsSync(target) && (!statSync(target).isDirectory() || readdirSync(target).length > 0)) {
      throw new UserError(`--to ${to} is not empty: use an empty or new directory`);
    }
    // Renamed after verification, so that an interrupted backup is not mistaken for a complete one.
    const unfinished = `${target}${unfinishedSuffix(process.pid)}`;
    removeLeftovers(dirname(target));
    mkdirSync(unfinished, { recursive: true, mode: 0o700 });
    try {
      await copyDirectory(data, unfinished);
      const report = await verifyDirectory(unfinished, io);
      const [first] = report.findings;
      if (first) {
        throw new UserError(
          `no backup was created, because the copy is damaged: ${describeFinding(first)}. ` +
            `Run 'wafstat verify --data ${data}' to check the data directory`,
        );
      }
      for (const name of readdirSync(unfinished)) if (name.endsWith('-lock')) rmSync(join(unfinished, name));
      const files = readdirSync(unfinished).map((name) => join(unfinished, name));
      for (const file of files) {
        chmodSync(file, 0o600);
        sync(file);
      }
      const bytes = files.reduce((sum, file) => sum + statSync(file).size, 0);
      sync(unfinished);
      // Replaces an empty directory.
      renameSync(unfinished, target);
      sync(dirname(target));
      const { records } = report;
      const message = `backed up to ${target}: ${bytes} bytes, ${records} records verified`;
      printResult(io, json, { to: target, bytes, records }, message);
      if (!existsSync(masterKeyFile(data))) {
        warn(io, `the backup does not contain the master key: keep ${MASTER_KEY_VARIABLE}, too`);
      }
      return 0;
    } finally {
      rmSync(unfinished, { recursive: true, force: true });
    }
  },
});

export const compactCommand = command({
  options: { data: DIRECTORY, json: JSON_OUTPUT },
  async run({ json, ...given }, _operands, io) {
    const data = requireDirectory(given.data, io);
    const file = statisticsFile(data);
    if (!fileExists(file)) throw new UserError(`${file} does not exist`);
    if (await isInUse(file)) throw inUse(file);
    await checkPages(file);
    await inspectStatistics(file);
    // Open from here on: what is copied and what is replaced is the same file.
    const opened = openLmdb(file);
    const before = statSync(file);
    removeLeftovers(data);
    const copy = `${file}${unfinishedSuffix(process.pid)}`;
    try {
      const transaction = lastTransaction(file);
      await opened.root.backup(copy, true);
      chmodSync(copy, 0o600);
      const [problem] = (await walkPages(copy)).problems;
      if (problem) {
        throw new UserError(
          `the compacted copy is damaged (${problem.key} ${problem.problem}); nothing was changed`,
        );
      }
      sync(copy);
      // With the write lock: a process that opens the file meanwhile changes nothing until it sees that it is another one.
      commitSync(opened, () => {
        const isUsed = processesWith(before).length > 0 || hasOtherReaders(opened.root);
        if (isUsed || lastTransaction(file) !== transaction) throw inUse(file);
        renameSync(copy, file);
        rmSync(`${file}-lock`);
      });
    } finally {
      for (const path of [copy, `${copy}-lock`]) rmSync(path, { force: true });
      await opened.root.close();
    }
    sync(dirname(file));
    const after = statSync(file).size;
    return printResult(
      io,
      json,
      { bytes_before: before.size, bytes_after: after },
      `compacted ${file}: ${before.size} bytes before, ${after} bytes after`,
    );
  },
});

/** Names the machine and the process, so that the leftovers of a killed `backup` or `compact` are known. */
export function unfinishedSuffix(pid: number): string {
  return `.unfinished-${hash('sha256', hostname()).slice(0, 8)}-${pid}`;
}

/** Removes the copies of commands that were killed. Those of other machines, or containers, may still be written. */
export function removeLeftovers(directory: string): void {
  for (const name of existsSync(directory) ? readdirSync(directory) : []) {
    const pid = Number(/\.unfinished-[0-9a-f]{8}-(\d{1,10})(?:-lock)?$/.exec(name)?.[1]);
    // This process has not begun its own yet.
    if (
      !name.replace(/-lock$/, '').endsWith(unfinishedSuffix(pid)) ||
      (pid !== process.pid && isRunning(pid))
    )
      continue;
    rmSync(join(directory, name), { recursive: true });
  }
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
}

/** Statistics first, so that the identity file has every project in them. */
async function copyDirectory(from: string, to: string): Promise<void> {
  for (const file of [statisticsFile(from), identityFile(from)]) {
    if (!fileExists(file)) continue;
    await checkPages(file);
    await copyDataFile(file, join(to, basename(file)));
  }
  copyOtherFiles(from, to);
}

/**
 * The audit trail may be rotated meanwhile. So its newest file is copied last, and again if there are new files after that.
 * Tests replace `list`.
 */
export function copyOtherFiles(from: string, to: string, list = () => readdirSync(from)): void {
  const copied = new Set<string>();
  for (;;) {
    const isNew = (name: string) => !copied.has(name) && !/\.mdb|\.unfinished/.test(name);
    const names = list().filter(isNew);
    if (names.length === 0) return;
    for (const name of [...names.filter((each) => each !== AUDIT_FILE), AUDIT_FILE]) {
      copied.add(name);
      // It may be an archive by now, which is copied with the other files.
      if (name === AUDIT_FILE) rmSync(join(to, name), { force: true });
      copyIfFile(join(from, name), join(to, name));
    }
  }
}

function copyIfFile(from: string, to: string): void {
  try {
    if (lstatSync(from).isFile()) copyFileSync(from, to);
  } catch (error) {
    // Rotated or deleted since it was listed.
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

/** LMDB crashes when it copies damaged pages. */
async function checkPages(file: string): Promise<void> {
  const [problem] = (await walkPages(file)).problems;
  if (problem)
    throw new UserError(`${file} is damaged: ${problem.key} ${problem.problem}. Restore it from a backup`);
}

/** Copies one snapshot, without free pages. */
async function copyDataFile(from: string, to: string): Promise<void> {
  await closing(openReadOnly(from).root, (root) => root.backup(to, true));
  chmodSync(to, 0o600);
}

function sync(path: string): void {
  const fd = openSync(path, 'r');
  try {
    fsyncSync(fd);
  } finally {
    closeSync(fd);
  }
}

function inUse(file: string): UserError {
  return new UserError(
    `${file} is in use: stop the server and all other wafstat commands on it, then run this again`,
  );
}

/** Whether another process has the file open. Processes first: a stopped one may hold the lock of LMDB's table of readers. */
export async function isInUse(file: string): Promise<boolean> {
  if (processesWith(statSync(file)).length > 0) return true;
  return closing(openReadOnly(file).root, hasOtherReaders);
}

/** Includes processes in other containers. */
function hasOtherReaders(root: RootDatabase): boolean {
  root.readerCheck();
  const pids = [...root.readerList().matchAll(/^\s*(\d+)\s/gm)].map(([, pid]) => pid);
  return pids.some((pid) => pid !== String(process.pid));
}
