/**
 * Which flagged requests a source has counted. Several logs may report the same request, in any order and hours apart: the
 * first of them counts. docs/decisions/0030-one-request-in-several-logs.md
 */
import type { Event, FlaggedRequest } from '../event.ts';
import type { Batch } from './store.ts';

/** Per project, so that one key for pushes cannot fill the disk with many sources. The older half is forgotten at once. */
export const FLAGGED_REQUESTS_MAX = 500_000;

/** Records of one request are at most this far apart, by the time in the log: some servers and clients reuse IDs. */
const SAME_MS_MAX = 300_000;

/** Records without an ID are paired within this time and the time next to it. */
const UNNAMED_MS = 60_000;

/** What a store keeps by ID, or by another key if a log lost the ID. */
export interface RequestRecord {
  /** In which generation the project remembered it. Those of the latest two are known. */
  generation: number;
  time: number;
  /** The logs with one record per request that have this one. */
  logs: readonly string[];
  /** Other IDs in its lines: all but one are forged. */
  others?: readonly string[];
  /** How many records of complete logs wait for lines without an ID; less than 0: how many lines wait for records. */
  waiting?: number;
}

/** What a project remembers: the latest generation, and how many requests it has. */
export interface Generations {
  generation: number;
  count: number;
}

export const NO_REQUESTS: Generations = { generation: 1, count: 0 };

/** The requests of a project, with the changes of a transaction, which the store writes at its end. */
export class FlaggedRequests implements Generations {
  generation: number;
  count: number;
  readonly #generationMax: number;
  readonly #read: (source: string, key: string) => RequestRecord | undefined;
  /** By the name of the source. */
  readonly sources = new Map<string, SourceRequests>();

  constructor(
    { generation, count }: Generations,
    requestsMax: number,
    read: (source: string, key: string) => RequestRecord | undefined,
  ) {
    this.generation = generation;
    this.count = count;
    this.#generationMax = Math.ceil(requestsMax / 2);
    this.#read = read;
  }

  of(source: string): SourceRequests {
    const known = this.sources.get(source) ?? new SourceRequests(this, (key) => this.#read(source, key));
    this.sources.set(source, known);
    return known;
  }

  /** The generation of a new request. */
  next(): number {
    if (this.count >= this.#generationMax) {
      this.generation++;
      this.count = 0;
    }
    this.count++;
    return this.generation;
  }

  /** Earlier generations are forgotten. */
  get firstKnown(): number {
    return this.generation - 1;
  }

  get generations(): Generations {
    return { generation: this.generation, count: this.count };
  }
}

export class SourceRequests {
  readonly #project: FlaggedRequests;
  readonly #read: (key: string) => RequestRecord | undefined;
  /** Null if the request is forgotten. */
  readonly changes = new Map<string, RequestRecord | null>();

  constructor(project: FlaggedRequests, read: (key: string) => RequestRecord | undefined) {
    this.#project = project;
    this.#read = read;
  }

  /** What counts of an event: all of it, all but the attack, or nothing if another log has counted it. */
  count<E extends Omit<Event, 'hostId'>>(event: E): E | null {
    if (event.flagged === undefined || !this.#isKnown(event.flagged, event.time)) return event;
    return event.request ? { ...event, attack: null, details: undefined, flagged: undefined } : null;
  }

  #isKnown(request: FlaggedRequest, time: number): boolean {
    if (request.kind === 'record') return this.#isKnownRecord(request, time);
    if (request.kind === 'lines') return request.ids.every((id) => this.#isKnownLines(id, time));
    return request.ids.length > 0
      ? this.#isKnownForged(request, time)
      : request.unnamed !== undefined && this.#isPaired(request.unnamed, time, 1);
  }

  /** A log has one record per request: a second record with the same ID is another request. */
  #isKnownRecord({ ids, log, unnamed }: FlaggedRequest, time: number): boolean {
    const [id = ''] = ids;
    const known = this.#recent(id, time);
    if (known?.logs.includes(log)) return false;
    const { generation = this.#project.next(), logs = [], others = [] } = known ?? {};
    for (const other of others) if (other !== id) this.changes.set(other, null);
    this.changes.set(id, { generation, time: known?.time ?? time, logs: [...logs, log] });
    return known !== undefined || (unnamed !== undefined && this.#isPaired(unnamed, time, -1));
  }

  /** Lines with forged IDs prove nothing: without a complete log, they could hide the requests with these IDs. */
  #isKnownLines(id: string, time: number): boolean {
    const known = this.#recent(id, time);
    if (known !== undefined && known.others === undefined) return true;
    this.changes.set(id, { generation: this.#project.next(), time, logs: [] });
    return false;
  }

  /**
   * If a client may have forged an ID, only a complete log proves that the request was counted. Each of its records covers
   * one request of the other log: otherwise, one known ID would hide any number of attacks.
   */
  #isKnownForged({ ids, log }: FlaggedRequest, time: number): boolean {
    for (const id of ids) {
      const known = this.#recent(id, time);
      if (known === undefined || known.logs.length === 0 || known.logs.includes(log)) continue;
      this.changes.set(id, { ...known, logs: [...known.logs, log] });
      return true;
    }
    for (const id of ids) {
      if (this.#recent(id, time) === undefined)
        this.changes.set(id, { generation: this.#project.next(), time, logs: [], others: ids });
    }
    return false;
  }

  /** Pairs lines without an ID (`side` 1) with records of a complete log (-1). True if the other side was counted. */
  #isPaired(unnamed: string, time: number, side: 1 | -1): boolean {
    const period = Math.floor(time / UNNAMED_MS);
    for (const each of [period, period - 1, period + 1]) {
      const key = `${unnamed} ${each}`;
      const known = this.#get(key);
      if (known === undefined || side * (known.waiting ?? 0) <= 0) continue;
      this.changes.set(key, { ...known, waiting: (known.waiting ?? 0) - side });
      return true;
    }
    const key = `${unnamed} ${period}`;
    const { generation = this.#project.next(), waiting = 0 } = this.#get(key) ?? {};
    this.changes.set(key, { generation, time, logs: [], waiting: waiting - side });
    return false;
  }

  #recent(id: string, time: number): RequestRecord | undefined {
    const known = this.#get(id);
    return known !== undefined && Math.abs(time - known.time) <= SAME_MS_MAX ? known : undefined;
  }

  #get(key: string): RequestRecord | undefined {
    const changed = this.changes.get(key);
    const known = changed === undefined ? this.#read(key) : changed;
    return known && known.generation >= this.#project.firstKnown ? known : undefined;
  }
}

/** The keys that a request may have in the store. */
export function keysOf({ ids, unnamed }: FlaggedRequest, time: number): string[] {
  if (unnamed === undefined) return [...ids];
  const period = Math.floor(time / UNNAMED_MS);
  return [...ids, ...[period, period - 1, period + 1].map((each) => `${unnamed} ${each}`)];
}

interface CountedEvents {
  counted: readonly Event[];
  beforeHorizon: number;
  /** Records that do not count, because another record of the same request has been counted. */
  sameRecords: number;
  /** As in Appended. */
  sameRequests: number[];
}

/** About a millisecond. */
const EVENTS_PER_STEP = 200;

/** Which events of a batch count. */
export function* countedEvents(
  { source, events }: Pick<Batch, 'source' | 'events'>,
  horizon: number,
  requests: FlaggedRequests,
): Generator<void, CountedEvents> {
  const sameRequests: number[] = [];
  let [beforeHorizon, sameRecords] = [0, 0];
  /** Null as long as all events count as they are: most batches are not copied. */
  let counted: Event[] | null = null;
  for (let i = 0; i < events.length; i++) {
    if (i % EVENTS_PER_STEP === EVENTS_PER_STEP - 1) yield;
    // The index is within the length.
    const event = events[i] as Event;
    const { recordCount = 1 } = event;
    let result: Event | null = event;
    if (event.time < horizon) {
      result = null;
      beforeHorizon += recordCount;
    } else if (event.flagged !== undefined) {
      result = requests.of(source.name).count(event);
      if (result !== event) sameRequests.push(i);
      if (result === null) sameRecords += recordCount;
    }
    if (result !== event) counted ??= events.slice(0, i);
    if (result !== null) counted?.push(result);
  }
  return { counted: counted ?? events, beforeHorizon, sameRecords, sameRequests };
}
