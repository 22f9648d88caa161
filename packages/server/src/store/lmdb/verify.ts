/** Checks a whole statistics file in one snapshot, while other processes keep writing. */
import { inspect } from 'node:util';
import { open } from 'lmdb';
import { CATEGORIES } from '../../event.ts';
import { metaProblem, pageProblems } from '../../lmdb/pages.ts';
import { cellCode, cellOf, FIRST_CATEGORY, readCells, seriesOf } from './cells.ts';
import {
  type Comparison,
  coarseChunks,
  compareScopes,
  isComparable,
  LEVEL_PAIRS,
  type LevelPair,
  scopeRanges,
  tryTo,
} from './compare-levels.ts';
import { EXACT, LEVELS } from './levels.ts';
import { checkEntry, matchesHostKey, matchesProjectKey } from './records.ts';
import {
  CHANGES,
  CHECKSUM_BYTES,
  cellsKey,
  checkedJson,
  hasChecksum,
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
const FINDINGS_MAX = 1_000;

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
  const root = open({ path, noSubdir: true, maxDbs: 16, overlappingSync: false, readOnly: true });
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
  #owners: Owners = new Map();

  constructor(schema: Schema, report: VerifyReport, add: (finding: Finding) => void, progress: Progress) {
    this.#schema = schema;
    this.#report = report;
    this.#add = add;
    this.#progress = progress;
  }

  run(): void {
    this.#progress('tables');
    const damagedTables = this.#checkJsonTables();
    this.#stage('meta', () => this.#checkMeta());
    // References can only be checked in readable tables.
    if (damagedTables.size === 0) {
      this.#stage('hosts', () => this.#checkHosts());
      this.#stage('sources', () => this.#checkSources());
    } else {
      this.#owners = tryTo(() => readOwners(this.#schema)) ?? new Map();
    }
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
          this.#add({ table: name, key: text(key), problem: (error as Error).message });
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

  #checkHosts(): void {
    this.#owners = readOwners(this.#schema);
    const { projects, hosts, hostnames, meta } = this.#schema;
    const counts = new Map<number, number>();
    const last = meta.get('scopes') ?? 0;
    for (const { key, value } of hosts.getRange()) {
      const wrong = (problem: string) =>
        this.#add({ table: 'hosts', key: text(key), problem, host: value.id });
      counts.set(key[0], (counts.get(key[0]) ?? 0) + 1);
      if (!matchesHostKey(key, value)) wrong('the record belongs to another key');
      if (value.scope > last) wrong(`the scope ${value.scope} was never assigned`);
      if (!this.#owners.get(key[0])?.project) wrong('the project does not exist');
      if (hostnames.get([key[0], value.hostname]) !== value.id)
        wrong(`the name ${value.hostname} refers to another host`);
    }
    for (const { key, value } of hostnames.getRange()) {
      if (hosts.get([key[0], value])?.hostname !== key[1]) {
        const problem = `the host ${value} does not have this name`;
        this.#add({ table: 'hostnames', key: text(key), problem });
      }
    }
    for (const { key, value } of projects.getRange()) {
      const wrong = (problem: string) => this.#add({ table: 'projects', key, problem, project: key });
      if (!matchesProjectKey(key, value)) wrong('the record belongs to another key');
      if (value.scope > last) wrong(`the scope ${value.scope} was never assigned`);
      const count = counts.get(value.scope) ?? 0;
      if (count !== value.hosts) wrong(`the record has ${value.hosts} hosts, but there are ${count}`);
    }
  }

  #checkSources(): void {
    const { sources, sourceHosts, hosts, batches, batchLinks, batchDays, meta } = this.#schema;
    const projectOf = new Map<number, number>();
    for (const { key, value } of sources.getRange()) {
      const wrong = (problem: string) => this.#add({ table: 'sources', key: text(key), problem });
      if (key[1] !== value.name) wrong('the record belongs to another key');
      if (value.number > (meta.get('sources') ?? 0)) wrong(`the number ${value.number} was never assigned`);
      if (projectOf.has(value.number)) wrong(`another source has the number ${value.number}`);
      projectOf.set(value.number, key[0]);
    }
    const check = (table: string, key: unknown, isRight: boolean, problem: string) => {
      if (!isRight) this.#add({ table, key: text(key), problem });
    };
    for (const key of sourceHosts.getKeys()) {
      const project = projectOf.get(key[0]) ?? -1;
      check('source-hosts', key, hosts.doesExist([project, key[1]]), 'the source or the host does not exist');
    }
    for (const { key, value } of batches.getRange()) {
      const [source, id] = key;
      const hasDay = batchDays.doesExist([value.day, source, id]);
      const hasLink = value.after === undefined || batchLinks.doesExist([source, value.after, id]);
      check('batches', key, projectOf.has(source), 'the source does not exist');
      check('batches', key, hasDay, 'the record in batch-days is missing');
      check('batches', key, hasLink, 'the record in batch-links is missing');
    }
    for (const key of batchLinks.getKeys()) {
      const [source, after, id] = key;
      const hasPredecessor = after === '' || batches.doesExist([source, after]);
      check('batch-links', key, batches.get([source, id])?.after === after, 'the batch does not exist');
      check('batch-links', key, hasPredecessor, 'the previous batch does not exist');
    }
    for (const key of batchDays.getKeys()) {
      check('batch-days', key, batches.get([key[1], key[2]])?.day === key[0], 'the batch does not exist');
    }
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
    const horizon = tryTo(() => metaValue(this.#schema, 'horizon')) ?? 0;
    for (const chunk of coarseChunks(this.#schema, pair)) {
      for (const [from, to] of scopeRanges(this.#schema, pair, chunk)) {
        for (const comparison of compareScopes(this.#schema, pair, chunk, from, to)) {
          const finding = this.#difference(pair, chunk, comparison, horizon);
          if (finding !== null) this.#add(finding);
        }
      }
    }
  }

  /** At most one finding per record, about the first cell that differs. Damaged records have been reported. */
  #difference(
    pair: LevelPair,
    chunk: number,
    { scope, sums, stored, damaged }: Comparison,
    horizon: number,
  ): Finding | null {
    if (stored === 'damaged' || damaged.size > 0) return null;
    const { coarse, fine } = pair;
    const codes = [...new Set([...sums.keys(), ...stored.keys()])]
      .filter((code) => isComparable(code, pair, chunk, horizon) && sums.get(code) !== stored.get(code))
      .sort((a, b) => a - b);
    const [code] = codes;
    if (code === undefined) return null;
    const problem =
      `${seriesName(seriesOf(code))}: ${stored.get(code) ?? 0} at level ${coarse.id}, ` +
      `but ${sums.get(code) ?? 0} at level ${fine.id}${codes.length > 1 ? `, and ${codes.length - 1} more` : ''}`;
    return { ...cellLocation(this.#owners, coarse.id, chunk, scope, code), problem };
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
    const horizon = tryTo(() => metaValue(this.#schema, 'horizon')) ?? 0;
    const first = Math.ceil(horizon / (level.cellMs * level.cellsPerChunk));
    const range = this.#schema.cells.getRange({
      start: cellsKey(level.id, first, 0),
      end: cellsKey(level.id + 1, 0, 0),
    });
    for (const { key, value } of range) {
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

function text(key: unknown): string {
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
