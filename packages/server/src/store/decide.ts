/**
 * Decides what a group of batches of one project changes: which of them count, which of their events, and what becomes of
 * their sources. Stores read what it asks for, and write what it returns.
 */
import type { Event } from '../event.ts';
import { reached } from '../rare-states.ts';
import { ChunkLinks, dayOf, isLinkCurrent } from './batches.ts';
import { countedEvents, FlaggedRequests, type Generations, type RequestRecord } from './flagged-requests.ts';
import { updateSource } from './sources.ts';
import type { Appended, Batch, BatchRecord, Source } from './store.ts';

/** What a store knows about a project. Sources are known by name. */
export interface KnownProject {
  horizon: number;
  generations: Generations;
  hasHost(id: string): boolean;
  /** Undefined if the source does not have the batch. */
  dayOfBatch(source: string, id: string): number | undefined;
  /** See `batchesAfter`. */
  idsAfter(source: string, after: string): readonly string[];
  request(source: string, key: string): RequestRecord | undefined;
}

/** Which batches count, and the records of batches that this adds and removes. Removals come first. */
export interface BatchDecision {
  outcomes: readonly ('counts' | 'duplicate' | 'conflict')[];
  added: readonly { source: string; record: BatchRecord }[];
  removed: readonly { source: string; id: string }[];
}

export interface Decision {
  results: Appended[];
  batches: BatchDecision;
  counted: readonly CountedBatch[];
  requests: FlaggedRequests;
  /** The time of the newest event that counts. */
  newest: number;
}

/** A batch that counts. */
export interface CountedBatch {
  batch: Batch;
  /** The events that count. The array of the batch itself if all of them do, as they are. */
  events: readonly Event[];
  /** The registered hosts of these events. */
  hosts: ReadonlySet<string>;
  withoutHost: number;
  /** Records that do not count, because another record of the same request has been counted. */
  sameRecords: number;
  /** When it is counted. */
  now: number;
}

/** About a millisecond. */
const EVENTS_PER_STEP = 1_000;

/** Reads only. */
export function* decide(
  batches: readonly Batch[],
  known: KnownProject,
  now: number,
  requestsMax: number,
): Generator<void, Decision> {
  const decision = decideBatches(batches, known, now);
  const requests = new FlaggedRequests(known.generations, requestsMax, known.request);
  const results: Appended[] = [];
  const counted: CountedBatch[] = [];
  let newest = Number.NEGATIVE_INFINITY;
  for (const [i, batch] of batches.entries()) {
    const kind = decision.outcomes[i] ?? 'counts';
    if (kind !== 'counts') {
      results.push({ kind });
      continue;
    }
    const {
      counted: events,
      beforeHorizon,
      sameRecords,
      sameRequests,
    } = yield* countedEvents(batch, known.horizon, requests);
    const hosts = new Set<string>();
    let [withoutHost, unknownHosts] = [0, 0];
    for (const [n, { time, hostId, recordCount = 1 }] of events.entries()) {
      if (n % EVENTS_PER_STEP === EVENTS_PER_STEP - 1) yield;
      if (time > newest) newest = time;
      if (hostId !== null && (hosts.has(hostId) || known.hasHost(hostId))) hosts.add(hostId);
      else {
        withoutHost += recordCount;
        if (hostId !== null) unknownHosts += recordCount;
      }
    }
    counted.push({ batch, events, hosts, withoutHost, sameRecords, now });
    const same = sameRequests.length > 0 && { sameRequests };
    results.push({ kind: 'appended', beforeHorizon, withoutHost, unknownHosts, ...same });
  }
  return { results, batches: decision, counted, requests, newest };
}

/** A batch sees the changes of those before it in the group. */
export function decideBatches(batches: readonly Batch[], known: KnownProject, now: number): BatchDecision {
  const sources = new Map<string, GroupBatches>();
  const outcomes = batches.map((batch) => {
    const { name } = batch.source;
    const group = sources.get(name) ?? new GroupBatches(name, known);
    sources.set(name, group);
    return group.add(batch, now);
  });
  const all = [...sources.values()];
  return {
    outcomes,
    added: all.flatMap(({ source, added }) => Array.from(added.values(), (record) => ({ source, record }))),
    removed: all.flatMap(({ source, removed }) => Array.from(removed, (id) => ({ source, id }))),
  };
}

/** The batches of a source, with the changes of a group. */
class GroupBatches {
  readonly source: string;
  readonly #known: KnownProject;
  readonly added = new Map<string, BatchRecord>();
  readonly removed = new Set<string>();
  readonly #links = new ChunkLinks();

  constructor(source: string, known: KnownProject) {
    this.source = source;
    this.#known = known;
  }

  add({ id, link, events }: Batch, now: number): BatchDecision['outcomes'][number] {
    if (id !== undefined && this.#has(id)) {
      reached('batches.duplicate');
      return 'duplicate';
    }
    const isCurrent =
      link === undefined ||
      isLinkCurrent(
        link,
        (other) => this.#has(other),
        (after) => this.#idsAfter(after),
      );
    if (!isCurrent) {
      if (this.added.size > 0) reached('batches.conflict-in-group');
      return 'conflict';
    }
    if (id === undefined) return 'counts';
    // Until then, the batch could be sent again and its events would count. Those that another log has counted may do so, too.
    let day = dayOf(events.reduce((newest, { time }) => Math.max(newest, time), now));
    if (link?.replaces !== undefined) {
      // The new lines may be older than those before, and the clock may have been set back since.
      day = Math.max(day, this.#dayOf(link.replaces) ?? day);
      this.#remove(link.replaces);
    }
    if (link === undefined) this.added.set(id, { id, day });
    else {
      const { after, bytes, firstLineHash, readerState } = link;
      this.added.set(id, { id, day, link: { after, bytes, firstLineHash, readerState } });
      this.#links.add(after, id);
    }
    return 'counts';
  }

  #remove(id: string): void {
    const { link } = this.added.get(id) ?? {};
    if (link) this.#links.delete(link.after, id);
    if (!this.added.delete(id)) this.removed.add(id);
  }

  #has(id: string): boolean {
    return this.#dayOf(id) !== undefined;
  }

  #dayOf(id: string): number | undefined {
    const added = this.added.get(id);
    if (added !== undefined || this.removed.has(id)) return added?.day;
    return this.#known.dayOfBatch(this.source, id);
  }

  #idsAfter(after: string): string[] {
    const stored = this.#known.idsAfter(this.source, after).filter((id) => !this.removed.has(id));
    return [...stored, ...this.#links.idsAfter(after)];
  }
}

/** The sources of a group, with the hosts that it reports for them. `open` returns the record from before the group. */
export function decideSources<S extends Omit<Source, 'hosts'>>(
  counted: readonly CountedBatch[],
  open: (source: Batch['source']) => S,
): Map<string, { record: S; hosts: Set<string> }> {
  const sources = new Map<string, { record: S; hosts: Set<string> }>();
  for (const one of counted) {
    const { source } = one.batch;
    const { record, hosts } = sources.get(source.name) ?? { record: open(source), hosts: new Set() };
    for (const id of one.hosts) hosts.add(id);
    sources.set(source.name, { record: updateSource(record, one), hosts });
  }
  return sources;
}
