/** Kept attacks in the file: the blocks of ../attack-block.ts by hour, project and number. */
import { AttackBlock, blockHeader } from '../attack-block.ts';
import { type AttackFilter, AttackMatcher } from '../attack-filter.ts';
import {
  AttackAdditions,
  type AttackHour,
  addToHour,
  eraseRows,
  openHour,
  type StoredBlock,
} from '../attack-hours.ts';
import { type AttackList, AttackLister, type AttackQuery, memoized } from '../attack-list.ts';
import { Slices } from '../slices.ts';
import { HOUR_MS, StoreDamaged, type TimeRange } from '../store.ts';
import { inSnapshot } from './count.ts';
import {
  addChecksum,
  CHECKSUM_BYTES,
  cellsSeed,
  keySteps,
  type ProjectRecord,
  type PutRecord,
  type ReadOptions,
  type Schema,
  withoutChecksum,
} from './schema.ts';
import { countHourChanges, firstListedHour, HOURS_END, keptListsFrom } from './top-lists.ts';

interface BlockKey {
  hour: number;
  scope: number;
  number: number;
}

/** Time comes first, so that live traffic writes at the end of the tree. */
export function blockKey(hour: number, scope: number, number: number): Buffer {
  const key = Buffer.allocUnsafe(12);
  key.writeUInt32BE(hour, 0);
  key.writeUInt32BE(scope, 4);
  key.writeUInt32BE(number, 8);
  return key;
}

export function parseBlockKey(key: Buffer): BlockKey {
  if (key.length !== 12) throw new StoreDamaged(`invalid key ${key.toString('hex')} in the table attacks`);
  return { hour: key.readUInt32BE(0), scope: key.readUInt32BE(4), number: key.readUInt32BE(8) };
}

/** Binds the checksum of a block to its key, and to this table. */
function seedOf({ hour, scope, number }: BlockKey): number {
  return (cellsSeed(0, hour, scope) ^ Math.imul(number, 0xc2b2ae35)) >>> 0;
}

/** Throws if the block is damaged. */
export function withoutBlockChecksum(key: Buffer, stored: Uint8Array): Uint8Array {
  const parsed = parseBlockKey(key);
  const body = withoutChecksum(stored, seedOf(parsed));
  if (body !== undefined) return body;
  const { hour, scope, number } = parsed;
  throw new StoreDamaged(`the block ${number} of the hour ${hour}, scope ${scope} of the table attacks`);
}

export function putBlock(put: PutRecord, key: BlockKey, block: Uint8Array): void {
  const value = Buffer.allocUnsafe(CHECKSUM_BYTES + block.length);
  value.set(block, CHECKSUM_BYTES);
  put('attacks', blockKey(key.hour, key.scope, key.number), addChecksum(value, seedOf(key)));
}

/** The blocks of an hour of a project, each valid until the next is read. */
function* blocksOf(
  { attacks }: Schema,
  hour: number,
  scope: number,
  read?: ReadOptions,
): Generator<{ number: number; bytes: Uint8Array }> {
  const range = { start: blockKey(hour, scope, 0), end: blockKey(hour, scope + 1, 0) };
  for (const key of attacks.getKeys({ ...range, ...read })) {
    const stored = attacks.getBinaryFast(key, read);
    if (stored) yield { number: parseBlockKey(key).number, bytes: withoutBlockChecksum(key, stored) };
  }
}

/** Attacks of a group of batches of one project. */
export class GroupAttacks extends AttackAdditions {
  /** Passes the changed blocks to `put`, hour by hour. The transaction of the counters, which writes them, counts the change. */
  *merge(
    schema: Schema,
    { id: project, scope }: ProjectRecord,
    limit: number,
    put: PutRecord,
  ): Generator<void, void> {
    const before = keptListsFrom(schema);
    for (const [hour, entries] of [...this.hours].sort(([a], [b]) => a - b)) {
      if (hour * HOUR_MS < before) continue;
      const blocks: StoredBlock[] = [];
      for (const { number, bytes } of blocksOf(schema, hour, scope))
        blocks.push({ number, ...blockHeader(bytes) });
      const read = (number: number) => {
        const key = blockKey(hour, scope, number);
        const stored = schema.attacks.getBinary(key);
        if (stored === undefined)
          throw new StoreDamaged(`the block ${number} of the hour ${hour} is missing`);
        return withoutBlockChecksum(key, stored);
      };
      const { removed, added } = yield* addToHour({ project, hour, blocks, read, entries, limit });
      for (const number of removed) put('attacks', blockKey(hour, scope, number), null);
      for (const { number, bytes } of added) putBlock(put, { hour, scope, number }, bytes);
    }
  }
}

export function listAttacks(schema: Schema, query: AttackQuery, limit: number): Promise<AttackList> {
  return inSnapshot(schema, async (read) => {
    const project = schema.projects.get(query.project, read);
    const isRegistered = (id: string) =>
      project !== undefined && schema.hosts.get([project.scope, id], read) !== undefined;
    const lister = new AttackLister(query, memoized(isRegistered));
    const slices = new Slices();
    if (project) await slices.run(addHours(lister, readAttacks(schema, project, query, limit, read)));
    return lister.list;
  });
}

function* addHours(lister: AttackLister, hours: Iterable<AttackHour>): Generator<void, void> {
  for (const hour of hours) {
    yield;
    yield* lister.add(hour);
  }
}

/** The hours of a range that have kept attacks. */
export function* readAttacks(
  schema: Schema,
  project: ProjectRecord,
  { from, to, isAscending }: TimeRange & { isAscending: boolean },
  limit: number,
  read?: ReadOptions,
): Generator<AttackHour> {
  const first = Math.max(Math.floor(from / HOUR_MS), firstListedHour(schema, read), firstHour(schema, read));
  const end = Math.min(Math.ceil(to / HOUR_MS), Math.floor(project.latest / HOUR_MS) + 1);
  for (let i = 0; i < end - first; i++) {
    const hour = isAscending ? first + i : end - 1 - i;
    const blocks: AttackBlock[] = [];
    for (const { bytes } of blocksOf(schema, hour, project.scope, read))
      blocks.push(new AttackBlock(hour, Uint8Array.from(bytes)));
    if (blocks.length > 0) yield openHour(project.id, hour, blocks, limit);
  }
}

/** The first hour of all blocks, HOURS_END if there is none: a range may begin years before. */
function firstHour({ attacks }: Schema, read?: ReadOptions): number {
  for (const key of attacks.getKeys({ limit: 1, ...read })) return parseBlockKey(key).hour;
  return HOURS_END;
}

/** Deletes the blocks of hours before `end`, of all projects or of one. Each step is for a separate write transaction. */
export function* deleteAttacksSteps(
  schema: Schema,
  end: number,
  project?: ProjectRecord,
): Generator<() => void> {
  yield* keySteps<Buffer>(
    (start = blockKey(0, 0, 0), limit) =>
      schema.attacks.getKeys({ start, ...(end < HOURS_END && { end: blockKey(end, 0, 0) }), limit }),
    (keys) => {
      const own = keys.filter((key) => project === undefined || parseBlockKey(key).scope === project.scope);
      for (const key of own) schema.attacks.removeSync(key);
      if (project === undefined) return;
      const hours = own.map((key) => parseBlockKey(key).hour);
      countHourChanges(schema, project.id, hours);
    },
    BLOCKS_PER_STEP,
  );
}

/** Removing a block frees its pages: up to 50 of them. */
const BLOCKS_PER_STEP = 200;

/** Rewrites the blocks that have such attacks. Each step is for a separate write transaction. */
export function* eraseAttacksSteps(
  schema: Schema,
  project: ProjectRecord,
  filter: AttackFilter,
): Generator<() => void> {
  const matcher = new AttackMatcher(filter);
  const keys = schema.attacks.getKeys().filter((key) => parseBlockKey(key).scope === project.scope);
  for (const key of [...keys]) {
    const { hour, number } = parseBlockKey(key);
    const erase = () => {
      const stored = schema.attacks.getBinary(key);
      return stored && eraseRows(hour, withoutBlockChecksum(key, stored), matcher);
    };
    if (erase() === undefined) continue;
    yield () => {
      const erased = erase();
      if (erased === undefined) return;
      const put = putIn(schema);
      if (erased.entries === 0) put('attacks', key, null);
      else putBlock(put, { hour, scope: project.scope, number }, erased.bytes);
      countHourChanges(schema, project.id, [hour]);
    };
  }
}

/** Runs inside a write transaction. */
export function putAttackHour(schema: Schema, projectId: string, { hour, blocks }: AttackHour): void {
  const project = schema.projects.get(projectId);
  if (project === undefined) throw new Error(`the project ${projectId} is unknown`);
  if (hour < firstListedHour(schema)) return;
  const { scope } = project;
  const put = putIn(schema);
  for (const { number } of [...blocksOf(schema, hour, scope)])
    put('attacks', blockKey(hour, scope, number), null);
  for (const [i, { bytes }] of blocks.entries()) putBlock(put, { hour, scope, number: i + 1 }, bytes);
  countHourChanges(schema, projectId, [hour]);
}

function putIn(schema: Schema): PutRecord {
  return (_, key, value) => {
    if (value === null) schema.attacks.removeSync(key);
    else schema.attacks.putSync(key, value);
  };
}
