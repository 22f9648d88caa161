/**
 * The requests that firewalls write down. One flagged request is one attack, however many rules matched, however many
 * lines tell of it, and whether an error log, an audit log or both do: what belongs together has the same id.
 */

import { type AttackDetails, attackDetails } from '../../event.ts';
import { type Classification, classify, decide, type Overrides } from '../categories/classify.ts';
import type { LineRange, LogFormat, LogRecord, Parsed, RuleHit, Transaction } from './format.ts';

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
/** Ids that the lines of one request may name, in all. */
const CLAIMED_MAX = 8;
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
  judgements: Classification[];
  /** Missing in states that older versions wrote, like the next ones. */
  details?: AttackDetails | undefined;
  /** When the first line that told of it was written. */
  begun?: number;
  /** Where `id` is '': the ids that its lines name, which a client may have written. */
  claimedIds?: readonly string[];
  /** For `explain`. */
  lines?: LineRange;
}

/** A request that was counted, and the formats that have told of all of it. */
interface Counted {
  time: number;
  formats: readonly LogFormat[];
}

/** Plain data, to go on in another process. */
export interface TransactionsState {
  open: Open[];
  /** Older versions wrote no formats. */
  counted: [id: string, time: number, formats?: readonly LogFormat[]][];
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
    const counted = this.#countedAs(key, time);
    // A log tells of a request once: the next record with its id is of another request, which was numbered badly.
    if (counted !== undefined && !counted.formats.includes(format)) {
      this.#remember(key, counted.time, [...counted.formats, format]);
      // Its attack has been counted, from another log of the same firewall; the request has not.
      if (request) return { kind: 'record', record: requestOnly(time, host), format };
      return { kind: 'dropped', reason: 'same_request', format };
    }
    // Lines of an error log may have told of it already; an audit log can be set to leave the rules out.
    const open = this.#openOf(key);
    if (open !== undefined) this.#open.delete(keyOf(open));
    const judgements = open?.judgements ?? [];
    const details = mergeDetails(transaction.details, open?.details);
    for (const rule of rules) addDistinct(judgements, classify(rule, this.#overrides));
    const parsed = this.#finish(key, format, time, host, judgements, details, [format]);
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
    if (this.#countedAs(key, record.time)) return { kind: 'dropped', reason: 'same_request', format };
    this.#remember(key, record.time);
    return { kind: 'record', record, format };
  }

  /** Adds a matched rule of a request. Returns the requests that no further line can belong to. */
  addMatch(format: LogFormat, hit: RuleHit, now: number, line?: number): Parsed[] {
    const { time, written, host, rules } = hit;
    const id = short(hit.id);
    const connection = short(hit.connection);
    const older = this.#close((open) => open.written < written - OPEN_MS_MAX);
    if (this.#countedAs(id, time)) return older;
    const found = this.#find({ ...hit, id, connection });
    const open = found ?? {
      id: own(id),
      connection: own(connection),
      format,
      time,
      written,
      touched: now,
      host: undefined,
      judgements: [],
      begun: written,
    };
    // Without an id, requests on one connection have the same key, so the one before is complete.
    const before = this.#open.get(keyOf(open));
    if (before !== undefined && found === undefined) older.push(this.#finishOpen(before));
    this.#open.delete(keyOf(open));
    if (open.id === '') open.id = own(id);
    const claimedIds = open.id === '' ? [...(open.claimedIds ?? []), ...(hit.claimedIds ?? [])] : [];
    if (claimedIds.length > 0) open.claimedIds = [...new Set(claimedIds)].slice(0, CLAIMED_MAX).map(own);
    else delete open.claimedIds;
    if (host !== undefined) open.host ??= own(short(host));
    open.written = written;
    open.touched = now;
    if (line !== undefined) open.lines = [open.lines?.[0] ?? line, line];
    open.details = mergeDetails(open.details, hit.details);
    for (const rule of rules) {
      const judgement = classify(rule, this.#overrides);
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

  #finishOpen({ id, format, time, host, judgements, details, lines }: Open): Parsed {
    // Another reader of the same source may have counted it meanwhile.
    if (this.#countedAs(id, time)) return { kind: 'dropped', reason: 'same_request', format };
    const parsed = this.#finish(id, format, time, host, judgements, details);
    return lines === undefined ? parsed : { ...parsed, lines };
  }

  /** By its id; or the one whose lines may have been forged, but name this id among others. */
  #openOf(id: string): Open | undefined {
    const open = this.#open.get(id);
    if (open !== undefined || id === '') return open;
    for (const each of this.#open.values()) if (each.claimedIds?.includes(id)) return each;
    return undefined;
  }

  /** By its id; or by its connection, when the id of either was cut off with the end of a line, or is uncertain. */
  #find(hit: RuleHit): Open | undefined {
    const { id, connection } = hit;
    const found = id === '' ? undefined : this.#open.get(id);
    if (found !== undefined || connection === '') return found;
    for (const open of this.#open.values()) {
      if (open.connection === connection && isSameRequest(open, hit)) return open;
    }
    return undefined;
  }

  #finish(
    id: string,
    format: LogFormat,
    time: number,
    host: string | undefined,
    evidence: readonly Classification[],
    said?: AttackDetails,
    formats: readonly LogFormat[] = [],
  ): Parsed {
    const decision = decide(evidence, said?.blocked === true);
    const { category: attack, rule } = decision;
    // It is not remembered: a rule that makes it an attack may still come.
    if (attack === null) return { kind: 'dropped', reason: 'not_an_attack', format, evidence };
    this.#remember(id, time, formats);
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

  #countedAs(id: string, time: number): Counted | undefined {
    const counted = id === '' ? undefined : this.#counted.get(id);
    return counted !== undefined && Math.abs(time - counted.time) <= SAME_MS_MAX ? counted : undefined;
  }

  #remember(id: string, time: number, formats: readonly LogFormat[] = []): void {
    if (id !== '') this.#counted.set(own(id), { time, formats });
  }
}

/** The requests that were counted, by ID. */
export interface CountedRequests {
  get(id: string): Counted | undefined;
  set(id: string, counted: Counted): void;
  entries(): TransactionsState['counted'];
}

export class RecentRequests implements CountedRequests {
  readonly #requests = new Map<string, Counted>();

  constructor(entries: TransactionsState['counted'] = []) {
    for (const [id, time, formats = []] of entries) this.#requests.set(id, { time, formats });
  }

  get(id: string): Counted | undefined {
    return this.#requests.get(id);
  }

  set(id: string, request: Counted): void {
    this.#requests.set(id, request);
    for (const [oldest, counted] of this.#requests) {
      if (this.#requests.size <= COUNTED_MAX && counted.time >= request.time - SAME_MS_MAX) break;
      this.#requests.delete(oldest);
    }
  }

  /** Puts back what was known before `request`, unless it was counted again since. */
  restore(id: string, request: Counted, before: Counted | undefined): void {
    if (this.#requests.get(id) !== request) return;
    if (before === undefined) this.#requests.delete(id);
    else this.#requests.set(id, before);
  }

  entries(): TransactionsState['counted'] {
    return [...this.#requests].map(([id, { time, formats }]) => [id, time, formats]);
  }
}

/** What one push adds to the requests that all pushes of its source know; taken back if the push fails. */
export class PushedRequests implements CountedRequests {
  readonly #all: RecentRequests;
  readonly #added: { id: string; request: Counted; before: Counted | undefined }[] = [];

  constructor(all: RecentRequests) {
    this.#all = all;
  }

  get(id: string): Counted | undefined {
    return this.#all.get(id);
  }

  set(id: string, request: Counted): void {
    this.#added.push({ id, request, before: this.#all.get(id) });
    this.#all.set(id, request);
    // The others are not remembered any more.
    if (this.#added.length >= 2 * COUNTED_MAX) this.#added.splice(0, COUNTED_MAX);
  }

  takeBack(): void {
    // The last first, because a request may have been added twice.
    for (const { id, request, before } of this.#added.splice(0).reverse())
      this.#all.restore(id, request, before);
  }

  /** They are not part of the state of a reader: the other readers know them already. */
  entries(): TransactionsState['counted'] {
    return [];
  }
}

/**
 * Whether a line belongs to an open request on its connection, when the id of one of them is unknown. Connections are
 * kept open, and a proxy shares them between clients: in doubt these are two requests, so that none disappears.
 */
function isSameRequest(open: Open, { id, written, rules, claimedIds = [] }: RuleHit): boolean {
  if (id !== '' && open.id !== '') return false;
  // The firewall has denied it, so it is complete.
  if (open.details?.blocked === true) return false;
  const isRecent =
    Math.abs(written - open.written) <= SAME_CONNECTION_MS_MAX &&
    Math.abs(written - (open.begun ?? open.written)) <= OPEN_MS_MAX;
  const before = open.judgements.map(({ rule }) => rule);
  const isNext = rules.every((rule) => mayFollow(rule.id, before));
  return isRecent && isNext && namesSame(idsOf(open.id, open.claimedIds), idsOf(id, claimedIds));
}

function idsOf(id: string, claimedIds: readonly string[] = []): readonly string[] {
  return id === '' ? claimedIds : [id];
}

/** Lines of one request name the same id, beside those that a client wrote into some of them, unless it was cut off. */
function namesSame(some: readonly string[], others: readonly string[]): boolean {
  return some.every((id) => others.includes(id)) || others.every((id) => some.includes(id));
}

/** CRS sums up a request at its end, once: 949 before the response, 959 behind it, then 980. What follows is another. */
function mayFollow(rule: string, before: readonly string[]): boolean {
  const stage = stageOf(rule);
  return before.every((each) => stageOf(each) <= stage) && (!isSum(rule) || !before.includes(rule));
}

function isSum(rule: string): boolean {
  return /^(?:949|959|980)\d{3}$/.test(rule);
}

function stageOf(rule: string): number {
  if (!/^9\d{5}$/.test(rule)) return 0;
  if (rule.startsWith('980')) return 4;
  if (rule.startsWith('959')) return 3;
  // Rules about the response, which is only there behind 949.
  if (rule.startsWith('95')) return 2;
  return rule.startsWith('949') ? 1 : 0;
}

function requestOnly(time: number, host: string | undefined): LogRecord {
  return { time, host, hostId: undefined, request: true, attack: null, count: 1 };
}

function keyOf({ id, connection }: Open): string {
  return id === '' ? `connection ${connection}` : id;
}

/** A rule counts once, but any of its messages may say that it denied the request. */
function addDistinct(judgements: Classification[], judgement: Classification): void {
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
