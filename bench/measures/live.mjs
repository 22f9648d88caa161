/**
 * What dashboards request: ranges that end now, from all candidates, while 5,000 events come in every second. The service
 * has its default settings, with the access log.
 */
import { execFileSync } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { checkResponses, startPeer } from '../candidates.mjs';
import { eventsSince, HOUR_MS, MINUTE_MS, PEERS } from '../data.mjs';
import { bench, wafstat } from '../paths.mjs';
import { copyForChanges } from '../prepare.mjs';
import { ownMemory, processorTime } from '../processes.mjs';
import { liveRequest, pathUntil, token, withToken } from '../requests.mjs';
import { generateLoad } from '../wrk.mjs';
import { eventLines, startIngesting } from './ingesting.mjs';
import { shuffled } from './speed.mjs';

const EVENTS_PER_S = 5_000;
/** As many as the load generator has connections. Each looks at other hosts. */
const CLIENTS = 16;
/** Until new events are counted. */
const SETTLE_MS = 500;
/** Until V8 has optimized the code. On a busy machine that takes longer, but not for ever: peers are slow. */
const WARM_UP = { responses: 50_000, seconds_max: 15 };
/** Enough for a median: rounds are long, because there are many views. */
const ROUNDS_MAX = 5;

/** The requests of one client: the call, the days and the number of hosts (0: the whole project). */
const VIEWS = {
  'live dashboard': {
    coding: 'br, gzip',
    charts: [
      ['timeline', 1, 1],
      ['timeline', 1, 0],
      ['timeline', 30, 0],
      ['attack/type', 30, 10],
    ],
  },
  'live timeline, 24 hours, 1 host': { charts: [['timeline', 1, 1]] },
  'live timeline, 24 hours, 10 hosts': { charts: [['timeline', 1, 10]] },
  'live timeline, 24 hours, project': { charts: [['timeline', 1, 0]] },
  'live timeline, 30 days, 1 host': { charts: [['timeline', 30, 1]] },
  'live timeline, 30 days, 10 hosts': { charts: [['timeline', 30, 10]] },
  'live timeline, 30 days, project': { charts: [['timeline', 30, 0]] },
  'live distribution, 30 days, 10 hosts': { charts: [['attack/type', 30, 10]] },
};

/**
 * Returns `{speed, p99, cpu_us}`, each `{view: {candidate: [one per round]}}`: responses per second, 99th percentiles in
 * milliseconds, and processor time per response; and the memory of the service afterwards.
 */
export async function measureLive({ directory, prepared, processes, viewsMax, rounds, seconds, log }) {
  const copy = copyForChanges(prepared);
  const until = Math.floor(Date.now() / MINUTE_MS) * MINUTE_MS;
  countToday(copy, until);
  const { service, peers, text } = await startAll(processes, copy, until);
  const views = liveViews(copy.measured.projects[0], text).slice(0, viewsMax);
  log('live: comparing the responses');
  await checkResponses({ wafstat: service, ...peers }, pathsToCompare(views, until));
  for (const view of views) view.limit = await startLimit(processes, service.address, text, view, until);

  const counting = await startIngesting({
    directory,
    data: copy.measured.data,
    project: copy.measured.projects[0].id,
    hosts: copy.sets.measured.hosts,
    eventsPerS: EVENTS_PER_S,
  });
  counting.pause();
  // The stores count events in turn. The limit is measured while the service does.
  const turns = [{ ...counting, candidates: (view) => ({ limit: view.limit, wafstat: service }) }];
  for (const [name, peer] of Object.entries(peers)) {
    const toggle = () => process.kill(peer.pid, 'SIGUSR2');
    turns.push({ resume: toggle, pause: toggle, candidates: () => ({ [name]: peer }) });
  }
  const results = { speed: {}, p99: {}, cpu_us: {} };
  const add = (figure, view, name, value) => {
    results[figure][view] ??= Object.fromEntries(['limit', 'wafstat', ...PEERS].map((each) => [each, []]));
    results[figure][view][name].push(value);
  };
  const last = Math.min(rounds, ROUNDS_MAX);
  for (let round = 0; round <= last; round++) {
    log(round === 0 ? 'live: warming up' : `live: round ${round} of ${last}`);
    for (const { resume, pause, candidates } of turns) {
      resume();
      await sleep(SETTLE_MS);
      for (const view of views) {
        for (const [name, { address, pid }] of shuffled(Object.entries(candidates(view)))) {
          const load = { directory, address, requests: view.requests, seconds };
          if (round === 0 && view === views[0]) await warmUp(load);
          const before = processorTime(pid);
          const { per_s, p99 } = await generateLoad({ ...load, mayShedAll: PEERS.includes(name) });
          if (round === 0) continue;
          add('speed', view.name, name, per_s);
          add('p99', view.name, name, p99);
          add('cpu_us', view.name, name, ((processorTime(pid) - before) * 1_000) / (per_s * seconds));
        }
      }
      pause();
    }
  }
  await counting.stop();
  const memory_mb = ownMemory(service.pid);
  for (const { stop } of [service, ...Object.values(peers), ...views.map(({ limit }) => limit)]) await stop();
  rmSync(copy.directory, { recursive: true });
  return { ...results, memory_mb };
}

async function warmUp(load) {
  const seconds = 5;
  let responses = 0;
  for (let used_s = 0; used_s < WARM_UP.seconds_max && responses < WARM_UP.responses; used_s += seconds) {
    responses += (await generateLoad({ ...load, seconds, mayShedAll: true })).per_s * seconds;
  }
}

/** The data sets end at midnight. */
export function countToday({ directory, measured, sets }, until) {
  const file = join(directory, 'today.ndjson');
  writeFileSync(file, eventLines(eventsSince(sets.measured, until)));
  const where = ['--data', measured.data, '--project', measured.projects[0].id];
  execFileSync('node', [wafstat, 'ingest', ...where, '--format', 'events', file]);
}

async function startAll(processes, { directory, measured }, until) {
  const args = ['serve', '--data', measured.data, '--listen', '127.0.0.1:0'];
  const service = await processes.start(wafstat, args, { log: join(directory, 'access.log') });
  const text = await token(service.address, measured, measured.projects[0].id);
  const authorize = (paths) => withToken(paths, text);
  const peers = {};
  for (const name of PEERS) {
    const peer = await startPeer(processes, name, directory, measured.data, {
      until,
      eventsPerS: EVENTS_PER_S,
    });
    peers[name] = { ...peer, authorize };
  }
  return { service: { ...service, authorize }, peers, text };
}

export function liveViews({ id, hostIds }, text) {
  return Object.entries(VIEWS).map(([name, { coding = 'identity', charts }]) => {
    const headers = { 'X-Auth-Token': text, 'Accept-Encoding': coding };
    const requests = Array.from({ length: CLIENTS }, (_, client) =>
      charts.map(([call, days, hosts]) => {
        const chosen = Array.from({ length: hosts }, (_, i) => hostIds[(client + i) % hostIds.length]);
        return liveRequest(id, call, days, chosen, headers);
      }),
    ).flat();
    return { name, coding, requests };
  });
}

/** From a whole hour, because the tables of the peers have no shorter rows at the start of a range of 30 days. */
function pathsToCompare(views, until) {
  return Object.fromEntries(
    views.map(({ name, requests }) => [
      name,
      requests.map(({ path, range_ms }) => {
        const from = Math.ceil((until - range_ms) / HOUR_MS) * HOUR_MS;
        return `${path}from=${from}&to=${until}`;
      }),
    ]),
  );
}

/** Compresses nothing: it sends what the service has compressed. */
function startLimit(processes, address, text, { requests, coding }, until) {
  const paths = requests.map((request) => pathUntil(request, until));
  return processes.startScript(join(bench, 'bare.mjs'), [address, text, coding], JSON.stringify(paths));
}
