// Makes a checkout ready to run: installs what the lock file says if that has not been done, and builds the programs
// and the console.
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, statSync } from 'node:fs';
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

/** Built later than anything that it is built from. */
function isConsoleBuilt() {
  const built = `${root}/packages/server/dist/web/index.html`;
  if (!existsSync(built)) return false;
  const sources = ['packages/console', 'packages/client/src'].flatMap((folder) =>
    readdirSync(`${root}/${folder}`, { recursive: true }).map((name) => `${folder}/${name}`),
  );
  const newest = ['package-lock.json', ...sources].map((name) => statSync(`${root}/${name}`).mtimeMs);
  return statSync(built).mtimeMs >= Math.max(...newest);
}

function run(command, ...args) {
  execFileSync(command, args, { cwd: root, stdio: ['ignore', 'inherit', 'inherit'] });
}

try {
  if (!isInstalled()) run('npm', 'ci', '--loglevel=error');
  run('node_modules/.bin/tsc', '-b');
  if (!isConsoleBuilt()) run('node_modules/.bin/vite', 'build', 'packages/console', '--logLevel', 'warn');
} catch (error) {
  console.error(`setup failed: ${error.message}`);
  process.exit(1);
}
