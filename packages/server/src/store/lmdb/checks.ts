/** Problems of the tables other than counts, which `verify` reports and `repair` fixes. */
import { compareKeys, type Database, type Key } from 'lmdb';
import { tryTo } from '../../lmdb/commit.ts';
import { isStart } from '../batches.ts';
import { isDeletedHost } from '../ids.ts';
import { checkRecord } from '../top-records.ts';
import { checkBlockRecord, parseBlockKey, removeDamagedBlock } from './attacks.ts';
import { chunksOf, matchesHostKey, matchesProjectKey } from './records.ts';
import {
  type BinaryTable,
  checkedJson,
  EXACT,
  META_KEYS,
  type MetaKey,
  metaValue,
  type Schema,
  STORAGE_VERSION,
} from './schema.ts';
import { parseListsKey, withoutListsChecksum } from './top-lists.ts';

/** A table of plain bytes by hour and scope. No other record has its data, so `repair` removes damaged records. */
export interface HourlyTable {
  name: string;
  of: (schema: Schema) => BinaryTable;
  /** `number`: if an hour has several records. */
  parseKey: (key: Buffer) => { hour: number; scope: number; number?: number };
  /** Decodes every value. Throws if the record is damaged. */
  check: (key: Buffer, value: Buffer, table: BinaryTable) => void;
  /** Removes a damaged record, and what is of no use without it. */
  remove: (schema: Schema, key: Buffer) => void;
}

export const HOURLY_TABLES: readonly HourlyTable[] = [
  {
    name: 'top-lists',
    of: ({ topLists }) => topLists,
    parseKey: parseListsKey,
    check: (key, value) => checkRecord(withoutListsChecksum(key, value)),
    remove: ({ topLists }, key) => topLists.removeSync(key),
  },
  {
    name: 'attacks',
    of: ({ attacks }) => attacks,
    parseKey: parseBlockKey,
    check: checkBlockRecord,
    remove: removeDamagedBlock,
  },
];

export interface Problem {
  table: string;
  key: Key;
  problem: string;
  /** Runs inside a write transaction, before the next problem is searched. Missing if nothing can be done. */
  fix?: () => unknown;
  /** What is lost, even if it is fixed. */
  loss?: string;
}

export function* brokenMeta(schema: Schema): Generator<Problem> {
  const { meta, version } = schema;
  const problem = 'the record is missing or damaged';
  if (tryTo(() => version.get('version')) !== STORAGE_VERSION) {
    const fix = () => version.putSync('version', STORAGE_VERSION);
    yield { table: 'meta', key: 'version', problem, fix };
  }
  for (const key of META_KEYS) {
    if (typeof tryTo(() => meta.get(key)) === 'number') continue;
    const fix = () => meta.putSync(key, substituteOf(schema, key));
    const loss = key === 'horizon' && { loss: 'lost; set to the oldest stored minute' };
    yield { table: 'meta', key, problem, fix, ...loss };
  }
}

/**
 * The last assigned numbers must not be too low, and the horizon must not move back to where data is missing. Caches
 * compare the other values with those that they have seen: they only have to differ from all before.
 */
function substituteOf(schema: Schema, key: MetaKey): number {
  const { projects, hosts, sources } = schema;
  if (key === 'scopes') {
    return [...projects.getRange(), ...hosts.getRange()].reduce(
      (max, { value }) => Math.max(max, value.scope),
      0,
    );
  }
  if (key === 'sources') {
    return [...sources.getRange()].reduce((max, { value }) => Math.max(max, value.number), 0);
  }
  if (key === 'topLists') return 0;
  const [first = 0] = chunksOf(schema, EXACT);
  const oldest = first * EXACT.cellsPerChunk;
  if (key === 'freed') return tryTo(() => metaValue(schema, 'horizon')) ?? oldest;
  return key === 'horizon' ? oldest : Date.now();
}

/** Damaged records of these tables can be removed: other tables have the same data, or the service starts over without them. */
const REMOVABLE: ReadonlySet<string> = new Set(['hostnames', 'batch-links', 'notes', 'followed', 'requests']);

/** Values that are damaged, in tables with JSON other than `meta`. Calls `visit` for each value. */
export function* brokenValues(schema: Schema, visit = () => {}): Generator<Problem> {
  const { root, batchDays, batchLinks, batches, sourceHosts } = schema;
  for (const name of [...root.getKeys()].map(String)) {
    if (name === 'cells' || HOURLY_TABLES.some((table) => table.name === name)) continue;
    const { decode } = checkedJson(name);
    const table = root.openDB<Buffer>(name, { encoding: 'binary' });
    for (const { key, value } of entries(table)) {
      visit();
      if (name === 'meta' || tryTo(() => [decode(value)]) !== null) continue;
      const damaged = { table: name, key, problem: 'the checksum is wrong, or the value is not JSON' };
      // The keys of these tables are arrays (schema.ts).
      const parts = key as never;
      if (name === 'source-hosts') yield { ...damaged, fix: () => sourceHosts.putSync(parts, true) };
      else if (name === 'batch-days') yield { ...damaged, fix: () => batchDays.putSync(parts, true) };
      else if (REMOVABLE.has(name)) yield { ...damaged, fix: () => table.removeSync(key) };
      else if (name === 'batches') {
        const fix = () => {
          const [source, id] = parts as [number, string];
          const [day] = batchDays.getKeys().filter((days) => days[1] === source && days[2] === id);
          const [link] = batchLinks.getKeys().filter((links) => links[0] === source && links[2] === id);
          batches.putSync([source, id], { day: day?.[0] ?? 0, ...(link && { after: link[1] }) });
        };
        yield { ...damaged, fix };
      } else yield { ...damaged, loss: 'damaged, and no other record has its data' };
    }
  }
}

export function* brokenHosts({ projects, hosts, hostnames, meta }: Schema): Generator<Problem> {
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

export function* brokenSources(schema: Schema): Generator<Problem> {
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

function* brokenRequests({ requests }: Schema, sources: ReadonlyMap<number, unknown>): Generator<Problem> {
  for (const { key } of entries(requests)) {
    if (sources.has(key[2])) continue;
    const fix = () => requests.removeSync(key);
    yield { table: 'requests', key, problem: 'the source does not exist', fix };
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
