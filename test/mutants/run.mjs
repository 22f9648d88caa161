// Tries mutants: makes each change in a copy of the sources, and runs the tests that must notice it. `--quick` tries ten of
// them, `--only NAME,...` those. Needs a build (`npm run setup`). The last line is `N of M mutants killed`.
import { spawnSync } from 'node:child_process';
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
import { createVitest } from 'vitest/node';

const ROOT = dirname(dirname(dirname(fileURLToPath(import.meta.url))));
const QUICK = 10;
const KILLED_SHARE_MIN = 0.95;
/** The slowest tests of a mutant take half a minute. Those that loop forever are ended after this time. */
const TIMEOUT_MS = 600_000;
/** Not built in the copy, which has links to those of the checkout. */
const LINKED = ['node_modules', 'dist', '.cache'];

const { values } = parseArgs({ options: { quick: { type: 'boolean' }, only: { type: 'string' } } });
const { MUTANTS } = (await runnerImport(join(ROOT, 'test/mutants/table.ts'))).module;
const chosen = choose(MUTANTS);
const copy = mkdtempSync(join(tmpdir(), 'wafstat-mutants-'));
process.on('exit', () => rmSync(copy, { recursive: true, force: true }));
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));
copySources();
// Random tests are the same in each run, so that a mutant is killed in all runs or in none.
process.env.FUZZ_SEED = '1';
process.env.FUZZ_SHRINK = '0';
// More cases than by default: the table was made with them.
process.env.FUZZ_SCALE ??= '0.25';
// One instance for all runs: to start it takes longer than most tests.
const vitest = await createVitest('test', {
  root: copy,
  watch: false,
  bail: 1,
  maxWorkers: 1,
  reporters: [{}],
  project: ['unit', 'stores', 'blackbox'],
});
await vitest.standalone();
const status = await tryAll();
await vitest.close();
process.exit(status);

async function tryAll() {
  console.log('== tests without a mutant');
  for (const tests of merged(chosen.flatMap((mutant) => mutant.tests))) {
    const { result, by } = await runTests(tests);
    if (result === 'survived') continue;
    console.log(`${tests.file} fails without a mutant (${result}: ${by}): repair it first`);
    return 1;
  }
  console.log('== mutants');
  const survivors = [];
  for (const mutant of chosen) {
    const start = performance.now();
    const { result, by } = await tryMutant(mutant);
    const seconds = ((performance.now() - start) / 1_000).toFixed(1);
    console.log(`${result.padEnd(9)} ${seconds.padStart(6)} s  ${mutant.name}${by ? ` by '${by}'` : ''}`);
    if (result !== 'killed') survivors.push({ ...mutant, result });
  }
  for (const { name, file, from, to, result, survives } of survivors) {
    console.log(`\n${name} ${result}: ${survives ?? 'a test is missing'}\n  ${file}\n  - ${from}\n  + ${to}`);
  }
  const killed = chosen.length - survivors.length;
  console.log(`\n${killed} of ${chosen.length} mutants killed`);
  const isEnough = killed >= KILLED_SHARE_MIN * chosen.length || values.only !== undefined;
  return isEnough && survivors.every(({ survives }) => survives !== undefined) ? 0 : 1;
}

function choose(all) {
  if (values.only !== undefined) {
    const names = values.only.split(',');
    const unknown = names.find((each) => !all.some(({ name }) => name === each));
    if (unknown === undefined) return all.filter(({ name }) => names.includes(name));
    console.error(`unknown mutant '${unknown}'. The names are: ${all.map(({ name }) => name).join(', ')}`);
    process.exit(2);
  }
  if (!values.quick) return all;
  // Spread over the table, so that all parts have some.
  return Array.from({ length: QUICK }, (_, i) => all[Math.floor((i * all.length) / QUICK)]);
}

function copySources() {
  const isCopied = (path) => ![...LINKED, '.git', 'bench'].includes(basename(path));
  cpSync(ROOT, copy, { recursive: true, filter: isCopied });
  mkdirSync(join(ROOT, '.cache'), { recursive: true });
  const packages = readdirSync(join(ROOT, 'packages')).map((name) => join('packages', name));
  for (const directory of ['', ...packages]) {
    for (const name of LINKED) {
      const link = join(directory, name);
      if (existsSync(join(ROOT, link))) symlinkSync(join(ROOT, link), join(copy, link));
    }
  }
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

async function tryMutant({ name, file, from, to, tests }) {
  const path = join(copy, file);
  const original = readFileSync(path, 'utf8');
  if (original.split(from).length !== 2) throw new Error(`${name}: ${file} must contain "${from}" once`);
  const write = (text) => {
    writeFileSync(path, text);
    vitest.invalidateFile(path);
  };
  write(original.split(from).join(to));
  try {
    let tried = {};
    for (const each of tests) {
      tried = await runTests(each);
      if (tried.result !== 'survived') break;
    }
    return tried;
  } finally {
    write(original);
  }
}

/** `killed`: a test fails. `broken`: the tests cannot run. `by`: what failed. */
async function runTests({ project, file, name }) {
  const specification = vitest.projects
    .find((each) => each.name === project)
    .createSpecification(join(copy, file), name === undefined ? {} : { testNamePattern: new RegExp(name) });
  let isLate = false;
  const timer = setTimeout(() => {
    isLate = true;
    endWorkers();
  }, TIMEOUT_MS);
  const { testModules: known, unhandledErrors } = await vitest.runTestSpecifications([specification]);
  clearTimeout(timer);
  // The result has those of earlier runs, too.
  const testModules = known.filter(
    (each) => each.moduleId === join(copy, file) && each.project.name === project,
  );
  if (isLate) return { result: 'timed out' };
  const [failed] = testModules.flatMap((module) => [...module.children.allTests('failed')]);
  if (failed) return { result: 'killed', by: failed.fullName };
  const [error] = [...testModules.flatMap((module) => module.errors()), ...unhandledErrors];
  if (error) return { result: 'broken', by: error.message };
  const hasPassed = testModules.some((module) => [...module.children.allTests('passed')].length > 0);
  return hasPassed ? { result: 'survived' } : { result: 'broken', by: `no test matches ${name}` };
}

/** Kills the processes in which tests run. */
function endWorkers() {
  const children = spawnSync('pgrep', ['-P', String(process.pid)], { encoding: 'utf8' }).stdout.split('\n');
  for (const pid of children.filter(Boolean)) process.kill(Number(pid), 'SIGKILL');
}
