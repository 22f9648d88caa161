/** Log lines to counted events: parse, check the time, find the host, append. Each step drops by a named reason. */
import type { DropReason, Event } from '../event.ts';
import { type Appended, type Batch, type Store, StoreUnavailable } from '../store/store.ts';
import type { LogRecord, Parse } from './formats/format.ts';
import { normalHostname } from './hostname.ts';

/** Clocks differ, time zones get mixed up; more than a day ahead is neither. */
const FUTURE_MS_MAX = 24 * 3_600_000;

/** The first lines that were dropped are kept to look at; a cut of each is enough to recognize it. */
const FIRST_DROPS_MAX = 10;
const DROP_EXCERPT_LENGTH_MAX = 200;

export interface Limits {
  retention_ms: number;
  /** Host names that are registered on first sight, per project; later ones count in the project's total only. */
  hosts_max: number;
}

export interface Drop {
  line: number;
  reason: DropReason;
  text: string;
}

/** What became of the lines of one batch. */
export interface Outcome {
  accepted: number;
  dropped: Partial<Record<DropReason, number>>;
  first_drops: Drop[];
  /** Accepted events whose host is not registered: they count in the project's total only. */
  without_host: number;
  duplicate: boolean;
}

export interface Line {
  /** Counted from 1 in the file or request that it came in. */
  number: number;
  /** Null for a line beyond the length limit, which was not kept. */
  text: string | null;
}

export class Pipeline {
  readonly #store: Store;
  readonly #limits: Limits;
  readonly #now: () => number;

  constructor(store: Store, limits: Limits, now: () => number) {
    this.#store = store;
    this.#limits = limits;
    this.#now = now;
  }

  async count(
    lines: Iterable<Line>,
    parse: Parse,
    batch: Omit<Batch, 'events' | 'dropped'>,
  ): Promise<Outcome> {
    const outcome: Outcome = { accepted: 0, dropped: {}, first_drops: [], without_host: 0, duplicate: false };
    const records = this.#parse(lines, parse, outcome);
    const events = await this.#place(batch.project, records, outcome);
    const appended = await this.#store.append({ ...batch, events, dropped: outcome.dropped });
    return settle(outcome, events.length, appended);
  }

  #parse(lines: Iterable<Line>, parse: Parse, outcome: Outcome): LogRecord[] {
    const now = this.#now();
    const oldest = now - this.#limits.retention_ms;
    const records: LogRecord[] = [];
    for (const { number, text } of lines) {
      const parsed = text === null ? TOO_LONG : parse(text);
      const reason = parsed.kind === 'dropped' ? parsed.reason : timeReason(parsed.record.time, oldest, now);
      if (parsed.kind === 'record' && reason === null) records.push(parsed.record);
      else if (reason !== null) drop(outcome, reason, number, text ?? '');
    }
    return records;
  }

  /** Host names become IDs. They are asked for anew in each batch, so that a new or renamed host shows at once. */
  async #place(project: string, records: readonly LogRecord[], outcome: Outcome): Promise<Event[]> {
    const names = new Set(
      records.flatMap(({ host, hostId }) => (hostId === undefined && host !== undefined ? host : [])),
    );
    const found = await Promise.all(
      [...names].map(async (name) => [name, await this.#hostId(project, name)] as const),
    );
    const ids = new Map(found);
    return records.map(({ host, hostId, time, request, attack, count }) => {
      const id = hostId ?? (host === undefined ? null : (ids.get(host) ?? null));
      if (id === null && host !== undefined) outcome.without_host++;
      return { time, hostId: id, request, attack, count };
    });
  }

  async #hostId(project: string, host: string): Promise<string | null> {
    const hostname = normalHostname(host);
    if (hostname === null) return null;
    const added = await this.#store.addHost({ project, hostname, limit: this.#limits.hosts_max });
    if (added.kind === 'full') return null;
    if (added.kind === 'id_taken') throw new StoreUnavailable('a host without a chosen ID cannot collide');
    return added.host.id;
  }
}

const TOO_LONG = { kind: 'dropped', reason: 'line_too_long' } as const;

function timeReason(time: number, oldest: number, now: number): 'too_old' | 'in_future' | null {
  if (time < oldest) return 'too_old';
  return time > now + FUTURE_MS_MAX ? 'in_future' : null;
}

function drop(outcome: Outcome, reason: DropReason, line: number, text: string): void {
  outcome.dropped[reason] = (outcome.dropped[reason] ?? 0) + 1;
  if (outcome.first_drops.length < FIRST_DROPS_MAX) {
    outcome.first_drops.push({ line, reason, text: text.slice(0, DROP_EXCERPT_LENGTH_MAX) });
  }
}

function settle(outcome: Outcome, events: number, appended: Appended): Outcome {
  if (appended.kind === 'duplicate') {
    return { accepted: 0, dropped: {}, first_drops: [], without_host: 0, duplicate: true };
  }
  outcome.accepted = events - appended.beforeHorizon;
  outcome.without_host += appended.unknownHosts;
  if (appended.beforeHorizon > 0) {
    outcome.dropped.too_old = (outcome.dropped.too_old ?? 0) + appended.beforeHorizon;
  }
  return outcome;
}
