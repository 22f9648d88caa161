/** References between the tables, which `verify` checks and `repair` fixes. */
import { compareKeys, type Database, type Key } from 'lmdb';
import { isStart } from '../batches.ts';
import { isDeletedHost } from '../ids.ts';
import { matchesHostKey, matchesProjectKey, tryTo } from './records.ts';
import { checkedJson, type Schema } from './schema.ts';

export interface BrokenReference {
  table: string;
  key: Key;
  problem: string;
  /** Runs inside a write transaction, before the next problem is searched. Missing if the data is lost. */
  fix?: () => unknown;
}

export function* brokenHosts({ projects, hosts, hostnames, meta }: Schema): Generator<BrokenReference> {
  const counts = new Map<number, number>();
  for (const { value } of entries(projects)) counts.set(value.scope, 0);
  const last = meta.get('scopes') ?? 0;
  for (const { key, value } of entries(hosts)) {
    const [project] = key;
    const { id, hostname, scope } = value;
    const count = counts.get(project);
    if (count !== undefined && !isDeletedHost(value)) counts.set(project, count + 1);
    const broken = { table: 'hosts', key };
    if (!matchesHostKey(key, value)) yield { ...broken, problem: 'the record belongs to another key' };
    if (scope > last) yield { ...broken, problem: `the scope ${scope} was never assigned` };
    if (count === undefined) yield { ...broken, problem: 'the project does not exist' };
    if (hostnames.get([project, hostname]) !== id) {
      const problem = `the name ${hostname} is missing or refers to another host`;
      yield { ...broken, problem, fix: () => hostnames.putSync([project, hostname], id) };
    }
  }
  for (const { key, value } of entries(hostnames)) {
    if (hosts.get([key[0], value])?.hostname === key[1]) continue;
    const problem = `the host ${value} does not have this name`;
    yield { table: 'hostnames', key, problem, fix: () => hostnames.removeSync(key) };
  }
  for (const { key, value } of entries(projects)) {
    const broken = { table: 'projects', key };
    if (!matchesProjectKey(key, value)) yield { ...broken, problem: 'the record belongs to another key' };
    if (value.scope > last) yield { ...broken, problem: `the scope ${value.scope} was never assigned` };
    const count = counts.get(value.scope) ?? 0;
    if (count !== value.hosts) {
      const problem = `the record has ${value.hosts} hosts, but there are ${count}`;
      yield { ...broken, problem, fix: () => projects.putSync(key, { ...value, hosts: count }) };
    }
  }
}

export function* brokenSources(schema: Schema): Generator<BrokenReference> {
  const { sources, sourceHosts, hosts, batches, batchLinks, batchDays, meta } = schema;
  const projectOf = new Map<number, number>();
  const last = meta.get('sources') ?? 0;
  for (const { key, value } of entries(sources)) {
    const { name, number } = value;
    const broken = { table: 'sources', key };
    if (key[1] !== name) yield { ...broken, problem: 'the record belongs to another key' };
    if (number > last) yield { ...broken, problem: `the number ${number} was never assigned` };
    if (projectOf.has(number)) yield { ...broken, problem: `another source has the number ${number}` };
    projectOf.set(number, key[0]);
  }
  for (const { key } of entries(sourceHosts)) {
    if (hosts.doesExist([projectOf.get(key[0]) ?? -1, key[1]])) continue;
    const problem = 'the source or the host does not exist';
    yield { table: 'source-hosts', key, problem, fix: () => sourceHosts.removeSync(key) };
  }
  for (const { key, value } of entries(batches)) {
    const [source, id] = key;
    const { day, after } = value;
    const broken = { table: 'batches', key };
    if (!projectOf.has(source)) yield { ...broken, problem: 'the source does not exist' };
    if (!batchDays.doesExist([day, source, id])) {
      const problem = 'the record in batch-days is missing';
      yield { ...broken, problem, fix: () => batchDays.putSync([day, source, id], true) };
    }
    if (after !== undefined && !batchLinks.doesExist([source, after, id])) {
      // The batch is still recognized, but not its position in the file.
      const problem = 'the record in batch-links is missing';
      yield { ...broken, problem, fix: () => batches.putSync(key, { day }) };
    }
  }
  for (const { key } of entries(batchLinks)) {
    const [source, after, id] = key;
    const batch = batches.get([source, id]);
    const isLinked = batch?.after === after;
    if (isLinked && (isStart(after) || batches.doesExist([source, after]))) continue;
    const problem = `the ${isLinked ? 'previous ' : ''}batch does not exist`;
    const fix = () => {
      batchLinks.removeSync(key);
      if (batch && isLinked) batches.putSync([source, id], { day: batch.day });
    };
    yield { table: 'batch-links', key, problem, fix };
  }
  for (const { key } of entries(batchDays)) {
    if (batches.get([key[1], key[2]])?.day === key[0]) continue;
    yield {
      table: 'batch-days',
      key,
      problem: 'the batch does not exist',
      fix: () => batchDays.removeSync(key),
    };
  }
  yield* brokenRequests(schema, projectOf);
}

function* brokenRequests(
  { requests }: Schema,
  sources: ReadonlyMap<number, unknown>,
): Generator<BrokenReference> {
  for (const { key } of entries(requests)) {
    if (sources.has(key[2])) continue;
    const fix = () => requests.removeSync(key);
    yield { table: 'requests', key, problem: 'the source does not exist', fix };
  }
}

/** The values of all tables with JSON. */
export function* jsonEntries({ root }: Schema) {
  for (const name of [...root.getKeys()].map(String)) {
    if (name === 'cells' || name === 'top-lists') continue;
    const { decode } = checkedJson(name);
    const table = root.openDB<Buffer>(name, { encoding: 'binary' });
    for (const { key, value } of entries(table)) {
      // The version is the only value that never has a checksum.
      if (name === 'meta' && key === 'version') continue;
      yield { name, table, key, isDamaged: tryTo(() => [decode(value)]) === null };
    }
  }
}

const ENTRIES_PER_PART = 5_000;

/** All entries. The caller may change the current one. */
function* entries<V, K extends Key>(table: Database<V, K>): Generator<{ key: K; value: V }> {
  let last: K | undefined;
  for (;;) {
    const part = [
      ...table.getRange({ ...(last === undefined ? {} : { start: last }), limit: ENTRIES_PER_PART }),
    ];
    for (const entry of part) if (last === undefined || compareKeys(entry.key, last) > 0) yield entry;
    last = part.at(-1)?.key;
    if (part.length < ENTRIES_PER_PART) return;
  }
}
