/**
 * Flips bits of a statistics file, one at a time, and reports the results of queries and of `verify`. Runs as a process
 * of its own, because LMDB may crash on damaged pages.
 *
 *   node bit-flips.mjs FILE FLIPS_JSON QUERIES_JSON      prints JSON lines for each flip
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { checkDataFile, DamagedFile } from '../packages/server/dist/lmdb/pages.js';
import { lmdbStore } from '../packages/server/dist/store/lmdb/lmdb.js';
import { verifyStatistics } from '../packages/server/dist/store/lmdb/verify.js';
import { StoreUnavailable } from '../packages/server/dist/store/store.js';

const [file, flips, queries] = process.argv.slice(2);
const original = readFileSync(file);
const expected = await results(file);

for (const [index, { offset, bit, inRecord }] of JSON.parse(flips).entries()) {
  const bytes = Buffer.from(original);
  bytes[offset] ^= 1 << bit;
  const copy = `${file}.${process.pid}.${index}`;
  writeFileSync(copy, bytes);
  console.log(JSON.stringify({ index, step: 'verify' }));
  const { problems } = await verifyStatistics(copy);
  console.log(JSON.stringify({ index, step: 'verified', problems }));
  if (inRecord) {
    const actual = await results(copy);
    const wrong = actual.filter((result, i) => result !== 'error' && result !== expected[i]).length;
    const errors = actual.filter((result) => result === 'error').length;
    console.log(JSON.stringify({ index, step: 'queried', wrong, errors }));
  }
  for (const path of [copy, `${copy}-lock`]) rmSync(path, { force: true });
}
console.log(JSON.stringify({ step: 'done' }));

async function results(path) {
  const all = JSON.parse(queries);
  let store;
  try {
    checkDataFile(path);
    store = lmdbStore(path);
  } catch (error) {
    if (error instanceof StoreUnavailable || error instanceof DamagedFile)
      return all.flatMap(() => ['error', 'error']);
    // lmdb-js on a file that LMDB refuses.
    if (typeof error.code === 'number') return all.flatMap(() => ['error', 'error']);
    throw error;
  }
  const found = [];
  for (const { project, hosts, edges } of all) {
    try {
      const [requests, attacks] = await store.count({ project, hosts, edges, rows: 'timeline' });
      const onePoint = { project, hosts, edges: [edges[0], edges.at(-1)] };
      const totals = await store.count({ ...onePoint, rows: 'categories' });
      found.push(JSON.stringify([[...requests], [...attacks], totals.map(([n]) => n)]));
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error;
      found.push('error');
    }
    found.push(await keptAttacks(store, { project, hosts, from: edges[0], to: edges.at(-1) }));
  }
  await store.close().catch(() => {});
  return found;
}

/** A list that lacks attacks says so: the counters have more. */
async function keptAttacks(store, range) {
  const page = { filter: { include: {}, exclude: {} }, isAscending: true, offset: 0, limit: 1e5 };
  try {
    const { items, keptAttacks } = await store.attacks({ ...range, ...page });
    const { project, hosts, from, to } = range;
    const [attacks] = await store.count({ project, hosts, edges: [from, to], rows: 'attacks' });
    return keptAttacks < attacks[0] ? 'error' : JSON.stringify(items);
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error;
    return 'error';
  }
}
