/** Installs programs and packages, and loads the data into every candidate. */
import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { installComponents } from '../scripts/components.mjs';
import { dataSets, PEERS } from './data.mjs';
import { bench, root, wafstat } from './paths.mjs';

const COMPONENTS = [
  { package: 'wrk', probe: ['which', 'wrk'] },
  { package: 'sqlite3', probe: ['which', 'sqlite3'] },
  { package: 'postgresql', probe: ['bash', '-c', 'ls /usr/lib/postgresql/*/bin/postgres'] },
  { package: 'goaccess', probe: ['which', 'goaccess'] },
];

const PEER_FILES = ['sqlite.db', 'duck.db', 'postgres'];

/** The code that decides what the data is. */
const GENERATORS = ['data.mjs', 'details.mjs', 'fill.mjs', 'rollup.mjs'];

/** Returns where everything is. Reuses data that the same code generated today, because that takes some minutes. */
export async function prepare(quick, log) {
  log('programs and packages');
  const missing = installComponents(COMPONENTS);
  if (missing.length > 0) throw new Error(`missing: apt-get install ${missing.join(' ')}`);
  await run('node', [join(root, 'scripts/setup.mjs')]);
  await run('npm', ['install', '--loglevel=error'], { cwd: bench });

  const directory = join(bench, '.cache', quick ? 'quick' : 'full');
  const sets = dataSets(quick);
  const wanted = JSON.stringify({ ...sets, code: hashOf(GENERATORS) });
  if (
    !existsSync(join(directory, 'sets.json')) ||
    readFileSync(join(directory, 'sets.json'), 'utf8') !== wanted
  ) {
    rmSync(directory, { recursive: true, force: true });
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, 'sets.json'), wanted);
  }
  const step = (name, make) => once(directory, name, make, log);

  // Two at a time, for two cores.
  const [service, grown] = await Promise.all([
    (async () => {
      const measured = await step('measured', () =>
        installation(directory, 'measured', [sets.measured, sets.wide]),
      );
      const young = await step('young', () => installation(directory, 'young', [sets.young]));
      return { measured, young };
    })(),
    (async () => {
      await step('rollup', () => runNode('rollup.mjs', directory, JSON.stringify(sets.measured)));
      for (const peer of PEERS) await step(peer, () => runNode('peers/load.mjs', peer, directory));
      const tenants = Array.from({ length: 10 }, () => sets.old);
      return { old: await step('old', () => installation(directory, 'old', tenants)) };
    })(),
  ]);
  return { directory, sets, ...service, ...grown };
}

function hashOf(names) {
  const hash = createHash('sha256');
  for (const name of names) hash.update(readFileSync(join(bench, name)));
  return hash.digest('hex');
}

/** What some measurements change: a copy of the first installation and of the databases. */
export function copyForChanges({ directory, measured, sets }) {
  const copy = join(directory, 'copy');
  rmSync(copy, { recursive: true, force: true });
  mkdirSync(copy);
  const names = ['sets.json', 'measured.json', 'measured', ...PEER_FILES].map((name) =>
    join(directory, name),
  );
  execFileSync('cp', ['--archive', '--reflink=auto', ...names, copy]);
  return { directory: copy, sets, measured: { ...measured, data: join(copy, 'measured') } };
}

/** Runs a step once and stores its result, which later runs read. */
async function once(directory, name, make, log) {
  const path = join(directory, `${name}.json`);
  if (!existsSync(path)) {
    const before = performance.now();
    const made = (await make()) ?? {};
    log(`${name}: ${((performance.now() - before) / 1_000).toFixed(0)} s`);
    writeFileSync(path, JSON.stringify(made));
  }
  return JSON.parse(readFileSync(path, 'utf8'));
}

/** A data directory with one project per data set. */
async function installation(parent, name, sets) {
  const data = join(parent, name);
  rmSync(data, { recursive: true, force: true });
  const cli = async (...args) => JSON.parse(await run('node', [wafstat, ...args, '--data', data, '--json']));
  const { password, project_id } = await cli('init');
  const { access, secret } = await cli('key', 'add', '--user', 'admin');
  const projects = [];
  for (const [i, set] of sets.entries()) {
    const id = i === 0 ? project_id : (await cli('project', 'add', `project-${i}`)).id;
    const { hostIds, events } = JSON.parse(await runNode('fill.mjs', data, id, JSON.stringify(set)));
    projects.push({ id, hostIds, events, set: set.name });
  }
  return { data, password, access, secret, projects };
}

function runNode(script, ...args) {
  return run('node', [join(bench, script), ...args]);
}

function run(command, args, options = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'], ...options });
    let output = '';
    child.stdout.on('data', (text) => {
      output += text;
    });
    child.on('error', reject);
    child.on('close', (status) =>
      status === 0 ? resolve(output) : reject(new Error(`${command} ${args[0]} ended with status ${status}`)),
    );
  });
}
