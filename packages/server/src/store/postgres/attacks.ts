/** Kept attacks: the blocks of ../attack-block.ts by hour and number. */
import type { Event } from '../../event.ts';
import type { Database, Row, Run } from '../../postgres/database.ts';
import { AttackBlock, BLOCK_ENTRIES_MAX } from '../attack-block.ts';
import { AttackMatcher } from '../attack-filter.ts';
import {
  type AttackAdditions,
  type AttackHour,
  addToHour,
  eraseRows,
  type HourChange,
  openHour,
  type StoredBlock,
} from '../attack-hours.ts';
import { AttackLister } from '../attack-list.ts';
import { Slices } from '../slices.ts';
import { HOUR_MS, type Store, type TimeRange, type Transfer } from '../store.ts';
import { addChanges, lockProject, OF_PROJECT } from './coordination.ts';
import { hostsOfProject } from './hosts.ts';
import { JoinedRecords } from './joined-records.ts';
import { inPartitions } from './schema.ts';
import { readBefore } from './top-lists.ts';

/** `available` runs an action once the tables have been checked. `limit`: how many attacks an hour keeps. */
export function attackMethods(
  database: Database,
  available: <T>(action: () => Promise<T>) => Promise<T>,
  limit: number,
): Pick<Store, 'attacks' | 'eraseAttacks'> & Pick<Transfer, 'attackHours' | 'putAttackHour'> {
  async function* readAttacks(
    project: string,
    { isAscending, ...range }: TimeRange & { isAscending: boolean },
  ): AsyncGenerator<AttackHour> {
    const [first, hours] = await available(() => listHours(database, project, range));
    for (const hour of isAscending ? hours : hours.reverse()) {
      if (hour < first) continue;
      // All blocks of an hour are of one moment, but hours may differ. The caller compares versions.
      const rows = await readStored(database.run.bind(database), project, hour);
      const blocks = rows.map(({ block }) => new AttackBlock(hour, block));
      if (blocks.length > 0) yield openHour(project, hour, blocks, limit);
    }
  }

  return {
    async attacks(query) {
      const hosts = await available(() => hostsOfProject(database, query.project));
      const ids = new Set(hosts.map(({ id }) => id));
      const lister = new AttackLister(query, (id) => ids.has(id));
      const slices = new Slices();
      for await (const hour of readAttacks(query.project, query)) await slices.run(lister.add(hour));
      return lister.list;
    },

    attackHours: (project) =>
      readAttacks(project, { from: 0, to: Number.MAX_SAFE_INTEGER, isAscending: true }),

    eraseAttacks: (project, filter) =>
      available(async () => {
        const matcher = new AttackMatcher(filter);
        const [, hours] = await listHours(database, project, { from: 0, to: Number.MAX_SAFE_INTEGER });
        for (const hour of hours) await eraseInHour(database, project, hour, matcher);
      }),

    putAttackHour: (project, hour) => available(() => putAttackHour(database, project, hour)),
  };
}

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
  hours: Map<number, (StoredBlock & { block: Buffer | null })[]>;
}

/** Reads what additions may change, after the project was locked: blocks that are not full, or all blocks of an hour that is cut. */
export async function readBlocks(
  run: Run,
  project: string,
  { hours: added }: AttackAdditions,
  limit: number,
): Promise<StoredBlocks> {
  const hours: StoredBlocks['hours'] = new Map();
  if (added.size === 0 || limit === 0) return { before: 0, hours };
  const [before, sizes] = await Promise.all([
    readBefore(run),
    run<{ hour: number; number: number; entries: number; threshold: number; block: Buffer | null }>(
      `SELECT a.hour, a.number, a.entries, a.threshold, CASE WHEN a.entries < ${BLOCK_ENTRIES_MAX}
         OR sum(a.entries) OVER (PARTITION BY a.hour) + k.added > $4 THEN a.block END AS block
       FROM unnest($2::int[], $3::int[]) AS k(hour, added)
       JOIN attacks a ON a.project = $1 AND a.hour = k.hour ORDER BY a.hour, a.number`,
      [project, [...added.keys()], Array.from(added.values(), ({ length }) => length), limit],
    ),
  ]);
  for (const { hour, ...block } of sizes) hours.set(hour, [...(hours.get(hour) ?? []), block]);
  return { before, hours };
}

export function* mergeAttacks(
  project: string,
  { hours }: AttackAdditions,
  stored: StoredBlocks,
  limit: number,
): Generator<void, Map<number, HourChange>> {
  const changes = new Map<number, HourChange>();
  if (limit === 0) return changes;
  for (const [hour, entries] of hours) {
    if (hour * HOUR_MS < stored.before) continue;
    const blocks = stored.hours.get(hour) ?? [];
    const read = (number: number) => {
      const block = blocks.find((each) => each.number === number)?.block;
      if (!block) throw new Error(`the block ${number} of the hour ${hour} was not read`);
      return block;
    };
    changes.set(hour, yield* addToHour({ project, hour, blocks, read, entries, limit }));
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
  const records = new JoinedRecords();
  for (const { bytes } of added) records.add(bytes);
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
        `INSERT INTO attacks (project, hour, number, entries, threshold, block)
         SELECT project, hour, number, entries, threshold, substring($2::bytea FROM first FOR length)
         FROM ${OF_PROJECT}, unnest($3::int[], $4::int[], $5::int[], $6::bigint[], $7::int[], $8::int[])
           AS b(hour, number, entries, threshold, first, length)`,
        [
          project,
          records.bytes(),
          added.map(({ hour }) => hour),
          added.map(({ number }) => number),
          added.map(({ entries }) => entries),
          added.map(({ threshold }) => threshold),
          records.firsts,
          records.lengths,
        ],
      ),
    );
  return writes;
}

/** The hours with attacks that a range touches, and the first one that queries cover. */
async function listHours(
  database: Database,
  project: string,
  { from, to }: { from: number; to: number },
): Promise<[first: number, hours: number[]]> {
  const [state] = await database.run<{ horizon: number }>(
    'SELECT greatest(horizon, top_lists_before) AS horizon FROM retention',
  );
  const rows = await database.run<{ hour: number }>(
    'SELECT DISTINCT hour FROM attacks WHERE project = $1 AND hour >= $2 AND hour < $3 ORDER BY hour',
    [project, Math.max(0, Math.floor(from / HOUR_MS)), Math.min(HOURS_END, Math.ceil(to / HOUR_MS))],
  );
  return [Math.ceil((state?.horizon ?? 0) / HOUR_MS), rows.map(({ hour }) => hour)];
}

/** Later than all hours. */
export const HOURS_END = 2 ** 31 - 1;

type BlockRow = Row & { number: number; block: Buffer };

function readStored(run: Run, project: string, hour: number): Promise<BlockRow[]> {
  return run<BlockRow>('SELECT number, block FROM attacks WHERE project = $1 AND hour = $2 ORDER BY number', [
    project,
    hour,
  ]);
}

async function eraseInHour(
  database: Database,
  project: string,
  hour: number,
  matcher: AttackMatcher,
): Promise<void> {
  await database.transaction(async (run) => {
    const [, stored] = await Promise.all([lockProject(run, project), readStored(run, project, hour)]);
    const changed = stored.flatMap(({ number, block }) => {
      const erased = eraseRows(hour, block, matcher);
      return erased ? [{ number, ...erased }] : [];
    });
    if (changed.length === 0) return;
    const removed = changed.map(({ number }) => number);
    const added = changed.filter(({ entries }) => entries > 0);
    await Promise.all([
      ...writeBlocks(run, project, new Map([[hour, { removed, added }]])),
      addChanges(run, project, [hour * HOUR_MS]),
      run('COMMIT'),
    ]);
  });
}

async function putAttackHour(
  database: Database,
  project: string,
  { hour, blocks }: AttackHour,
): Promise<void> {
  const added = blocks.map(({ bytes, length, threshold }, i) => {
    return { number: i + 1, entries: length, threshold, bytes: Buffer.from(bytes) };
  });
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
