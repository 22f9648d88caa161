/**
 * Measures the service against its limit and against databases, all in one run on one machine.
 *
 *   npm run bench [-- --quick]
 */
import { execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { arch, cpus, release, totalmem } from 'node:os';
import { join } from 'node:path';
import { checkResponses, startCandidates } from './candidates.mjs';
import { measureCalls } from './measures/calls.mjs';
import { measureCompression } from './measures/compression.mjs';
import { measureGrowth } from './measures/growth.mjs';
import { measureIngesting } from './measures/ingesting.mjs';
import { measureLatency } from './measures/latency.mjs';
import { measureLive } from './measures/live.mjs';
import { measureSpeed } from './measures/speed.mjs';
import { measureWorkers } from './measures/workers.mjs';
import { writePage } from './page.mjs';
import { bench, root } from './paths.mjs';
import { picture } from './picture.mjs';
import { prepare } from './prepare.mjs';
import { ownMemory, Processes } from './processes.mjs';
import { queries, token, wideQueries, withoutCache, withToken } from './requests.mjs';
import { goalRows } from './rows.mjs';
import { measureStartUp, startUpTable } from './start-up.mjs';
import { compressionTable, speedTable, textTable, viewTable } from './table.mjs';

const quick = process.argv.includes('--quick');
const started = performance.now();
const log = (text) =>
  console.error(`${((performance.now() - started) / 1_000).toFixed(0).padStart(5)} s  ${text}`);

const prepared = await prepare(quick, log);
const { directory, measured } = prepared;
// Many short rounds: other tenants slow the machine down for seconds at a time, which a median tolerates.
const pace = { directory, log, rounds: quick ? 1 : 7, seconds: 1 };
const results = { date: new Date().toISOString(), machine: machine(), quick, ...(await measureAll()) };
if (!quick) results.ingest = ingestBenchmark();

for (const table of [
  viewTable('live dashboard', results.live),
  speedTable(results.live.speed),
  speedTable(results.speed),
  compressionTable(results.compression),
  startUpTable(results.startUp),
  textTable(results.rows),
])
  console.log(`\n${table}`);
if (results.ingest) console.log(`\n${results.ingest}`);
// A quick run only tries the benchmark: its figures do not go into the documentation.
const where = quick ? directory : join(root, 'docs');
writeFileSync(join(where, 'performance.json'), `${JSON.stringify(results, null, 1)}\n`);
const { 'live dashboard': dashboard } = results.live.speed;
writeFileSync(
  join(where, quick ? 'performance.svg' : 'images/performance.svg'),
  picture({ 'live dashboard': dashboard, ...results.speed }),
);
if (!quick) writePage(join(where, 'performance.md'), results);
log(`written to ${where}`);

async function measureAll() {
  const processes = new Processes();
  try {
    const compared = queries(prepared);
    log('starting the candidates');
    const candidates = await startCandidates(processes, prepared, compared);
    const { address, pid } = candidates['wafstat, token'];
    log('comparing the responses');
    await checkResponses(candidates, compared);
    const speed = await measureSpeed({ ...pace, candidates, queries: compared });
    for (const [name, { stop }] of Object.entries(candidates)) if (!name.startsWith('wafstat')) await stop();

    const [project, wideProject] = measured.projects;
    const text = await token(address, measured, project.id);
    const wideText = await token(address, measured, wideProject.id);
    const day = withToken(compared['timeline, 24 hours, 1 host'], text);
    const [computedDay, computedMonth, hundred] = [
      'timeline, 24 hours, 1 host',
      'timeline, 30 days, project',
      'timeline, 30 days, 100 hosts',
    ].map((query) => withoutCache(withToken(compared[query], text)));
    const wide = Object.entries(wideQueries(prepared)).map(([query, paths]) => [
      `${query}, computed`,
      withoutCache(withToken(paths, wideText)),
    ]);
    const calls = await measureCalls({
      ...pace,
      address,
      timelines: {
        'timeline, 24 hours, 1 host': computedDay,
        'timeline, 30 days, project': computedMonth,
      },
    });
    const latency = await measureLatency({
      ...pace,
      address,
      queries: { 'timeline, 30 days, 100 hosts, computed': hundred, ...Object.fromEntries(wide) },
    });
    const ingesting = await measureIngesting({ ...pace, prepared, address, requests: computedDay });
    const compression = await measureCompression({ ...pace, address, requests: day });
    const memoryAfterQueries_mb = ownMemory(pid);
    const growth = await measureGrowth({ ...pace, prepared, processes });
    const workers = await measureWorkers({ ...pace, prepared, processes, requests: hundred });
    const live = await measureLive({
      ...pace,
      prepared,
      processes,
      viewsMax: quick ? 2 : Number.POSITIVE_INFINITY,
    });
    log('start-up');
    const startUp = await measureStartUp(quick ? 3 : 20);
    const memory_mb = Math.max(memoryAfterQueries_mb, live.memory_mb);
    const figures = {
      live,
      speed,
      calls,
      latency,
      growth,
      workers,
      ingesting,
      compression,
      memory_mb,
      startUp,
    };
    return { ...figures, rows: goalRows(figures) };
  } finally {
    await processes.stop();
  }
}

/** Prints a separate table, with its own goals. */
function ingestBenchmark() {
  log('ingest');
  return execFileSync('node', [join(bench, 'ingest.mjs')], { encoding: 'utf8' }).trim();
}

function machine() {
  const [{ model }] = cpus();
  const memory_gb = Math.round(totalmem() / 2 ** 30);
  return `${cpus().length} x ${model}, ${memory_gb} GB, Linux ${release()} ${arch()}, Node.js ${process.versions.node}`;
}
