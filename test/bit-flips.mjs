/**
 * Flips bits of a statistics file, one at a time, and tells what queries and `verify` say of each. A process of its own,
 * because LMDB may not survive what is done to its pages.
 *
 *   node bit-flips.mjs SERVER_DIST FILE OFFSETS_JSON QUERIES_JSON      prints a line of JSON for each flip
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const [dist, file, flips, queries] = process.argv.slice(2);
const { lmdbStore } = await import(join(dist, 'store/lmdb/lmdb.js'));
const { StoreUnavailable } = await import(join(dist, 'store/store.js'));
const { verifyStatistics } = await import(join(dist, 'store/lmdb/verify.js'));
const { checkDataFile, DamagedFile } = await import(join(dist, 'lmdb/pages.js'));

const original = readFileSync(file);
const expected = await answers(file);

for (const [index, { offset, bit, asks }] of JSON.parse(flips).entries()) {
  const bytes = Buffer.from(original);
  bytes[offset] ^= 1 << bit;
  const copy = `${file}.${process.pid}.${index}`;
  writeFileSync(copy, bytes);
  console.log(JSON.stringify({ index, step: 'verify' }));
  const { problems } = await verifyStatistics(copy);
  console.log(JSON.stringify({ index, step: 'verified', problems }));
  if (!asks) continue;
  const given = await answers(copy);
  const wrong = given.filter((answer, i) => answer !== 'error' && answer !== expected[i]).length;
  console.log(
    JSON.stringify({ index, step: 'asked', wrong, errors: given.filter((one) => one === 'error').length }),
  );
}
console.log(JSON.stringify({ step: 'done' }));

async function answers(path) {
  const all = JSON.parse(queries);
  let store;
  try {
    checkDataFile(path);
    store = lmdbStore(path);
  } catch (error) {
    if (error instanceof StoreUnavailable || error instanceof DamagedFile) return all.map(() => 'error');
    // What lmdb-js says of a file that LMDB refuses.
    if (typeof error.code === 'number') return all.map(() => 'error');
    throw error;
  }
  const given = [];
  for (const { project, hosts, edges } of all) {
    try {
      const { requests, attacks } = await store.series({ project, hosts, edges });
      const totals = await store.totals({ project, hosts, from: edges[0], to: edges.at(-1) });
      given.push(JSON.stringify([[...requests], [...attacks], [...totals]]));
    } catch (error) {
      if (!(error instanceof StoreUnavailable)) throw error;
      given.push('error');
    }
  }
  await store.close().catch(() => {});
  return given;
}
