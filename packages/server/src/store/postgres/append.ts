/** The write side: one group of batches of one project in one transaction of two round trips. */
import type { Event } from '../../event.ts';
import type { Database, Run } from '../../postgres/database.ts';
import {
  type Additions,
  additionsOf,
  cellCode,
  cellOf,
  mergeCells,
  seriesOf,
  seriesTotals,
} from '../cells.ts';
import { countByMinute, WITHOUT_HOST } from '../minutes.ts';
import { RecordWriter } from '../record-bytes.ts';
import type { Appended, Batch } from '../store.ts';
import type { TopAdditions } from '../top-records.ts';
import { addChanges, GroupPlan, lockProject, readKnown } from './coordination.ts';
import { JoinedRecords } from './joined-records.ts';
import { EXACT, inPartitions, NO_HOST, ROLLUPS, SECONDS } from './schema.ts';
import { SegmentWriter } from './segments.ts';
import { readTopLists, topAdditionsOf, writeTopLists } from './top-lists.ts';

const MINUTE_MS = EXACT.cellsPerChunk;

export interface AppendLimits {
  /** How many values a top list keeps per hour, and project or host. */
  topKeys: number;
  /** How many flagged requests a source remembers. */
  requestsMax: number;
}

/** All batches are of the same project. */
export async function appendGroup(
  database: Database,
  batches: readonly Batch[],
  now: number,
  limits: AppendLimits,
): Promise<Appended[]> {
  // The work of counting is done before the project is locked. It is repeated only if some events do not count.
  const counted = new GroupCounts(batches.flatMap(({ events }) => events));
  return inPartitions(
    database,
    ['segments', 'rollups', 'top_lists'],
    () => counted.times(),
    (run) => appendLocked(run, batches, counted, now, limits),
  );
}

async function appendLocked(
  run: Run,
  batches: readonly Batch[],
  expected: GroupCounts,
  now: number,
  { topKeys, requestsMax }: AppendLimits,
): Promise<Appended[]> {
  const project = batches[0]?.project ?? '';
  const [state, known, rollups, topLists] = await Promise.all([
    lockProject(run, project),
    readKnown(run, project, batches, expected.hosts),
    readRollups(run, project, expected),
    readTopLists(run, project, expected.topLists),
  ]);
  const plan = new GroupPlan(state, known, now, requestsMax);
  const results = batches.map((batch) => plan.add(batch));
  if (plan.isEmpty()) return results;
  const areHostsKnown = known.hosts.size === expected.hosts.size;
  const counted = plan.isWhole && areHostsKnown ? expected : new GroupCounts(plan.events(), known.hosts);
  await Promise.all([
    ...writeCounts(run, project, counted, known.hosts, rollups, plan),
    writeTopLists(run, project, counted.topLists, topLists, topKeys),
    ...plan.writes(run, project),
    run('COMMIT'),
  ]);
  return results;
}

/** The key of the project's totals among hosts by ID. Only the totals count events without a host. */
const WHOLE_PROJECT = WITHOUT_HOST;

interface RollupKey {
  level: number;
  host: string;
  /** The first minute of the chunk. */
  minute: number;
}

/** Sums the events of a group: exact cells by minute and host, and additions to rollups and top lists. */
class GroupCounts {
  /** The IDs of all hosts in the events. */
  readonly hosts = new Set<string>();
  readonly minutes: Map<number, Map<string, Additions>>;
  readonly rollups = new Map<string, RollupKey & Additions>();

  readonly topLists: TopAdditions;

  /** `known`: the hosts that are registered, if some may not be. */
  constructor(events: readonly Event[], known?: ReadonlyMap<string, number>) {
    this.topLists = topAdditionsOf(events, known);
    this.minutes = countByMinute(events);
    const rollups = new Map<string, RollupKey & { cells: Map<number, number> }>();
    for (const [minute, hosts] of this.minutes) {
      for (const [host, additions] of hosts) {
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
  const segments = new JoinedRecords();
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
  const records = new JoinedRecords();
  const keys: { level: number; host: number; minute: number }[] = [];
  for (const [key, { level, host, minute, ...additions }] of counted.rollups) {
    const number = numberOf(host);
    if (number === undefined) continue;
    keys.push({ level, host: number, minute });
    records.add(mergeCells(stored.get(key), additions, writer));
  }
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
    addChanges(run, project, counted.times()),
  ];
}
