/** Checks a whole statistics file in one snapshot, while other processes keep writing. */
import { inspect } from 'node:util';
import { CATEGORIES } from '../../event.ts';
import { openReadOnly } from '../../lmdb/files.ts';
import { metaProblem, pageProblems } from '../../lmdb/pages.ts';
import { cellCode, cellOf, FIRST_CATEGORY, readCells, seriesOf } from './cells.ts';
import {
  type Comparison,
  coarseChunks,
  compareChunk,
  differingCells,
  LEVEL_PAIRS,
  type LevelPair,
  tryTo,
} from './compare-levels.ts';
import { EXACT, LEVELS } from './levels.ts';
import { checkEntry } from './records.ts';
import { type BrokenReference, brokenHosts, brokenSources } from './references.ts';
import {
  CHANGES,
  CHECKSUM_BYTES,
  checkedJson,
  hasChecksum,
  levelRange,
  META_KEYS,
  type MetaKey,
  metaValue,
  openSchemaReadOnly,
  type Schema,
} from './schema.ts';

export interface Finding {
  table: string;
  key: string;
  problem: string;
  /** The project and the host of the counts, if known. */
  project?: string;
  host?: string;
  /** Milliseconds since the epoch, `to` excluded. */
  from?: number;
  to?: number;
}

export interface VerifyReport {
  pages: number;
  records: number;
  /** Records of a release without checksums. */
  without_checksum: number;
  problems: number;
  /** The first of the problems. */
  findings: Finding[];
}

/** Bounds the report. The number of problems is exact. */
export const FINDINGS_MAX = 1_000;

export type Progress = (step: string) => void;

/** Runs in one turn of the event loop, and so in one snapshot. */
export async function verifyStatistics(path: string, progress: Progress = () => {}): Promise<VerifyReport> {
  const report: VerifyReport = { pages: 0, records: 0, without_checksum: 0, problems: 0, findings: [] };
  const add = (finding: Finding) => {
    report.problems++;
    if (report.findings.length < FINDINGS_MAX) report.findings.push(finding);
  };
  progress('pages');
  const walked = await walkPages(path);
  report.pages = walked.pages;
  for (const { table, page, problem } of walked.problems) {
    add({ table, key: `page ${page}`, problem });
  }
  // LMDB trusts its pages: reading damaged ones could end the process.
  if (report.problems > 0) return report;

  const schema = openSchemaReadOnly(path);
  try {
    new Verification(schema, report, add, progress).run();
  } finally {
    await schema.root.close();
  }
  return report;
}

/** The damaged pages of a file, which may be in use. */
export async function walkPages(path: string) {
  const broken = metaProblem(path);
  if (broken !== null) return { pages: 0, problems: [{ table: '', page: 0, problem: broken }] };
  const { root } = openReadOnly(path);
  const transaction = root.useReadTransaction();
  try {
    return pageProblems(path);
  } finally {
    transaction.done();
    await root.close();
  }
}

interface Owner {
  project: string;
  host?: string;
  /** The scope of the project. */
  scope: number;
}

/** The project or host of each scope. */
export type Owners = Map<number, Owner>;

export function readOwners({ projects, hosts }: Schema): Owners {
  const owners: Owners = new Map();
  for (const { key, value } of projects.getRange()) {
    owners.set(value.scope, { project: key, scope: value.scope });
  }
  for (const { key, value } of hosts.getRange()) {
    const project = owners.get(key[0])?.project ?? '';
    owners.set(value.scope, { project, host: value.id, scope: key[0] });
  }
  return owners;
}

function ownerOf(owners: Owners, scope: number): { project?: string; host?: string } {
  const owner = owners.get(scope);
  if (owner === undefined) return {};
  return owner.host === undefined ? { project: owner.project } : { project: owner.project, host: owner.host };
}

class Verification {
  readonly #schema: Schema;
  readonly #report: VerifyReport;
  readonly #add: (finding: Finding) => void;
  readonly #progress: Progress;
  readonly #horizon: number;
  #owners: Owners = new Map();

  constructor(schema: Schema, report: VerifyReport, add: (finding: Finding) => void, progress: Progress) {
    this.#schema = schema;
    this.#report = report;
    this.#add = add;
    this.#progress = progress;
    this.#horizon = tryTo(() => metaValue(schema, 'horizon')) ?? 0;
  }

  run(): void {
    this.#progress('tables');
    const damagedTables = this.#checkJsonTables();
    this.#stage('meta', () => this.#checkMeta());
    // References can only be checked in readable tables.
    if (damagedTables.size === 0) {
      this.#stage('hosts', () => this.#checkReferences(brokenHosts));
      this.#stage('sources', () => this.#checkReferences(brokenSources));
    }
    this.#owners = tryTo(() => readOwners(this.#schema)) ?? new Map();
    this.#progress('cells');
    this.#stage('cells', () => this.#checkRecords());
    for (const pair of LEVEL_PAIRS) {
      this.#progress(`level ${pair.coarse.id} against level ${pair.fine.id}`);
      this.#stage('cells', () => this.#comparePair(pair));
    }
    this.#progress('hosts against projects');
    this.#stage('cells', () => this.#compareHosts());
  }

  /** A check that fails because of damaged data is a finding too. */
  #stage(table: string, check: () => void): void {
    const problem = problemOf(check);
    if (problem !== null) this.#add({ table, key: '', problem: `the check failed: ${problem}` });
  }

  /** Checks every value of every table but `cells`. Returns the names of damaged tables. */
  #checkJsonTables(): Set<string> {
    const damaged = new Set<string>();
    const { root } = this.#schema;
    const names = [...root.getKeys()].map(String).filter((name) => name !== 'cells');
    for (const name of names) {
      const { decode } = checkedJson(name);
      const table = root.openDB<Buffer>(name, { encoding: 'binary' });
      for (const { key, value } of table.getRange()) {
        this.#report.records++;
        if (!hasChecksum(value) && !(name === 'meta' && key === 'version')) this.#report.without_checksum++;
        try {
          decode(value);
        } catch (error) {
          damaged.add(name);
          this.#add({ table: name, key: keyText(key), problem: (error as Error).message });
        }
      }
    }
    return damaged;
  }

  #checkMeta(): void {
    const { meta, version } = this.#schema;
    if (version.get('version') === 1) return;
    for (const key of META_KEYS) {
      if (typeof tryTo(() => meta.get(key as MetaKey)) !== 'number') {
        this.#add({ table: 'meta', key, problem: 'the record is missing or damaged' });
      }
    }
  }

  #checkReferences(find: (schema: Schema) => Iterable<BrokenReference>): void {
    for (const { table, key, problem } of find(this.#schema))
      this.#add({ table, key: keyText(key), problem });
  }

  #checkRecords(): void {
    const { cells } = this.#schema;
    for (const { key, value } of cells.getRange()) {
      this.#report.records++;
      if (!hasChecksum(value)) this.#report.without_checksum++;
      const wrong = (problem: string) =>
        this.#add({ table: 'cells', key: key.toString('hex'), problem, ...this.#place(key) });
      const scope = key.length === 9 ? key.readUInt32BE(5) : CHANGES;
      if (problemOf(() => checkEntry(this.#schema, key, value)) !== null) wrong('wrong checksum');
      else if (scope !== CHANGES && this.#owners.size > 0 && !this.#owners.has(scope)) {
        wrong(`no project and no host has the scope ${scope}`);
      }
    }
  }

  #comparePair(pair: LevelPair): void {
    for (const chunk of coarseChunks(this.#schema, pair)) {
      for (const comparison of compareChunk(this.#schema, pair, chunk)) {
        this.#checkSums(pair, chunk, comparison);
      }
    }
  }

  /** At most one finding per record, about the first cell that differs. Damaged records have been reported. */
  #checkSums(pair: LevelPair, chunk: number, { scope, sums, stored, damaged }: Comparison): void {
    if (stored === 'damaged' || damaged.size > 0) return;
    const [code, ...more] = differingCells(pair, chunk, sums, stored, this.#horizon);
    if (code === undefined) return;
    const { coarse, fine } = pair;
    const problem =
      `${seriesName(seriesOf(code))}: ${stored.get(code) ?? 0} at level ${coarse.id}, ` +
      `but ${sums.get(code) ?? 0} at level ${fine.id}${more.length > 0 ? `, and ${more.length} more` : ''}`;
    this.#add({ ...cellLocation(this.#owners, coarse.id, chunk, scope, code), problem });
  }

  /** Level 2 is enough: differences to other levels have been reported. */
  #compareHosts(): void {
    const level = LEVELS[2];
    const hostsLeft = new Map<number, Map<number, number>>();
    let current = -1;
    const finish = () => {
      for (const [scope, rest] of hostsLeft) {
        const worst = [...rest].find(([, count]) => count < 0);
        if (worst === undefined) continue;
        const [code, difference] = worst;
        const problem = `${seriesName(seriesOf(code))}: the hosts have ${-difference} more than the project`;
        this.#add({ ...cellLocation(this.#owners, level.id, current, scope, code), problem });
      }
      hostsLeft.clear();
    };
    const first = Math.ceil(this.#horizon / (level.cellMs * level.cellsPerChunk));
    for (const { key, value } of this.#schema.cells.getRange(levelRange(level, first))) {
      const chunk = key.readUInt32BE(1);
      const scope = key.readUInt32BE(5);
      if (chunk !== current) finish();
      current = chunk;
      const owner = this.#owners.get(scope);
      if (owner === undefined || problemOf(() => checkEntry(this.#schema, key, value)) !== null) continue;
      const rest = hostsLeft.get(owner.scope) ?? new Map<number, number>();
      hostsLeft.set(owner.scope, rest);
      const sign = owner.host === undefined ? 1 : -1;
      for (const [series, cell, count] of readCells(
        hasChecksum(value) ? value.subarray(CHECKSUM_BYTES) : value,
      )) {
        const code = cellCode(series, cell);
        rest.set(code, (rest.get(code) ?? 0) + sign * count);
      }
    }
    finish();
  }

  #place(key: Buffer): Partial<Finding> {
    if (key.length !== 9 || LEVELS[key[0] ?? 0] === undefined) return {};
    const {
      table: _,
      key: __,
      ...place
    } = chunkLocation(this.#owners, key[0] ?? 0, key.readUInt32BE(1), key.readUInt32BE(5));
    return place;
  }
}

/** The place of a record, for a finding. */
export function chunkLocation(owners: Owners, level: number, chunk: number, scope: number) {
  const { cellMs, cellsPerChunk } = LEVELS[level] ?? EXACT;
  const from = chunk * cellMs * cellsPerChunk;
  const key = `level ${level}, chunk ${chunk}, scope ${scope}`;
  return { table: 'cells', key, ...ownerOf(owners, scope), from, to: from + cellMs * cellsPerChunk };
}

/** The place of one cell of a record. */
function cellLocation(owners: Owners, level: number, chunk: number, scope: number, code: number) {
  const { cellMs } = LEVELS[level] ?? EXACT;
  const location = chunkLocation(owners, level, chunk, scope);
  const from = location.from + cellOf(code) * cellMs;
  return { ...location, from, to: from + cellMs };
}

function seriesName(series: number): string {
  return CATEGORIES[series - FIRST_CATEGORY] ?? 'requests';
}

export function keyText(key: unknown): string {
  return typeof key === 'string' ? key : inspect(key, { breakLength: Number.POSITIVE_INFINITY });
}

function problemOf(action: () => unknown): string | null {
  try {
    action();
    return null;
  } catch (error) {
    return (error as Error).message;
  }
}
