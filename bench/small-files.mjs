/** The processor time that `ingest` takes per small file, of 200 and of 2,000 of them: it must not grow with their number. */
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

const PROGRAM = new URL('../packages/server/bin/wafstat.js', import.meta.url).pathname;
const directory = mkdtempSync(join(tmpdir(), 'small-files-'));
const data = join(directory, 'data');

/** Returns user and system time in ms. */
function wafstat(...args) {
  // The shell waits for the program, so that its time is that of a child.
  const { status, stderr } = spawnSync(
    'bash',
    ['-c', 'TIMEFORMAT="%U %S"; time "$0" "$@" > /dev/null', process.execPath, PROGRAM, ...args],
    { encoding: 'utf8' },
  );
  if (status !== 0) throw new Error(stderr);
  const [user, system] = stderr.trim().split('\n').at(-1).split(' ').map(Number);
  return (user + system) * 1_000;
}

function fill(name, count) {
  const path = join(directory, name);
  mkdirSync(path);
  for (let i = 0; i < count; i++) {
    const line = JSON.stringify({ time: Date.now() - i, host: 'a.example', line: `${name} ${i}` });
    writeFileSync(join(path, `${i}.log.gz`), gzipSync(`${line}\n`));
  }
  return path;
}

try {
  wafstat('init', '--data', data, '--project', 'p');
  const ingest = (path) => wafstat('ingest', '--data', data, '--project', 'p', '--source', path, path);
  const start = ingest(fill('one', 1));
  const perFile = [200, 2_000].map((count) => {
    const path = fill(`files-${count}`, count);
    const [first, again] = [ingest(path), ingest(path)].map((ms) => (ms - start) / count);
    console.log(`${count} files: ${first.toFixed(2)} ms per file, ${again.toFixed(2)} ms to read it again`);
    return first;
  });
  console.log(`2,000 files against 200, per file: ${(perFile[1] / perFile[0]).toFixed(2)}`);
} finally {
  rmSync(directory, { recursive: true });
}
