/** Checks a whole statistics file in one snapshot, while other processes keep writing. */

import { inspect } from 'node:util';
import { tryTo } from '../../lmdb/commit.ts';
import { openReadOnly } from '../../lmdb/files.ts';
import { metaProblem, pageProblems } from '../../lmdb/pages.ts';
import { AttackCounter } from '../attack-counts.ts';
import { cellOf, isPeak, readCells, seriesName, seriesOf } from '../cells.ts';
import type { Level } from '../plan.ts';
import { finish } from '../slices.ts';
import { HOUR_MS, StoreDamaged } from '../store.ts';
import { dumpAttacks } from './attacks.ts';
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
  LEVEL_PAIRS,
  type LevelPair,
} from './compare-levels.ts';
import { checkEntry, chunksOf, records } from './records.ts';
import {
  CHANGES,
  checkKnownVersion,
  LEVELS,
  metaValue,
  openTables,
  type Schema,
  STORAGE_VERSION,
} from './schema.ts';

export interface Finding {
  table: string;
  key: string;
  problem: string;
  /** The project and the host of the counts, if known. */
  project?: string;
  host?: string;
  /** Milliseconds since the epoch; `to` is exclusive. */
  from?: number;
  to?: number;
}

export interface VerifyReport {
  pages: number;
  records: number;
  problems: number;
  /** The first of the problems. */
  findings: Finding[];
}

/** Bounds the report. The number of problems is exact. */
export const FINDINGS_MAX = 1_000;

export type Progress = (step: string) => void;

/** Runs in one turn of the event loop, and so in one snapshot. */
export async function verifyStatistics(path: string, progress: Progress = () => {}): Promise<VerifyReport> {
  progress('pages');
  const { pages, problems } = await walkPages(path);
  const report: VerifyReport = { pages, records: 0, problems: problems.length, findings: problems };
  // LMDB trusts its pages: reading damaged ones could end the process.
  if (problems.length > 0) return report;
  const schema = openTables(path, true);
  try {
    checkKnownVersion(tryTo(() => schema.version.get('version')) ?? STORAGE_VERSION, path);
    new Verification(schema, report, progress).run();
  } finally {
    await schema.root.close();
  }
  return report;
}

/** The damaged pages of a file, which may be in use. */
export async function walkPages(path: string, tables?: readonly string[]) {
  const broken = metaProblem(path);
  if (broken !== null) return { pages: 0, problems: [{ table: '', key: 'page 0', problem: broken }] };
  const { root } = openReadOnly(path);
  const transaction = root.useReadTransaction();
  try {
    return pageProblems(path, tables);
  } finally {
    transaction.done();
    await root.close();
  }
}

interface Owner {
  project: string;
  host?: string;
  projectScope: number;
}

/** The project or host of each scope. */
export type Owners = Map<number, Owner>;

export function readOwners({ projects, hosts }: Schema): Owners {
  const owners: Owners = new Map();
  for (const { key, value } of projects.getRange()) {
    owners.set(value.scope, { project: key, projectScope: value.scope });
  }
  for (const { key, value } of hosts.getRange()) {
    const project = owners.get(key[0])?.project ?? '';
    owners.set(value.scope, { project, host: value.id, projectScope: key[0] });
  }
  return owners;
}

class Verification {
  readonly #schema: Schema;
  readonly #report: VerifyReport;
  readonly #progress: Progress;
  readonly #horizon: number;
  #owners: Owners = new Map();

  constructor(schema: Schema, report: VerifyReport, progress: Progress) {
    this.#schema = schema;
    this.#report = report;
    this.#progress = progress;
    this.#horizon = tryTo(() => metaValue(schema, 'horizon')) ?? 0;
  }

  run(): void {
    this.#progress('tables');
    this.#addAll(brokenMeta(this.#schema));
    this.#addAll(brokenValues(this.#schema, () => this.#report.records++));
    // References can only be checked in readable tables.
    if (this.#report.problems === 0) {
      this.#stage('hosts', () => this.#addAll(brokenHosts(this.#schema)));
      this.#stage('sources', () => this.#addAll(brokenSources(this.#schema)));
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
    for (const table of HOURLY_TABLES) {
      this.#progress(table.name);
      this.#stage(table.name, () => this.#checkHours(table));
    }
    // Damaged blocks have been reported, and damaged counters say nothing about blocks.
    if (this.#report.problems > 0) return;
    this.#progress('attacks against counters');
    this.#stage('attacks', () => this.#compareAttacks());
  }

  #add(finding: Finding): void {
    this.#report.problems++;
    if (this.#report.findings.length < FINDINGS_MAX) this.#report.findings.push(finding);
  }

  /** A check that fails because of damaged data is a finding too. */
  #stage(table: string, check: () => void): void {
    try {
      check();
    } catch (error) {
      this.#add({ table, key: '', problem: `the check failed: ${(error as Error).message}` });
    }
  }

  #addAll(problems: Iterable<Problem>): void {
    for (const { table, key, problem } of problems) this.#add({ table, key: keyText(key), problem });
  }

  #checkRecords(): void {
    const { cells } = this.#schema;
    for (const { key, value } of cells.getRange()) {
      this.#report.records++;
      const level = key.length === 9 ? LEVELS[key[0] ?? 0] : undefined;
      if (level === undefined) {
        this.#add({ table: 'cells', key: key.toString('hex'), problem: 'invalid key' });
        continue;
      }
      const scope = key.readUInt32BE(5);
      const isIntact = tryTo(() => checkEntry(key, value)) !== null;
      if (isIntact && (scope === CHANGES || this.#owners.size === 0 || this.#owners.has(scope))) continue;
      const problem = isIntact ? `no project and no host has the scope ${scope}` : 'wrong checksum';
      this.#add({ ...location(this.#owners, level, key.readUInt32BE(1), scope), problem });
    }
  }

  #checkHours(table: HourlyTable): void {
    for (const { key, value } of table.of(this.#schema).getRange()) {
      this.#report.records++;
      const finding = damageOf(this.#owners, table, key, value, this.#schema);
      if (finding !== null) this.#add(finding);
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
    this.#add({ ...location(this.#owners, coarse, chunk, scope, code), problem });
  }

  /** Level 2 is enough: differences from other levels have been reported. */
  #compareHosts(): void {
    const level = LEVELS[2];
    const first = Math.ceil(this.#horizon / (level.cellMs * level.cellsPerChunk));
    for (const chunk of chunksOf(this.#schema, level, first)) {
      // By project: its counts minus those of its hosts.
      const differences = new Map<number, Cells>();
      for (const { scope, sections } of records(this.#schema, level, chunk)) {
        const owner = this.#owners.get(scope);
        if (owner === undefined || sections === null) continue;
        const rest: Cells = differences.get(owner.projectScope) ?? new Map();
        differences.set(owner.projectScope, rest);
        for (const [code, count] of readCells(sections)) {
          if (isPeak(seriesOf(code))) continue;
          // A sum of bytes that reached its limit stands for any larger one.
          const total = count === Number.MAX_SAFE_INTEGER ? Number.POSITIVE_INFINITY : count;
          rest.set(code, (rest.get(code) ?? 0) + (owner.host === undefined ? total : -count));
        }
      }
      for (const [scope, rest] of differences) {
        const [code, count] = [...rest].find((cell) => cell[1] < 0) ?? [];
        if (code === undefined || count === undefined) continue;
        const problem = `${seriesName(seriesOf(code))}: the hosts have ${-count} more than the project`;
        this.#add({ ...location(this.#owners, level, chunk, scope, code), problem });
      }
    }
  }

  /** No hour keeps more attacks of a category than were counted, blocked or not: so hours that keep all have the same. */
  #compareAttacks(): void {
    for (const [scope, { project }] of this.#owners) {
      const record = this.#schema.projects.get(project);
      if (record?.scope !== scope) continue;
      for (const { hour, blocks } of dumpAttacks(this.#schema, record)) {
        const edges = [hour * HOUR_MS, (hour + 1) * HOUR_MS];
        const query = { project, edges, by: 'actions', filter: { include: {}, exclude: {} } } as const;
        const counter = new AttackCounter(query, () => true);
        finish(counter.add({ hour, blocks }));
        const counted = this.#countedInHour(hour, scope);
        const kept = new Map<string, number>();
        for (const [value, [count = 0]] of finish(counter.result()).points) {
          const [category = '', action] = value.split(' ');
          for (const name of action === 'block' ? [category, `blocked ${category}`] : [category])
            kept.set(name, (kept.get(name) ?? 0) + count);
        }
        const [name, count] = [...kept].find(([each, n]) => n > (counted.get(each) ?? 0)) ?? [];
        if (name === undefined) continue;
        const place = { table: 'attacks', key: `scope ${scope}`, project, from: edges[0], to: edges[1] };
        const problem = `${name}: ${count} are kept, but ${counted.get(name) ?? 0} were counted`;
        this.#add({ ...place, problem } as Finding);
      }
    }
  }

  /** The counts of a project by name of the series. */
  #countedInHour(hour: number, scope: number): Map<string, number> {
    const [level] = LEVELS;
    const chunk = Math.floor(hour / level.cellsPerChunk);
    const counts = new Map<string, number>();
    for (const { sections } of records(this.#schema, level, chunk, scope, scope + 1)) {
      for (const [code, count] of readCells(sections ?? new Uint8Array(0)))
        if (cellOf(code) === hour % level.cellsPerChunk) counts.set(seriesName(seriesOf(code)), count);
    }
    return counts;
  }
}

/** What is wrong with a record, or null. */
export function damageOf(
  owners: Owners,
  table: HourlyTable,
  key: Buffer,
  value: Buffer,
  schema: Schema,
): Finding | null {
  const parsed = tryTo(() => table.parseKey(key));
  const damage = 'invalid key or wrong checksum';
  if (parsed === null) return { table: table.name, key: key.toString('hex'), problem: damage };
  const { hour, scope, number } = parsed;
  const { projectScope: _, ...owner }: Partial<Owner> = owners.get(scope) ?? {};
  const from = hour * HOUR_MS;
  const name = number === undefined ? `scope ${scope}` : `scope ${scope}, block ${number}`;
  const place = { table: table.name, key: name, ...owner, from, to: from + HOUR_MS };
  try {
    table.check(key, value, table.of(schema));
  } catch (error) {
    return { ...place, problem: error instanceof StoreDamaged ? damage : (error as Error).message };
  }
  if (owners.size === 0 || owners.has(scope)) return null;
  return { ...place, problem: `no project and no host has the scope ${scope}` };
}

/** The place of a record or of one of its cells, for a finding. */
export function location(owners: Owners, level: Level, chunk: number, scope: number, code?: number) {
  const { id, cellMs, cellsPerChunk } = level;
  const first = chunk * cellsPerChunk + (code === undefined ? 0 : cellOf(code));
  const end = first + (code === undefined ? cellsPerChunk : 1);
  const { projectScope: _, ...owner }: Partial<Owner> = owners.get(scope) ?? {};
  const key = `level ${id}, chunk ${chunk}, scope ${scope}`;
  return { table: 'cells', key, ...owner, from: first * cellMs, to: end * cellMs };
}

export function keyText(key: unknown): string {
  return typeof key === 'string' ? key : inspect(key, { breakLength: Number.POSITIVE_INFINITY });
}
