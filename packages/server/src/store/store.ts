/**
 * The contract of a store: exact counts, and nothing else. Time grids, time zones, category names in responses and
 * zero filling live above it, in statistics/. Every store passes test/store-conformance.ts.
 */

import {
  type AttackDetails,
  type Category,
  categoryNumber,
  type Event,
  networkOf,
  topUrl,
} from '../event.ts';
import type { AttackCountQuery, AttackCounts } from './attack-counts.ts';
import type { AttackFilter } from './attack-filter.ts';
import type { AttackHour } from './attack-hours.ts';
import type { AttackList, AttackQuery } from './attack-list.ts';
import type { VisitHour } from './attack-scan.ts';
import { FLAGGED_REQUESTS_MAX } from './flagged-requests.ts';
import type { Rows, RowsName } from './rows.ts';

export type { AttackBlock } from './attack-block.ts';
export type { AttackCountQuery, CountedField } from './attack-counts.ts';
export type { AttackEntry } from './attack-entries.ts';
export type { AttackFilter, FilterName } from './attack-filter.ts';
export type { AttackList, AttackQuery } from './attack-list.ts';
export type { VisitHour } from './attack-scan.ts';
export type { SelectedRows } from './attack-selection.ts';
export { Slices } from './slices.ts';

export interface Store {
  /** For a store in a file: distinguishes the file from another one at the same path. */
  readonly fileId?: number;

  /**
   * Counts a batch, all of it or nothing. When the promise resolves, the batch is durable (it survives `kill -9` and
   * power loss) and visible to every later query of any process. A batch whose `id` the source already has changes
   * nothing. A flagged request that the source has counted is not counted again (flagged-requests.ts). Events may arrive in any order and months late; events before the horizon (see `prune`) are reported, but
   * not counted. Rejects if a category is not in CATEGORIES.
   */
  append(batch: Batch): Promise<Appended>;

  /**
   * Counts between neighbouring edges (milliseconds, at least two, none before another): point i is `[edges[i], edges[i + 1])`. Resolves
   * to one array of points for each of ROWS[rows]; with `byHost`, to those of each host by its ID. One snapshot: all rows add up.
   */
  count<const Q extends CountQuery>(query: Q): Promise<Counts<Q>>;

  /**
   * For each of OVERVIEW_GROUPS, the count in the busiest second of each point. Seconds begin at whole seconds of the
   * epoch; of a second that an edge cuts, only the part within the point counts. Rejects with QueryTooLarge if there is
   * too much to read.
   */
  peaks(query: Selection & { edges: readonly number[] }): Promise<Float64Array[]>;

  /**
   * The most frequent values of one list among attacks, or among requests with an error (`pages`), with a guaranteed bound: an item has at least `count` attacks,
   * and at most `count + error`. Values are kept by the hour, so the result covers all hours that the range touches;
   * hours that begin before the horizon, or before that of top lists (see `prune`), are left out.
   *
   * A store keeps at most k values (`--top-keys`; PAGE_KEYS_MAX for `pages`) per list, hour, and project or host. As long as there are no more, all
   * numbers are exact. Beyond that, no error is larger than N / (k + 1), where N are the `attacks` of all categories: every
   * value with more attacks is kept, however many hours and hosts the query has. If the query has more than 131,072
   * values, errors can be larger by N / 65,537. `attacks` is always exact. If there is too much to read, the result covers
   * only the last hours of the range, and says so; rejects with QueryTooLarge if the last hour alone has too much.
   */
  top(query: TopQuery): Promise<TopList>;

  /**
   * A page of the kept attacks of a range. An hour with more than `--events-max` of them keeps a sample, which does not depend
   * on the order of batches. Hours that begin before the horizon, or before that of details (see `prune`), are left out.
   */
  attacks(query: AttackQuery): Promise<AttackList>;

  /** The same attacks, counted by a field. Rejects with QueryTooLarge if there are too many values. */
  countAttacks(query: AttackCountQuery): Promise<AttackCounts>;

  /** Passes the same attacks to `visit`, oldest hour first, and runs other work between its steps. */
  scanAttacks(query: Selection & TimeRange, visit: VisitHour): Promise<void>;

  /**
   * Deletes kept attacks for good, for example those of a person, in short steps. Counts stay. Resolves to the number of
   * deleted entries.
   */
  eraseAttacks(project: string, filter: AttackFilter): Promise<number>;

  /**
   * Changes whenever a count of the project between `from` and `to` may have changed: while it is equal, so are the results
   * of all queries of that range. May change when other projects do, and may show how often: clients get a hash of it.
   * It never returns to an earlier value, even if the horizon does: a result may be newer than the version that was read before it.
   * Copies of a store have different versions after different changes. For `top`, pass the range from `wholeHours`. Null if the
   * store does not know the version.
   */
  version(query: { project: string } & TimeRange): Promise<string | null>;

  /** `version` is so much faster than counting that points are worth caching by it. */
  readonly hasFastVersions?: true;

  /**
   * The batches that follow `after` in their file: the ID of a batch, or what `startWith` returns for the files that start so
   * and those whose start was unknown ('') when they were counted. '' for the first batches of all files.
   */
  batchesAfter(project: string, source: string, after: string): Promise<BatchLink[]>;

  /** The paths of a project that `follow` has followed, sorted by source and path. */
  followedPaths(project: string): Promise<FollowedPath[]>;

  /** Replaces the state of a followed path, without a batch. Durable like a batch. */
  putFollowedPath(project: string, followed: FollowedPath): Promise<void>;

  /**
   * Registers a host name, or finds it: in a project, names and IDs map one to one. A project that has `limit` hosts
   * gets no more. Concurrent callers get the same ID, in other processes too.
   */
  addHost(host: NewHost): Promise<AddedHost>;

  /**
   * The ID of each host name, in the order of `hostnames`, which may repeat names. New names are registered in that
   * order until the project has `limit` hosts; the rest resolve to null. At the limit nothing is written, and the call
   * takes time linear in the names and yields to the event loop. Concurrent callers get the same IDs, in other
   * processes too.
   */
  resolveHosts(names: HostnamesToResolve): Promise<(string | null)[]>;

  /** Renames a host. Its ID and its counts stay; the old name becomes available. */
  renameHost(host: { project: string; id: string; hostname: string }): Promise<RenamedHost>;

  /**
   * Deletes a host. Its counts stay in the total of the project, without a host; its top lists cannot be queried. The name
   * becomes available: if a log names the host again, it is registered again with another ID, and counts from zero.
   */
  deleteHost(host: { project: string; id: string }): Promise<DeletedHost>;

  /** The hosts of a project, sorted by name. */
  hosts(project: string): Promise<Host[]>;

  /** The log sources of a project, sorted by name. */
  sources(project: string): Promise<Source[]>;

  /** The projects that have batches, sorted by ID, with their sources. One scan: cheaper than `sources` for each. */
  projects(): Promise<ProjectSources[]>;

  readonly transfer: Transfer;

  /** Deletes the top lists and the examples of dropped lines of a project in short steps. Its counts stay. */
  deleteDetails(project: string): Promise<void>;

  /**
   * Moves the horizon forward to `before`: no later query counts an event before it. Frees the space of everything
   * before `freeBefore` (default: the horizon) in short steps that let other work run in between. Deletes the top lists
   * of hours that begin before `topListsBefore` (default: the horizon), and examples of lines that were dropped before it,
   * for good. Resolves when all is freed or `stop` is aborted. If the horizon is no longer `expectedHorizon`, someone else has
   * moved it: then it stays there, and nothing more is freed but top lists and examples.
   */
  prune(before: number, options?: PruneOptions): Promise<void>;

  /** The horizon, and the state that retention.ts needs to move it. */
  retention(): Promise<Retention>;

  /**
   * Stores the note that `retention` returns from now on, in this and other processes, unless another process has replaced
   * `previous`.
   */
  noteRetention(note: RetentionNote, previous: RetentionNote | null): Promise<void>;

  /** Moves the horizon back to `to`, or as far as space has not been freed. Resolves to the new horizon. */
  restoreHorizon(to: number): Promise<number>;

  /** Rejects with StoreUnavailable while queries or appends fail; appends also fail, for example, if the disk is full. */
  check(what: 'queries' | 'appends'): Promise<void>;

  /** The IDs of projects whose own server does not respond, if the projects of a store can be on several. */
  unavailableProjects?(): Promise<string[]>;

  /** Waits for running appends, then releases all resources. */
  close(): Promise<void>;
}

/** What `copy` needs besides the other methods: whole projects, in parts of bounded size. */
export interface Transfer {
  /**
   * Every counted event, in parts of bounded size, for import into another store under the source NO_SOURCE. Until
   * something is counted, each call yields the same parts with the same ids.
   */
  events(project: string): AsyncIterable<{ id: string; events: Event[] }>;

  /** The batches of a source that the store still recognizes, in parts of bounded size. */
  batches(project: string, source: string): AsyncIterable<BatchRecord[]>;

  /** Replaces a source with the one from another store, and adds batches of it to those that this store recognizes. */
  putSource(project: string, source: Source, batches: readonly BatchRecord[]): Promise<void>;

  /**
   * The top lists of a project, in parts of bounded size, for `putTopSlices` of another store. In each hour, the slice of
   * the project comes last.
   */
  topSlices(project: string): AsyncIterable<TopSlice[]>;

  /** Replaces slices with those from another store. Those before the horizon are left out. */
  putTopSlices(project: string, slices: readonly TopSlice[]): Promise<void>;

  /** The kept attacks of a project, hour by hour, for `putAttackHour` of another store. */
  attackHours(project: string): AsyncIterable<AttackHour>;

  /** Replaces the kept attacks of an hour with those from another store. */
  putAttackHour(project: string, hour: AttackHour): Promise<void>;
}

/** Which events a query counts. */
export interface Selection {
  project: string;
  /** Undefined selects the whole project, events without a registered host included. Unknown IDs select nothing. */
  hosts?: readonly string[] | undefined;
}

export interface CountQuery extends Selection {
  edges: readonly number[];
  rows: RowsName;
  /** Hosts without counts are absent. Events without a registered host do not count. */
  byHost?: boolean | undefined;
  /** Also counts events before the horizon that could come back: those since `freedBefore`. */
  ignoreHorizon?: boolean | undefined;
}

/** The type depends on the query, so stores return AnyCounts. */
export type Counts<Q extends CountQuery> = Q extends { byHost: true }
  ? Map<string, Rows<Q['rows']>>
  : Rows<Q['rows']>;
export type AnyCounts = Float64Array[] | Map<string, Float64Array[]>;

/** Milliseconds since the epoch; `to` is exclusive. */
export interface TimeRange {
  from: number;
  to: number;
}

/** What top lists rank. `sources` are addresses; IPv6 addresses count by their /64 network. */
export const TOP_LISTS = ['sources', 'urls', 'rules', 'countries'] as const;

/** Those of attacks, and the paths of requests with one of PAGE_CODES. The position is a number on disk. */
export const ALL_LISTS = [...TOP_LISTS, 'pages'] as const;

/** How many values a list keeps per hour, and project or host. */
export const TOP_KEYS_DEFAULT = 1_024;
/** Each append to a full list of long URLs decodes and writes up to 1.1 MB, which takes about 10 ms per host. */
export const TOP_KEYS_MAX = 4_096;

/** How many paths `pages` keeps: appends of any access log change this list, so it has to be short. */
export const PAGE_KEYS_MAX = 32;

/** How many attacks a project keeps per hour: about a megabyte. */
export const EVENTS_MAX_DEFAULT = 16_384;
/** An hour over the limit is cut in memory, where an entry takes about a kilobyte. */
export const EVENTS_MAX_LIMIT = 131_072;

export interface AppendLimits {
  /** How many values a top list keeps per hour, and project or host. */
  topKeys: number;
  /** How many flagged requests a project remembers. */
  requestsMax: number;
  /** How many attacks a project keeps per hour. 0: none. */
  eventsMax: number;
}

export type LimitOptions = { [K in keyof AppendLimits]?: number | undefined };

/** The default of `--cache`, per worker. */
export const CACHE_BYTES = 67_108_864;

/** `cacheBytes`: how much memory all caches of the process may use (`--cache`). */
export type StoreOptions = LimitOptions & { cacheBytes?: number | undefined };

export function appendLimits(options: LimitOptions): AppendLimits {
  const { topKeys = TOP_KEYS_DEFAULT, requestsMax = FLAGGED_REQUESTS_MAX } = options;
  const { eventsMax = EVENTS_MAX_DEFAULT } = options;
  return { topKeys, requestsMax, eventsMax };
}

export type TopListName = (typeof TOP_LISTS)[number];

export type AnyListName = (typeof ALL_LISTS)[number];

export interface TopQuery extends Selection, TimeRange {
  list: AnyListName;
  /** In `pages` only: some of PAGE_CODES. Undefined selects all. */
  codes?: readonly number[] | undefined;
  /** Undefined selects all. */
  categories?: readonly Category[] | undefined;
  /** At least 1. */
  limit: number;
}

export interface TopList {
  /** The hours that the counts cover. Equal to `to` if there are none. */
  from: number;
  to: number;
  /** `from` is later than the range and the horizon require: earlier hours would have been too much to read. */
  shortened?: true;
  /** The exact number of attacks that have a value in this list; in `pages`, of requests. */
  attacks: number;
  /** The number of distinct values (for URLs: pairs of host and URL). */
  distinct: number;
  /**
   * `estimate`: the standard error is 2.3 %. `minimum`: there are at least this many, which is all that the store knows
   * about some categories of an hour with more than k values.
   */
  distinctIs: 'exact' | 'estimate' | 'minimum';
  /** A value that is not kept has at most this many attacks. 0: all values are kept. */
  error: number;
  /** By descending `count`, then by host ID and key. */
  items: TopItem[];
}

export interface TopItem {
  key: string;
  /** In `urls` and `pages` only: the same URL on two hosts is two items. Null if the attacks have no registered host. */
  hostId?: string | null;
  /** The item has at least this many attacks. */
  count: number;
  /** The item has at most `count + error` attacks. 0: the count is exact. */
  error: number;
}

/** The top lists of one hour, of the project or a host. */
export interface TopSlice {
  /** Null for the project. As long as an hour is small, the slice of the project contains those of all hosts. */
  hostId: string | null;
  /** Hours since the epoch. */
  hour: number;
  /** Encoded as in top-records.ts. */
  record: Uint8Array;
}

export interface PruneOptions {
  freeBefore?: number;
  topListsBefore?: number;
  expectedHorizon?: number;
  stop?: AbortSignal;
}

export const HOUR_MS = 3_600_000;

/** The hours that a range touches. */
export function wholeHours({ from, to }: TimeRange): TimeRange {
  return { from: Math.floor(from / HOUR_MS) * HOUR_MS, to: Math.ceil(to / HOUR_MS) * HOUR_MS };
}

/** What `top` covers: the whole hours of a range, except those that begin before the horizon. */
export function coveredHours(range: TimeRange, horizon: number): TimeRange {
  const { from, to } = wholeHours(range);
  const end = Math.max(from, to);
  return { from: Math.min(end, Math.max(from, Math.ceil(horizon / HOUR_MS) * HOUR_MS)), to: end };
}

/** The value of an attack in a list. */
export function topKey(list: TopListName, details: AttackDetails): string | undefined {
  if (list === 'urls') return details.url && topUrl(details.url);
  if (list === 'rules') return details.rule;
  if (list === 'countries') return details.country;
  return details.source && networkOf(details.source, { ipv4: 32, ipv6: 64 });
}

/** The time of an attack whose ID the store may have made: logs can have IDs that look like that. */
export function timeInId(id: string): number | undefined {
  const [, time] = /^([0-9a-z]{1,10})-[\w-]{16}$/.exec(id) ?? [];
  return time === undefined ? undefined : Number.parseInt(time, 36);
}

export interface Retention {
  horizon: number;
  /** The horizon cannot move back beyond this. */
  freedBefore: number;
  /** The time of the newest event of any project; null if there is none, or if finding it would be expensive. */
  newestEvent: number | null;
  note: RetentionNote | null;
  /** The clock of the database, for a store that several machines share. */
  databaseNow?: number;
}

export interface RetentionNote {
  /** The last system time that was trusted. */
  trustedAt: number;
  /** When a process last ran the retention policy, by the system clock. */
  passedAt: number;
  /** How long processes have run with an untrusted clock. */
  probationMs: number;
  /** Space before this may be freed once `freeSince` is long enough ago. */
  freeBefore: number;
  freeSince: number;
}

export interface Batch {
  project: string;
  source: { name: string; format: string };
  /** Makes a retry harmless. Kept for the retention time: older events would not be counted anyway. */
  id?: string;
  /** The position of the batch in its file. */
  link?: NewLink;
  /** New state of the followed path of the file. Stored if and only if the batch is counted. */
  followed?: FollowedPath;
  /** An event with an unregistered `hostId` counts as one without a host. */
  events: readonly Event[];
  /** The pages of requests with an error, for the list `pages`. */
  pages?: readonly ErrorPages[] | undefined;
  /** Records that were dropped before, by reason. `sources` lists them. */
  dropped: Readonly<Record<string, number>>;
  /** The beginning of one of the dropped lines, by reason. Null deletes those that the source has. */
  examples?: Readonly<Record<string, DropExample>> | null | undefined;
}

/** Requests of one hour, host and code by path. */
export interface ErrorPages {
  /** Hours since the epoch. */
  hour: number;
  hostId: string | null;
  /** The position in PAGE_CODES. */
  code: number;
  /** At most PAGE_KEYS_MAX. */
  paths: ReadonlyMap<string, number>;
  /** Requests that are not in `paths`; of each path, at most `error`. */
  lost: number;
  error: number;
}

/** A counted batch as a chunk of a file. It follows another chunk, or the start of the file (`startWith`). */
export interface BatchLink {
  id: string;
  bytes: number;
  /** Identifies a shorter copy of the chunk. */
  firstLineHash: string;
  /** The state that a reader of the file needs to continue after the chunk. */
  readerState: string;
}

/** A counted batch that the store still recognizes. */
export interface BatchRecord {
  id: string;
  /** Days since the epoch. The store may delete the record once the horizon has passed this day. */
  day: number;
  link?: Omit<BatchLink, 'id'> & { after: string };
}

export interface NewLink extends Omit<BatchLink, 'id'> {
  after: string;
  /** The ids of all links that the caller found after `after`. If there are others, another process reads the same file. */
  siblings: readonly string[];
  /** The sibling that this batch replaces: the same chunk, which has grown. */
  replaces?: string | undefined;
}

/** The state of a path that `follow` keeps across restarts. Field names are those on disk; stores do not interpret them. */
export interface FollowedPath {
  source: string;
  /** Absolute. */
  path: string;
  /** When the path was first followed, milliseconds since the epoch. */
  since: number;
  /** The file whose first line was counted last, and when. */
  begun: { first_line_hash: string; at: number } | null;
  /** Rotated files next to the path that need no reading. */
  files: FollowedFile[];
}

export interface FollowedFile {
  first_line_hash: string;
  /**
   * `left_alone`: older than the first follow of the path. `other_name`: the name does not look rotated, or the content
   * is not text.
   */
  state: 'left_alone' | 'other_name' | 'finished';
  modified_ms: number;
  bytes: number;
}

/** Sorts followed paths. */
export function compareFollowed(a: FollowedPath, b: FollowedPath): number {
  const [one, other] = a.source === b.source ? [a.path, b.path] : [a.source, b.source];
  return one < other ? -1 : one > other ? 1 : 0;
}

export type Appended =
  | { kind: 'duplicate' }
  /** The links after `after` are not those that the caller found. Nothing was changed: read them and retry. */
  | { kind: 'conflict' }
  /**
   * `beforeHorizon`: events that were not counted, because they are before the horizon. `withoutHost`: events that count
   * only in the total of the project; of these, `unknownHosts` have a `hostId` that is not registered.
   */
  | {
      kind: 'appended';
      beforeHorizon: number;
      withoutHost: number;
      unknownHosts: number;
      /** The indexes of events whose attack another record of the same request has counted; absent if there are none. */
      sameRequests?: readonly number[];
    };

export interface Host {
  id: string;
  hostname: string;
  /** When the host was registered, milliseconds since the epoch. */
  created: number;
}

export interface NewHost {
  project: string;
  hostname: string;
  id?: string | undefined;
  limit: number;
  /** When the host was registered, if it comes from another store. Default: now. */
  created?: number | undefined;
}

export interface HostnamesToResolve {
  project: string;
  hostnames: readonly string[];
  limit: number;
}

export type AddedHost = { kind: 'added' | 'exists' | 'id_taken'; host: Host } | { kind: 'full' };

export type RenamedHost =
  | { kind: 'renamed'; host: Host }
  /** Another host has the name. */
  | { kind: 'name_taken'; host: Host }
  | { kind: 'unknown' };

export type DeletedHost = { kind: 'deleted'; host: Host } | { kind: 'unknown' };

export interface Source {
  id: string;
  name: string;
  /** The format of its batches: MIXED_FORMAT if they have several, UNKNOWN_FORMAT if none was recognized. */
  format: string;
  /** IDs of the hosts in its events. */
  hosts: string[];
  /** Counted records. Together with `dropped`: all records that were read. */
  events: number;
  /** Records among `events` without a registered host: they count only in the total of the project. */
  without_host: number;
  dropped: Record<string, number>;
  /** The beginning of the latest dropped line, by reason. */
  examples: Record<string, DropExample>;
  /** Times of the earliest and the latest event, null if every record was dropped. */
  first_seen: number | null;
  last_seen: number | null;
  /** When its latest batch was counted, null if there was none. */
  last_batch: number | null;
  /** How long it usually sends nothing: a day, if it is read once a day. Of the last days, weighted by time. */
  usual_gap_ms: number;
}

/** May contain personal data, so it is kept no longer than top lists. */
export interface DropExample {
  text: string;
  /** When the line was dropped. */
  time: number;
}

/** The sources of a project, sorted by name, without their hosts, which may be many. */
export interface ProjectSources {
  project: string;
  sources: Omit<Source, 'hosts'>[];
}

/** The source of events that were imported from another store. `sources` does not list it. */
export const NO_SOURCE = { name: '', format: '' } as const;

/** The store is not available now. Nothing was changed, unless `outcomeUnknown`. */
export class StoreUnavailable extends Error {
  override name = 'StoreUnavailable';
  /** The change may have been made: only a batch with an ID can be sent again safely. */
  readonly outcomeUnknown: boolean;

  constructor(message: string, options: ErrorOptions & { outcomeUnknown?: boolean } = {}) {
    super(message, options);
    this.outcomeUnknown = options.outcomeUnknown ?? false;
  }
}

/** The store serves queries, but accepts no changes now. The message says why. */
export class StoreNotWritable extends StoreUnavailable {
  override name = 'StoreNotWritable';
  /** A short form of the message, without paths. */
  readonly trouble: string;

  constructor(message: string, trouble: string, options: ErrorOptions & { outcomeUnknown?: boolean } = {}) {
    super(message, options);
    this.trouble = trouble;
  }
}

/** A query would read too much. The message says what to change; nothing is wrong with the store. */
export class QueryTooLarge extends Error {
  override name = 'QueryTooLarge';

  constructor(purpose = 'find the busiest seconds') {
    super(`the range has too much data to ${purpose}: select fewer hosts or a shorter range`);
  }
}

/** The store stays unavailable until someone changes the settings. */
export class StoreMisconfigured extends StoreUnavailable {}

/** Stored data is not what was written. The message says where; `wafstat verify` lists all damage. */
export class StoreDamaged extends StoreUnavailable {
  override name = 'StoreDamaged';

  constructor(where: string, options?: ErrorOptions) {
    super(`the statistics are damaged: ${where}. Run 'wafstat verify' on the data directory`, options);
  }
}

const UNKNOWN_FORMAT = 'auto';
export const MIXED_FORMAT = 'mixed';

/** The format of a source with batches of these formats. */
export function mergeFormats(formats: Iterable<string>): string {
  const known = new Set(formats);
  known.delete(UNKNOWN_FORMAT);
  const [first = UNKNOWN_FORMAT] = known;
  return known.size > 1 ? MIXED_FORMAT : first;
}

/** The number of a category in stored records. Throws for a category that does not exist: it must not count as another. */
export function storedCategory(category: string): number {
  const number = categoryNumber(category);
  if (number === undefined) throw new Error(`unknown attack category '${category}'; nothing was counted`);
  return number;
}
