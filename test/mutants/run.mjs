// Tries mutants: makes each change in a copy of the sources, and runs the tests that must notice it. `--quick` tries ten of
// them, `--only NAME` one. Needs a build (`npm run setup`). The last line is `N of M mutants killed`.
import { spawn } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { runnerImport } from 'vite';

const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const QUICK = 10;
const KILLED_SHARE_MIN = 0.95;
/** The slowest tests of a mutant take half a minute. One that loops forever is ended after this time. */
const TIMEOUT_MS = 240_000;
/** Random tests are the same in each run, so that a mutant is killed in all runs or in none. */
const FUZZ_SEED = '1';

const { values } = parseArgs({ options: { quick: { type: 'boolean' }, only: { type: 'string' } } });
const { MUTANTS } = (await runnerImport(join(ROOT, 'test/mutants/table.ts'))).module;
const chosen = choose(MUTANTS);
const copy = mkdtempSync(join(tmpdir(), 'wafstat-mutants-'));
let running = null;
process.on('exit', () => {
  end(running);
  rmSync(copy, { recursive: true, force: true });
});
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));

copySources();
console.log('== tests without a mutant');
const report = join(copy, 'report.json');
for (const tests of merged(chosen.flatMap((mutant) => mutant.tests))) {
  const result = await runTests(tests);
  if (result === 'survived') continue;
  console.log(`${tests.file} fails (${result}) without a mutant: repair it first`);
  process.exit(1);
}

console.log('== mutants');
const survivors = [];
for (const mutant of chosen) {
  const start = performance.now();
  const result = await tryMutant(mutant);
  console.log(
    `${result.padEnd(9)} ${((performance.now() - start) / 1_000).toFixed(0).padStart(4)} s  ${mutant.name}`,
  );
  if (result !== 'killed') survivors.push({ ...mutant, result });
}
for (const { name, file, from, to, result, survives } of survivors) {
  console.log(`\n${name} ${result}: ${survives ?? 'a test is missing'}\n  ${file}\n  - ${from}\n  + ${to}`);
}
const killed = chosen.length - survivors.length;
const isEnough = killed >= KILLED_SHARE_MIN * chosen.length || chosen.length === 1;
console.log(`\n${killed} of ${chosen.length} mutants killed`);
process.exit(isEnough && survivors.every(({ survives }) => survives !== undefined) ? 0 : 1);

function choose(all) {
  if (values.only !== undefined) {
    const found = all.filter(({ name }) => name === values.only);
    if (found.length > 0) return found;
    console.error(
      `unknown mutant '${values.only}'. The names are: ${all.map(({ name }) => name).join(', ')}`,
    );
    process.exit(2);
  }
  if (!values.quick) return all;
  // Spread over the table, so that all parts have some.
  return Array.from({ length: QUICK }, (_, i) => all[Math.floor((i * all.length) / QUICK)]);
}

/** What tests read besides dependencies and the build, to which the copy has links. */
function copySources() {
  const isLinked = (path) => ['node_modules', 'dist', '.cache'].includes(basename(path));
  const isCopied = (path) => !isLinked(path) && !['.git', 'bench'].includes(basename(path));
  cpSync(ROOT, copy, { recursive: true, filter: isCopied });
  mkdirSync(join(ROOT, '.cache'), { recursive: true });
  const packages = readdirSync(join(ROOT, 'packages')).map((name) => join('packages', name));
  const links = ['', ...packages].flatMap((directory) =>
    ['node_modules', 'dist', '.cache'].map((name) => join(directory, name)),
  );
  for (const link of links) if (existsSync(join(ROOT, link))) symlinkSync(join(ROOT, link), join(copy, link));
}

/** Each file once, with the names of all. */
function merged(tests) {
  const files = new Map();
  for (const { project, file, name } of tests) {
    const known = files.get(`${project} ${file}`) ?? { project, file, names: new Set() };
    files.set(`${project} ${file}`, known);
    known.names.add(name);
  }
  return [...files.values()].map(({ project, file, names }) => {
    const name = names.has(undefined) ? undefined : [...names].join('|');
    return { project, file, name };
  });
}

/** `killed` if one of its tests fails. */
async function tryMutant({ name, file, from, to, tests }) {
  const path = join(copy, file);
  const original = readFileSync(path, 'utf8');
  if (original.split(from).length !== 2) throw new Error(`${name}: ${file} must contain "${from}" once`);
  // Not a pattern: `to` may have dollar signs.
  writeFileSync(path, original.split(from).join(to));
  try {
    let result = 'survived';
    for (const each of tests) {
      result = await runTests(each);
      if (result !== 'survived') break;
    }
    return result;
  } finally {
    writeFileSync(path, original);
  }
}

/** `killed`: a test fails. `broken`: the tests could not run. */
async function runTests({ project, file, name }) {
  rmSync(report, { force: true });
  const args = ['run', '--project', project, file, '--bail', '1', '--maxWorkers', '1', '--reporter', 'json'];
  const child = spawn(
    join(copy, 'node_modules/.bin/vitest'),
    [...args, '--outputFile', report, ...(name === undefined ? [] : ['-t', name])],
    { cwd: copy, env: { ...process.env, FUZZ_SEED }, stdio: 'ignore', detached: true },
  );
  running = child;
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    end(child);
  }, TIMEOUT_MS);
  await new Promise((resolve) => child.on('close', resolve));
  clearTimeout(timer);
  running = null;
  if (isLate) return 'timed out';
  if (!existsSync(report)) return 'broken';
  const { numFailedTests, numPassedTests, success } = JSON.parse(readFileSync(report, 'utf8'));
  if (numFailedTests > 0) return 'killed';
  return success && numPassedTests > 0 ? 'survived' : 'broken';
}

/** Ends a run of the tests with the processes that it has started. */
function end(child) {
  if (child === null || child.exitCode !== null) return;
  try {
    process.kill(-child.pid, 'SIGKILL');
  } catch {
    // It has ended.
  }
}
