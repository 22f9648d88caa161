/**
 * The contract of a store: it counts, exactly, and nothing else. Time grids, time zones, category names in
 * answers and zero filling live above it, in statistics/. Every store passes the suite in conformance.ts.
 */
import type { Event } from '../event.ts';

export interface Store {
  /** Of a store in a file: sets it apart from another file in its place. */
  readonly fileId?: number;

  /**
   * Counts a batch. When the promise resolves the batch is durable (it survives `kill -9` and power loss) and
   * visible to every later query of any process. All of a batch counts, or none of it. A batch whose `id` was
   * seen before under the same source changes nothing. Events may come in any order, and late by months; those
   * from before the horizon (see `prune`) are not counted but reported.
   */
  append(batch: Batch): Promise<Appended>;

  /** Requests and attacks between neighbouring edges: point i is `[edges[i], edges[i + 1])`, to the millisecond. */
  series(query: SeriesQuery): Promise<Series>;

  /** Attacks in `[from, to)` by category, in the order of CATEGORIES. Always adds up to the attacks of `series`. */
  totals(query: TotalsQuery): Promise<Float64Array>;

  /**
   * A mark that differs once any count between `from` and `to` may have changed, of whatever project: as long as it is
   * the same, so are all answers about that time. Null: the store cannot tell.
   */
  version(range: { from: number; to: number }): Promise<string | null>;

  /** The batches that were counted directly after `after` (a batch id, or '' for the start) in their file. */
  batchesAfter(project: string, source: string, after: string): Promise<BatchLink[]>;

  /** Every path of a project that `follow` has followed, by source and path. */
  followedPaths(project: string): Promise<FollowedPath[]>;

  /** Stores the state of a followed path without a batch, in place of the earlier one. It is durable like a batch. */
  putFollowedPath(project: string, followed: FollowedPath): Promise<void>;

  /**
   * Registers a host name, or finds it: one name has one ID in a project, and one ID one name. With `limit`
   * hosts already there nothing is added. Concurrent callers, of other processes too, get the same ID.
   */
  addHost(host: NewHost): Promise<AddedHost>;

  /**
   * The ID of each host name, in the order of `hostnames`, which may repeat names. New names are registered in their
   * order until the project has `limit` hosts; the others are null. At the limit nothing is written, and the time is
   * linear in the names, with the event loop free in between. Concurrent callers, of other processes too, get the same IDs.
   */
  resolveHosts(query: HostnameQuery): Promise<(string | null)[]>;

  /** Gives a host another name. Its ID and its counts stay; the old name is free again. */
  renameHost(host: { project: string; id: string; hostname: string }): Promise<RenamedHost>;

  /** The hosts of a project, by name. */
  hosts(project: string): Promise<Host[]>;

  /** The log sources of a project, by name. */
  sources(project: string): Promise<Source[]>;

  /**
   * Every event that counts, in parts of bounded size, for another store to take in under the source NO_SOURCE. As
   * long as nothing is counted, the parts and their ids are the same each time.
   */
  events(project: string): AsyncIterable<{ id: string; events: Event[] }>;

  /** The batches that are remembered of a source, in parts of bounded size. */
  batches(project: string, source: string): AsyncIterable<RememberedBatch[]>;

  /** Takes in what another store says of a source, in the place of what is known of it, and batches it remembers. */
  putSource(project: string, source: Source, batches: readonly RememberedBatch[]): Promise<void>;

  /**
   * Moves the horizon forward to `before`: from then on no query counts an event before it. Frees the space of what
   * lies before `freeBefore` (the horizon by default) in steps of bounded length, between which other work goes on;
   * resolves when all is freed or `stop` is aborted.
   */
  prune(before: number, options?: { freeBefore?: number; stop?: AbortSignal }): Promise<void>;

  /** Where the horizon is, and what retention.ts must know to move it. */
  retention(): Promise<Retention>;

  /** Keeps a note for the next call of `retention`, in this or another process. */
  noteRetention(note: RetentionNote): Promise<void>;

  /** Sets the horizon back to `to`, or as far as space has not been freed. Resolves to the new horizon. */
  restoreHorizon(to: number): Promise<number>;

  /** Rejects with StoreUnavailable when the store cannot answer. */
  ping(): Promise<void>;

  /** Rejects with StoreUnavailable while appends fail or would be refused: a full disk, for example. */
  checkWrites(): Promise<void>;

  /** Waits for the appends under way, then lets go of everything. */
  close(): Promise<void>;
}

/** `hosts` undefined: the whole project, events of no known host included. An unknown ID counts nothing. */
interface Scope {
  project: string;
  hosts?: readonly string[] | undefined;
}

export interface Retention {
  horizon: number;
  /** The horizon cannot be set back to before this. */
  freedBefore: number;
  /** The time of the newest event of any project; null when there is none, or the store cannot tell cheaply. */
  newestEvent: number | null;
  note: RetentionNote | null;
}

export interface RetentionNote {
  /** The last time of the system clock that was trusted. */
  trustedAt: number;
  /** When a process last looked, by the system clock. */
  passedAt: number;
  /** How long processes have run with a clock that is not trusted yet. */
  probationMs: number;
  /** Space before this may be freed once `freeSince` is long enough ago. */
  freeBefore: number;
  freeSince: number;
}

export interface SeriesQuery extends Scope {
  /** Ascending milliseconds, at least two. */
  edges: readonly number[];
}

export interface Series {
  requests: Float64Array;
  attacks: Float64Array;
}

export interface TotalsQuery extends Scope {
  from: number;
  to: number;
}

export interface Batch {
  project: string;
  source: { name: string; format: string };
  /** Makes a retry harmless. Remembered for the retention time: older events would be refused anyway. */
  id?: string;
  /** Where the batch stands in its file. */
  link?: NewLink;
  /** New state of the followed path that the file belongs to. It is stored if and only if the batch counts. */
  followed?: FollowedPath;
  /**
   * A `hostId` here is one that resolveHosts or addHost gave, or `hosts` lists. An unknown one counts as no host. One and the same
   * object may stand here many times, as for the access lines of a host in a second: it counts each time.
   */
  events: readonly Event[];
  /** Records that were refused on the way, by reason: they show up in `sources`. */
  dropped: Readonly<Record<string, number>>;
}

/** One counted chunk of a file. It follows another chunk ('' at the start). */
export interface BatchLink {
  id: string;
  bytes: number;
  /** By which a shorter copy of the chunk is recognized. */
  firstLineHash: string;
  /** What the reader of the file must know to continue after the chunk. */
  readerState: string;
}

/** A link with its field names on disk. */
export interface LinkRecord {
  bytes: number;
  head: string;
  carry: string;
}

export function linkRecord({ bytes, firstLineHash, readerState }: Omit<BatchLink, 'id'>): LinkRecord {
  return { bytes, head: firstLineHash, carry: readerState };
}

export function linkOfRecord({ bytes, head, carry }: LinkRecord): Omit<BatchLink, 'id'> {
  return { bytes, firstLineHash: head, readerState: carry };
}

/** What is known of a counted batch. */
export interface RememberedBatch {
  id: string;
  /** The day (since the epoch) from which on it may be forgotten once the horizon has reached it. */
  day: number;
  link?: Omit<BatchLink, 'id'> & { after: string };
}

export interface NewLink extends Omit<BatchLink, 'id'> {
  after: string;
  /** The ids of all links that the caller found behind `after`. With others there, someone else reads the same file. */
  siblings: readonly string[];
  /** The one of them that this batch takes the place of: the same piece, grown. It is forgotten. */
  replaces?: string | undefined;
}

/** What `follow` knows about a path between restarts. Field names are those on disk; stores do not interpret them. */
export interface FollowedPath {
  source: string;
  /** Absolute. */
  path: string;
  /** When the path was followed for the first time, milliseconds since the epoch. */
  since: number;
  /** The file whose first line was counted last, and when that was. */
  begun: { first_line_hash: string; at: number } | null;
  /** Rotated files beside the path that need not be read again. */
  files: FollowedFile[];
}

export interface FollowedFile {
  first_line_hash: string;
  /** `left_alone`: older than the first follow of the path. `other_name`: its name does not look rotated. */
  state: 'left_alone' | 'other_name' | 'finished';
  modified_ms: number;
  bytes: number;
}

/** The order in which stores list followed paths. */
export function compareFollowed(a: FollowedPath, b: FollowedPath): number {
  const [one, other] = a.source === b.source ? [a.path, b.path] : [a.source, b.source];
  return one < other ? -1 : one > other ? 1 : 0;
}

export type Appended =
  | { kind: 'duplicate' }
  /** The links behind `after` are not those that the caller found: nothing was changed, look again. */
  | { kind: 'conflict' }
  /**
   * `beforeHorizon`: events not counted because what they belong to has been pruned. `withoutHost`: counted events that
   * count in the project's total only; `unknownHosts` of them have a `hostId` that the project does not have.
   */
  | { kind: 'appended'; beforeHorizon: number; withoutHost: number; unknownHosts: number };

/**
 * Whether the pieces around a new one are still as its reader found them: the one before it is there, those behind
 * that are the ones it knows, and the one that it takes the place of has nothing behind it. Otherwise someone else
 * counts the same file, and to go on would count lines twice.
 */
export function linkHolds(
  link: NewLink,
  exists: (id: string) => boolean,
  linksAfter: (id: string) => readonly BatchLink[],
): boolean {
  const there = linksAfter(link.after);
  return (
    (link.after === '' || exists(link.after)) &&
    there.length === link.siblings.length &&
    there.every(({ id }) => link.siblings.includes(id)) &&
    (link.replaces === undefined || linksAfter(link.replaces).length === 0)
  );
}

export interface Host {
  id: string;
  hostname: string;
  /** When it was registered, milliseconds since the epoch. */
  created: number;
}

export interface NewHost {
  project: string;
  hostname: string;
  id?: string | undefined;
  limit: number;
  /** When it was registered, if not now: it comes from another store. */
  created?: number | undefined;
}

export interface HostnameQuery {
  project: string;
  hostnames: readonly string[];
  limit: number;
}

export type AddedHost =
  | { kind: 'added' | 'exists'; host: Host }
  | { kind: 'id_taken'; host: Host }
  | { kind: 'full' };

export type RenamedHost =
  | { kind: 'renamed'; host: Host }
  /** Another host has the name. */
  | { kind: 'name_taken'; host: Host }
  | { kind: 'unknown' };

export interface Source {
  id: string;
  name: string;
  /** The format of its latest batch. */
  format: string;
  /** IDs of the hosts it has reported on. */
  hosts: string[];
  /** Records counted. With `dropped` it adds up to the records that were read. */
  events: number;
  /** Records among `events` without a registered host: they count in the project's total only. */
  without_host: number;
  dropped: Record<string, number>;
  /** Times of its earliest and latest event, null when every record was dropped. */
  first_seen: number | null;
  last_seen: number | null;
}

/** Events that come from another store belong to no source of the project's, and `sources` does not list this one. */
export const NO_SOURCE = { name: '', format: '' } as const;

/** The store cannot answer now; nothing was changed, as far as it can know. */
export class StoreUnavailable extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'StoreUnavailable';
  }
}

/** The store answers queries but takes no changes now. The message says why, and that nothing was changed. */
export class StoreNotWritable extends StoreUnavailable {
  /** The same in a few words, without paths. */
  readonly trouble: string;

  constructor(message: string, trouble: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'StoreNotWritable';
    this.trouble = trouble;
  }
}

/** It never will, until somebody changes the settings. */
export class StoreMisconfigured extends StoreUnavailable {}

/** A source that has not counted anything yet. Fields that older records lack are read as they are here. */
export function newSource(id: string, { name, format }: Batch['source']): Omit<Source, 'hosts'> {
  return { id, name, format, events: 0, without_host: 0, dropped: {}, first_seen: null, last_seen: null };
}

/** What is stored is not what was written. The message says where; `wafstat verify` lists all of it. */
export class StoreDamaged extends StoreUnavailable {
  constructor(where: string, options?: ErrorOptions) {
    super(`the statistics are damaged: ${where}. Run 'wafstat verify' on the data folder`, options);
    this.name = 'StoreDamaged';
  }
}

/** What a batch of this source adds to what is known of it. Shared by the stores, so that all tell the same. */
export function tallySource(
  known: Source,
  batch: Batch,
  counted: readonly Event[],
  withoutHost: number,
): Source {
  const tallied: Source = { ...known, format: batch.source.format, dropped: { ...known.dropped } };
  for (const [reason, n] of Object.entries(batch.dropped)) addDrop(tallied, reason, n);
  addDrop(tallied, 'too_old', batch.events.length - counted.length);
  tallied.events += counted.length;
  tallied.without_host += withoutHost;
  for (const { time } of counted) {
    if (tallied.first_seen === null || time < tallied.first_seen) tallied.first_seen = time;
    if (tallied.last_seen === null || time > tallied.last_seen) tallied.last_seen = time;
  }
  return tallied;
}

function addDrop(source: Source, reason: string, n: number): void {
  if (n > 0) source.dropped[reason] = (source.dropped[reason] ?? 0) + n;
}
