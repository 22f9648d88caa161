// Makes a checkout ready to run: installs dependencies, builds the packages and the console. Skips finished steps.
// `--clean` builds everything again: without it, what was compiled from a deleted source stays in dist.
import { execFile } from 'node:child_process';
import { existsSync, readdirSync, rmSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
/** What is compiled, with the incremental state of the compiler. */
const COMPILED = ['signer', 'client', 'server'].map((name) => `${root}/packages/${name}/dist`);
const CHECKED = ['console-types', 'test-types'].map((name) => `${root}/.cache/${name}`);

/** npm writes the second file when it has installed what the first one lists. */
function isInstalled() {
  const [wanted, installed] = ['package-lock.json', 'node_modules/.package-lock.json'];
  return (
    existsSync(`${root}/${installed}`) &&
    statSync(`${root}/${installed}`).mtimeMs >= statSync(`${root}/${wanted}`).mtimeMs
  );
}

/** The bundle is newer than what it is made of. bin/wafstat.js does not run an older one. */
function isBundled() {
  const bundle = `${root}/packages/server/dist/bundle/main.js`;
  const compiled = COMPILED.map((directory) => `${directory}/.tsbuildinfo`);
  const scripts = ['bundle.mjs', 'bundle-loader.cjs', 'code-cache.cjs'].map(
    (name) => `${root}/scripts/${name}`,
  );
  const newest = [`${root}/package-lock.json`, ...scripts, ...compiled];
  return existsSync(bundle) && newest.every((path) => statSync(path).mtimeMs < statSync(bundle).mtimeMs);
}

/** The build is newer than its sources. */
function isConsoleBuilt() {
  const built = `${root}/packages/server/dist/web/index.html`;
  if (!existsSync(built)) return false;
  const sources = ['packages/console', 'packages/client/src'].flatMap((directory) =>
    readdirSync(`${root}/${directory}`, { recursive: true }).map((name) => `${directory}/${name}`),
  );
  const newest = ['package-lock.json', ...sources].map((name) => statSync(`${root}/${name}`).mtimeMs);
  return statSync(built).mtimeMs >= Math.max(...newest);
}

/**
 * Prints the step and, on a terminal, for how long it has been running. To standard error: standard output belongs to the
 * program that runs next.
 */
async function run(step, command, ...args) {
  const { isTTY } = process.stderr;
  const startedAt = Date.now();
  const show = () => process.stderr.write(`\r${step} ... ${Math.round((Date.now() - startedAt) / 1_000)} s`);
  if (isTTY) show();
  else console.error(`${step} ...`);
  const timer = isTTY ? setInterval(show, 1_000) : undefined;
  // An error has the output, too.
  const ended = await promisify(execFile)(command, args, { cwd: root }).catch((error) => error);
  clearInterval(timer);
  const isFailure = ended instanceof Error;
  process.stderr.write(`${isTTY ? '\n' : ''}${isFailure ? ended.stdout : ''}${ended.stderr}`);
  if (isFailure) throw new Error(ended.message.split('\n', 1)[0]);
}

try {
  if (!isInstalled()) {
    console.error('Setting up wafstat. This takes about a minute the first time.');
    await run('Installing dependencies', 'npm', 'ci', '--no-audit', '--no-fund', '--loglevel=error');
  }
  if (process.argv.includes('--clean'))
    for (const directory of [...COMPILED, ...CHECKED]) rmSync(directory, { recursive: true, force: true });
  await run('Compiling', 'node_modules/.bin/tsc', '-b');
  if (!isBundled()) await run('Bundling', process.execPath, 'scripts/bundle.mjs');
  if (!isConsoleBuilt())
    await run(
      'Building the console',
      'node_modules/.bin/vite',
      'build',
      'packages/console',
      '--logLevel',
      'warn',
    );
} catch (error) {
  console.error(`setup failed: ${error.message}`);
  process.exit(1);
}
