/**
 * Repairs counters from the next finer level, and names and links from their counterparts. Each step is a transaction, so
 * a server may run at the same time. Losses are reported with their time range.
 */
import { tryTo } from '../../lmdb/commit.ts';
import { commitSync } from '../../lmdb/files.ts';
import { additionsOf, cellCode, cellOf, isPeak, mergeCells, peaksOf, seriesOf } from '../cells.ts';
import { RecordWriter } from '../record-bytes.ts';
import {
  brokenHosts,
  brokenMeta,
  brokenSources,
  brokenValues,
  HOURLY_TABLES,
  type HourlyTable,
  type Problem,
} from './checks.ts';
import {
  type Cells,
  type Comparison,
  coarseChunks,
  compareChunk,
  differingCells,
  isComparable,
  LEVEL_PAIRS,
  type LevelPair,
} from './compare-levels.ts';
import {
  addChecksum,
  cellsKey,
  cellsSeed,
  changeAllVersions,
  changesOf,
  checkKnownVersion,
  countChange,
  EXACT,
  LEVELS,
  metaValue,
  nextChanges,
  openTables,
  putChanges,
  type Schema,
  STORAGE_VERSION,
} from './schema.ts';
import {
  damageOf,
  FINDINGS_MAX,
  type Finding,
  keyText,
  location,
  type Owners,
  type Progress,
  readOwners,
  walkPages,
} from './verify.ts';

export interface RepairReport {
  /** The number of records that were rewritten, added or removed, and the first of them. */
  repaired: number;
  repairs: Finding[];
  /** Data that could not be repaired. */
  lost: Finding[];
}

export async function repairStatistics(path: string, progress: Progress = () => {}): Promise<RepairReport> {
  progress('pages');
  const damaged = (await walkPages(path)).problems;
  const lost = damaged.map((one) => ({ ...one, problem: `${one.problem}: restore the file from a backup` }));
  const report: RepairReport = { repaired: 0, repairs: [], lost };
  if (lost.length > 0) return report;
  const schema = openTables(path);
  try {
    checkKnownVersion(tryTo(() => schema.version.get('version')) ?? STORAGE_VERSION, path);
    new Repair(schema, report, progress).run();
  } finally {
    await schema.root.close();
  }
  return report;
}

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
    this.#step(() => this.#fix(brokenMeta(this.#schema)));
    this.#step(() => this.#fix(brokenValues(this.#schema)));
    this.#step(() => this.#fixReferences());
    this.#step(() => this.#removeInvalidKeys());
    for (const pair of LEVEL_PAIRS) {
      this.#progress(`level ${pair.coarse.id} from level ${pair.fine.id}`);
      for (const chunk of [...coarseChunks(this.#schema, pair)])
        this.#step(() => this.#repairChunk(pair, chunk));
    }
    for (const table of HOURLY_TABLES) {
      this.#progress(table.name);
      this.#removeDamagedHours(table);
    }
    this.#step(() => countChange(this.#schema));
  }

  #step(action: () => void): void {
    commitSync(this.#schema, () => {
      action();
      // Appends that were prepared before this step compute their records again.
      changeAllVersions(this.#schema);
    });
  }

  #repaired(finding: Finding): void {
    this.#report.repaired++;
    if (this.#report.repairs.length < FINDINGS_MAX) this.#report.repairs.push(finding);
  }

  #lost(finding: Finding): void {
    if (this.#report.lost.length < FINDINGS_MAX) this.#report.lost.push(finding);
  }

  #fix(problems: Iterable<Problem>): void {
    for (const { table, key, problem, fix, loss } of problems) {
      fix?.();
      const finding = { table, key: keyText(key), problem };
      if (loss !== undefined) this.#lost({ ...finding, problem: loss });
      else if (fix) this.#repaired(finding);
    }
  }

  /** Repairs names, links and days from the records that they refer to, unless those are lost. */
  #fixReferences(): void {
    if (this.#report.lost.some(({ table }) => table !== 'meta')) return;
    this.#fix(brokenHosts(this.#schema));
    this.#fix(brokenSources(this.#schema));
  }

  #removeInvalidKeys(): void {
    const { cells } = this.#schema;
    for (const key of [...cells.getKeys({ start: cellsKey(LEVELS.length, 0, 0) })]) {
      cells.removeSync(key);
      this.#repaired({ table: 'cells', key: key.toString('hex'), problem: 'invalid key removed' });
    }
  }

  /** Other hours are not affected. Searches before the transaction, because decoding a large table takes long. */
  #removeDamagedHours(table: HourlyTable): void {
    const records = table.of(this.#schema);
    const damaged: Buffer[] = [];
    for (const { key, value } of records.getRange()) {
      if (damageOf(this.#owners, table, key, value, this.#schema) !== null) damaged.push(key);
    }
    if (damaged.length === 0) return;
    this.#step(() => {
      for (const key of damaged) {
        const value = records.get(key);
        const finding = value && damageOf(this.#owners, table, key, value, this.#schema);
        if (!finding) continue;
        table.remove(this.#schema, key);
        this.#lost({ ...finding, problem: `${finding.problem}; removed` });
      }
    });
  }

  #repairChunk(pair: LevelPair, chunk: number): void {
    const { coarse } = pair;
    // The horizon may move back to here.
    const horizon = metaValue(this.#schema, 'freed');
    let isChanged = false;
    for (const comparison of compareChunk(this.#schema, pair, chunk)) {
      if (pair.fine.id === EXACT.id) this.#repairExact(pair, chunk, comparison, horizon);
      const { scope, sums, stored } = comparison;
      if (stored !== 'damaged' && differingCells(pair, chunk, sums, stored, horizon).length === 0) continue;
      this.#put(coarse.id, chunk, scope, sums);
      isChanged = true;
      const problem = `recomputed from level ${pair.fine.id}`;
      this.#repaired({ ...location(this.#owners, coarse, chunk, scope), problem });
    }
    const changes = tryTo(() => changesOf(this.#schema.cells, coarse.id, chunk));
    if (isChanged || changes === null) {
      putChanges(this.#schema, coarse.id, chunk, nextChanges(changes ?? 0));
    }
  }

  /**
   * If an exact record is damaged or missing, the counters of the minute still have its sums: these are put at the start
   * of the minute. Only ranges that cut this minute are affected.
   */
  #repairExact(
    pair: LevelPair,
    chunk: number,
    { scope, sums, stored, intact, damaged }: Comparison,
    horizon: number,
  ): void {
    const minutes = new Map([...damaged].map((minute): [number, Cells] => [minute, new Map()]));
    if (stored !== 'damaged') {
      for (const [code, count] of stored) {
        const minute = chunk * pair.ratio + cellOf(code);
        const isDue = isComparable(code, pair, chunk, horizon);
        if (isPeak(seriesOf(code)) || intact.has(minute) || (!isDue && !damaged.has(minute))) continue;
        const cells: Cells = minutes.get(minute) ?? new Map();
        cells.set(cellCode(seriesOf(code), 0), count);
        minutes.set(minute, cells);
        sums.set(code, count);
      }
    }
    for (const [minute, cells] of minutes) {
      this.#put(EXACT.id, minute, scope, cells);
      for (const [series, peak] of cells.size > 0 ? peaksOf(this.#writer.bytes()) : []) {
        sums.set(cellCode(series, minute - chunk * pair.ratio), peak);
      }
      const problem =
        cells.size > 0
          ? 'exact times of this minute are lost; its counts are now at its start'
          : 'counts of this minute are lost; its counters are damaged or empty';
      this.#lost({ ...location(this.#owners, EXACT, minute, scope), problem });
    }
  }

  #put(level: number, chunk: number, scope: number, cells: Cells): void {
    const key = cellsKey(level, chunk, scope);
    if (cells.size === 0) {
      this.#schema.cells.removeSync(key);
      return;
    }
    mergeCells(undefined, additionsOf(cells), this.#writer);
    this.#schema.cells.putSync(key, addChecksum(this.#writer.withHead(), cellsSeed(level, chunk, scope)));
  }
}
