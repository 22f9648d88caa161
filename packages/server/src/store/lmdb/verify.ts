/** Everything that can be checked in a statistics file, in one snapshot, while others go on writing. */
import { inspect } from 'node:util';
import { open } from 'lmdb';
import { CATEGORIES } from '../../event.ts';
import { metaProblem, pageProblems } from '../../lmdb/pages.ts';
import { readCells, seriesOf } from './cells.ts';
import { checkedJson, hasChecksum } from './checksum.ts';
import { LEVELS } from './levels.ts';
import { checkEntry, isHostOf, isProject } from './records.ts';
import {
  CHANGES,
  cellsKey,
  META_KEYS,
  type MetaKey,
  metaValue,
  openSchemaReadOnly,
  type Schema,
} from './schema.ts';
import { FIRST_CATEGORY } from './tally.ts';
import {
  type Comparison,
  coarseChunks,
  compareScopes,
  isComparable,
  LEVEL_PAIRS,
  type LevelPair,
  scopeRanges,
  tryTo,
} from './windows.ts';

export interface Finding {
  table: string;
  key: string;
  problem: string;
  /** Whose counts these are, as far as known. */
  project?: string;
  host?: string;
  /** Milliseconds since the epoch, the end excluded. */
  from?: number;
  to?: number;
}

export interface VerifyReport {
  pages: number;
  records: number;
  /** Records that were written by a release without checksums. */
  without_checksum: number;
  problems: number;
  /** The first of them. */
  findings: Finding[];
}

/** Bounds the report; the number of problems is exact. */
const FINDINGS_MAX = 1_000;

export type Progress = (step: string) => void;

/** All in one turn of the event loop, so all of it is one snapshot. */
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
  // LMDB trusts its pages: with damaged ones, to go on could end the process.
  if (report.problems > 0) return report;

  const schema = openSchemaReadOnly(path);
  try {
    new Verification(schema, report, add, progress).run();
  } finally {
    await schema.root.close();
  }
  return report;
}

/** Of a file that may be in use. */
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

/** By scope. */
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

export function ownerOf(owners: Owners, scope: number): { project?: string; host?: string } {
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
    // Cross references need what they refer to.
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

  /** What a damaged key or value can make of a check is a finding, too. */
  #stage(table: string, check: () => void): void {
    const problem = problemOf(check);
    if (problem !== null) this.#add({ table, key: '', problem: `the check failed: ${problem}` });
  }

  /** The checksum of every value, in every table but `cells`. */
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
      if (!isHostOf(key, value)) wrong('the record belongs to another key');
      if (value.scope > last) wrong(`the scope ${value.scope} was never given out`);
      if (!this.#owners.get(key[0])?.project) wrong('the project does not exist');
      if (hostnames.get([key[0], value.hostname]) !== value.id)
        wrong(`the name ${value.hostname} leads elsewhere`);
    }
    for (const { key, value } of hostnames.getRange()) {
      if (hosts.get([key[0], value])?.hostname !== key[1]) {
        this.#add({
          table: 'hostnames',
          key: text(key),
          problem: `the host ${value} does not have this name`,
        });
      }
    }
    for (const { key, value } of projects.getRange()) {
      const wrong = (problem: string) => this.#add({ table: 'projects', key, problem, project: key });
      if (!isProject(key, value)) wrong('the record belongs to another key');
      if (value.scope > last) wrong(`the scope ${value.scope} was never given out`);
      const count = counts.get(value.scope) ?? 0;
      if (count !== value.hosts) wrong(`the record says ${value.hosts} hosts, there are ${count}`);
    }
  }

  #checkSources(): void {
    const { sources, sourceHosts, hosts, batches, batchLinks, batchDays, meta } = this.#schema;
    const projectOf = new Map<number, number>();
    for (const { key, value } of sources.getRange()) {
      const wrong = (problem: string) => this.#add({ table: 'sources', key: text(key), problem });
      if (key[1] !== value.name) wrong('the record belongs to another key');
      if (value.number > (meta.get('sources') ?? 0)) wrong(`the number ${value.number} was never given out`);
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
      check('batches', key, projectOf.has(source), 'the source does not exist');
      check(
        'batches',
        key,
        batchDays.doesExist([value.day, source, id]),
        'the record in batch-days is missing',
      );
      if (value.after !== undefined) {
        check(
          'batches',
          key,
          batchLinks.doesExist([source, value.after, id]),
          'the record in batch-links is missing',
        );
      }
    }
    for (const key of batchLinks.getKeys()) {
      const [source, after, id] = key;
      check('batch-links', key, batches.get([source, id])?.after === after, 'the batch does not exist');
      check(
        'batch-links',
        key,
        after === '' || batches.doesExist([source, after]),
        'the batch before does not exist',
      );
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
      const problem = problemOf(() => checkEntry(this.#schema, key, value));
      const scope = key.length === 9 ? key.readUInt32BE(5) : CHANGES;
      if (problem !== null) {
        this.#add({
          table: 'cells',
          key: key.toString('hex'),
          problem: 'wrong checksum',
          ...this.#place(key),
        });
      } else if (scope !== CHANGES && this.#owners.size > 0 && !this.#owners.has(scope)) {
        const unknown = `the scope ${scope} is of no project and no host`;
        this.#add({ table: 'cells', key: key.toString('hex'), problem: unknown, ...this.#place(key) });
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

  /** One for each record, about the first cell that differs. What is damaged has been reported. */
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
    const from = (chunk * coarse.cellsPerChunk + (code % 65_536)) * coarse.cellMs;
    const problem =
      `${nameOf(seriesOf(code))}: ${stored.get(code) ?? 0} at level ${coarse.id}, ` +
      `but ${sums.get(code) ?? 0} at level ${fine.id}${codes.length > 1 ? `, and ${codes.length - 1} more` : ''}`;
    const key = `level ${coarse.id}, chunk ${chunk}, scope ${scope}`;
    return { table: 'cells', key, problem, ...ownerOf(this.#owners, scope), from, to: from + coarse.cellMs };
  }

  /** Level 2 is enough: the others agree with it, or have been reported. */
  #compareHosts(): void {
    const level = LEVELS[2];
    const hostsLeft = new Map<number, Map<number, number>>();
    let current = -1;
    const finish = () => {
      for (const [scope, rest] of hostsLeft) {
        const worst = [...rest].find(([, count]) => count < 0);
        if (worst === undefined) continue;
        const from = (current * level.cellsPerChunk + (worst[0] % 65_536)) * level.cellMs;
        const problem = `${nameOf(seriesOf(worst[0]))}: the hosts have ${-worst[1]} more than the project`;
        const key = `level ${level.id}, chunk ${current}, scope ${scope}`;
        this.#add({
          table: 'cells',
          key,
          problem,
          ...ownerOf(this.#owners, scope),
          from,
          to: from + level.cellMs,
        });
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
      for (const [series, cell, count] of readCells(hasChecksum(value) ? value.subarray(4) : value)) {
        const code = series * 65_536 + cell;
        rest.set(code, (rest.get(code) ?? 0) + sign * count);
      }
    }
    finish();
  }

  #place(key: Buffer): Partial<Finding> {
    const level = LEVELS[key[0] ?? 0];
    if (key.length !== 9 || level === undefined) return {};
    const chunkMs = level.cellMs * level.cellsPerChunk;
    const from = key.readUInt32BE(1) * chunkMs;
    return { ...ownerOf(this.#owners, key.readUInt32BE(5)), from, to: from + chunkMs };
  }
}

function nameOf(series: number): string {
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
