// Everything that must hold, in one command: set-up with type check, lint, all tests. Ends in `N passed, N failed`.
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { installComponents, installEngine } from './components.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const report = `${root}/.cache/tests.json`;
let passed = 0;
let failed = 0;

function run(command, ...args) {
  return spawnSync(command, args, { cwd: root, stdio: ['ignore', 'inherit', 'inherit'] }).status === 0;
}

/** A check that is not a vitest test counts as one. */
function check(name, command, ...args) {
  console.log(`\n== ${name}`);
  const ok = run(command, ...args);
  if (ok) passed++;
  else failed++;
  return ok;
}

console.log('== components');
const missing = installComponents();
if (missing.length > 0) {
  console.log(`not there: ${missing.join(', ')}. Get them with: apt-get install ${missing.join(' ')}`);
  // On a CI machine everything must run; elsewhere the tests that need them are skipped, and say so.
  if (process.env.CI === 'true') failed++;
} else passed++;

installEngine();

if (check('install, build and type check', process.execPath, 'scripts/setup.mjs')) {
  check('lint', 'node_modules/.bin/biome', 'check', '--error-on-warnings');
  console.log('\n== tests');
  mkdirSync(dirname(report), { recursive: true });
  rmSync(report, { force: true });
  const ok = run(
    'node_modules/.bin/vitest',
    'run',
    '--reporter=default',
    '--reporter=json',
    `--outputFile.json=${report}`,
  );
  const counts = readReport();
  passed += counts.numPassedTests;
  failed += counts.numFailedTests;
  // A file that could not even be loaded has no failed test, but is one.
  if (!ok && counts.numFailedTests === 0) failed++;
  // On a CI machine everything must run; elsewhere a skipped test says itself what it misses.
  if (process.env.CI === 'true' && counts.numPendingTests > 0) {
    console.log(`${counts.numPendingTests} tests were skipped, which counts as failed here`);
    failed += counts.numPendingTests;
  }
}
console.log(`\n${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);

function readReport() {
  try {
    return JSON.parse(readFileSync(report, 'utf8'));
  } catch {
    return { numPassedTests: 0, numFailedTests: 1, numPendingTests: 0 };
  }
}
