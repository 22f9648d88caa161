/**
 * Joins what firewalls log about a request, by its ID. A flagged request is one attack, however many rules matched and
 * however many lines report it. If lines come late or in another log, the store notices (store/flagged-requests.ts).
 */
import { createHash } from 'node:crypto';
import {
  attackDetails,
  matchedRule,
  normalRule,
  normalText,
  RULES_MAX,
  setRules,
} from '../../attack-details.ts';
import { copyOf } from '../../copy-of.ts';
import {
  type AttackDetails,
  type FlaggedRequest,
  type MatchedRule,
  requestKey,
  TOP_URL_BYTES_MAX,
  topUrl,
} from '../../event.ts';
import {
  type Classification,
  classify,
  type Decision,
  decide,
  type Overrides,
  type Rule,
} from '../categories/classify.ts';
import {
  type LineRange,
  type LogFormat,
  type Parsed,
  type RuleMatch,
  requestRecord,
  setResponse,
  type Transaction,
} from './format.ts';

/** Open requests: more rules may follow. Servers write the rules of a request within milliseconds of each other. */
const OPEN_MAX = 128;
/** Requests that are older, by the time in the log, are complete. */
const OPEN_MS_MAX = 10_000;
/** A line without an ID belongs to a request on its connection if that got a line this recently. */
const SAME_CONNECTION_MS_MAX = 2_000;
/** IDs that the lines of one request may name. */
const CLAIMED_MAX = 8;
/** The limit of stored IDs and host names. */
const TEXT_LENGTH_MAX = 128;

/** Plain data, to continue in another process. */
export interface OpenRequest {
  id: string;
  connection: string;
  format: LogFormat;
  time: number;
  /** When its last line was written, and when it was read. */
  written: number;
  touched: number;
  host: string | undefined;
  judgements: Classification[];
  matched: MatchedRule[];
  /** See `matchedRule`. */
  secrets: string[];
  score?: number | undefined;
  details?: AttackDetails | undefined;
  /** When its first line was written. */
  begun: number;
  /** If `id` is '': the IDs that its lines name, which a client may have forged. */
  claimedIds?: readonly string[];
  /** For `explain`. */
  lines?: LineRange;
}

export class Transactions {
  readonly #overrides: Overrides;
  /** Open requests, in the order of their last lines. */
  readonly #open = new Map<string, OpenRequest>();

  constructor(overrides: Overrides, state: readonly OpenRequest[] = []) {
    this.#overrides = overrides;
    for (const open of state) this.#open.set(keyOf(open), open);
  }

  /** Adds a request with a complete record. */
  addComplete(format: LogFormat, transaction: Transaction): Parsed {
    const { time, host, rules, request = false, response, details: raw } = transaction;
    const id = shortened(transaction.id);
    // The error log may have more rules: an audit log can be configured without them.
    const open = this.#openWithId(id);
    if (open !== undefined) this.#open.delete(keyOf(open));
    const { judgements = [], matched = [], secrets = [], score } = open ?? {};
    const known = open?.details;
    const judged = rules.map((rule) => this.#judge(judgements, rule));
    const decision = decide(judgements, raw.blocked === true || known?.blocked === true);
    const whole = { id, format, time, host, judgements, matched, secrets, score, details: known };
    // In many logs, most records are not attacks. Normalizing the details takes as long as everything before.
    if (decision.category !== null) {
      whole.details = mergeDetails(attackDetails(raw), known);
      for (let i = 0; i < rules.length; i++) addMatched(whole, rules[i] as Rule, judged[i]?.rule ?? '');
    }
    const parsed = this.#finish(whole, decision, 'record');
    if (!request) return parsed;
    const record = parsed.kind === 'record' ? parsed.record : requestRecord(time, host);
    record.request = true;
    if (response !== undefined) setResponse(record, response);
    record.evidence = judgements;
    return { kind: 'record', record, format };
  }

  /** Adds a matched rule. Returns the requests that are complete. */
  addMatch(format: LogFormat, match: RuleMatch, now: number, line?: number): Parsed[] {
    const { time, written, host, rules } = match;
    const id = shortened(match.id);
    const connection = shortened(match.connection);
    const complete = this.#close((open) => open.written < written - OPEN_MS_MAX);
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
      matched: [],
      secrets: [],
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
    open.details = mergeDetails(open.details, attackDetails(match.details));
    for (const rule of rules) {
      const own = { ...rule, id: copyOf(rule.id) };
      addMatched(open, own, this.#judge(open.judgements, own).rule);
    }
    this.#open.set(keyOf(open), open);
    return [...complete, ...this.#close(() => this.#open.size > OPEN_MAX)];
  }

  #judge(judgements: Classification[], rule: Rule): Classification {
    const judgement = classify(rule, this.#overrides);
    addDistinct(judgements, judgement);
    return judgement;
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

  /** For `explain`. */
  get firstPendingLine(): number {
    const lines = [...this.#open.values()].map((open) => open.lines?.[0] ?? Number.POSITIVE_INFINITY);
    return Math.min(...lines, Number.POSITIVE_INFINITY);
  }

  get hasState(): boolean {
    return this.#open.size > 0;
  }

  state(): OpenRequest[] {
    return [...this.#open.values()];
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
    const { lines } = open;
    const decision = decide(open.judgements, open.details?.blocked === true);
    const parsed = this.#finish(open, decision, 'lines');
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
    request: Omit<OpenRequest, 'connection' | 'written' | 'touched' | 'begun' | 'lines'>,
    decision: Decision,
    kind: 'record' | 'lines',
  ): Parsed {
    const { format, time, host, judgements: evidence } = request;
    const { category: attack, rule } = decision;
    if (attack === null) return { kind: 'dropped', reason: 'not_an_attack', format, time, evidence };
    // Sets single fields and does not copy the details: merging objects took 13% of the time of an audit line, copying 5%.
    const details: AttackDetails = request.details ?? {};
    // By the path as it is in every log, before `setRules` masks what repeats a secret.
    const flagged = flaggedRequest(request, kind);
    if (rule) details.rule = normalRule(rule);
    setRules(details, request.matched, request.secrets);
    if (request.id !== '') details.id = normalText(request.id);
    if (request.score !== undefined) details.score = request.score;
    const record = {
      time,
      host,
      hostId: undefined,
      request: false,
      attack,
      count: 1,
      details,
      flagged,
      evidence,
      decision,
    };
    return { kind: 'record', record, format };
  }
}

/** A path of this length may have been cut. A character has up to four bytes. */
const LONG_PATH_BYTES = TOP_URL_BYTES_MAX - 3;

function flaggedRequest(
  {
    id,
    format: log,
    claimedIds = [],
    details,
  }: Pick<OpenRequest, 'id' | 'format' | 'claimedIds' | 'details'>,
  kind: 'record' | 'lines',
): FlaggedRequest | undefined {
  const ids = idsOf(id, claimedIds).map((each) => requestKey(shortened(each)));
  // nginx cuts a line about a long path before the ID. An audit log has the whole record.
  const isUnnamed = kind === 'record' || ids.length === 0;
  const unnamed = isUnnamed ? unnamedKey(details?.url) : undefined;
  if (ids.length === 0 && (kind === 'record' || unnamed === undefined)) return undefined;
  return { kind: id === '' ? 'forged' : kind, log, ids, ...(unnamed !== undefined && { unnamed }) };
}

function unnamedKey(path: string | undefined): string | undefined {
  if (path === undefined || path.length < LONG_PATH_BYTES / 4 || Buffer.byteLength(path) < LONG_PATH_BYTES)
    return undefined;
  return `/${createHash('sha256').update(topUrl(path)).digest('base64url').slice(0, 24)}`;
}

/**
 * Whether a request got its last line before a time. A line read in the future means that the clock was set back since;
 * otherwise the request would be counted only when the clock has caught up.
 */
function isDue(touched: number, before: number, now: number): boolean {
  return touched < before || touched > now;
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
    Math.abs(written - open.begun) <= OPEN_MS_MAX;
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
  const { rule, because } = judgement;
  // A loop, because callbacks took 4% of the time of an audit line.
  let index = 0;
  for (const each of judgements) {
    if (each.rule === rule && (rule !== '' || each.because === because)) break;
    index++;
  }
  const known = judgements[index];
  if (known === undefined) {
    if (index < RULES_MAX) judgements.push(judgement);
    return;
  }
  if (known === judgement) return;
  // A copy, because requests share classifications.
  const joined = { ...known, points: Math.max(known.points, judgement.points) };
  if (judgement.denied) joined.denied = true;
  if (judgement.verdict) joined.verdict = true;
  judgements[index] = joined;
}

/** `id`: from `classify`. A rule may match several variables. */
function addMatched(
  request: Pick<OpenRequest, 'matched' | 'secrets' | 'score'>,
  rule: Rule,
  id: string,
): void {
  const { matched, secrets } = request;
  if (rule.score !== undefined && !rule.ambiguous) request.score = Math.max(request.score ?? 0, rule.score);
  if (id === '' || matched.length === RULES_MAX) return;
  // IDs without a vendor's name are numbers.
  const added = matchedRule(rule, rule.named === undefined ? id : normalRule(id), secrets);
  for (const each of matched) if (each.id === added.id && each.variable === added.variable) return;
  matched.push(added);
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
