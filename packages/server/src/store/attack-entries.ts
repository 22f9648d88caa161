/** Attacks as they are kept: parsed fields, never the line. docs/events.md says what is kept, and for how long. */
import { createHash, hash } from 'node:crypto';
import type { AttackDetails, Category, Event, MatchedRule } from '../event.ts';
import { topKey } from './store.ts';

/** One entry of the list of attacks. A field that the log does not have is absent. */
export interface AttackEntry extends Omit<AttackDetails, 'id' | 'rule' | 'rules'> {
  /** The ID of the request in its log; '' if the log has none. In lists: see `entryId`. */
  id: string;
  /** Milliseconds since the epoch. */
  time: number;
  /** Null without a registered host. */
  hostId: string | null;
  category: Category;
  /** How many attacks without an ID are equal in all other fields. */
  count: number;
  /** The first one decided the category. */
  rules: readonly MatchedRule[];
}

/** Of an attack. `hostId`: null without a registered host. */
export function toEntry({ time, attack, count, details = {} }: Event, hostId: string | null): AttackEntry {
  if (attack === null) throw new Error('only attacks are kept');
  const { id = '', rule, rules = rule === undefined ? [] : [{ id: rule }] } = details;
  const entry: AttackEntry = {
    id: storableText(id),
    time,
    hostId,
    category: attack,
    count,
    rules: rules.map(storable),
  };
  // Field by field: copies of objects take several times as long.
  const { blocked, country, method, url, query, status, score, userAgent } = details;
  const source = topKey('sources', details);
  if (blocked !== undefined) entry.blocked = blocked;
  if (source !== undefined) entry.source = storableText(source);
  if (country !== undefined) entry.country = storableText(country);
  if (method !== undefined) entry.method = storableText(method);
  if (url !== undefined) entry.url = storableText(url);
  if (query !== undefined) entry.query = storableText(query);
  if (status !== undefined) entry.status = status;
  if (score !== undefined) entry.score = score;
  if (userAgent !== undefined) entry.userAgent = storableText(userAgent);
  return entry;
}

function storable<T extends object>(values: T): T {
  for (const name in values) {
    const value = values[name];
    // A copy only if needed, because this is done for every field of every attack.
    if (typeof value === 'string' && MAY_NOT_BE_STORABLE.test(value)) return withStorableTexts(values);
  }
  return values;
}

function withStorableTexts<T extends object>(values: T): T {
  const result = { ...values };
  for (const [name, value] of Object.entries(values)) {
    if (typeof value === 'string') Object.assign(result, { [name]: storableText(value) });
  }
  return result;
}

/** Blocks separate texts with U+0000, and UTF-8 has no lone surrogates. Formats do not pass them; other callers might. */
function storableText(text: string): string {
  return MAY_NOT_BE_STORABLE.test(text) ? text.replace(NOT_STORABLE, '\ufffd') : text;
}

const NOT_STORABLE = /[\0\p{Surrogate}]/gu;
/** Also finds pairs of surrogates. Much faster. */
const MAY_NOT_BE_STORABLE = /[\0\ud800-\udfff]/;

/** Everything but the count: attacks that are equal in this are one entry. */
export function entryKey(entry: AttackEntry): string {
  const { id, time, hostId, category, blocked, source, country, method } = entry;
  const { url, query, status, score, userAgent, rules } = entry;
  const request = [id, time, hostId, category, blocked, source, country, method];
  const values = rules.map((rule) => [rule.id, rule.variable, rule.value, rule.severity]);
  return JSON.stringify([...request, url, query, status, score, userAgent, values]);
}

/** What identifies the entry in the API: the ID of the request, or one of its time (`timeInId`) and a hash of what is kept. */
export function entryId(entry: AttackEntry): string {
  if (entry.id !== '') return entry.id;
  const hash = createHash('sha256').update(entryKey(entry)).digest('base64url');
  return `${entry.time.toString(36)}-${hash.slice(0, 16)}`;
}

/** Pages of a list are in this order, or in its reverse. Never 0 for two entries of a list. */
export function compareEntries(a: AttackEntry, b: AttackEntry): number {
  if (a.time !== b.time) return a.time - b.time;
  if (a.id !== b.id) return a.id < b.id ? -1 : 1;
  const [one, other] = [entryKey(a), entryKey(b)];
  return one < other ? -1 : one > other ? 1 : 0;
}

/**
 * Decides what an hour over the limit keeps: the entries with the smallest ranks. The project's ID is a key that attackers
 * do not know, so they cannot choose which entries stay. All that is kept is hashed, because clients may choose the ID of a
 * request: entries with the same rank would exceed the limit. At least 1, and less than 2^48.
 */
export function sampleRank(project: string, key: string): number {
  return Number.parseInt(hash('sha256', `${project}\0${key}`, 'hex').slice(0, 12), 16) || 1;
}
