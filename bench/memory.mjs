/**
 * The memory of the service after each load of the benchmark, and what takes it. Takes about two minutes.
 *
 *   node memory.mjs [WAFSTAT]     WAFSTAT: bin/wafstat.js of another build to compare with
 *
 * Uses a copy of the data that `npm run bench` has generated.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { MINUTE_MS } from './data.mjs';
import { CALLS, callRequests, sendOnce } from './measures/calls.mjs';
import { startIngesting } from './measures/ingesting.mjs';
import { countToday, liveViews } from './measures/live.mjs';
import { bench, wafstat } from './paths.mjs';
import { ownMemory, Processes, processorTime } from './processes.mjs';
import { queries, token, wideQueries, withoutCache, withSignature, withToken } from './requests.mjs';
import { generateLoad } from './wrk.mjs';

const EVENTS_PER_S = 5_000;
const LIVE_ROUNDS = 2;
/** How often to look for the report of the service. */
const REPORT_MS = 100;
/** glibc reserves this much address space for the heap of a thread, at a multiple of it. */
const THREAD_HEAP_BYTES = 2 ** 26;

/** Runs in the service, and writes its caches and what V8 knows when it gets a signal. */
const REPORTER = `
  import { subscribe } from 'node:diagnostics_channel';
  import { renameSync, writeFileSync } from 'node:fs';
  import { getHeapSpaceStatistics } from 'node:v8';
  const caches = [];
  subscribe('wafstat:cache.created', (cache) => caches.push(cache));
  process.on('SIGUSR2', () => {
    const report = { usage: process.memoryUsage(), spaces: getHeapSpaceStatistics(), caches: {} };
    for (const { name, bytes } of caches) report.caches[name] = (report.caches[name] ?? 0) + bytes;
    const path = process.env.MEMORY_REPORT;
    writeFileSync(path + '.new', JSON.stringify(report));
    renameSync(path + '.new', path);
  });
`;

const full = join(bench, '.cache/full');
const directory = mkdtempSync(join(tmpdir(), 'wafstat-memory-'));
process.env.MEMORY_REPORT = join(directory, 'report.json');
const processes = new Processes();
try {
  await measure(process.argv[2] ?? wafstat);
} finally {
  await processes.stop();
  rmSync(directory, { recursive: true });
}

async function measure(program) {
  const [sets, installed] = ['sets.json', 'measured.json'].map((name) =>
    JSON.parse(readFileSync(join(full, name), 'utf8')),
  );
  const measured = { ...installed, data: join(directory, 'measured') };
  execFileSync('cp', ['--archive', '--reflink=auto', join(full, 'measured'), directory]);
  countToday({ directory, measured, sets }, Math.floor(Date.now() / MINUTE_MS) * MINUTE_MS);

  const reporter = `data:text/javascript,${encodeURIComponent(REPORTER)}`;
  const args = ['--import', reporter, program, 'serve', '--data', measured.data, '--listen', '127.0.0.1:0'];
  const { address, pid } = await processes.start(process.execPath, args, {
    log: join(directory, 'access.log'),
  });
  const [project, wideProject] = measured.projects;
  const text = await token(address, measured, project.id);
  const wideText = await token(address, measured, wideProject.id);
  const compared = queries({ measured, sets });
  const paths = Object.values(compared);
  const load = (name, lists) => loadAndPrint(name, lists, address, pid);

  await load('start', []);
  const cached = paths.map((list) => withToken(list, text));
  await load('cached', cached);
  await load('computed', cached.map(withoutCache));
  await load('signed', await Promise.all(paths.map((list) => withSignature(list, address, measured))));
  for (const query of ['timeline, 24 hours, 1 host', 'timeline, 30 days, project']) {
    const timelines = withoutCache(withToken(compared[query], text));
    const calls = Object.keys(CALLS).map((name) => callRequests(name, timelines));
    for (const list of calls) await sendOnce(address, list);
    await load(`all calls, ${query.replace('timeline, ', '')}`, calls);
  }
  const wide = Object.values(wideQueries({ measured, sets })).map((list) => withToken(list, wideText));
  await load('1,000 hosts', wide.map(withoutCache));
  const [day] = cached;
  const compressed = ['gzip', 'br'].map((coding) =>
    day.map(({ path, headers }) => ({ path, headers: { ...headers, 'Accept-Encoding': coding } })),
  );
  await load('compressed', [...compressed, ...compressed.map(withoutCache)]);

  const counting = await startIngesting({
    directory,
    data: measured.data,
    project: project.id,
    hosts: sets.measured.hosts,
    eventsPerS: EVENTS_PER_S,
  });
  const views = liveViews(project, text).map(({ requests }) => requests);
  for (let round = 1; round <= LIVE_ROUNDS; round++) await load(`live, round ${round}`, views);
  await counting.stop();
}

/** Sends each list of requests for a second. */
async function loadAndPrint(name, lists, address, pid) {
  const before = processorTime(pid);
  let responses = 0;
  for (const requests of lists)
    responses += (await generateLoad({ directory, address, requests, seconds: 1 })).per_s;
  const us = responses === 0 ? 0 : ((processorTime(pid) - before) * 1_000) / responses;
  const memory = ownMemory(pid);
  const report = process.env.MEMORY_REPORT;
  rmSync(report, { force: true });
  process.kill(pid, 'SIGUSR2');
  while (!existsSync(report)) await sleep(REPORT_MS);
  const { usage, spaces, caches } = JSON.parse(readFileSync(report, 'utf8'));
  const heap = Object.fromEntries(spaces.map((space) => [space.space_name, space.physical_space_size]));
  console.log(
    `${name}: ${memory.toFixed(0)} MB, ${responses.toFixed(0)} responses, ${us.toFixed(0)} us\n` +
      `  resident: ${inMb(residentBytes(pid))}\n` +
      `  V8, ${inMb({ used: usage.heapUsed })}: ${inMb(heap)}\n` +
      `  buffers: ${inMb({ arrays: usage.arrayBuffers })}; caches: ${inMb(caches)}`,
  );
}

/** From 0.5 MB. */
function inMb(bytes) {
  const shown = Object.entries(bytes).filter(([, n]) => n >= 2 ** 19);
  return shown.map(([name, n]) => `${name} ${(n / 2 ** 20).toFixed(0)}`).join(', ');
}

/** By kind of mapping. V8 maps its pages itself; buffers of arrays are in the heaps of malloc. */
function residentBytes(pid) {
  const bytes = {};
  let kind = '';
  let threadHeapEnd = 0;
  for (const line of readFileSync(`/proc/${pid}/smaps`, 'utf8').split('\n')) {
    const found = /^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \d+ *(.*)$/.exec(line);
    if (found) {
      const [start, end] = [found[1], found[2]].map((text) => Number.parseInt(text, 16));
      const name = found[3];
      if (name === '' && start % THREAD_HEAP_BYTES === 0 && end - start < THREAD_HEAP_BYTES)
        threadHeapEnd = start + THREAD_HEAP_BYTES;
      if (name.endsWith('.mdb')) kind = 'data files';
      else if (name === '[heap]') kind = 'main heap';
      else if (name.endsWith('/node')) kind = 'node';
      else if (name !== '') kind = 'libraries';
      else kind = end <= threadHeapEnd ? 'heaps of threads' : 'V8 and other';
    } else if (line.startsWith('Rss:'))
      bytes[kind] = (bytes[kind] ?? 0) + 1_024 * Number.parseInt(line.slice(4), 10);
  }
  return bytes;
}
