/** The write side: one group of batches of one project in one transaction of two round trips. */
import type { Event } from '../../event.ts';
import { columnsOf, type Database, type Run } from '../../postgres/database.ts';
import { AttackAdditions } from '../attack-hours.ts';
import {
  type Additions,
  additionsOf,
  cellCode,
  cellOf,
  FIRST_BLOCKED,
  mergeCells,
  seriesOf,
  seriesTotals,
} from '../cells.ts';
import { type Decision, decide } from '../decide.ts';
import { addToLevel, MinuteCells, minuteOf, WITHOUT_HOST } from '../minutes.ts';
import type { Level } from '../plan.ts';
import { RecordWriter } from '../record-bytes.ts';
import { Slices } from '../slices.ts';
import type { Appended, AppendLimits, Batch } from '../store.ts';
import { TopAdditions } from '../top-records.ts';
import { addAttacks, mergeAttacks, readBlocks, writeBlocks } from './attacks.ts';
import {
  addChanges,
  computeIn,
  knownProject,
  lockProject,
  OF_PROJECT,
  readKnown,
  writeDecision,
} from './coordination.ts';
import { JoinedRecords } from './joined-records.ts';
import { EXACT, inPartitions, NO_HOST, ROLLUPS, SECONDS } from './schema.ts';
import { writeSegment } from './segments.ts';
import { addPages, addTopAdditions, mergeTopLists, readTopLists, writeTopLists } from './top-lists.ts';

const MINUTE_MS = EXACT.cellsPerChunk;

/** All batches are of the same project. */
export async function appendGroup(
  database: Database,
  batches: readonly Batch[],
  now: number,
  limits: AppendLimits,
): Promise<Appended[]> {
  // The work of counting is done before the project is locked. It is repeated only if some events do not count.
  const counted = await new Slices().run(sumGroup(batches.map(({ events, pages }) => ({ events, pages }))));
  return inPartitions(
    database,
    ['segments', 'rollups', 'top_lists', 'attacks'],
    () => timesOf(counted),
    (run) => appendLocked(run, batches, counted, now, limits),
  );
}

async function appendLocked(
  run: Run,
  batches: readonly Batch[],
  expected: GroupCounts,
  now: number,
  { topKeys, requestsMax, eventsMax }: AppendLimits,
): Promise<Appended[]> {
  const project = batches[0]?.project ?? '';
  const [state, known, rollups, topLists, blocks] = await Promise.all([
    lockProject(run, project),
    readKnown(run, project, batches, expected.hosts),
    readRollups(run, project, expected),
    readTopLists(run, project, expected.topLists),
    readBlocks(run, project, expected.attacks, eventsMax),
  ]);
  const decision = await computeIn(run, decide(batches, knownProject(state, known), now, requestsMax));
  if (decision.counted.length === 0) return decision.results;
  const areHostsKnown = known.hosts.size === expected.hosts.size;
  const counted =
    areHostsKnown && isWhole(batches, decision)
      ? expected
      : await computeIn(
          run,
          sumGroup(
            decision.counted.map(({ batch, events }) => ({ events, pages: batch.pages })),
            known.hosts,
          ),
        );
  const records = await computeIn(run, mergeCounts(counted, known.hosts, rollups));
  const lists = await computeIn(run, mergeTopLists(project, counted.topLists, topLists, topKeys));
  const attacks = await computeIn(run, mergeAttacks(project, counted.attacks, blocks, eventsMax));
  await Promise.all([
    ...writeCounts(run, project, counted, records, state.appends),
    writeTopLists(run, project, lists),
    ...writeBlocks(run, project, attacks),
    ...writeDecision(run, project, state, known, decision),
    run('COMMIT'),
  ]);
  return decision.results;
}

/** Whether every event of every batch counts as it is. */
function isWhole(all: readonly Batch[], { batches, counted }: Decision): boolean {
  return (
    batches.outcomes.every((outcome, i) => outcome === 'counts' || all[i]?.events.length === 0) &&
    counted.every(({ batch, events }) => events === batch.events)
  );
}

/** The key of the project's totals among hosts by ID. Only the totals count events without a host. */
const WHOLE_PROJECT = WITHOUT_HOST;

interface RollupKey {
  level: number;
  host: string;
  /** The first minute of the chunk. */
  minute: number;
}

/** The sums of a group of events. */
interface GroupCounts {
  /** The IDs of all hosts in the events. */
  hosts: Set<string>;
  /** Exact cells. */
  minutes: Map<number, Map<string, Additions>>;
  rollups: Map<string, RollupKey & Additions>;
  topLists: TopAdditions;
  attacks: AttackAdditions;
}

/** Events, or minutes of a host, of one step: about a millisecond. */
const ITEMS_PER_STEP = 200;

/** `known`: the hosts that are registered, if some may not be. */
function* sumGroup(
  batches: readonly Pick<Batch, 'events' | 'pages'>[],
  known?: ReadonlyMap<string, number>,
): Generator<void, GroupCounts> {
  const events: readonly Event[] = batches.flatMap((batch) => batch.events);
  const topLists = new TopAdditions();
  addPages(topLists, batches, known);
  const attacks = new AttackAdditions();
  const hosts = new Set<string>();
  const packed = new Map<number, Map<string, MinuteCells>>();
  for (let i = 0; i < events.length; i += ITEMS_PER_STEP) {
    const some = events.slice(i, i + ITEMS_PER_STEP);
    for (const event of some) {
      // Also of an event that counts nothing: the result says whether its host is known.
      if (event.hostId !== null) hosts.add(event.hostId);
      if (!event.request && event.attack === null) continue;
      const minute = minuteOf(event);
      const cellsByHost = packed.get(minute) ?? new Map<string, MinuteCells>();
      packed.set(minute, cellsByHost);
      const host = event.hostId ?? WITHOUT_HOST;
      const cells = cellsByHost.get(host) ?? new MinuteCells();
      cellsByHost.set(host, cells);
      cells.add(event);
    }
    addTopAdditions(topLists, some, known);
    addAttacks(attacks, some, known);
    yield;
  }
  const minutes = new Map<number, Map<string, Additions>>();
  const sums: RollupSums = new Map();
  let items = 0;
  for (const [minute, cellsByHost] of packed) {
    const additionsByHost = new Map<string, Additions>();
    minutes.set(minute, additionsByHost);
    for (const [host, cells] of cellsByHost) {
      const additions = cells.sum();
      additionsByHost.set(host, additions);
      const totals = seriesTotals(additions);
      if (host !== WHOLE_PROJECT) {
        addToRollups(sums, minute, host, totals);
      }
      addToRollups(sums, minute, WHOLE_PROJECT, totals);
      addToSeconds(sums, minute, additions);
      if (++items % ITEMS_PER_STEP === 0) yield;
    }
  }
  const rollups = new Map<string, RollupKey & Additions>();
  for (const [key, { cells, ...rollup }] of sums) {
    rollups.set(key, { ...rollup, ...additionsOf(cells) });
    if (rollups.size % ITEMS_PER_STEP === 0) yield;
  }
  return { hosts, minutes, rollups, topLists, attacks };
}

function* timesOf({ minutes }: GroupCounts): Generator<number> {
  for (const minute of minutes.keys()) yield minute * MINUTE_MS;
}

type RollupSums = Map<string, RollupKey & { cells: Map<number, number> }>;

/** The sums of a chunk. */
function cellsOf(sums: RollupSums, { id, cellMs, cellsPerChunk }: Level, chunk: number, host: string) {
  const key = `${id} ${chunk} ${host}`;
  const minute = (chunk * cellsPerChunk * cellMs) / MINUTE_MS;
  const sum = sums.get(key) ?? { level: id, host, minute, cells: new Map<number, number>() };
  sums.set(key, sum);
  return sum.cells;
}

function addToRollups(
  sums: RollupSums,
  minute: number,
  host: string,
  totals: readonly [series: number, total: number][],
): void {
  for (const level of ROLLUPS) {
    addToLevel(level, minute, totals, (chunk) => cellsOf(sums, level, chunk, host));
  }
}

/** Adds what has peaks to the seconds of the project. */
function addToSeconds(sums: RollupSums, minute: number, { codes, counts }: Additions): void {
  const cells = cellsOf(sums, SECONDS, minute, WHOLE_PROJECT);
  for (const [i, code] of codes.entries()) {
    if (seriesOf(code) >= FIRST_BLOCKED) break;
    const second = cellCode(seriesOf(code), Math.floor(cellOf(code) / SECONDS.cellMs));
    cells.set(second, (cells.get(second) ?? 0) + (counts[i] ?? 0));
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
    [project, ...columnsOf(rollups, 'level', 'host', 'minute')],
  );
  return new Map(rows.map(({ i, counts }) => [keys[i - 1] ?? '', counts]));
}

interface MergedCounts {
  minutes: number[];
  segments: JoinedRecords;
  keys: { level: number; host: number; minute: number }[];
  /** The rollup of each key. */
  records: JoinedRecords;
}

function* mergeCounts(
  counted: GroupCounts,
  hosts: ReadonlyMap<string, number>,
  stored: ReadonlyMap<string, Buffer>,
): Generator<void, MergedCounts> {
  const numberOf = (host: string) => (host === WHOLE_PROJECT ? NO_HOST : hosts.get(host));
  const [writer, segmentWriter] = [new RecordWriter(), new RecordWriter()];
  const segments = new JoinedRecords();
  const minutes = [...counted.minutes.keys()].sort((a, b) => a - b);
  for (const [i, minute] of minutes.entries()) {
    // An event with an unregistered host counts as one without a host.
    const hostsOfMinute = Array.from(counted.minutes.get(minute) ?? [], ([host, additions]) => {
      return [numberOf(host) ?? NO_HOST, additions] as const;
    });
    segments.add(writeSegment(hostsOfMinute, [segmentWriter, writer]));
    if (i % ITEMS_PER_STEP === ITEMS_PER_STEP - 1) yield;
  }
  const records = new JoinedRecords();
  const keys: MergedCounts['keys'] = [];
  for (const [key, { level, host, minute, ...additions }] of counted.rollups) {
    const number = numberOf(host);
    if (number === undefined) continue;
    keys.push({ level, host: number, minute });
    records.add(mergeCells(stored.get(key), additions, writer));
    if (keys.length % ITEMS_PER_STEP === 0) yield;
  }
  return { minutes, segments, keys, records };
}

function writeCounts(
  run: Run,
  project: string,
  counted: GroupCounts,
  { minutes, segments, keys, records }: MergedCounts,
  append: number,
): Promise<unknown>[] {
  if (minutes.length === 0) return [];
  return [
    run(
      `INSERT INTO segments (project, minute, append, cells)
       SELECT project, minute, $2, substring($3::bytea FROM first FOR length)
       FROM ${OF_PROJECT}, unnest($4::int[], $5::int[], $6::int[]) AS s(minute, first, length)`,
      [project, append, segments.bytes(), minutes, segments.firsts, segments.lengths],
    ),
    run(
      `INSERT INTO rollups (project, level, host, minute, counts)
       SELECT project, level, host, minute, substring($2::bytea FROM first FOR length) FROM ${OF_PROJECT},
         unnest($3::smallint[], $4::int[], $5::int[], $6::int[], $7::int[]) AS r(level, host, minute, first, length)
       ON CONFLICT (project, level, host, minute) DO UPDATE SET counts = excluded.counts`,
      [
        project,
        records.bytes(),
        ...columnsOf(keys, 'level', 'host', 'minute'),
        records.firsts,
        records.lengths,
      ],
    ),
    addChanges(run, project, timesOf(counted)),
  ];
}
