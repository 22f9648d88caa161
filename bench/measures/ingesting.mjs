/** How long queries take while 50,000 events a second come in: a log that grows, followed by a process of its own. */
import { execFileSync, spawn } from 'node:child_process';
import { closeSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { wafstat } from '../paths.mjs';
import { token } from '../requests.mjs';
import { generateLoad } from '../wrk.mjs';

const EVENTS_PER_S = 50_000;
const TICK_MS = 100;
/** Enough queries to have a 99th percentile, and few enough to leave the machine to the events. */
const QUERIES_PER_S = 200;

/** Answers the 99th percentiles in milliseconds, `{idle: [...], ingesting: [...]}`, and how many events came in. */
export async function measureIngesting({ folder, prepared, address, requests, rounds, seconds, log }) {
  const { measured } = prepared;
  const project = await addProject(measured.data);
  const text = await token(address, measured, project);
  const load = { folder, address, requests, seconds: 2 * seconds, rate: QUERIES_PER_S };
  const result = { idle: [], ingesting: [], events_per_s: [] };
  for (let round = 0; round < rounds; round++) {
    log(`ingesting: round ${round + 1} of ${rounds}`);
    result.idle.push((await generateLoad(load)).p99);
    const stop = await startIngesting(folder, measured.data, project);
    const before = await countedEvents(address, project, text);
    const started = performance.now();
    result.ingesting.push((await generateLoad(load)).p99);
    const counted = (await countedEvents(address, project, text)) - before;
    result.events_per_s.push(counted / ((performance.now() - started) / 1_000));
    await stop();
  }
  return result;
}

/** Writes the log and follows it, until the function that it answers is called. */
async function startIngesting(folder, data, project) {
  const path = join(folder, 'live.ndjson');
  const file = openSync(path, 'w');
  let due = performance.now();
  const writer = setInterval(() => {
    // By the clock, not by the timer, which may be late.
    for (; due < performance.now(); due += TICK_MS) writeSync(file, lines((EVENTS_PER_S * TICK_MS) / 1_000));
  }, TICK_MS);
  const args = ['--data', data, '--project', project, '--format', 'events', path];
  const follower = spawn('node', [wafstat, 'follow', ...args], { stdio: 'ignore' });
  const ended = new Promise((resolve) => follower.once('exit', resolve));
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  return async () => {
    clearInterval(writer);
    closeSync(file);
    follower.kill('SIGTERM');
    await ended;
    rmSync(path);
  };
}

function lines(count) {
  const now = Date.now();
  let text = '';
  for (let i = 0; i < count; i++) {
    const attack = i % 33 === 0 ? ',"attack":"sqli"' : '';
    text += `{"time":${now - (i % TICK_MS)},"host":"www${i % 100}.example.com"${attack}}\n`;
  }
  return text;
}

async function addProject(data) {
  const name = `live-${Date.now()}`;
  const args = ['project', 'add', name, '--data', data, '--json'];
  return JSON.parse(execFileSync('node', [wafstat, ...args])).id;
}

async function countedEvents(address, project, text) {
  const response = await fetch(`${address}/v1/${project}/connections`, { headers: { 'X-Auth-Token': text } });
  const { items } = await response.json();
  return items.reduce((sum, { events }) => sum + events, 0);
}
