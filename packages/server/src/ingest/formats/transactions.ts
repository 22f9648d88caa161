/**
 * The requests that firewalls write down. One flagged request is one attack, however many rules matched, however many
 * lines tell of it, and whether an error log, an audit log or both do: what belongs together has the same id.
 */

import type { AttackDetails } from '../../event.ts';
import { attackDetails } from '../attack-details.ts';
import { decide, type Judgement, judge, type Overrides } from '../categories/judge.ts';
import type { LogFormat, LogRecord, Parsed, RuleHit, Transaction } from './format.ts';

/** Requests whose rules are still coming in. Servers write those of one request within milliseconds of each other. */
const OPEN_MAX = 128;
/** By the time in the log: what is older than this has been told to the end. */
const OPEN_MS_MAX = 10_000;
/** Counted requests, so that a late line, or another log in the same stream, does not count them again. */
const COUNTED_MAX = 512;
/** Records of one request are not further apart, by the time in the log. (Some operators number requests badly.) */
const SAME_MS_MAX = 300_000;
/** More distinct rules than a real request matches. */
const RULES_MAX = 32;
/** A line without an id belongs to a request on its connection that was told of this shortly before. */
const SAME_CONNECTION_MS_MAX = 2_000;
/** Of ids and host names that are kept. */
const TEXT_LENGTH_MAX = 128;

interface Open {
  id: string;
  connection: string;
  format: LogFormat;
  time: number;
  /** When the last line that told of it was written, and when we read it. */
  written: number;
  touched: number;
  host: string | undefined;
  judgements: Judgement[];
  /** Missing in states that older versions wrote. */
  details?: AttackDetails | undefined;
}

/** Plain data, to go on in another process. */
export interface TransactionsState {
  open: Open[];
  counted: [id: string, time: number][];
}

export class Transactions {
  readonly #overrides: Overrides;
  /** The one that was touched last comes last. */
  readonly #open = new Map<string, Open>();
  readonly #counted: CountedRequests;

  constructor(
    overrides: Overrides,
    state?: TransactionsState,
    counted: CountedRequests = new RecentRequests(state?.counted),
  ) {
    this.#overrides = overrides;
    for (const open of state?.open ?? []) this.#open.set(keyOf(open), open);
    this.#counted = counted;
  }

  /** Adds a request of which one record tells everything. */
  addComplete(format: LogFormat, transaction: Transaction): Parsed {
    const { id, time, host, rules, request = false } = transaction;
    const key = short(id);
    if (this.#isCounted(key, time)) {
      // Its attack has been counted, from another log of the same firewall; the request has not.
      if (request) return { kind: 'record', record: requestOnly(time, host), format };
      return { kind: 'dropped', reason: 'same_request', format };
    }
    // Lines of an error log may have told of it already; an audit log can be set to leave the rules out.
    const open = this.#open.get(key);
    this.#open.delete(key);
    const judgements = open?.judgements ?? [];
    const details = mergeDetails(transaction.details, open?.details);
    for (const rule of rules) addDistinct(judgements, judge(rule, this.#overrides));
    const parsed = this.#finish(key, format, time, host, judgements, details);
    if (!request) return parsed;
    const record =
      parsed.kind === 'record'
        ? { ...parsed.record, request: true }
        : { ...requestOnly(time, host), evidence: judgements };
    return { kind: 'record', record, format };
  }

  /** A record that is counted as it is, unless its request has been. */
  record(format: LogFormat, id: string, record: LogRecord): Parsed {
    const key = short(id);
    if (this.#isCounted(key, record.time)) return { kind: 'dropped', reason: 'same_request', format };
    this.#remember(key, record.time);
    return { kind: 'record', record, format };
  }

  /** Adds a matched rule of a request. Returns the requests that no further line can belong to. */
  addMatch(format: LogFormat, hit: RuleHit, now: number): Parsed[] {
    const { time, written, host, rules } = hit;
    const id = short(hit.id);
    const connection = short(hit.connection);
    const older = this.#close((open) => open.written < written - OPEN_MS_MAX);
    if (this.#isCounted(id, time)) return older;
    const found = this.#find(id, connection, written);
    const open = found ?? {
      id: own(id),
      connection: own(connection),
      format,
      time,
      written,
      touched: now,
      host: undefined,
      judgements: [],
    };
    // Without an id, requests on one connection have the same key, so the one before is complete.
    const before = this.#open.get(keyOf(open));
    if (before !== undefined && found === undefined) older.push(this.#finishOpen(before));
    this.#open.delete(keyOf(open));
    if (open.id === '') open.id = own(id);
    if (host !== undefined) open.host ??= own(short(host));
    open.written = written;
    open.touched = now;
    open.details = mergeDetails(open.details, hit.details);
    for (const rule of rules) {
      const judgement = judge(rule, this.#overrides);
      addDistinct(open.judgements, { ...judgement, rule: own(judgement.rule) });
    }
    this.#open.set(keyOf(open), open);
    return [...older, ...this.#close(() => this.#open.size > OPEN_MAX)];
  }

  /** Those that no line has told of since `before` on our clock, or all. */
  flush(before: number): Parsed[] {
    return this.#close(({ touched }) => touched < before);
  }

  /** Whether `flush` returns something. The first is the one that was touched longest ago. */
  hasPending(before: number): boolean {
    const [oldest] = this.#open.values();
    return oldest !== undefined && oldest.touched < before;
  }

  state(): TransactionsState | null {
    const counted = this.#counted.entries();
    if (this.#open.size === 0 && counted.length === 0) return null;
    return { open: [...this.#open.values()], counted };
  }

  /** From the one that was touched longest ago. */
  #close(isDone: (open: Open) => boolean): Parsed[] {
    const parsed: Parsed[] = [];
    for (const [key, open] of this.#open) {
      if (!isDone(open)) break;
      this.#open.delete(key);
      parsed.push(this.#finishOpen(open));
    }
    return parsed;
  }

  #finishOpen({ id, format, time, host, judgements, details }: Open): Parsed {
    // Another reader of the same source may have counted it meanwhile.
    if (this.#isCounted(id, time)) return { kind: 'dropped', reason: 'same_request', format };
    return this.#finish(id, format, time, host, judgements, details);
  }

  /** By its id; or by its connection, when the id of either was cut off with the end of a line. */
  #find(id: string, connection: string, written: number): Open | undefined {
    const found = id === '' ? undefined : this.#open.get(id);
    if (found !== undefined || connection === '') return found;
    for (const open of this.#open.values()) {
      if (open.connection !== connection || (id !== '' && open.id !== '')) continue;
      // The next request on a connection that is kept open must not disappear in the one before it, which is
      // complete once the firewall has denied it.
      const isRecent = Math.abs(written - open.written) <= SAME_CONNECTION_MS_MAX;
      if (isRecent && open.details?.blocked !== true) return open;
    }
    return undefined;
  }

  #finish(
    id: string,
    format: LogFormat,
    time: number,
    host: string | undefined,
    evidence: readonly Judgement[],
    said?: AttackDetails,
  ): Parsed {
    const decision = decide(evidence, said?.blocked === true);
    const { category: attack, rule } = decision;
    // It is not remembered: a rule that makes it an attack may still come.
    if (attack === null) return { kind: 'dropped', reason: 'not_an_attack', format, evidence };
    this.#remember(id, time);
    const details = { ...said, ...attackDetails({ rule }) };
    const record = {
      time,
      host,
      hostId: undefined,
      request: false,
      attack,
      count: 1,
      details,
      evidence,
      decision,
    };
    return { kind: 'record', record, format };
  }

  #isCounted(id: string, time: number): boolean {
    const counted = id === '' ? undefined : this.#counted.get(id);
    return counted !== undefined && Math.abs(time - counted) <= SAME_MS_MAX;
  }

  #remember(id: string, time: number): void {
    if (id !== '') this.#counted.add(own(id), time);
  }
}

/** The requests that were counted, by ID, with their time in the log. */
export interface CountedRequests {
  get(id: string): number | undefined;
  add(id: string, time: number): void;
  entries(): [id: string, time: number][];
}

export class RecentRequests implements CountedRequests {
  readonly #times: Map<string, number>;

  constructor(entries: readonly [id: string, time: number][] = []) {
    this.#times = new Map(entries);
  }

  get(id: string): number | undefined {
    return this.#times.get(id);
  }

  add(id: string, time: number): void {
    this.#times.set(id, time);
    for (const [oldest, counted] of this.#times) {
      if (this.#times.size <= COUNTED_MAX && counted >= time - SAME_MS_MAX) break;
      this.#times.delete(oldest);
    }
  }

  /** Unless it was counted again since. */
  forget(id: string, time: number): void {
    if (this.#times.get(id) === time) this.#times.delete(id);
  }

  entries(): [id: string, time: number][] {
    return [...this.#times];
  }
}

/** What one push adds to the requests that all pushes of its source know; taken back if the push fails. */
export class PushedRequests implements CountedRequests {
  readonly #all: RecentRequests;
  readonly #added: [id: string, time: number][] = [];

  constructor(all: RecentRequests) {
    this.#all = all;
  }

  get(id: string): number | undefined {
    return this.#all.get(id);
  }

  add(id: string, time: number): void {
    this.#all.add(id, time);
    this.#added.push([id, time]);
    // The others are not remembered any more.
    if (this.#added.length >= 2 * COUNTED_MAX) this.#added.splice(0, COUNTED_MAX);
  }

  takeBack(): void {
    for (const [id, time] of this.#added.splice(0)) this.#all.forget(id, time);
  }

  /** They are not part of the state of a reader: the other readers know them already. */
  entries(): [id: string, time: number][] {
    return [];
  }
}

function requestOnly(time: number, host: string | undefined): LogRecord {
  return { time, host, hostId: undefined, request: true, attack: null, count: 1 };
}

function keyOf({ id, connection }: Open): string {
  return id === '' ? `connection ${connection}` : id;
}

/** A rule counts once, but any of its messages may say that it denied the request. */
function addDistinct(judgements: Judgement[], judgement: Judgement): void {
  const known = judgements.find(
    ({ rule, because }) => rule === judgement.rule && (rule !== '' || because === judgement.because),
  );
  if (known === undefined) {
    if (judgements.length < RULES_MAX) judgements.push(judgement);
    return;
  }
  if (judgement.denied) known.denied = true;
  if (judgement.verdict) known.verdict = true;
  known.points = Math.max(known.points, judgement.points);
}

/** What the first says counts; but any line that says that the request was stopped is right. */
function mergeDetails(
  first: AttackDetails | undefined,
  more: AttackDetails | undefined,
): AttackDetails | undefined {
  if (first === undefined || more === undefined) return first ?? more;
  const merged = { ...more, ...first };
  if (first.blocked || more.blocked) merged.blocked = true;
  return merged;
}

function short(text: string): string {
  return text.length > TEXT_LENGTH_MAX ? text.slice(0, TEXT_LENGTH_MAX) : text;
}

/** A copy of its own: a part of a line would hold the whole line in memory, which may be a megabyte. */
function own(text: string): string {
  return Buffer.from(text, 'utf16le').toString('utf16le');
}
