/** The latency of queries while another process follows a log that grows by 50,000 events per second. */
import { execFileSync, spawn } from 'node:child_process';
import { closeSync, openSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { CATEGORIES, eventsNow } from '../data.mjs';
import { wafstat } from '../paths.mjs';
import { token } from '../requests.mjs';
import { generateLoad } from '../wrk.mjs';

const COMING_IN = { eventsPerS: 50_000, hosts: 100 };
/** A web server writes all the time, not in bursts that would keep a core from the service. */
const TICK_MS = 10;
/** Enough queries for a 99th percentile, and few enough to leave the CPU to ingest. */
const QUERIES_PER_S = 200;

/** Returns the 99th percentiles in milliseconds, `{idle: [...], ingesting: [...]}`, and the events ingested. */
export async function measureIngesting({ directory, prepared, address, requests, rounds, seconds, log }) {
  const { measured } = prepared;
  const project = await addProject(measured.data);
  const text = await token(address, measured, project);
  const load = { directory, address, requests, seconds: 2 * seconds, rate: QUERIES_PER_S };
  const result = { idle: [], ingesting: [], events_per_s: [] };
  for (let round = 0; round < rounds; round++) {
    log(`ingesting: round ${round + 1} of ${rounds}`);
    result.idle.push((await generateLoad(load)).p99);
    const { stop } = await startIngesting({ directory, data: measured.data, project, ...COMING_IN });
    const before = await countedEvents(address, project, text);
    const started = performance.now();
    result.ingesting.push((await generateLoad(load)).p99);
    const counted = (await countedEvents(address, project, text)) - before;
    result.events_per_s.push(counted / ((performance.now() - started) / 1_000));
    await stop();
  }
  return result;
}

/** Writes the log and follows it until `stop`, with a pause of writing between `pause` and `resume`. */
export async function startIngesting({ directory, data, project, hosts, eventsPerS }) {
  const path = join(directory, 'live.ndjson');
  const file = openSync(path, 'w');
  let writer;
  const resume = () => {
    let due = performance.now();
    writer = setInterval(() => {
      // By the clock, because timers may be late.
      for (; due < performance.now(); due += TICK_MS) {
        writeSync(file, eventLines(eventsNow((eventsPerS * TICK_MS) / 1_000, hosts, TICK_MS)));
      }
    }, TICK_MS);
  };
  const pause = () => clearInterval(writer);
  resume();
  const args = ['--data', data, '--project', project, '--format', 'events', path];
  const follower = spawn('node', [wafstat, 'follow', ...args], { stdio: 'ignore' });
  const ended = new Promise((resolve) => follower.once('exit', resolve));
  // Also if a measurement fails.
  const kill = () => follower.kill();
  process.once('exit', kill);
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  return {
    pause,
    resume,
    async stop() {
      pause();
      closeSync(file);
      kill();
      await ended;
      process.off('exit', kill);
      rmSync(path);
    },
  };
}

/** In the format `events`, with the host names of fill.mjs. Without details, which peers do not count. */
export function eventLines(events) {
  let text = '';
  for (const { time, host, category } of events) {
    const attack = category < 0 ? '' : `,"attack":"${CATEGORIES[category]}"`;
    text += `{"time":${time},"host":"www${host}.example.com"${attack}}\n`;
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
