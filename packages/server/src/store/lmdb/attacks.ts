/** Kept attacks in the file: the blocks of ../attack-layout.ts by hour, project and number. */
import { hash } from 'node:crypto';
import { BoundedCache } from '../../cache.ts';
import { tryTo } from '../../lmdb/commit.ts';
import { AttackBlock, BlockHead } from '../attack-block.ts';
import {
  AttackCounter,
  type AttackCountQuery,
  type AttackCounts,
  type CountedPart,
  edgesIn,
  rangeOf,
  sumOfCounts,
} from '../attack-counts.ts';
import { type AttackFilter, AttackMatcher } from '../attack-filter.ts';
import {
  AttackAdditions,
  type AttackHour,
  addToHour,
  applyThreshold,
  areEqual,
  eraseFromHour,
  type HourChange,
  hourAdditions,
  lowestThreshold,
  type StoredBlock,
} from '../attack-hours.ts';
import { BODY_PARTS, type BodyPart } from '../attack-layout.ts';
import { type AttackList, AttackLister, type AttackQuery, memoized } from '../attack-list.ts';
import { AttackScan, type VisitHour } from '../attack-scan.ts';
import { finish, Slices } from '../slices.ts';
import { HOUR_MS, type Selection, StoreDamaged, type TimeRange } from '../store.ts';
import { inSnapshot } from './count.ts';
import {
  addChecksum,
  type BinaryTable,
  CHECKSUM_BYTES,
  cellsSeed,
  changesOf,
  keySteps,
  MINUTES,
  metaValue,
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
  const key = Buffer.allocUnsafe(HEAD_KEY_BYTES);
  key.writeUInt32BE(hour, 0);
  key.writeUInt32BE(scope, 4);
  key.writeUInt32BE(number, 8);
  return key;
}

const HEAD_KEY_BYTES = 12;

/** LMDB copies every value that it reads, so the parts of a body have their own records, after the head. */
function partKey(head: Buffer, part: BodyPart): Buffer {
  return Buffer.concat([head, Buffer.of(part)]);
}

/** The keys of all records of the block to which a key belongs. */
export function keysOfBlock(key: Buffer): Buffer[] {
  const head = key.subarray(0, HEAD_KEY_BYTES);
  return [head, ...BODY_PARTS.map((part) => partKey(head, part))];
}

/** `part`: undefined for the head. */
export function parseBlockKey(key: Buffer): BlockKey & { part: BodyPart | undefined } {
  const part = BODY_PARTS.find((each) => each === key[HEAD_KEY_BYTES]);
  if (key.length !== HEAD_KEY_BYTES + (part === undefined ? 0 : 1))
    throw new StoreDamaged(`invalid key ${key.toString('hex')} in the table attacks`);
  return { hour: key.readUInt32BE(0), scope: key.readUInt32BE(4), number: key.readUInt32BE(8), part };
}

/** Binds the checksum of a record to its key, and to this table. */
function seedOf(key: Buffer): number {
  const { hour, scope, number, part } = parseBlockKey(key);
  const seed = cellsSeed(0, hour, scope) ^ Math.imul(number, 0xc2b2ae35);
  return (part === undefined ? seed : seed ^ (part + 1)) >>> 0;
}

/** Throws if the record is damaged. Queries need not check parts, because a head has the checksums of all sections. */
export function withoutBlockChecksum(key: Buffer, stored: Uint8Array): Uint8Array {
  const body = withoutChecksum(stored, seedOf(key));
  if (body !== undefined) return body;
  const { hour, scope, number } = parseBlockKey(key);
  throw new StoreDamaged(`the block ${number} of the hour ${hour}, scope ${scope} of the table attacks`);
}

/** Throws if the record is damaged. Of an intact block, its last record is the one to report. */
export function checkBlockRecord(key: Buffer, stored: Uint8Array, attacks: BinaryTable): void {
  withoutBlockChecksum(key, stored);
  const [head = key, ...parts] = keysOfBlock(key);
  if ([head, ...parts].some((each) => !attacks.doesExist(each)))
    throw new Error('a record of the block is missing');
  if (!key.equals(parts.at(-1) as Buffer)) return;
  const isIntact = [head, ...parts].every(
    (each) => withoutChecksum(attacks.get(each) ?? NO_BYTES, seedOf(each)) !== undefined,
  );
  if (isIntact) readBlock(attacks, head).entries();
}

export function putBlock(put: PutRecord, { hour, scope, number }: BlockKey, block: AttackBlock): void {
  const [head = Buffer.alloc(0), ...parts] = keysOfBlock(blockKey(hour, scope, number));
  putRecord(put, head, block.head);
  for (const part of BODY_PARTS) putRecord(put, parts[part] as Buffer, block.part(part));
}

function putRecord(put: PutRecord, key: Buffer, bytes: Uint8Array): void {
  const value = Buffer.allocUnsafe(CHECKSUM_BYTES + bytes.length);
  value.set(bytes, CHECKSUM_BYTES);
  put('attacks', key, addChecksum(value, seedOf(key)));
}

function removeBlock(put: PutRecord, { hour, scope, number }: BlockKey): void {
  for (const key of keysOfBlock(blockKey(hour, scope, number))) put('attacks', key, null);
}

function putChange(put: PutRecord, hour: number, scope: number, { removed, added }: HourChange): void {
  for (const number of removed) removeBlock(put, { hour, scope, number });
  for (const { number, block } of added) putBlock(put, { hour, scope, number }, block);
}

/** The blocks of an hour of a project, by number. Those of a snapshot read their bodies when they are used. */
function blocksOf(schema: Schema, hour: number, scope: number, read?: ReadOptions): StoredBlock[] {
  const heads = headsOf(schema, hour, scope, read);
  if (read) return heads;
  return heads.map(({ number, block }) => ({ number, block: AttackBlock.of(hour, block.bytes) }));
}

/** As `blocksOf`, but reads all bodies when they are used: that fails if another process has removed the block. */
function headsOf({ attacks }: Schema, hour: number, scope: number, read?: ReadOptions): StoredBlock[] {
  return headKeys(attacks, hour, scope, read).map((key) => {
    return { number: parseBlockKey(key).number, block: readBlock(attacks, key, read) };
  });
}

function headKeys(attacks: BinaryTable, hour: number, scope: number, read?: ReadOptions): Buffer[] {
  const range = { start: blockKey(hour, scope, 0), end: blockKey(hour, scope + 1, 0) };
  return [...attacks.getKeys({ ...range, ...read })].filter(({ length }) => length === HEAD_KEY_BYTES);
}

/** Reads the body when it is used: of a snapshot, which must stay open, or at once. */
export function readBlock(attacks: BinaryTable, key: Buffer, read?: ReadOptions): AttackBlock {
  return withBody(attacks, key, readHead(attacks, key, read), copyOf, read);
}

function readHead(attacks: BinaryTable, key: Buffer, read?: ReadOptions): BlockHead {
  const bytes = withoutBlockChecksum(key, attacks.getBinaryFast(key, read) ?? NO_BYTES);
  return new BlockHead(parseBlockKey(key).hour, new Uint8Array(bytes));
}

/** `copy`: keeps what LMDB overwrites at the next read. */
function withBody(
  attacks: BinaryTable,
  key: Buffer,
  head: BlockHead,
  copy: (bytes: Uint8Array) => Uint8Array,
  read?: ReadOptions,
): AttackBlock {
  return new AttackBlock(head, (part) => {
    const stored = attacks.getBinaryFast(partKey(key, part), read) ?? NO_BYTES;
    return copy(stored.subarray(CHECKSUM_BYTES, stored.length));
  });
}

function copyOf(bytes: Uint8Array): Uint8Array {
  return new Uint8Array(bytes);
}

/** Copies of what a query reads of an hour. The next hour overwrites them: new memory takes longer than the copy. */
class HourCopies {
  readonly #bytes = new Uint8Array(HOUR_COPIES_BYTES);
  #used = 0;

  clear(): void {
    this.#used = 0;
  }

  copy = (bytes: Uint8Array): Uint8Array => {
    const start = this.#used;
    if (start + bytes.length > this.#bytes.length) return copyOf(bytes);
    this.#bytes.set(bytes, start);
    this.#used += bytes.length;
    return this.#bytes.subarray(start, this.#used);
  };
}

/** What most hours need; more is allocated. */
const HOUR_COPIES_BYTES = 1_048_576;

const NO_BYTES = new Uint8Array(0);

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
    const isNew = (hour: number) => headsOf(schema, hour, scope).length === 0;
    for (const addition of hourAdditions(this, isNew)) {
      const { hour } = addition;
      if (hour * HOUR_MS < before) continue;
      const blocks = headsOf(schema, hour, scope);
      putChange(put, hour, scope, yield* addToHour(addition, { project, blocks, limit }));
    }
  }
}

/** Queries of kept attacks. Keeps heads of blocks and what repeated queries need, until change counters differ. */
export class AttackReader {
  readonly #schema: Schema;
  readonly #cache = new BoundedCache<string, Cached>({
    name: 'attack_blocks',
    entriesMax: CACHE_BYTES_MAX / HEADS_BYTES,
    weightMax: CACHE_BYTES_MAX,
    weight: ({ bytes }) => bytes,
  });

  constructor(schema: Schema) {
    this.#schema = schema;
  }

  list(query: AttackQuery): Promise<AttackList> {
    return this.#inProject(query, async (snapshot) => {
      const lister = new AttackLister(query, snapshot.isRegistered);
      const { hosts, filter } = query;
      const key = `list ${this.#keyOf(snapshot, [hosts, filter])}`;
      const chunks = (this.#cache.get(key) as CachedList | undefined)?.chunks ?? new Map();
      await new Slices().run(this.#addAll(lister, snapshot, query, chunks));
      const bytes = HEADS_BYTES + chunks.size * COUNTED_CHUNK_BYTES;
      // Nobody repeats a search for an ID, and it would displace others.
      if (filter.include.ids === undefined) this.#cache.set(key, { bytes, chunks });
      return lister.list;
    });
  }

  count(query: AttackCountQuery): Promise<AttackCounts> {
    return this.#inProject(query, async (snapshot) => {
      const days = this.#wholeDays(rangeOf(query), snapshot);
      if (days.from >= days.to) return this.#count(query, snapshot);
      const middle = { ...query, edges: edgesIn(query.edges, days.from, days.to) };
      const parts = [
        await this.#countPart(query, rangeOf(query).from, days.from, snapshot),
        { edges: middle.edges, counts: await this.#countDays(middle, snapshot) },
        await this.#countPart(query, days.to, rangeOf(query).to, snapshot),
      ];
      return new Slices().run(sumOfCounts(query.edges, parts));
    });
  }

  async #countPart(
    query: AttackCountQuery,
    from: number,
    to: number,
    snapshot: Snapshot,
  ): Promise<CountedPart> {
    const edges = edgesIn(query.edges, from, to);
    return { edges, counts: await this.#count({ ...query, edges }, snapshot) };
  }

  /** Whole days that live traffic does not change, so that repeated queries of long ranges count only the others. */
  #wholeDays({ from, to }: TimeRange, { project, read }: Snapshot): TimeRange {
    const first = Math.max(
      from,
      firstHour(this.#schema, read) * HOUR_MS,
      firstListedHour(this.#schema, read) * HOUR_MS,
    );
    const last = Math.min(to, project?.latest ?? 0);
    return { from: Math.ceil(first / DAY_MS) * DAY_MS, to: Math.floor(last / DAY_MS) * DAY_MS };
  }

  async #countDays(query: AttackCountQuery, snapshot: Snapshot): Promise<AttackCounts> {
    const { hosts, filter, by, edges } = query;
    const key = `days ${this.#keyOf(snapshot, [hosts, filter, by, edges])}`;
    const { from, to } = rangeOf(query);
    const changes: unknown[] = [];
    for (let chunk = chunkOfHour(from / HOUR_MS); chunk < chunkOfHour(to / HOUR_MS); chunk++)
      changes.push(changesOf(this.#schema.cells, MINUTES.id, chunk, snapshot.read));
    const version = changes.join();
    const known = this.#cache.get(key) as CachedDays | undefined;
    if (known?.version === version) return known.counts;
    const counts = await this.#count(query, snapshot);
    const bytes = HEADS_BYTES + version.length + counts.points.size * (VALUE_BYTES + 8 * edges.length);
    if (bytes <= CACHE_BYTES_MAX / 4) this.#cache.set(key, { bytes, version, counts });
    return counts;
  }

  async #count(query: AttackCountQuery, snapshot: Snapshot): Promise<AttackCounts> {
    const counter = new AttackCounter(query, snapshot.isRegistered);
    const slices = new Slices();
    await slices.run(this.#addAll(counter, snapshot, { ...rangeOf(query), isAscending: true }));
    return slices.run(counter.result());
  }

  scan(query: Selection & TimeRange, visit: VisitHour): Promise<void> {
    return this.#inProject(query, (snapshot) => {
      const scan = new AttackScan(query, visit, snapshot.isRegistered);
      return new Slices().run(this.#addAll(scan, snapshot, { ...query, isAscending: true }));
    });
  }

  #inProject<T>({ project: id }: Selection, action: (snapshot: Snapshot) => Promise<T>): Promise<T> {
    const schema = this.#schema;
    return inSnapshot(schema, (read) => {
      const project = schema.projects.get(id, read);
      const isRegistered = memoized(
        (host) => project !== undefined && schema.hosts.get([project.scope, host], read) !== undefined,
      );
      return action({ project, isRegistered, read });
    });
  }

  /** Of what a query selects. Results depend on which hosts are registered. */
  #keyOf({ project, read }: Snapshot, selection: unknown): string {
    const salt = metaValue(this.#schema, 'salt', read);
    const deleted = metaValue(this.#schema, 'deletedHosts', read);
    return hash('sha256', JSON.stringify([project?.scope, salt, deleted, selection]), 'base64');
  }

  /** Adds the hours of a range to a target. `known`: what whole chunks added to the same target before. */
  *#addAll<T extends HoursTarget>(
    target: T,
    { project, read }: Snapshot,
    { from, to, isAscending }: TimeRange & { isAscending: boolean },
    known: CachedList['chunks'] = new Map(),
  ): Generator<void, void> {
    if (project === undefined || from >= to) return;
    const schema = this.#schema;
    const first = Math.max(
      Math.floor(from / HOUR_MS),
      firstListedHour(schema, read),
      firstHour(schema, read),
    );
    const end = Math.min(Math.ceil(to / HOUR_MS), endOfHours(project));
    const chunks = [chunkOfHour(first), Math.ceil(end / HOURS_PER_CHUNK)] as const;
    const copies = new HourCopies();
    for (let n = 0; n < chunks[1] - chunks[0]; n++) {
      const chunk = isAscending ? chunks[0] + n : chunks[1] - 1 - n;
      const [start, stop] = [chunk * HOURS_PER_CHUNK, (chunk + 1) * HOURS_PER_CHUNK];
      const isWhole = first <= start && stop <= end && from <= start * HOUR_MS && stop * HOUR_MS <= to;
      // Every change of blocks changes it, in the same transaction.
      const changes = changesOf(schema.cells, MINUTES.id, chunk, read);
      const counted = known.get(chunk);
      if (isWhole && counted?.changes === changes && counted && target.skip?.(counted.counts)) continue;
      yield;
      const heads = yield* this.#headsOf(project.scope, chunk, changes, read);
      const before = target.counts;
      for (let i = 0; i < HOURS_PER_CHUNK; i++) {
        const hour = isAscending ? start + i : stop - 1 - i;
        if (hour < first || hour >= end) continue;
        const own = heads.filter(({ key }) => key.readUInt32BE(0) === hour);
        if (own.length === 0) continue;
        copies.clear();
        const blocks = own.map(({ key, head }) => withBody(schema.attacks, key, head, copies.copy, read));
        yield* target.add({ hour, blocks });
      }
      const counts = target.counts?.map((count, i) => count - (before?.[i] ?? 0));
      if (isWhole && counts && changes !== undefined) known.set(chunk, { changes, counts });
    }
  }

  *#headsOf(
    scope: number,
    chunk: number,
    changes: number | undefined,
    read: ReadOptions,
  ): Generator<void, CachedHeads['heads']> {
    const { attacks } = this.#schema;
    const salt = metaValue(this.#schema, 'salt', read);
    const name = `heads ${scope} ${chunk}`;
    const known = this.#cache.get(name) as CachedHeads | undefined;
    if (known && known.changes === changes && known.salt === salt) return known.heads;
    const heads: CachedHeads['heads'] = [];
    const first = chunk * HOURS_PER_CHUNK;
    for (const key of keysOf(this.#schema, scope, first, first + HOURS_PER_CHUNK, true, read)) {
      if (key === undefined) yield;
      if (key?.length === HEAD_KEY_BYTES)
        heads.push({ key: Buffer.from(key), head: readHead(attacks, key, read) });
    }
    const bytes = HEADS_BYTES + heads.length * HEAD_BYTES;
    if (changes !== undefined) this.#cache.set(name, { bytes, changes, salt, heads });
    return heads;
  }
}

/** What a query reads. */
interface Snapshot {
  project: ProjectRecord | undefined;
  isRegistered: (hostId: string) => boolean;
  read: ReadOptions;
}

interface HoursTarget {
  add(hour: AttackHour): Generator<void, void>;
  /** What hours have added so far, and how to add it again without them. False if the target needs the hours. */
  readonly counts?: readonly number[];
  skip?(counts: readonly number[]): boolean;
}

type Cached = { bytes: number } & (CachedHeads | CachedList | CachedDays);

interface CachedHeads {
  changes: number;
  salt: number;
  heads: { key: Buffer; head: BlockHead }[];
}

/** What each chunk adds to a list. */
interface CachedList {
  chunks: Map<number, { changes: number; counts: readonly number[] }>;
}

interface CachedDays {
  /** The change counters of all chunks. */
  version: string;
  counts: AttackCounts;
}

/** The heads of 20 million attacks take half of it. */
const CACHE_BYTES_MAX = 16_777_216;
/** Of a chunk, and of each of its heads; and what is kept of a chunk in a list, or of a value. */
const HEADS_BYTES = 300;
const HEAD_BYTES = 1_500;
const COUNTED_CHUNK_BYTES = 150;
const VALUE_BYTES = 200;

const DAY_MS = 24 * HOUR_MS;

/** Of the finest level with a change counter: only the latest heads are read again after an append. */
const HOURS_PER_CHUNK = (MINUTES.cellMs * MINUTES.cellsPerChunk) / HOUR_MS;

/** The chunk whose change counter changes with the blocks of an hour. */
export function chunkOfHour(hour: number): number {
  return Math.floor(hour / HOURS_PER_CHUNK);
}

/** All hours of a project, oldest first, each as it is when it is read. */
export function* dumpAttacks(schema: Schema, project: ProjectRecord): Generator<AttackHour> {
  for (const hour of finish(hoursOf(schema, project))) {
    if (hour < firstListedHour(schema)) continue;
    const blocks = blocksOf(schema, hour, project.scope).map(({ block }) => block);
    if (blocks.length > 0) yield { hour, blocks };
  }
}

/** Walks over the keys of a project, and searches only after keys of others: undefined then, so that the caller can pause. */
function* keysOf(
  { attacks }: Schema,
  scope: number,
  first: number,
  end: number,
  isAscending: boolean,
  read?: ReadOptions,
): Generator<Buffer | undefined> {
  if (first >= end) return;
  const last = blockKey(end - 1, scope, 2 ** 32 - 1);
  for (let [from, to] = [first, end]; from < to; ) {
    const range = isAscending
      ? { start: blockKey(from, scope, 0), end: last }
      : { start: blockKey(to - 1, scope, 2 ** 32 - 1), end: blockKey(first, scope, 0), reverse: true };
    let isDone = true;
    for (const key of attacks.getKeys({ ...range, ...read })) {
      const { hour, scope: owner } = parseBlockKey(key);
      if (owner === scope) {
        yield key;
        continue;
      }
      // The next hour in which the project may have a block.
      if (isAscending) from = owner < scope ? hour : hour + 1;
      else to = owner > scope ? hour + 1 : hour;
      isDone = false;
      break;
    }
    if (isDone) return;
    yield undefined;
  }
}

/** The hour after the last one of a project. */
function endOfHours({ latest }: ProjectRecord): number {
  return Math.floor(latest / HOUR_MS) + 1;
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

/** Resolves to the number of erased entries. `write` runs an action in a transaction. */
export async function eraseAttacks(
  schema: Schema,
  project: ProjectRecord,
  filter: AttackFilter,
  write: (action: () => void) => Promise<unknown>,
): Promise<number> {
  const { id, scope } = project;
  const matcher = new AttackMatcher(filter);
  const slices = new Slices();
  let total = 0;
  for (const hour of await inSnapshot(schema, (read) => slices.run(hoursOf(schema, project, read)))) {
    const found = await inSnapshot(schema, async (read) => {
      const blocks = blocksOf(schema, hour, scope, read);
      return { blocks, erasure: await slices.run(eraseFromHour(hour, blocks, matcher)) };
    });
    if (found.erasure.removed.length === 0) continue;
    let { erasure } = found;
    await write(() => {
      const blocks = blocksOf(schema, hour, scope);
      // An append may have changed the hour.
      if (!areEqual(blocks, found.blocks)) erasure = finish(eraseFromHour(hour, blocks, matcher));
      putChange(putIn(schema), hour, scope, erasure);
      countHourChanges(schema, id, [hour]);
    });
    total += erasure.erased;
  }
  return total;
}

/** The hours in which a project has blocks, oldest first. */
function* hoursOf(schema: Schema, project: ProjectRecord, read?: ReadOptions): Generator<void, Set<number>> {
  const hours = new Set<number>();
  const [first, end] = [firstHour(schema, read), endOfHours(project)];
  for (const key of keysOf(schema, project.scope, first, end, true, read)) {
    if (key) hours.add(parseBlockKey(key).hour);
    yield;
  }
  return hours;
}

/**
 * Removes a damaged block. Runs inside a write transaction. The other blocks get the threshold of the hour, if it can be read:
 * otherwise attacks that an hour over the limit has dropped would come back.
 */
export function removeDamagedBlock(schema: Schema, key: Buffer): void {
  const parsed = tryTo(() => parseBlockKey(key));
  const blocks = parsed === null ? [] : intactHeads(schema, parsed);
  for (const each of [key, ...keysOfBlock(key)]) schema.attacks.removeSync(each);
  const threshold = lowestThreshold(blocks.map(({ block }) => block));
  if (parsed === null || threshold === 0) return;
  const { hour, scope } = parsed;
  for (const other of blocks) {
    if (other.number === parsed.number) continue;
    // It may be damaged, too.
    const change = tryTo(() => finish(applyThreshold(hour, [other], threshold)));
    if (change) putChange(putIn(schema), hour, scope, change);
  }
}

function intactHeads({ attacks }: Schema, { hour, scope }: BlockKey): StoredBlock[] {
  return headKeys(attacks, hour, scope).flatMap((key) => {
    const block = tryTo(() => readBlock(attacks, key));
    return block ? [{ number: parseBlockKey(key).number, block }] : [];
  });
}

/** Runs inside a write transaction. */
export function putAttackHour(schema: Schema, projectId: string, { hour, blocks }: AttackHour): void {
  const project = schema.projects.get(projectId);
  if (project === undefined) throw new Error(`the project ${projectId} is unknown`);
  if (hour < firstListedHour(schema)) return;
  const { scope } = project;
  const put = putIn(schema);
  for (const { number } of blocksOf(schema, hour, scope)) removeBlock(put, { hour, scope, number });
  for (const [i, block] of blocks.entries()) putBlock(put, { hour, scope, number: i + 1 }, block);
  countHourChanges(schema, projectId, [hour]);
}

function putIn(schema: Schema): PutRecord {
  return (_, key, value) => {
    if (value === null) schema.attacks.removeSync(key);
    else schema.attacks.putSync(key, value);
  };
}
