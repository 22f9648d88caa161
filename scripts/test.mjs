// Runs setup with type check, lint and all tests. The last line is `N passed, N failed`.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { basename, dirname, relative } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { installCitus, installComponents } from './components.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const report = `${root}/.cache/tests.json`;
/** What test/processor-time.ts writes. */
const times = `${root}/.cache/test-times.ndjson`;
const isCi = process.env.CI === 'true';
let passed = 0;
let failed = 0;

// Both parts of the setup download different things, so they run concurrently.
console.log('== components, install, build and type check');
const setup = run(root, process.execPath, 'scripts/setup.mjs');
const missing = installComponents();
if (missing.length > 0) {
  console.log(`missing: ${missing.join(', ')}. Install them with: apt-get install ${missing.join(' ')}`);
}
// In CI no test may be skipped; elsewhere, tests that need a missing component are skipped.
count(missing.length === 0 || !isCi);
const citus = installCitus();
count(citus !== 'failed');

if (count(await setup)) {
  console.log('\n== tests');
  const lint = collect(root, 'node_modules/.bin/biome', 'check', '--error-on-warnings');
  await runTests();
  const { ok, output } = await lint;
  console.log(`\n== lint\n${output}`);
  count(ok);
}
console.log(`\n${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);

/** Resolves to whether the command succeeded. */
function run(cwd, command, ...args) {
  return succeeded(spawn(command, args, { cwd, stdio: ['ignore', 'inherit', 'inherit'] }));
}

function succeeded(child) {
  return new Promise((resolve) => {
    child.on('error', () => resolve(false));
    child.on('close', (status) => resolve(status === 0));
  });
}

/** Like `run`, but resolves to the output, too, instead of printing it into that of another command. */
async function collect(cwd, command, ...args) {
  const child = spawn(command, args, { cwd, stdio: ['ignore', 'pipe', 'pipe'] });
  const [stdout, stderr, ok] = await Promise.all([text(child.stdout), text(child.stderr), succeeded(child)]);
  return { ok, output: `${stdout}${stderr}` };
}

/** Counts a check outside vitest as one test. */
function count(ok) {
  if (ok) passed++;
  else failed++;
  return ok;
}

async function runTests() {
  mkdirSync(dirname(report), { recursive: true });
  for (const old of [report, times]) rmSync(old, { force: true });
  process.env.TEST_TIMES = times;
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${report}`];
  const ok = await run(root, 'node_modules/.bin/vitest', 'run', ...reporters);
  const results = readReport();
  passed += results.numPassedTests;
  failed += results.numFailedTests;
  // A file that cannot be loaded has no failed test.
  if (!ok && results.numFailedTests === 0) failed++;
  const skipped = skippedTests(results.testResults);
  if (isCi && skipped > 0) {
    console.log(`${skipped} tests were skipped, which counts as failed in CI`);
    failed += skipped;
  }
  const durations = results.testResults.map(({ name, startTime, endTime }) => ({
    name,
    seconds: (endTime - startTime) / 1_000,
  }));
  printMost('slowest files', durations);
  if (!existsSync(times)) return;
  const used = readFileSync(times, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  printMost('most processor time', used);
  console.log(`processor time: ${processorTime().toFixed(0)} s`);
}

/** Of everything that has run so far, in seconds: unlike the duration, it hardly depends on what else the machine does. */
function processorTime() {
  const fields = readFileSync('/proc/self/stat', 'utf8').split(') ')[1].split(' ');
  // User and system time of children that have ended, in ticks of 10 ms.
  return (Number(fields[13]) + Number(fields[14])) / 100;
}

/** The only tests that CI may skip are those of Citus, where it cannot be installed. */
function skippedTests(files) {
  const skippedIn = ({ assertionResults }) =>
    assertionResults.filter(({ status }) => status !== 'passed' && status !== 'failed').length;
  const isExempt = ({ name }) =>
    citus === 'missing' && /^postgres-citus(?:-faults)?\.test\.ts$/.test(basename(name));
  const exempt = files.filter(isExempt).reduce((sum, file) => sum + skippedIn(file), 0);
  if (exempt > 0) {
    console.log(`${exempt} tests of Citus were skipped: set CITUS_INSTALL to a script that installs it`);
  }
  return files.filter((file) => !isExempt(file)).reduce((sum, file) => sum + skippedIn(file), 0);
}

function readReport() {
  try {
    return JSON.parse(readFileSync(report, 'utf8'));
  } catch {
    return { numPassedTests: 0, numFailedTests: 1, numPendingTests: 0, testResults: [] };
  }
}

/** A file may be listed twice: once for each vitest project that runs it. */
function printMost(title, files) {
  console.log(`\n${title}:`);
  for (const { name, seconds } of files.toSorted((a, b) => b.seconds - a.seconds).slice(0, 10)) {
    console.log(`${seconds.toFixed(1).padStart(7)} s  ${relative(root, name)}`);
  }
}
