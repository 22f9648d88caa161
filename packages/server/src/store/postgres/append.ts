/** The write side: one group of batches of one project in one transaction of two round trips. */
import { randomInt } from 'node:crypto';
import { EVENT_COUNT_MAX, type Event } from '../../event.ts';
import {
  type Additions,
  additionsOf,
  cellCode,
  cellOf,
  FIRST_BLOCKED,
  FIRST_CATEGORY,
  mergeCells,
  packCell,
  REQUESTS,
  RecordWriter,
  seriesOf,
  seriesTotals,
  sumCells,
} from '../cells.ts';
import {
  type Appended,
  type Batch,
  dayOf,
  derivedId,
  isLinkCurrent,
  newSource,
  type Source,
  storedCategory,
  updateSource,
} from '../store.ts';
import { type Database, type Run, StatementFailed } from './database.ts';
import { CHANGES_MS, createPartitions, EXACT, NO_HOST, ROLLUPS, SECONDS } from './schema.ts';
import { SegmentWriter } from './segments.ts';

/** No partition for a row. */
const CHECK_VIOLATION = '23514';
const MINUTE_MS = EXACT.cellsPerChunk;
/** Change counters begin again after this, before they overflow. A power of two, minus one. */
const CHANGES_MAX = 2n ** 62n - 1n;
/** Retention may drop a partition again before it is used, but not often. */
const PARTITION_TRIES = 5;

/** All batches are of the same project. */
export async function appendGroup(
  database: Database,
  batches: readonly Batch[],
  now: number,
): Promise<Appended[]> {
  // The work of counting is done before the project is locked. It is repeated only if some events do not count.
  const counted = new GroupCounts(batches.flatMap(({ events }) => events));
  for (let tries = 1; ; tries++) {
    try {
      return await database.transaction((run) => appendLocked(run, batches, counted, now));
    } catch (error) {
      // Also if the horizon has moved and the partition was dropped: the next try reads the new horizon.
      const isMissing = error instanceof StatementFailed && error.code === CHECK_VIOLATION;
      if (!isMissing || tries === PARTITION_TRIES) throw error;
      const [row] = await database.run<{ horizon: number }>('SELECT horizon FROM retention');
      const horizon = row?.horizon ?? 0;
      await createPartitions(
        database,
        [...counted.times()].filter((time) => time + MINUTE_MS > horizon),
      );
    }
  }
}

async function appendLocked(
  run: Run,
  batches: readonly Batch[],
  expected: GroupCounts,
  now: number,
): Promise<Appended[]> {
  const project = batches[0]?.project ?? '';
  const [state, known, rollups] = await Promise.all([
    lockProject(run, project),
    readKnown(run, project, batches, expected),
    readRollups(run, project, expected),
  ]);
  const plan = new GroupPlan(state, known, now);
  const results = batches.map((batch) => plan.add(batch));
  if (plan.isEmpty()) return results;
  const counted = plan.isWhole ? expected : new GroupCounts(plan.events());
  await Promise.all([
    ...writeCounts(run, project, counted, known.hosts, rollups, plan),
    ...plan.writes(run, project),
    run('COMMIT'),
  ]);
  return results;
}

export interface ProjectState {
  hosts: number;
  sources: number;
  appends: number;
  latest: number | null;
  horizon: number;
}

/** Creates the project if it is new. Transactions that change a project wait for each other here. */
export async function lockProject(run: Run, project: string): Promise<ProjectState> {
  const [, rows] = await Promise.all([
    run('INSERT INTO projects (project) VALUES ($1) ON CONFLICT DO NOTHING', [project]),
    run<Row<ProjectState>>(
      `SELECT p.hosts, p.sources, p.appends, p.latest, (SELECT horizon FROM retention) AS horizon
       FROM projects p WHERE p.project = $1 FOR UPDATE`,
      [project],
    ),
  ]);
  return rows[0] as ProjectState;
}

type Row<T> = T & Readonly<Record<string, unknown>>;

type SourceRecord = Omit<Source, 'hosts'>;

/** What the database knows of the batches and of what they refer to. Sources are known by name. */
interface Known {
  hosts: Map<string, number>;
  sources: Map<string, { number: number; record: SourceRecord }>;
  /** Keys of `batchKey`. */
  batches: Set<string>;
  /** Batch IDs, by `batchKey` of the batch before them. */
  after: Map<string, string[]>;
}

function batchKey(source: string, id: string): string {
  return JSON.stringify([source, id]);
}

async function readKnown(
  run: Run,
  project: string,
  batches: readonly Batch[],
  { hosts: hostIds }: GroupCounts,
): Promise<Known> {
  const ids = new Map<string, [source: string, id: string]>();
  for (const { source, id, link } of batches) {
    for (const each of [id, link?.after, link?.replaces]) {
      if (each !== undefined) ids.set(batchKey(source.name, each), [source.name, each]);
    }
  }
  const pairs = [...ids.values()];
  const values = [project, pairs.map(([source]) => source), pairs.map(([, id]) => id)];
  const [hosts, sources, found, links] = await Promise.all([
    run<{ id: string; number: number }>('SELECT id, number FROM hosts WHERE project = $1 AND id = ANY($2)', [
      project,
      [...hostIds],
    ]),
    run<{ name: string; number: number; record: SourceRecord }>(
      'SELECT name, number, record FROM sources WHERE project = $1 AND name = ANY($2)',
      [project, [...new Set(batches.map(({ source }) => source.name))]],
    ),
    run<{ name: string; id: string }>(
      `SELECT k.name, b.id FROM unnest($2::text[], $3::text[]) AS k(name, id)
       JOIN sources s ON s.project = $1 AND s.name = k.name
       JOIN batches b ON b.project = $1 AND b.source = s.number AND b.id = k.id`,
      values,
    ),
    // Only files have links.
    batches.every(({ link }) => link === undefined)
      ? []
      : run<{ name: string; after: string; id: string }>(
          `SELECT k.name, b.after, b.id FROM unnest($2::text[], $3::text[]) AS k(name, id)
       JOIN sources s ON s.project = $1 AND s.name = k.name
       JOIN batches b ON b.project = $1 AND b.source = s.number AND b.after = k.id`,
          values,
        ),
  ]);
  const after = new Map<string, string[]>();
  for (const link of links) {
    const key = batchKey(link.name, link.after);
    after.set(key, [...(after.get(key) ?? []), link.id]);
  }
  return {
    hosts: new Map(hosts.map(({ id, number }) => [id, number])),
    sources: new Map(sources.map(({ name, ...source }) => [name, source])),
    batches: new Set(found.map(({ name, id }) => batchKey(name, id))),
    after,
  };
}

/** Decides which batches count. A batch sees the changes of those before it in the group. */
class GroupPlan {
  readonly #state: ProjectState;
  readonly #known: Known;
  readonly #now: number;
  readonly #changedSources = new Map<string, SourceRecord>();
  readonly #sourceHosts = new Map<string, Set<number>>();
  readonly #newBatches = new Map<string, { source: string; day: number; batch: Batch }>();
  readonly #replaced: [source: string, id: string][] = [];
  readonly #followed = new Map<string, string>();
  readonly #counted: (readonly Event[])[] = [];
  /** Every event of every batch counts. */
  isWhole = true;
  latest: number | null;

  constructor(state: ProjectState, known: Known, now: number) {
    this.#state = state;
    this.#known = known;
    this.#now = now;
    this.latest = state.latest;
  }

  add(batch: Batch): Appended {
    const { project, source, id, link } = batch;
    const { batches, after, hosts } = this.#known;
    const exists = (other: string) => batches.has(batchKey(source.name, other));
    const idsAfter = (other: string) => after.get(batchKey(source.name, other)) ?? [];
    const isDuplicate = id !== undefined && exists(id);
    if (isDuplicate || (link && !isLinkCurrent(link, exists, idsAfter))) {
      if (batch.events.length > 0) this.isWhole = false;
      return { kind: isDuplicate ? 'duplicate' : 'conflict' };
    }
    const { horizon } = this.#state;
    const isInTime = batch.events.every(({ time }) => time >= horizon);
    const counted = isInTime ? batch.events : batch.events.filter(({ time }) => time >= horizon);
    if (!isInTime) this.isWhole = false;
    let withoutHost = 0;
    let unknownHosts = 0;
    const reported = this.#sourceHosts.get(source.name) ?? new Set<number>();
    this.#sourceHosts.set(source.name, reported);
    let newest = this.#now;
    for (const { time, hostId } of counted) {
      this.latest = this.latest === null || time > this.latest ? time : this.latest;
      if (time > newest) newest = time;
      const host = hostId === null ? undefined : hosts.get(hostId);
      if (host !== undefined) reported.add(host);
      else {
        withoutHost++;
        if (hostId !== null) unknownHosts++;
      }
    }
    this.#counted.push(counted);
    const fresh = newSource(derivedId('source', project, source.name), source);
    const record = this.#changedSources.get(source.name) ?? this.#known.sources.get(source.name)?.record;
    this.#changedSources.set(source.name, updateSource({ ...fresh, ...record }, batch, counted, withoutHost));
    if (batch.followed) {
      const { source: name, path } = batch.followed;
      this.#followed.set(derivedId('path', name, path), JSON.stringify(batch.followed));
    }
    if (id !== undefined) this.#addBatch(batch, id, dayOf(newest));
    return {
      kind: 'appended',
      beforeHorizon: batch.events.length - counted.length,
      withoutHost,
      unknownHosts,
    };
  }

  #addBatch(batch: Batch, id: string, day: number): void {
    const { source, link } = batch;
    const { batches, after } = this.#known;
    const key = batchKey(source.name, id);
    batches.add(key);
    this.#newBatches.set(key, { source: source.name, day, batch });
    if (!link) return;
    const siblings = after.get(batchKey(source.name, link.after)) ?? [];
    after.set(batchKey(source.name, link.after), [
      ...siblings.filter((other) => other !== link.replaces),
      id,
    ]);
    if (link.replaces !== undefined) {
      const replaced = batchKey(source.name, link.replaces);
      batches.delete(replaced);
      if (!this.#newBatches.delete(replaced)) this.#replaced.push([source.name, link.replaces]);
    }
  }

  /** Those that count. */
  events(): Event[] {
    return this.#counted.flat();
  }

  isEmpty(): boolean {
    return this.#changedSources.size === 0;
  }

  get append(): number {
    return this.#state.appends;
  }

  /** Everything but the counts. */
  writes(run: Run, project: string): Promise<unknown>[] {
    let { sources } = this.#state;
    const numbers = new Map<string, number>();
    for (const name of this.#changedSources.keys()) {
      numbers.set(name, this.#known.sources.get(name)?.number ?? ++sources);
    }
    const numberOf = (name: string) => numbers.get(name) ?? 0;
    const writes: Promise<unknown>[] = [
      run('UPDATE projects SET sources = $2, appends = appends + 1, latest = $3 WHERE project = $1', [
        project,
        sources,
        this.latest,
      ]),
      run(
        `INSERT INTO sources (project, name, number, record)
         SELECT $1, name, number, record::json FROM unnest($2::text[], $3::int[], $4::text[]) AS s(name, number, record)
         ON CONFLICT (project, name) DO UPDATE SET record = excluded.record`,
        [
          project,
          [...numbers.keys()],
          [...numbers.values()],
          [...this.#changedSources.values()].map((record) => JSON.stringify(record)),
        ],
      ),
    ];
    const reported = [...this.#sourceHosts].flatMap(([name, hosts]) =>
      [...hosts].map((host) => [numberOf(name), host] as const),
    );
    if (reported.length > 0) {
      writes.push(
        run(
          `INSERT INTO source_hosts (project, source, host)
           SELECT $1, source, host FROM unnest($2::int[], $3::int[]) AS s(source, host) ON CONFLICT DO NOTHING`,
          [project, reported.map(([source]) => source), reported.map(([, host]) => host)],
        ),
      );
    }
    if (this.#replaced.length > 0) {
      writes.push(
        run(
          `DELETE FROM batches b USING unnest($2::int[], $3::text[]) AS k(source, id)
           WHERE b.project = $1 AND b.source = k.source AND b.id = k.id`,
          [project, this.#replaced.map(([name]) => numberOf(name)), this.#replaced.map(([, id]) => id)],
        ),
      );
    }
    if (this.#newBatches.size > 0) {
      const batches = [...this.#newBatches.values()];
      writes.push(
        insertBatches(
          run,
          project,
          batches.map(({ source, day, batch: { id = '', link } }) => ({
            source: numberOf(source),
            record: { id, day, ...(link && { link }) },
          })),
        ),
      );
    }
    for (const [id, record] of this.#followed) writes.push(putFollowedPath(run, project, id, record));
    return writes;
  }
}

interface BatchRow {
  source: number;
  record: { id: string; day: number; link?: LinkColumns };
}

interface LinkColumns {
  after: string;
  bytes: number;
  firstLineHash: string;
  readerState: string;
}

export function insertBatches(run: Run, project: string, rows: readonly BatchRow[]): Promise<unknown> {
  const links = rows.map(({ record }) => record.link);
  return run(
    `INSERT INTO batches (project, source, id, day, after, bytes, first_line_hash, reader_state)
     SELECT $1, source, id, day, after, bytes, hash, state::json
     FROM unnest($2::int[], $3::text[], $4::int[], $5::text[], $6::bigint[], $7::text[], $8::text[])
       AS b(source, id, day, after, bytes, hash, state)
     ON CONFLICT (project, source, id) DO UPDATE SET day = excluded.day, after = excluded.after,
       bytes = excluded.bytes, first_line_hash = excluded.first_line_hash, reader_state = excluded.reader_state`,
    [
      project,
      rows.map(({ source }) => source),
      rows.map(({ record }) => record.id),
      rows.map(({ record }) => record.day),
      links.map((link) => link?.after ?? null),
      links.map((link) => link?.bytes ?? null),
      links.map((link) => link?.firstLineHash ?? null),
      // As JSON, because text cannot have NUL characters.
      links.map((link) => (link ? JSON.stringify(link.readerState) : null)),
    ],
  );
}

export function putFollowedPath(run: Run, project: string, id: string, record: string): Promise<unknown> {
  return run(
    `INSERT INTO followed_paths (project, id, record) VALUES ($1, $2, $3::text::json)
     ON CONFLICT (project, id) DO UPDATE SET record = excluded.record`,
    [project, id, record],
  );
}

/** The project's totals, among hosts by ID. No ID is empty. */
const WHOLE_PROJECT = '';

interface RollupKey {
  level: number;
  host: string;
  /** The first minute of the chunk. */
  minute: number;
}

/** Sums the events of a group: exact cells by minute and host, and additions to rollups. */
class GroupCounts {
  /** The IDs of all hosts in the events. */
  readonly hosts = new Set<string>();
  readonly minutes = new Map<number, Map<string, Additions>>();
  readonly rollups = new Map<string, RollupKey & Additions>();

  constructor(events: readonly Event[]) {
    const packed = packEvents(events);
    const rollups = new Map<string, RollupKey & { cells: Map<number, number> }>();
    for (const [minute, hosts] of packed) {
      const exact = new Map<string, Additions>();
      this.minutes.set(minute, exact);
      for (const [host, cells] of hosts) {
        const additions = sumCells(cells);
        exact.set(host, additions);
        const totals = seriesTotals(additions);
        if (host !== WHOLE_PROJECT) {
          this.hosts.add(host);
          addToRollups(rollups, minute, host, totals);
        }
        addToRollups(rollups, minute, WHOLE_PROJECT, totals);
        addToSeconds(rollups, minute, additions);
      }
    }
    for (const [key, { cells, ...rollup }] of rollups)
      this.rollups.set(key, { ...rollup, ...additionsOf(cells) });
  }

  *times(): Generator<number> {
    for (const minute of this.minutes.keys()) yield minute * MINUTE_MS;
  }
}

/** Packed cells by minute and host. Events without a host are under WHOLE_PROJECT, because only the project counts them. */
function packEvents(events: readonly Event[]): Map<number, Map<string, number[]>> {
  const minutes = new Map<number, Map<string, number[]>>();
  for (let start = 0, end = 0; start < events.length; start = end) {
    const event = events[start] as Event;
    // The access lines of one host and second are the same object many times: it is processed once.
    end = start + 1;
    while (end < events.length && events[end] === event) end++;
    const { time, hostId, count } = event;
    if (!(count >= 1 && count <= EVENT_COUNT_MAX)) throw new Error(`count is ${count}`);
    const minute = Math.floor(time / MINUTE_MS);
    const cell = time - minute * MINUTE_MS;
    let hosts = minutes.get(minute);
    if (hosts === undefined) {
      hosts = new Map();
      minutes.set(minute, hosts);
    }
    const host = hostId ?? WHOLE_PROJECT;
    let cells = hosts.get(host);
    if (cells === undefined) {
      cells = [];
      hosts.set(host, cells);
    }
    const atOnce = Math.floor(EVENT_COUNT_MAX / count);
    for (let left = end - start; left > 0; left -= atOnce) {
      const n = count * Math.min(left, atOnce);
      if (event.request) cells.push(packCell(cellCode(REQUESTS, cell), n));
      if (event.attack !== null) {
        const category = storedCategory(event.attack);
        cells.push(packCell(cellCode(FIRST_CATEGORY + category, cell), n));
        if (event.details?.blocked === true)
          cells.push(packCell(cellCode(FIRST_BLOCKED + category, cell), n));
      }
    }
  }
  return minutes;
}

function addToRollups(
  rollups: Map<string, RollupKey & { cells: Map<number, number> }>,
  minute: number,
  host: string,
  totals: readonly [series: number, total: number][],
): void {
  for (const { id: level, cellMs, cellsPerChunk } of ROLLUPS) {
    const cell = Math.floor((minute * MINUTE_MS) / cellMs);
    const chunk = Math.floor(cell / cellsPerChunk);
    const key = `${level} ${chunk} ${host}`;
    let rollup = rollups.get(key);
    if (rollup === undefined) {
      rollup = { level, host, minute: (chunk * cellsPerChunk * cellMs) / MINUTE_MS, cells: new Map() };
      rollups.set(key, rollup);
    }
    for (const [series, total] of totals) {
      const code = cellCode(series, cell - chunk * cellsPerChunk);
      rollup.cells.set(code, (rollup.cells.get(code) ?? 0) + total);
    }
  }
}

/** Adds exact cells to the seconds of the project. */
function addToSeconds(
  rollups: Map<string, RollupKey & { cells: Map<number, number> }>,
  minute: number,
  { codes, counts }: Additions,
): void {
  const key = `${SECONDS.id} ${minute}`;
  let rollup = rollups.get(key);
  if (rollup === undefined) {
    rollup = { level: SECONDS.id, host: WHOLE_PROJECT, minute, cells: new Map() };
    rollups.set(key, rollup);
  }
  for (const [i, code] of codes.entries()) {
    const second = cellCode(seriesOf(code), Math.floor(cellOf(code) / SECONDS.cellMs));
    rollup.cells.set(second, (rollup.cells.get(second) ?? 0) + (counts[i] ?? 0));
  }
}

/** The stored counts, by key of GroupCounts.rollups. */
async function readRollups(run: Run, project: string, counted: GroupCounts): Promise<Map<string, Buffer>> {
  const keys = [...counted.rollups.keys()];
  const rollups = [...counted.rollups.values()];
  const rows = await run<{ i: number; counts: Buffer }>(
    `SELECT k.i::int AS i, r.counts
     FROM unnest($2::smallint[], $3::text[], $4::int[]) WITH ORDINALITY AS k(level, host, minute, i)
     JOIN rollups r ON r.project = $1 AND r.level = k.level AND r.minute = k.minute AND r.host =
       CASE WHEN k.host = '' THEN 0 ELSE (SELECT number FROM hosts WHERE project = $1 AND id = k.host) END`,
    [
      project,
      rollups.map(({ level }) => level),
      rollups.map(({ host }) => host),
      rollups.map(({ minute }) => minute),
    ],
  );
  return new Map(rows.map(({ i, counts }) => [keys[i - 1] ?? '', counts]));
}

function writeCounts(
  run: Run,
  project: string,
  counted: GroupCounts,
  hosts: ReadonlyMap<string, number>,
  stored: ReadonlyMap<string, Buffer>,
  { append }: GroupPlan,
): Promise<unknown>[] {
  if (counted.minutes.size === 0) return [];
  const numberOf = (host: string) => (host === WHOLE_PROJECT ? NO_HOST : hosts.get(host));
  const segments = new Records();
  const segmentWriter = new SegmentWriter();
  const minutes = [...counted.minutes.keys()].sort((a, b) => a - b);
  for (const minute of minutes) {
    // An event with an unregistered host counts as one without a host.
    for (const [host, additions] of counted.minutes.get(minute) ?? []) {
      segmentWriter.add(numberOf(host) ?? NO_HOST, additions);
    }
    segments.add(segmentWriter.take());
  }
  const writer = new RecordWriter();
  const records = new Records();
  const keys: { level: number; host: number; minute: number }[] = [];
  for (const [key, { level, host, minute, ...additions }] of counted.rollups) {
    const number = numberOf(host);
    if (number === undefined) continue;
    keys.push({ level, host: number, minute });
    records.add(mergeCells(stored.get(key), additions, writer));
  }
  const chunks = [...new Set([...counted.times()].map((time) => Math.floor(time / CHANGES_MS)))];
  return [
    run(
      `INSERT INTO segments (project, minute, append, cells)
       SELECT $1, minute, $2, substring($3::bytea FROM first FOR length)
       FROM unnest($4::int[], $5::int[], $6::int[]) AS s(minute, first, length)`,
      [project, append, segments.bytes(), minutes, segments.firsts, segments.lengths],
    ),
    run(
      `INSERT INTO rollups (project, level, host, minute, counts)
       SELECT $1, level, host, minute, substring($2::bytea FROM first FOR length)
       FROM unnest($3::smallint[], $4::int[], $5::int[], $6::int[], $7::int[]) AS r(level, host, minute, first, length)
       ON CONFLICT (project, level, host, minute) DO UPDATE SET counts = excluded.counts`,
      [
        project,
        records.bytes(),
        keys.map(({ level }) => level),
        keys.map(({ host }) => host),
        keys.map(({ minute }) => minute),
        records.firsts,
        records.lengths,
      ],
    ),
    run(
      `INSERT INTO changes (project, chunk, changes) SELECT $1, chunk, $3 FROM unnest($2::int[]) AS c(chunk)
       ON CONFLICT (project, chunk) DO UPDATE
       SET changes = (changes.changes + excluded.changes) & ${CHANGES_MAX}`,
      [project, chunks, randomInt(1, 2 ** 40)],
    ),
  ];
}

/** Many records as one value: it is sent in binary, which an array of them is not. */
class Records {
  readonly #parts: Uint8Array[] = [];
  /** Positions in SQL begin with 1. */
  readonly firsts: number[] = [];
  readonly lengths: number[] = [];
  #next = 1;

  add(record: Uint8Array): void {
    this.#parts.push(Uint8Array.from(record));
    this.firsts.push(this.#next);
    this.lengths.push(record.length);
    this.#next += record.length;
  }

  bytes(): Buffer {
    return Buffer.concat(this.#parts);
  }
}
