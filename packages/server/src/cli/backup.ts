import { randomBytes } from 'node:crypto';
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
import { basename, dirname, join, resolve } from 'node:path';
import { open } from 'lmdb';
import { walkPages } from '../store/lmdb/verify.ts';
import { command, printLine, UserError } from './command.ts';
import {
  identityFile,
  isInitialised,
  MASTER_KEY_VARIABLE,
  masterKeyFile,
  statisticsFile,
} from './data-folder.ts';
import { sentenceOf, verifyFolder } from './verify.ts';

export const backupCommand = command({
  name: 'backup',
  about:
    'copy the data folder, also while the server runs, and verify the copy; to restore, start the server on the copy',
  settings: ['data', 'backupTo', 'json'],
  required: ['data', 'backupTo'],
  async run({ data, backupTo, json }, _operands, io) {
    if (!isInitialised(data)) throw new UserError(`${data} is not a wafstat data folder`);
    const target = resolve(backupTo);
    if (existsSync(target) && (!statSync(target).isDirectory() || readdirSync(target).length > 0)) {
      throw new UserError(`--to ${backupTo} is not empty: name a folder that does not exist yet`);
    }
    // Under a temporary name until verified, so that an interrupted backup is not mistaken for a complete one.
    const unfinished = join(
      dirname(target),
      `${basename(target)}.unfinished-${randomBytes(4).toString('hex')}`,
    );
    mkdirSync(unfinished, { recursive: true, mode: 0o700 });
    try {
      await copyFolder(data, unfinished);
      const report = await verifyFolder(unfinished, io);
      const [first] = report.findings;
      if (first) {
        throw new UserError(
          `no backup was made, because the copy is damaged: ${sentenceOf(first)}. ` +
            `Run 'wafstat verify --data ${data}' to see whether the data folder is, too`,
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
      // Replaces an empty folder.
      renameSync(unfinished, target);
      sync(dirname(target));
      const result = { to: target, bytes, records: report.records };
      if (json) printLine(io.stdout, JSON.stringify(result));
      else printLine(io.stdout, `backed up to ${target}: ${bytes} bytes, ${report.records} records verified`);
      if (!existsSync(masterKeyFile(data))) {
        printLine(io.stderr, `wafstat: the backup has no master key: keep ${MASTER_KEY_VARIABLE} with it`);
      }
      return 0;
    } finally {
      rmSync(unfinished, { recursive: true, force: true });
    }
  },
});

/** Statistics first: then every project that they count for is in the identity file, too. */
async function copyFolder(from: string, to: string): Promise<void> {
  for (const file of [statisticsFile(from), identityFile(from)]) {
    if (existsSync(file)) await copyDataFile(file, join(to, basename(file)));
  }
  for (const name of readdirSync(from)) {
    if (/\.mdb|\.unfinished/.test(name) || !lstatSync(join(from, name)).isFile()) continue;
    copyFileSync(join(from, name), join(to, name));
  }
}

/** One snapshot, without the pages that are free. */
export async function copyDataFile(from: string, to: string): Promise<void> {
  const [problem] = (await walkPages(from)).problems;
  // LMDB does not survive a copy of damaged pages.
  if (problem) {
    throw new UserError(
      `${from} is damaged: page ${problem.page} ${problem.problem}. Restore it from a backup`,
    );
  }
  const root = open({ path: from, noSubdir: true, maxDbs: 16, overlappingSync: false, readOnly: true });
  try {
    await root.backup(to, true);
  } finally {
    await root.close();
  }
  chmodSync(to, 0o600);
}

export function sync(path: string): void {
  const fd = openSync(path, 'r');
  fsyncSync(fd);
  closeSync(fd);
}
