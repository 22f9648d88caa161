// Makes a checkout ready to run: installs what the lock file says if that has not been done, and builds.
import { execFileSync } from 'node:child_process';
import { existsSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));

/** npm writes the second file when it has installed what the first one says. */
function isInstalled() {
  const [wanted, installed] = ['package-lock.json', 'node_modules/.package-lock.json'];
  return (
    existsSync(`${root}/${installed}`) &&
    statSync(`${root}/${installed}`).mtimeMs >= statSync(`${root}/${wanted}`).mtimeMs
  );
}

function run(command, ...args) {
  execFileSync(command, args, { cwd: root, stdio: ['ignore', 'inherit', 'inherit'] });
}

try {
  if (!isInstalled()) run('npm', 'ci', '--loglevel=error');
  run('node_modules/.bin/tsc', '-b');
} catch (error) {
  console.error(`setup failed: ${error.message}`);
  process.exit(1);
}
