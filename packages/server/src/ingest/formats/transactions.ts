/**
 * The requests that firewalls write down. One flagged request is one attack, however many rules matched, however many
 * lines tell of it, and whether an error log, an audit log or both do: what belongs together has the same id.
 */

import type { AttackDetails, Category } from '../../event.ts';
import { attackDetails } from '../attack-details.ts';
import { type Judgement, judge, type Overrides, primaryCategory } from '../categories/judge.ts';
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
/** What an attack is that only a verdict tells of. */
const UNKNOWN_ATTACK: Category = 'vuln';
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
  readonly #counted: Map<string, number>;

  constructor(overrides: Overrides, state?: TransactionsState) {
    this.#overrides = overrides;
    for (const open of state?.open ?? []) this.#open.set(keyOf(open), open);
    this.#counted = new Map(state?.counted);
  }

  /** A request that is told whole. */
  whole(format: LogFormat, { id, time, host, rules, details, request = false }: Transaction): Parsed {
    const key = short(id);
    if (this.#isCounted(key, time)) {
      // Its attack has been counted, from another log of the same firewall; the request has not.
      if (request) return { kind: 'record', record: requestOnly(time, host), format };
      return { kind: 'dropped', reason: 'same_request', format };
    }
    // Lines of an error log may have told of it already; an audit log can be set to leave the rules out.
    const open = this.#open.get(key);
    const judgements = open?.judgements ?? [];
    this.#open.delete(key);
    for (const rule of rules) addDistinct(judgements, judge(rule, this.#overrides));
    const merged = mergeDetails(details, open?.details);
    const parsed = this.#settle(key, format, time, host, judgements, merged);
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

  /** One matched rule of a request. Answers the requests that are thereby known to be told to the end. */
  hit(format: LogFormat, hit: RuleHit, now: number): Parsed[] {
    const { time, written, host, rules } = hit;
    const id = short(hit.id);
    const connection = short(hit.connection);
    const older = this.#close((open) => open.written < written - OPEN_MS_MAX);
    if (this.#isCounted(id, time)) return older;
    const open = this.#find(id, connection) ?? {
      id: own(id),
      connection: own(connection),
      format,
      time,
      written,
      touched: now,
      host: undefined,
      judgements: [],
    };
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

  state(): TransactionsState | null {
    if (this.#open.size === 0 && this.#counted.size === 0) return null;
    return { open: [...this.#open.values()], counted: [...this.#counted] };
  }

  /** From the one that was touched longest ago. */
  #close(isDone: (open: Open) => boolean): Parsed[] {
    const parsed: Parsed[] = [];
    for (const [key, open] of this.#open) {
      if (!isDone(open)) break;
      this.#open.delete(key);
      const { id, format, time, host, judgements, details } = open;
      parsed.push(this.#settle(id, format, time, host, judgements, details));
    }
    return parsed;
  }

  /** By its id; or by its connection, when the id of either was cut off with the end of a line. */
  #find(id: string, connection: string): Open | undefined {
    const found = id === '' ? undefined : this.#open.get(id);
    if (found !== undefined || connection === '') return found;
    for (const open of this.#open.values()) {
      if (open.connection === connection && (id === '' || open.id === '')) return open;
    }
    return undefined;
  }

  #settle(
    id: string,
    format: LogFormat,
    time: number,
    host: string | undefined,
    evidence: readonly Judgement[],
    details?: AttackDetails,
  ): Parsed {
    // A firewall that stops a request says that it was an attack, although only a verdict may tell of it.
    const isExcluded = evidence.some(({ because }) => because === 'override');
    const attack = primaryCategory(evidence) ?? (details?.blocked && !isExcluded ? UNKNOWN_ATTACK : null);
    // It is not remembered: a rule that makes it an attack may still come.
    if (attack === null) return { kind: 'dropped', reason: 'not_an_attack', format, evidence };
    this.#remember(id, time);
    const rule = evidence.find(({ category }) => category === attack)?.rule;
    const named = mergeDetails(attackDetails({ rule }), details);
    const record = {
      time,
      host,
      hostId: undefined,
      request: false,
      attack,
      count: 1,
      details: named,
      evidence,
    };
    return { kind: 'record', record, format };
  }

  #isCounted(id: string, time: number): boolean {
    const counted = id === '' ? undefined : this.#counted.get(id);
    return counted !== undefined && Math.abs(time - counted) <= SAME_MS_MAX;
  }

  #remember(id: string, time: number): void {
    if (id === '') return;
    this.#counted.set(own(id), time);
    for (const [oldest, counted] of this.#counted) {
      if (this.#counted.size <= COUNTED_MAX && counted >= time - SAME_MS_MAX) break;
      this.#counted.delete(oldest);
    }
  }
}

function requestOnly(time: number, host: string | undefined): LogRecord {
  return { time, host, hostId: undefined, request: true, attack: null, count: 1 };
}

/** Of two records of one request: it was stopped if either says so; of the rest, the first that says something. */
function mergeDetails(
  first: AttackDetails | undefined,
  second: AttackDetails | undefined,
): AttackDetails | undefined {
  if (first === undefined || second === undefined) return first ?? second;
  const isBlocked = first.blocked || second.blocked;
  return { ...second, ...first, ...(isBlocked && { blocked: true }) };
}

function keyOf({ id, connection }: Open): string {
  return id === '' ? `connection ${connection}` : id;
}

function addDistinct(judgements: Judgement[], judgement: Judgement): void {
  if (judgements.length >= RULES_MAX || judgements.some(({ rule }) => rule === judgement.rule)) return;
  judgements.push(judgement);
}

function short(text: string): string {
  return text.length > TEXT_LENGTH_MAX ? text.slice(0, TEXT_LENGTH_MAX) : text;
}

/** A copy of its own: a part of a line would hold the whole line in memory, which may be a megabyte. */
function own(text: string): string {
  return Buffer.from(text, 'utf16le').toString('utf16le');
}
