import { existsSync, readdirSync, readlinkSync, renameSync, rmSync, type Stats, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { open } from 'lmdb';
import { lastTransaction } from '../lmdb/pages.ts';
import { walkPages } from '../store/lmdb/verify.ts';
import { copyDataFile, sync } from './backup.ts';
import { command, printLine, UserError } from './command.ts';
import { interruptedCompaction, statisticsFile } from './data-folder.ts';

export const compactCommand = command({
  name: 'compact',
  about:
    'return free space in the statistics file to the file system; stop the server and all other commands first',
  settings: ['data', 'json'],
  required: ['data'],
  async run({ data, json }, _operands, io) {
    const file = statisticsFile(data);
    if (!existsSync(file)) throw new UserError(`${file} does not exist`);
    const before = statSync(file);
    await refuseInUse(file, before);
    const copy = `${file}.compact`;
    const aside = interruptedCompaction(file);
    rmSync(copy, { force: true });
    const transaction = lastTransaction(file);
    await copyDataFile(file, copy);
    const [problem] = (await walkPages(copy)).problems;
    rmSync(`${copy}-lock`, { force: true });
    if (problem) {
      rmSync(copy);
      throw new UserError(
        `the compacted copy is damaged (page ${problem.page} ${problem.problem}); nothing was changed`,
      );
    }
    sync(copy);
    // From here on no process can open the file. One that opened or changed it earlier is detected before the replacement.
    renameSync(file, aside);
    try {
      if (lastTransaction(aside) !== transaction || processesWith(before).length > 0) throw inUse(file);
    } catch (error) {
      renameSync(aside, file);
      rmSync(copy);
      throw error;
    }
    rmSync(`${file}-lock`, { force: true });
    renameSync(copy, file);
    sync(dirname(file));
    rmSync(aside);
    const after = statSync(file).size;
    if (json) printLine(io.stdout, JSON.stringify({ bytes_before: before.size, bytes_after: after }));
    else printLine(io.stdout, `compacted ${file}: ${before.size} bytes before, ${after} bytes after`);
    return 0;
  },
});

/** A process that goes on writing to the old file would lose what it writes. */
async function refuseInUse(file: string, stats: Stats): Promise<void> {
  if (processesWith(stats).length > 0 || (await readers(file)).length > 0) throw inUse(file);
}

function inUse(file: string): UserError {
  return new UserError(
    `${file} is in use: stop the server and all other wafstat commands on it, then compact it`,
  );
}

/** Other processes in LMDB's own table of readers: it also knows those in other containers. */
async function readers(file: string): Promise<string[]> {
  const root = open({ path: file, noSubdir: true, maxDbs: 16, overlappingSync: false, readOnly: true });
  try {
    root.readerCheck();
    const pids = root.readerList().matchAll(/^\s*(\d+)\s/gm);
    return [...pids].map(([, pid]) => pid ?? '').filter((pid) => pid !== String(process.pid));
  } finally {
    await root.close();
  }
}

/** Other processes of this machine that have the file open, as far as we may see. */
function processesWith({ dev, ino }: Stats): string[] {
  const isOther = (name: string) => /^\d+$/.test(name) && name !== String(process.pid);
  return list('/proc')
    .filter(isOther)
    .filter((pid) => {
      const folder = join('/proc', pid, 'fd');
      return list(folder).some((fd) => {
        try {
          if (!readlinkSync(join(folder, fd)).startsWith('/')) return false;
          const found = statSync(join(folder, fd));
          return found.dev === dev && found.ino === ino;
        } catch {
          return false;
        }
      });
    });
}

/** Empty if the folder is unreadable or the process has ended. */
function list(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
