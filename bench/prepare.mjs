/** Everything that must be there before anything is measured: programs, packages, and the data in every candidate. */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { installComponents } from '../scripts/components.mjs';
import { dataSets } from './data.mjs';
import { bench, root, wafstat } from './paths.mjs';

const COMPONENTS = [
  { package: 'wrk', probe: ['which', 'wrk'] },
  { package: 'sqlite3', probe: ['which', 'sqlite3'] },
  { package: 'postgresql', probe: ['bash', '-c', 'ls /usr/lib/postgresql/*/bin/postgres'] },
  { package: 'clickhouse-server', probe: ['which', 'clickhouse-server'] },
  { package: 'goaccess', probe: ['which', 'goaccess'] },
];

export const PEERS = ['sqlite', 'duckdb', 'postgres', 'clickhouse'];

/** Answers what is where. What was made today is used again, because making it takes longer than measuring. */
export async function prepare(quick, log) {
  log('programs and packages');
  const missing = installComponents(COMPONENTS);
  if (missing.length > 0) throw new Error(`missing: apt-get install ${missing.join(' ')}`);
  await run('node', [join(root, 'scripts/setup.mjs')]);
  await run('npm', ['install', '--loglevel=error'], { cwd: bench });

  const folder = join(bench, '.cache', quick ? 'quick' : 'full');
  const sets = dataSets(quick);
  const wanted = JSON.stringify(sets);
  if (!existsSync(join(folder, 'sets.json')) || readFileSync(join(folder, 'sets.json'), 'utf8') !== wanted) {
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, 'sets.json'), wanted);
  }
  const step = (name, make) => once(folder, name, make, log);

  /** Two at a time, for two cores. */
  const [service, grown] = await Promise.all([
    (async () => {
      const measured = await step('measured', () =>
        installation(folder, 'measured', [sets.measured, sets.wide]),
      );
      const young = await step('young', () => installation(folder, 'young', [sets.young]));
      return { measured, young };
    })(),
    (async () => {
      await step('rollup', () => runNode('rollup.mjs', folder, JSON.stringify(sets.measured)));
      for (const peer of PEERS) await step(peer, () => runNode('peers/load.mjs', peer, folder));
      const tenants = Array.from({ length: 10 }, () => sets.old);
      return { old: await step('old', () => installation(folder, 'old', tenants)) };
    })(),
  ]);
  return { folder, sets, ...service, ...grown };
}

/** Makes it and remembers what came out; the next time only the latter is read. */
async function once(folder, name, make, log) {
  const path = join(folder, `${name}.json`);
  if (!existsSync(path)) {
    const before = performance.now();
    const made = (await make()) ?? {};
    log(`${name}: ${((performance.now() - before) / 1_000).toFixed(0)} s`);
    writeFileSync(path, JSON.stringify(made));
  }
  return JSON.parse(readFileSync(path, 'utf8'));
}

/** A data folder of the service with a project for each of the data sets. */
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
