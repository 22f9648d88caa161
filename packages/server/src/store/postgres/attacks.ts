/** Kept attacks: the blocks of ../attack-layout.ts by hour and number. */
import type { Event } from '../../event.ts';
import type { Database, Row, Run } from '../../postgres/database.ts';
import { AttackBlock, BlockHead } from '../attack-block.ts';
import { AttackCounter, rangeOf } from '../attack-counts.ts';
import { AttackMatcher } from '../attack-filter.ts';
import {
  type AttackAdditions,
  type AttackHour,
  addToHour,
  areEqual,
  eraseFromHour,
  type HourChange,
  hourAdditions,
  type StoredBlock,
} from '../attack-hours.ts';
import { BLOCK_ENTRIES_MAX } from '../attack-layout.ts';
import { AttackLister } from '../attack-list.ts';
import { AttackScan } from '../attack-scan.ts';
import { Slices } from '../slices.ts';
import { HOUR_MS, type Selection, type Store, type TimeRange, type Transfer } from '../store.ts';
import { addChanges, computeIn, lockProject, OF_PROJECT } from './coordination.ts';
import { hostsOfProject } from './hosts.ts';
import { JoinedRecords } from './joined-records.ts';
import { inPartitions } from './schema.ts';
import { readBefore } from './top-lists.ts';

/** `available` runs an action once the tables have been checked. */
export function attackMethods(
  database: Database,
  available: <T>(action: () => Promise<T>) => Promise<T>,
): Pick<Store, 'attacks' | 'countAttacks' | 'scanAttacks' | 'eraseAttacks'> &
  Pick<Transfer, 'attackHours' | 'putAttackHour'> {
  /** All blocks of an hour are of one moment, but hours may differ. The caller compares versions. */
  async function readHour(project: string, hour: number): Promise<AttackHour> {
    const rows = await readStored(database.run.bind(database), project, hour);
    return { hour, blocks: rows.map((row) => toBlock(hour, row)) };
  }

  /** Adds the hours of a range to what `create` returns. */
  async function addHours<T extends HoursTarget>(
    { project }: Selection,
    { isAscending, ...range }: TimeRange & { isAscending: boolean },
    create: (isRegistered: (hostId: string) => boolean) => T,
  ): Promise<T> {
    const hosts = await available(() => hostsOfProject(database, project));
    const ids = new Set(hosts.map(({ id }) => id));
    const target = create((id) => ids.has(id));
    const slices = new Slices();
    const [first, last] = await hoursOf(database, project, range);
    for (let n = 0; n <= last - first; n += HOURS_PER_READ) {
      const start = isAscending ? first + n : Math.max(first, last + 1 - n - HOURS_PER_READ);
      const end = isAscending ? first + n + HOURS_PER_READ : last + 1 - n;
      const heads = await readHeads(database, project, start, Math.min(end, last + 1));
      for (const hour of isAscending ? heads : heads.reverse()) {
        const whole = target.needsOnlyHeads?.(hour) ? hour : await readHour(project, hour.hour);
        await slices.run(target.add(whole));
      }
    }
    return target;
  }

  return {
    async attacks(query) {
      return (await addHours(query, query, (isRegistered) => new AttackLister(query, isRegistered))).list;
    },

    async countAttacks(query) {
      const range = { ...rangeOf(query), isAscending: true };
      const create = (isRegistered: (id: string) => boolean) => new AttackCounter(query, isRegistered);
      return new Slices().run((await addHours(query, range, create)).result());
    },

    async scanAttacks(query, visit) {
      const range = { ...query, isAscending: true };
      await addHours(query, range, (isRegistered) => new AttackScan(query, visit, isRegistered));
    },

    async *attackHours(project) {
      const [first, last] = await available(() => hoursOf(database, project, EVER));
      for (let hour = first; hour <= last; hour++) {
        const read = await readHour(project, hour);
        if (read.blocks.length > 0) yield read;
      }
    },

    eraseAttacks: (project, filter) =>
      available(async () => {
        const matcher = new AttackMatcher(filter);
        const hours = await database.run<{ hour: number }>(
          'SELECT DISTINCT hour FROM attacks WHERE project = $1',
          [project],
        );
        let erased = 0;
        for (const { hour } of hours) erased += await eraseInHour(database, project, hour, matcher);
        return erased;
      }),

    putAttackHour: (project, hour) => available(() => putAttackHour(database, project, hour)),
  };
}

interface HoursTarget {
  needsOnlyHeads?(hour: AttackHour): boolean;
  add(hour: AttackHour): Generator<void, void>;
}

const EVER = { from: 0, to: Number.MAX_SAFE_INTEGER };

/** The heads of their blocks have about a megabyte. */
const HOURS_PER_READ = 720;

/** `known`: the hosts that are registered, if some may not be. */
export function addAttacks(
  attacks: AttackAdditions,
  events: readonly Event[],
  known?: ReadonlyMap<string, number>,
): void {
  for (const event of events) {
    const { attack, hostId } = event;
    if (attack === null) continue;
    const isKnown = hostId !== null && (known === undefined || known.has(hostId));
    attacks.add(event, isKnown ? hostId : null);
  }
}

interface StoredBlocks {
  /** Hours that begin before this are deleted. */
  before: number;
  hours: Map<number, StoredBlock[]>;
}

/**
 * Reads what additions may change, after the project was locked: blocks that are not full, that may have equal attacks, or
 * all blocks of an hour over the limit. Of the hour before a new one, those that are not full.
 */
export async function readBlocks(
  run: Run,
  project: string,
  { hours: added }: AttackAdditions,
  limit: number,
): Promise<StoredBlocks> {
  const hours: StoredBlocks['hours'] = new Map();
  if (added.size === 0 || limit === 0) return { before: 0, hours };
  const hoursBefore = [...added.keys()].map((hour) => hour - 1).filter((hour) => !added.has(hour));
  const additions = [...added, ...hoursBefore.map((hour) => [hour, []] as const)].map(([hour, entries]) => {
    const times = entries.map(({ time }) => time - hour * HOUR_MS);
    const [first, last] = times.reduce(([a, b], ms) => [Math.min(a, ms), Math.max(b, ms)], [HOUR_MS, 0]);
    return { hour, first, last, entries: entries.length };
  });
  const [before, rows] = await Promise.all([
    readBefore(run),
    run<BlockRow & { hour: number }>(
      `SELECT a.hour, a.number, a.head, CASE
         WHEN a.entries < ${BLOCK_ENTRIES_MAX} OR (a.first <= k.last AND a.last >= k.first)
           OR sum(a.entries) OVER (PARTITION BY a.hour) + k.entries > $6 THEN a.body END AS body
       FROM unnest($2::int[], $3::int[], $4::int[], $5::int[]) AS k(hour, first, last, entries)
       JOIN attacks a ON a.project = $1 AND a.hour = k.hour
       WHERE k.entries > 0 OR NOT EXISTS (SELECT FROM attacks n WHERE n.project = $1 AND n.hour = k.hour + 1)
       ORDER BY a.hour, a.number`,
      [
        project,
        additions.map(({ hour }) => hour),
        additions.map(({ first }) => first),
        additions.map(({ last }) => last),
        additions.map(({ entries }) => entries),
        limit,
      ],
    ),
  ]);
  for (const row of rows) {
    const block = { number: row.number, block: toBlock(row.hour, row) };
    hours.set(row.hour, [...(hours.get(row.hour) ?? []), block]);
  }
  return { before, hours };
}

type BlockRow = Row & { number: number; head: Buffer; body: Buffer | null };

/** `body`: null if it was not read. */
function toBlock(hour: number, { head, body }: { head: Buffer; body: Buffer | null }): AttackBlock {
  if (body !== null) return AttackBlock.of(hour, Buffer.concat([head, body]));
  return new AttackBlock(new BlockHead(hour, head), () => {
    throw new Error(`a block of the hour ${hour} was not read`);
  });
}

export function* mergeAttacks(
  project: string,
  additions: AttackAdditions,
  stored: StoredBlocks,
  limit: number,
): Generator<void, Map<number, HourChange>> {
  const changes = new Map<number, HourChange>();
  if (limit === 0) return changes;
  for (const addition of hourAdditions(additions, (hour) => !stored.hours.has(hour))) {
    const { hour } = addition;
    if (hour * HOUR_MS < stored.before) continue;
    const blocks = stored.hours.get(hour) ?? [];
    changes.set(hour, yield* addToHour(addition, { project, blocks, limit }));
  }
  return changes;
}

export function writeBlocks(
  run: Run,
  project: string,
  changes: ReadonlyMap<number, HourChange>,
): Promise<unknown>[] {
  const removed = [...changes].flatMap(([hour, change]) =>
    change.removed.map((number) => ({ hour, number })),
  );
  const added = [...changes].flatMap(([hour, change]) => change.added.map((block) => ({ hour, ...block })));
  const heads = new JoinedRecords();
  const bodies = new JoinedRecords();
  for (const { block } of added) {
    heads.add(block.head);
    bodies.add(block.body);
  }
  const writes: Promise<unknown>[] = [];
  if (removed.length > 0)
    writes.push(
      run(
        `DELETE FROM attacks a USING unnest($2::int[], $3::int[]) AS r(hour, number)
         WHERE a.project = $1 AND a.hour = r.hour AND a.number = r.number`,
        [project, removed.map(({ hour }) => hour), removed.map(({ number }) => number)],
      ),
    );
  if (added.length > 0)
    writes.push(
      run(
        `INSERT INTO attacks (project, hour, number, entries, first, last, head, body)
         SELECT project, hour, number, entries, first, last, substring($2::bytea FROM head FOR head_length),
           substring($3::bytea FROM body FOR body_length)
         FROM ${OF_PROJECT}, unnest($4::int[], $5::int[], $6::int[], $7::int[], $8::int[], $9::int[], $10::int[],
           $11::int[], $12::int[]) AS b(hour, number, entries, first, last, head, head_length, body, body_length)`,
        [
          project,
          heads.bytes(),
          bodies.bytes(),
          added.map(({ hour }) => hour),
          added.map(({ number }) => number),
          added.map(({ block }) => block.length),
          added.map(({ hour, block }) => block.first - hour * HOUR_MS),
          added.map(({ hour, block }) => block.last - hour * HOUR_MS),
          heads.firsts,
          heads.lengths,
          bodies.firsts,
          bodies.lengths,
        ],
      ),
    );
  return writes;
}

/** The first and the last hour with attacks of a range that queries cover. */
async function hoursOf(
  database: Database,
  project: string,
  { from, to }: TimeRange,
): Promise<[number, number]> {
  const [state] = await database.run<{ horizon: number }>(
    'SELECT greatest(horizon, top_lists_before) AS horizon FROM retention',
  );
  const covered = Math.ceil((state?.horizon ?? 0) / HOUR_MS);
  const [hours] = await database.run<{ first: number | null; last: number | null }>(
    'SELECT min(hour) AS first, max(hour) AS last FROM attacks WHERE project = $1 AND hour >= $2 AND hour < $3',
    [project, atMostEnd(Math.max(covered, Math.floor(from / HOUR_MS))), atMostEnd(Math.ceil(to / HOUR_MS))],
  );
  return [hours?.first ?? 0, hours?.last ?? -1];
}

/** Later than all hours. */
export const HOURS_END = 2 ** 31 - 1;

/** Ranges may have times whose hours do not fit into the column. */
function atMostEnd(hour: number): number {
  return Math.min(HOURS_END, hour);
}

function readStored(run: Run, project: string, hour: number): Promise<BlockRow[]> {
  return run('SELECT number, head, body FROM attacks WHERE project = $1 AND hour = $2 ORDER BY number', [
    project,
    hour,
  ]);
}

/** The hours with attacks from `start` on, before `end`. Only the heads of their blocks can be used. */
async function readHeads(
  database: Database,
  project: string,
  start: number,
  end: number,
): Promise<AttackHour[]> {
  const rows = await database.run<{ hour: number; head: Buffer }>(
    'SELECT hour, head FROM attacks WHERE project = $1 AND hour >= $2 AND hour < $3 ORDER BY hour, number',
    [project, start, end],
  );
  const hours = new Map<number, AttackBlock[]>();
  for (const { hour, head } of rows) {
    const block = toBlock(hour, { head, body: null });
    hours.set(hour, [...(hours.get(hour) ?? []), block]);
  }
  return Array.from(hours, ([hour, blocks]) => ({ hour, blocks }));
}

/** Locks the project only if there is something to erase. Resolves to the number of erased entries. */
async function eraseInHour(
  database: Database,
  project: string,
  hour: number,
  matcher: AttackMatcher,
): Promise<number> {
  const read = async (run: Run) =>
    (await readStored(run, project, hour)).map((row) => ({ number: row.number, block: toBlock(hour, row) }));
  const found = await read(database.run.bind(database));
  const expected = await new Slices().run(eraseFromHour(hour, found, matcher));
  if (expected.removed.length === 0) return 0;
  return database.transaction(async (run) => {
    const [, blocks] = await Promise.all([lockProject(run, project), read(run)]);
    const isExpected = areEqual(blocks, found);
    const erasure = isExpected ? expected : await computeIn(run, eraseFromHour(hour, blocks, matcher));
    await Promise.all([
      ...writeBlocks(run, project, new Map([[hour, erasure]])),
      addChanges(run, project, [hour * HOUR_MS]),
      run('COMMIT'),
    ]);
    return erasure.erased;
  });
}

async function putAttackHour(
  database: Database,
  project: string,
  { hour, blocks }: AttackHour,
): Promise<void> {
  const added = blocks.map((block, i) => ({ number: i + 1, block }));
  await inPartitions(
    database,
    ['attacks'],
    () => [(hour + 1) * HOUR_MS - 1],
    async (run) => {
      const [{ horizon }, before] = await Promise.all([lockProject(run, project), readBefore(run)]);
      if (hour * HOUR_MS < before || (hour + 1) * HOUR_MS <= horizon) return;
      await Promise.all([
        run('DELETE FROM attacks WHERE project = $1 AND hour = $2', [project, hour]),
        ...writeBlocks(run, project, new Map([[hour, { removed: [], added }]])),
        addChanges(run, project, [hour * HOUR_MS]),
        run('COMMIT'),
      ]);
    },
  );
}

/** Deletes the attacks of a project, or of all projects, in hours before `end`. */
export async function deleteAttacks(
  database: Database,
  end: number,
  { project, stop }: { project?: string; stop?: AbortSignal | undefined } = {},
): Promise<void> {
  const old = await database.run<{ project: string }>(
    `SELECT p.project FROM projects p WHERE ($2::text IS NULL OR p.project = $2)
       AND EXISTS (SELECT FROM attacks a WHERE a.project = p.project AND a.hour < $1)`,
    [end, project ?? null],
  );
  for (const each of old) {
    for (let isDone = false; !isDone && !stop?.aborted; )
      isDone = await deleteSome(database, each.project, end);
  }
}

const BLOCKS_PER_STEP = 500;

/** Resolves to true if there are no more. */
function deleteSome(database: Database, project: string, end: number): Promise<boolean> {
  return database.transaction(async (run) => {
    const [, rows] = await Promise.all([
      lockProject(run, project),
      run<{ hour: number }>(
        `DELETE FROM attacks a USING (
           SELECT hour, number FROM attacks WHERE project = $1 AND hour < $2 LIMIT ${BLOCKS_PER_STEP}
         ) AS o WHERE a.project = $1 AND a.hour = o.hour AND a.number = o.number RETURNING a.hour`,
        [project, end],
      ),
    ]);
    await addChanges(
      run,
      project,
      rows.map(({ hour }) => hour * HOUR_MS),
    );
    return rows.length < BLOCKS_PER_STEP;
  });
}
