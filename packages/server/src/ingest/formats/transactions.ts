/**
 * Joins what firewalls log about a request, by its ID. A flagged request is one attack, however many rules matched,
 * however many lines report it, and whether an error log, an audit log or both do.
 */
import { copyOf } from '../../copy-of.ts';
import { type AttackDetails, normalRule } from '../../event.ts';
import { type Classification, classify, decide, type Overrides } from '../categories/classify.ts';
import {
  type LineRange,
  type LogFormat,
  type LogRecord,
  type Parsed,
  type RuleMatch,
  requestRecord,
  type Transaction,
} from './format.ts';

/** Open requests: more rules may follow. Servers write the rules of a request within milliseconds of each other. */
const OPEN_MAX = 128;
/** Requests that are older, by the time in the log, are complete. */
const OPEN_MS_MAX = 10_000;
/** Counted requests, so that a late line or another log in the same stream does not count them again. */
const COUNTED_MAX = 512;
/** Records of one request are at most this far apart, by the time in the log. (Some servers reuse IDs.) */
const SAME_MS_MAX = 300_000;
/** More distinct rules than a real request matches. */
const RULES_MAX = 32;
/** A line without an ID belongs to a request on its connection if that got a line this recently. */
const SAME_CONNECTION_MS_MAX = 2_000;
/** IDs that the lines of one request may name. */
const CLAIMED_MAX = 8;
/** The limit of stored IDs and host names. */
const TEXT_LENGTH_MAX = 128;

interface OpenRequest {
  id: string;
  connection: string;
  format: LogFormat;
  time: number;
  /** When its last line was written, and when it was read. */
  written: number;
  touched: number;
  host: string | undefined;
  judgements: Classification[];
  /** Missing in states written by older versions, like the next two. */
  details?: AttackDetails | undefined;
  /** When its first line was written. */
  begun?: number;
  /** If `id` is '': the IDs that its lines name, which a client may have forged. */
  claimedIds?: readonly string[];
  /** For `explain`. */
  lines?: LineRange;
}

/** A counted request, and the formats that have a complete record of it. */
interface Counted {
  time: number;
  formats: readonly LogFormat[];
}

/** Plain data, to continue in another process. */
export interface TransactionsState {
  open: OpenRequest[];
  /** Older versions wrote no formats. */
  counted: [id: string, time: number, formats?: readonly LogFormat[]][];
}

export class Transactions {
  readonly #overrides: Overrides;
  /** Open requests, in the order of their last lines. */
  readonly #open = new Map<string, OpenRequest>();
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

  /** Adds a request with a complete record. */
  addComplete(format: LogFormat, transaction: Transaction): Parsed {
    const { time, host, rules, request = false } = transaction;
    const id = shortened(transaction.id);
    const counted = this.#countedRequest(id, time);
    // A log has one record per request: a second record with the same ID is another request.
    if (counted !== undefined && !counted.formats.includes(format)) {
      this.#remember(id, counted.time, [...counted.formats, format]);
      // The attack was counted from another log of the same firewall; the request was not.
      if (request) return { kind: 'record', record: requestRecord(time, host), format };
      return { kind: 'dropped', reason: 'same_request', format };
    }
    // The error log may have more rules: an audit log can be configured without them.
    const open = this.#openWithId(id);
    if (open !== undefined) this.#open.delete(keyOf(open));
    const judgements = open?.judgements ?? [];
    const details = mergeDetails(transaction.details, open?.details);
    for (const rule of rules) addDistinct(judgements, classify(rule, this.#overrides));
    const parsed = this.#finish({ id, format, time, host, judgements, details }, [format]);
    if (!request) return parsed;
    const record = parsed.kind === 'record' ? parsed.record : requestRecord(time, host);
    record.request = true;
    record.evidence = judgements;
    return { kind: 'record', record, format };
  }

  /** Adds a finished record, unless its request has been counted. */
  addRecord(format: LogFormat, id: string, record: LogRecord): Parsed {
    const key = shortened(id);
    if (this.#countedRequest(key, record.time)) return { kind: 'dropped', reason: 'same_request', format };
    this.#remember(key, record.time);
    return { kind: 'record', record, format };
  }

  /** Adds a matched rule. Returns the requests that are complete. */
  addMatch(format: LogFormat, match: RuleMatch, now: number, line?: number): Parsed[] {
    const { time, written, host, rules } = match;
    const id = shortened(match.id);
    const connection = shortened(match.connection);
    const complete = this.#close((open) => open.written < written - OPEN_MS_MAX);
    if (this.#countedRequest(id, time)) return complete;
    const found = this.#find({ ...match, id, connection });
    const open = found ?? {
      id: copyOf(id),
      connection: copyOf(connection),
      format,
      time,
      written,
      touched: now,
      host: undefined,
      judgements: [],
      begun: written,
    };
    // Without IDs, requests on one connection have the same key: the previous one is complete.
    const previous = this.#open.get(keyOf(open));
    if (previous !== undefined && found === undefined) complete.push(this.#finishOpen(previous));
    this.#open.delete(keyOf(open));
    if (open.id === '') open.id = copyOf(id);
    const claimedIds = open.id === '' ? [...(open.claimedIds ?? []), ...(match.claimedIds ?? [])] : [];
    if (claimedIds.length > 0) open.claimedIds = [...new Set(claimedIds)].slice(0, CLAIMED_MAX).map(copyOf);
    else delete open.claimedIds;
    if (host !== undefined) open.host ??= copyOf(shortened(host));
    open.written = written;
    open.touched = now;
    if (line !== undefined) open.lines = [open.lines?.[0] ?? line, line];
    open.details = mergeDetails(open.details, match.details);
    for (const rule of rules) {
      const judgement = classify(rule, this.#overrides);
      addDistinct(open.judgements, { ...judgement, rule: copyOf(judgement.rule) });
    }
    this.#open.set(keyOf(open), open);
    return [...complete, ...this.#close(() => this.#open.size > OPEN_MAX)];
  }

  /** Finishes the requests that got no line since `before`, by the local clock, whose time is `now` (see `isDue`). */
  flush(before: number, now: number): Parsed[] {
    const parsed: Parsed[] = [];
    for (const [key, open] of this.#open) {
      // Does not stop at the first that is not due: if the clock was set back, they are not in order.
      if (!isDue(open.touched, before, now)) continue;
      this.#open.delete(key);
      parsed.push(this.#finishOpen(open));
    }
    return parsed;
  }

  /** Whether `flush` would return something. */
  hasPending(before: number, now: number): boolean {
    for (const { touched } of this.#open.values()) if (isDue(touched, before, now)) return true;
    return false;
  }

  get hasState(): boolean {
    return this.#open.size > 0 || this.#counted.hasEntries;
  }

  state(): TransactionsState | null {
    if (!this.hasState) return null;
    return { open: [...this.#open.values()], counted: this.#counted.entries() };
  }

  /** Finishes open requests, oldest first, up to the first that is not done. */
  #close(isDone: (open: OpenRequest) => boolean): Parsed[] {
    const parsed: Parsed[] = [];
    for (const [key, open] of this.#open) {
      if (!isDone(open)) break;
      this.#open.delete(key);
      parsed.push(this.#finishOpen(open));
    }
    return parsed;
  }

  #finishOpen(open: OpenRequest): Parsed {
    const { id, format, time, lines } = open;
    // Another reader of the same source may have counted it in the meantime.
    if (this.#countedRequest(id, time)) return { kind: 'dropped', reason: 'same_request', format };
    const parsed = this.#finish(open, []);
    return lines === undefined ? parsed : { ...parsed, lines };
  }

  /** Finds a request by ID, including requests with forged lines that name this ID among others. */
  #openWithId(id: string): OpenRequest | undefined {
    if (this.#open.size === 0) return undefined;
    const open = this.#open.get(id);
    if (open !== undefined || id === '') return open;
    for (const each of this.#open.values()) if (each.claimedIds?.includes(id)) return each;
    return undefined;
  }

  /** Finds a request by ID, or by connection if one of the IDs was cut off or is uncertain. */
  #find(match: RuleMatch): OpenRequest | undefined {
    const { id, connection } = match;
    const found = id === '' ? undefined : this.#open.get(id);
    if (found !== undefined || connection === '') return found;
    for (const open of this.#open.values()) {
      if (open.connection === connection && isSameRequest(open, match)) return open;
    }
    return undefined;
  }

  #finish(
    request: Pick<OpenRequest, 'id' | 'format' | 'time' | 'host' | 'judgements' | 'details'>,
    completeFormats: readonly LogFormat[],
  ): Parsed {
    const { id, format, time, host, judgements: evidence } = request;
    const decision = decide(evidence, request.details?.blocked === true);
    const { category: attack, rule } = decision;
    // Not remembered: a later rule may make it an attack.
    if (attack === null) return { kind: 'dropped', reason: 'not_an_attack', format, evidence };
    this.#remember(id, time, completeFormats);
    // Sets single fields and does not copy the details: merging objects took 13% of the time of an audit line, copying 5%.
    const details: AttackDetails = request.details ?? {};
    if (rule) details.rule = normalRule(rule);
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

  #countedRequest(id: string, time: number): Counted | undefined {
    const counted = id === '' ? undefined : this.#counted.get(id);
    return counted !== undefined && Math.abs(time - counted.time) <= SAME_MS_MAX ? counted : undefined;
  }

  #remember(id: string, time: number, formats: readonly LogFormat[] = []): void {
    if (id !== '') this.#counted.set(copyOf(id), { time, formats });
  }
}

/**
 * Whether a request got its last line before a time. A line read in the future means that the clock was set back since;
 * otherwise the request would be counted only when the clock has caught up.
 */
function isDue(touched: number, before: number, now: number): boolean {
  return touched < before || touched > now;
}

/** The requests that were counted, by ID. */
export interface CountedRequests {
  get(id: string): Counted | undefined;
  set(id: string, counted: Counted): void;
  entries(): TransactionsState['counted'];
  /** Whether there are entries, without making a list. */
  readonly hasEntries: boolean;
}

/** Not a BoundedCache: entries also expire by the time in the log, and are saved in insertion order. */
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

  /** Undoes `set`, unless the request was counted again since. */
  restore(id: string, request: Counted, previous: Counted | undefined): void {
    if (this.#requests.get(id) !== request) return;
    if (previous === undefined) this.#requests.delete(id);
    else this.#requests.set(id, previous);
  }

  get hasEntries(): boolean {
    return this.#requests.size > 0;
  }

  entries(): TransactionsState['counted'] {
    return [...this.#requests].map(([id, { time, formats }]) => [id, time, formats]);
  }
}

/** The requests that one push adds to those of its source. Removed again if the push fails. */
export class PushedRequests implements CountedRequests {
  readonly #all: RecentRequests;
  readonly #added: { id: string; request: Counted; previous: Counted | undefined }[] = [];

  constructor(all: RecentRequests) {
    this.#all = all;
  }

  get(id: string): Counted | undefined {
    return this.#all.get(id);
  }

  set(id: string, request: Counted): void {
    this.#added.push({ id, request, previous: this.#all.get(id) });
    this.#all.set(id, request);
    // Older ones have been evicted from the source.
    if (this.#added.length >= 2 * COUNTED_MAX) this.#added.splice(0, COUNTED_MAX);
  }

  rollback(): void {
    // In reverse, because a request may have been added twice.
    for (const { id, request, previous } of this.#added.splice(0).reverse())
      this.#all.restore(id, request, previous);
  }

  readonly hasEntries = false;

  /** Not part of a reader's state: the readers of a source share them. */
  entries(): TransactionsState['counted'] {
    return [];
  }
}

/**
 * Whether a line belongs to an open request on its connection, if the ID of one of them is unknown. Connections are
 * kept alive and proxies share them between clients: in doubt these are two requests, so that none disappears.
 */
function isSameRequest(open: OpenRequest, { id, written, rules, claimedIds = [] }: RuleMatch): boolean {
  if (id !== '' && open.id !== '') return false;
  // A denied request gets no more lines.
  if (open.details?.blocked === true) return false;
  const isRecent =
    Math.abs(written - open.written) <= SAME_CONNECTION_MS_MAX &&
    Math.abs(written - (open.begun ?? open.written)) <= OPEN_MS_MAX;
  const earlier = open.judgements.map(({ rule }) => rule);
  const canFollow = rules.every((rule) => mayFollow(rule.id, earlier));
  return isRecent && canFollow && shareIds(idsOf(open.id, open.claimedIds), idsOf(id, claimedIds));
}

function idsOf(id: string, claimedIds: readonly string[] = []): readonly string[] {
  return id === '' ? claimedIds : [id];
}

/** Unless it was cut off, lines of one request name the same ID, besides those that a client wrote into some of them. */
function shareIds(some: readonly string[], others: readonly string[]): boolean {
  return some.every((id) => others.includes(id)) || others.every((id) => some.includes(id));
}

/** CRS sums up a request once, at its end: 949 before the response, 959 after it, then 980. Later rules are not its own. */
function mayFollow(rule: string, earlier: readonly string[]): boolean {
  const isSum = /^(?:949|959|980)\d{3}$/.test(rule);
  const stage = stageOf(rule);
  return earlier.every((each) => stageOf(each) <= stage) && !(isSum && earlier.includes(rule));
}

function stageOf(rule: string): number {
  if (!/^9\d{5}$/.test(rule)) return 0;
  if (rule.startsWith('980')) return 4;
  if (rule.startsWith('959')) return 3;
  // Rules about the response, which comes after 949.
  if (rule.startsWith('95')) return 2;
  return rule.startsWith('949') ? 1 : 0;
}

function keyOf({ id, connection }: OpenRequest): string {
  return id === '' ? `connection ${connection}` : id;
}

/** A rule counts once, but any of its messages may say that it denied the request. */
function addDistinct(judgements: Classification[], judgement: Classification): void {
  const index = judgements.findIndex(
    ({ rule, because }) => rule === judgement.rule && (rule !== '' || because === judgement.because),
  );
  const known = judgements[index];
  if (known === undefined) {
    if (judgements.length < RULES_MAX) judgements.push(judgement);
    return;
  }
  if (known === judgement) return;
  // A copy, because requests share classifications.
  const joined = { ...known, points: Math.max(known.points, judgement.points) };
  if (judgement.denied) joined.denied = true;
  if (judgement.verdict) joined.verdict = true;
  judgements[index] = joined;
}

/** The first wins, except that any of them may say that the request was blocked. */
function mergeDetails(
  first: AttackDetails | undefined,
  second: AttackDetails | undefined,
): AttackDetails | undefined {
  if (first === undefined || second === undefined) return first ?? second;
  const merged = { ...second, ...first };
  if (first.blocked || second.blocked) merged.blocked = true;
  return merged;
}

function shortened(text: string): string {
  return text.length > TEXT_LENGTH_MAX ? text.slice(0, TEXT_LENGTH_MAX) : text;
}
