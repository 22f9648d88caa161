/**
 * Repairs counters from the next finer level, and names and links from their counterparts. Each step is a transaction, so
 * a server may run at the same time. Losses are reported with their time range.
 */
import { compareKeys, type Database, type Key } from 'lmdb';
import { type Additions, cellCode, cellOf, mergeCells, RecordWriter, seriesOf } from './cells.ts';
import {
  type Cells,
  type Comparison,
  coarseChunks,
  compareScopes,
  isComparable,
  LEVEL_PAIRS,
  type LevelPair,
  records,
  scopeRanges,
  tryTo,
} from './compare-levels.ts';
import { EXACT, LEVELS } from './levels.ts';
import {
  addChecksum,
  CHANGES,
  CHECKSUM_BYTES,
  cellsKey,
  cellsSeed,
  changesOf,
  checkedJson,
  countChange,
  hasChecksum,
  META_KEYS,
  metaValue,
  openSchemaForRepair,
  putChanges,
  type Schema,
  STORAGE_VERSION,
} from './schema.ts';
import { chunkLocation, type Finding, type Owners, type Progress, readOwners, walkPages } from './verify.ts';

export interface RepairReport {
  /** The number of records that were rewritten, added or removed, and the first of them. */
  repaired: number;
  repairs: Finding[];
  /** Data that could not be repaired. */
  lost: Finding[];
  /** Records of older releases that got a checksum. Part of the JSON output. */
  sealed: number;
}

const FINDINGS_MAX = 1_000;

export async function repairStatistics(path: string, progress: Progress = () => {}): Promise<RepairReport> {
  const report: RepairReport = { repaired: 0, repairs: [], lost: [], sealed: 0 };
  progress('pages');
  for (const { table, page, problem } of (await walkPages(path)).problems) {
    report.lost.push({ table, key: `page ${page}`, problem: `${problem}: restore the file from a backup` });
  }
  if (report.lost.length > 0) return report;
  const schema = openSchemaForRepair(path);
  try {
    new Repair(schema, report, progress).run();
  } finally {
    await schema.root.close();
  }
  return report;
}

/** Damaged records of these tables can be removed: other tables have the same data, or nothing depends on it. */
const REMOVABLE: ReadonlySet<string> = new Set(['hostnames', 'batch-links', 'notes', 'followed']);

class Repair {
  readonly #schema: Schema;
  readonly #report: RepairReport;
  readonly #progress: Progress;
  readonly #writer = new RecordWriter();
  #owners: Owners = new Map();

  constructor(schema: Schema, report: RepairReport, progress: Progress) {
    this.#schema = schema;
    this.#report = report;
    this.#progress = progress;
  }

  run(): void {
    this.#progress('tables');
    this.#owners = tryTo(() => readOwners(this.#schema)) ?? new Map();
    this.#step(() => this.#repairMeta());
    this.#step(() => this.#repairJsonTables());
    this.#step(() => this.#repairReferences());
    this.#step(() => this.#removeInvalidKeys());
    for (const pair of LEVEL_PAIRS) {
      this.#progress(`level ${pair.coarse.id} from level ${pair.fine.id}`);
      for (const chunk of [...coarseChunks(this.#schema, pair)])
        this.#step(() => this.#repairChunk(pair, chunk));
    }
    this.#progress('checksums');
    this.#addMissingChecksums();
    this.#step(() => {
      this.#schema.meta.putSync('unchecked', 0);
      countChange(this.#schema);
    });
  }

  #step(action: () => void): void {
    this.#schema.root.transactionSync(action);
  }

  #repaired(finding: Finding): void {
    this.#report.repaired++;
    if (this.#report.repairs.length < FINDINGS_MAX) this.#report.repairs.push(finding);
  }

  #lost(finding: Finding): void {
    if (this.#report.lost.length < FINDINGS_MAX) this.#report.lost.push(finding);
  }

  #repairMeta(): void {
    const { meta, version } = this.#schema;
    if (version.get('version') !== STORAGE_VERSION) {
      version.putSync('version', STORAGE_VERSION);
      meta.putSync('unchecked', 1);
    }
    for (const key of META_KEYS) {
      if (typeof tryTo(() => meta.get(key)) === 'number') continue;
      meta.putSync(key, this.#metaSubstitute(key));
      const finding = { table: 'meta', key, problem: 'missing or damaged' };
      if (key === 'horizon') this.#lost({ ...finding, problem: 'lost; set to the oldest stored minute' });
      else this.#repaired(finding);
    }
  }

  /** The last assigned numbers must not be too low. The other values only have to differ from before. */
  #metaSubstitute(key: (typeof META_KEYS)[number]): number {
    const { projects, hosts, sources, cells } = this.#schema;
    if (key === 'scopes')
      return highest(
        projects,
        ({ scope }) => scope,
        highest(hosts, ({ scope }) => scope),
      );
    if (key === 'sources') return highest(sources, ({ number }) => number);
    if (key === 'unchecked') return 1;
    if (key !== 'horizon') return Date.now();
    const range = { start: cellsKey(EXACT.id, 0, 0), end: cellsKey(EXACT.id + 1, 0, 0), limit: 1 };
    for (const first of cells.getKeys(range)) return first.readUInt32BE(1) * EXACT.cellsPerChunk;
    return 0;
  }

  /** Restores values from other tables, and adds missing checksums. */
  #repairJsonTables(): void {
    const { root, batchDays, batchLinks, batches, sourceHosts } = this.#schema;
    for (const name of [...root.getKeys()].map(String)) {
      if (name === 'cells') continue;
      const { decode, encode } = checkedJson(name);
      const table = root.openDB<Buffer>(name, { encoding: 'binary' });
      for (const { key, value } of entries(table)) {
        if (name === 'meta' && key === 'version') continue;
        const decoded = tryTo(() => ({ value: decode(value) }));
        if (decoded !== null) {
          if (hasChecksum(value)) continue;
          table.putSync(key, encode(decoded.value));
          this.#report.sealed++;
          continue;
        }
        const finding = { table: name, key: JSON.stringify(key), problem: 'damaged' };
        // The keys of these tables are arrays (schema.ts).
        const parts = key as never;
        if (name === 'source-hosts') sourceHosts.putSync(parts, true);
        else if (name === 'batch-days') batchDays.putSync(parts, true);
        // Without these, the service starts over: retention with the horizon, a followed path with its first file.
        else if (REMOVABLE.has(name) || (name === 'meta' && key === 'freed')) table.removeSync(key);
        else if (name === 'batches') {
          const [source, id] = parts as [number, string];
          const day = firstKey(batchDays.getKeys(), ([, one, other]) => one === source && other === id)?.[0];
          const after = firstKey(
            batchLinks.getKeys(),
            ([one, , other]) => one === source && other === id,
          )?.[1];
          batches.putSync([source, id], { day: day ?? 0, ...(after === undefined ? {} : { after }) });
        } else {
          this.#lost({ ...finding, problem: 'damaged, and no other record has its data' });
          continue;
        }
        this.#repaired(finding);
      }
    }
  }

  /** Repairs names, links and days from the records that they refer to, unless those are damaged. */
  #repairReferences(): void {
    const { projects, hosts, hostnames, sources, sourceHosts, batches, batchLinks, batchDays } = this.#schema;
    if (![projects, hosts, sources].every(isReadable)) return;
    const report = (table: string, key: unknown, problem: string) =>
      this.#repaired({ table, key: JSON.stringify(key), problem });

    const counts = new Map<number, number>();
    for (const { key, value } of entries(hosts)) {
      counts.set(key[0], (counts.get(key[0]) ?? 0) + 1);
      if (hostnames.get([key[0], value.hostname]) === value.id) continue;
      hostnames.putSync([key[0], value.hostname], value.id);
      report('hostnames', [key[0], value.hostname], 'missing name of a host added');
    }
    for (const { key, value } of entries(hostnames)) {
      if (hosts.get([key[0], value])?.hostname === key[1]) continue;
      hostnames.removeSync(key);
      report('hostnames', key, 'name without a host removed');
    }
    for (const { key, value } of entries(projects)) {
      const count = counts.get(value.scope) ?? 0;
      if (count === value.hosts) continue;
      projects.putSync(key, { ...value, hosts: count });
      report('projects', key, `number of hosts set from ${value.hosts} to ${count}`);
    }

    const projectOf = new Map(
      [...sources.getRange()].map(({ key, value }) => [value.number, key[0]] as const),
    );
    for (const { key } of entries(sourceHosts)) {
      if (hosts.doesExist([projectOf.get(key[0]) ?? -1, key[1]])) continue;
      sourceHosts.removeSync(key);
      report('source-hosts', key, 'orphan removed');
    }
    for (const { key, value } of entries(batches)) {
      const [source, id] = key;
      if (!batchDays.doesExist([value.day, source, id])) {
        batchDays.putSync([value.day, source, id], true);
        report('batch-days', [value.day, source, id], 'missing day of a batch added');
      }
      if (value.after !== undefined && !batchLinks.doesExist([source, value.after, id])) {
        batches.putSync(key, { day: value.day });
        report('batches', key, 'position in its file is lost; the batch is still recognized');
      }
    }
    for (const { key } of entries(batchLinks)) {
      const [source, after, id] = key;
      if (batches.get([source, id])?.after === after && (after === '' || batches.doesExist([source, after])))
        continue;
      batchLinks.removeSync(key);
      const batch = batches.get([source, id]);
      if (batch !== undefined && batch.after === after) batches.putSync([source, id], { day: batch.day });
      report('batch-links', key, 'orphaned link removed');
    }
    for (const { key } of entries(batchDays)) {
      if (batches.get([key[1], key[2]])?.day === key[0]) continue;
      batchDays.removeSync(key);
      report('batch-days', key, 'orphan removed');
    }
  }

  #removeInvalidKeys(): void {
    const { cells } = this.#schema;
    for (const key of [...cells.getKeys({ start: cellsKey(LEVELS.length, 0, 0) })]) {
      cells.removeSync(key);
      this.#repaired({ table: 'cells', key: key.toString('hex'), problem: 'invalid key removed' });
    }
  }

  #repairChunk(pair: LevelPair, chunk: number): void {
    const { coarse } = pair;
    const horizon = metaValue(this.#schema, 'horizon');
    let isChanged = false;
    for (const [from, to] of [...scopeRanges(this.#schema, pair, chunk)]) {
      for (const comparison of compareScopes(this.#schema, pair, chunk, from, to)) {
        if (pair.fine.id === EXACT.id) this.#repairExact(pair, chunk, comparison);
        if (!differs(pair, chunk, comparison, horizon)) continue;
        const { scope, sums } = comparison;
        this.#put(coarse.id, chunk, scope, sums);
        isChanged = true;
        this.#repaired({
          ...chunkLocation(this.#owners, coarse.id, chunk, scope),
          problem: `recomputed from level ${pair.fine.id}`,
        });
      }
    }
    const changes = tryTo(() => changesOf(this.#schema.cells, coarse.id, chunk));
    if (isChanged || changes === null) {
      putChanges(this.#schema, coarse.id, chunk, (changes ?? Date.now()) + 1);
    }
  }

  /**
   * If an exact record is damaged or missing, the counters of the minute still have its sums: these are put at the start
   * of the minute. Only ranges that cut this minute are affected.
   */
  #repairExact(pair: LevelPair, chunk: number, comparison: Comparison): void {
    const { scope, sums, stored, intact, damaged } = comparison;
    const minutes = new Map<number, Cells>();
    for (const minute of damaged) minutes.set(minute, new Map());
    if (stored !== 'damaged') {
      for (const [code, count] of stored) {
        const minute = chunk * pair.ratio + cellOf(code);
        const isDue = isComparable(code, pair, chunk, metaValue(this.#schema, 'horizon'));
        if (intact.has(minute) || (!isDue && !damaged.has(minute))) continue;
        const cells = minutes.get(minute) ?? new Map();
        cells.set(cellCode(seriesOf(code), 0), count);
        minutes.set(minute, cells);
        sums.set(code, count);
      }
    }
    for (const [minute, cells] of minutes) {
      this.#put(EXACT.id, minute, scope, cells);
      const problem =
        cells.size > 0
          ? 'exact times of this minute are lost; its counts are now at its start'
          : 'counts of this minute are lost; its counters are damaged or empty';
      this.#lost({ ...chunkLocation(this.#owners, EXACT.id, minute, scope), problem });
    }
  }

  #put(level: number, chunk: number, scope: number, cells: Cells): void {
    const key = cellsKey(level, chunk, scope);
    if (cells.size === 0) {
      this.#schema.cells.removeSync(key);
      return;
    }
    const sorted = [...cells].sort(([a], [b]) => a - b);
    const additions: Additions = {
      codes: sorted.map(([code]) => code),
      counts: sorted.map(([, count]) => count),
    };
    mergeCells(undefined, additions, this.#writer);
    this.#schema.cells.putSync(key, this.#writer.withChecksum(cellsSeed(level, chunk, scope)));
  }

  /** For records of older releases. */
  #addMissingChecksums(): void {
    if (metaValue(this.#schema, 'unchecked') === 0) return;
    for (const level of LEVELS) {
      const chunks = new Set<number>();
      const range = { start: cellsKey(level.id, 0, 0), end: cellsKey(level.id + 1, 0, 0) };
      for (const key of this.#schema.cells.getKeys(range)) chunks.add(key.readUInt32BE(1));
      for (const chunk of chunks) this.#step(() => this.#addChecksums(level.id, chunk));
    }
  }

  #addChecksums(level: number, chunk: number): void {
    const { cells } = this.#schema;
    const changes = cells.getBinary(cellsKey(level, chunk, CHANGES));
    if (changes !== undefined && !hasChecksum(changes)) {
      putChanges(this.#schema, level, chunk, changesOf(cells, level, chunk) ?? 0);
      this.#report.sealed++;
    }
    for (const { scope, sections, isChecked } of [
      ...records(this.#schema, LEVELS[level] ?? EXACT, chunk, 1, 0xffff_ffff),
    ]) {
      if (sections === null || isChecked) continue;
      const value = Buffer.concat([Buffer.alloc(CHECKSUM_BYTES), sections]);
      cells.putSync(cellsKey(level, chunk, scope), addChecksum(value, cellsSeed(level, chunk, scope)));
      this.#report.sealed++;
    }
  }
}

function differs(pair: LevelPair, chunk: number, { sums, stored }: Comparison, horizon: number): boolean {
  if (stored === 'damaged') return true;
  const codes = new Set([...sums.keys(), ...stored.keys()]);
  return [...codes].some(
    (code) => isComparable(code, pair, chunk, horizon) && sums.get(code) !== stored.get(code),
  );
}

function highest<V>(
  table: { getRange(): Iterable<{ value: V }> },
  numberOf: (value: V) => number,
  least = 0,
): number {
  let max = least;
  for (const { value } of table.getRange()) max = Math.max(max, numberOf(value));
  return max;
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

function isReadable(table: { getRange(): Iterable<unknown> }): boolean {
  return tryTo(() => firstKey(table.getRange(), () => false)) !== null;
}

function firstKey<K>(keys: Iterable<K>, matches: (key: K) => boolean): K | undefined {
  for (const key of keys) if (matches(key)) return key;
  return undefined;
}
