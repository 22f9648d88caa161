/** File modes: data files are readable by their owner only. */
import { chmodSync, closeSync, lstatSync, openSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

const FILE_MODE = 0o600;
const FOLDER_MODE = 0o700;

/**
 * LMDB creates its files with the modes of the umask. It takes empty ones as new. Files that exist are not opened: to
 * close a lock file would release the locks that LMDB has on it in this process.
 */
export function createPrivateFiles(path: string): void {
  for (const file of [path, `${path}-lock`]) {
    try {
      closeSync(openSync(file, 'wx', FILE_MODE));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
}

/** Files of a data folder. Others that somebody put beside them are left alone. */
const OWN_FILE = /^(?:(?:identity|statistics)\.mdb(?:-lock)?|master\.key|audit.*)$/;

/** Takes away what others may do with the folder and its files. Answers a sentence for each that was changed. */
export function tightenModes(folder: string): string[] {
  const names = readdirSync(folder).filter((name) => OWN_FILE.test(name));
  return [folder, ...names.map((name) => join(folder, name))].flatMap((path) => tighten(path));
}

function tighten(path: string): string[] {
  const { mode, uid } = lstatSync(path);
  const kind = mode & 0o170000;
  const wanted = kind === 0o040000 ? FOLDER_MODE : kind === 0o100000 ? FILE_MODE : null;
  // A folder with the sticky bit, like /tmp, is not ours alone.
  if (wanted === null || (mode & 0o077) === 0 || (mode & 0o1000) !== 0) return [];
  const was = (mode & 0o777).toString(8);
  if (uid !== process.getuid?.())
    return [`${path} has mode ${was} and belongs to another user: others may read it`];
  chmodSync(path, wanted);
  return [`changed the mode of ${path} from ${was} to ${wanted.toString(8)}`];
}
