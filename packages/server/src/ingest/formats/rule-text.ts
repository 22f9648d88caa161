/**
 * What ModSecurity and Coraza say of a matched rule:
 * `... [file ".."] [line ".."] [id ".."] [msg ".."] [data ".."] [severity ".."] [ver ".."] [tag ".."]* [hostname ".."]
 * [uri ".."] [unique_id ".."]`.
 */
import { RULE_ID_PATTERN, type Rule, scoresOf } from '../categories/classify.ts';

/** A shorter line was not cut: nginx cuts at 2,048 bytes, Apache at 8,192, syslog may do so at 1,024. */
export const CUT_BYTES_MIN = 1_000;

export interface RuleText {
  /** Its id is '' when the message was cut before it. */
  rule: Rule;
  /** '' when the text does not say it, or was cut before. */
  hostname: string;
  /** The path of the request. */
  uri: string;
  uniqueId: string;
}

type Found = RuleText & { rule: { tags: string[] } };

/**
 * What engines begin a message about a match with. They write other messages too: `Rule 7f4b [id "941160"][file ".."]
 * - Execution error - PCRE limits exceeded` is no match.
 */
const MATCH =
  /^(?:Message: )?(?:\[client [^\]]{0,64}\] )?(?:ModSecurity: |Coraza: )?(Warning|Access denied|Access )/;

/**
 * Null when the text tells of no match. Much of it is the client's to choose: the value that matched stands in front of
 * the fields, the path among them, and ModSecurity 3 escapes the quotes of neither. So the fields begin at the last
 * `[file` before the path, and the id of the request is the last one behind it. (A client can still forge which rule
 * its own attack matched, by sending all of the fields; `doubtful` keeps such an attack from disappearing, and a host
 * that may be forged is not taken. The JSON audit log of ModSecurity 3 is safe from that.)
 */
export function parseRuleText(text: string): RuleText | null {
  const outcome = MATCH.exec(text)?.[1];
  if (outcome === undefined) return null;
  const path = text.indexOf('"] [uri "');
  const end = path === -1 ? text.length : path + 2;
  const head = text.lastIndexOf(' [file "', end);
  const start = head === -1 ? text.indexOf(' [id "') : head;
  const found: Found = {
    rule: { id: '', severity: '', ver: '', file: '', tags: [] },
    hostname: '',
    uri: '',
    uniqueId: lastField(text, 'unique_id', end - 2),
  };
  for (let at = start; at !== -1 && at < end; ) {
    const name = fieldNameAt(text, at);
    if (name === null) break;
    const valueAt = at + name.length + 4;
    const valueEnd = fieldEnd(text, valueAt, end);
    if (valueEnd === -1) break;
    take(found, name, text.slice(valueAt, valueEnd));
    at = valueEnd + 2;
  }
  if (path !== -1) takeRequest(found, text, path);
  const isForged = path !== text.lastIndexOf('"] [uri "');
  if (isForged) found.hostname = '';
  if (outcome === 'Access denied') found.rule.denied = true;
  if (hasTwoIds(text)) found.rule.ambiguous = true;
  // All of the text, because a client can write a path of its own in front of the real fields.
  const isLong = Buffer.byteLength(text) >= DOUBTFUL_BYTES;
  if (found.rule.id === '' || isLong || isForged || found.rule.ambiguous) found.rule.doubtful = true;
  return found;
}

/** ModSecurity 2 cuts a message at 1,023 bytes, nginx a line at 2,048. Messages about set-up and scores are shorter. */
const DOUBTFUL_BYTES = 1_000;

/** More than one request ever has; a client that writes more gains nothing. */
const REQUEST_IDS_MAX = 4;
const REQUEST_ID_LENGTH_MAX = 128;

/** All that a message names as the id of its request, among them what a client wrote. */
export function requestIds(message: string): string[] {
  const ids = new Set<string>();
  const opening = '"] [unique_id "';
  for (let at = message.indexOf(opening); at !== -1; at = message.indexOf(opening, at + 1)) {
    const end = message.indexOf('"', at + opening.length);
    if (end === -1) break;
    ids.add(message.slice(at + opening.length, end).slice(0, REQUEST_ID_LENGTH_MAX));
  }
  // The real one stands behind those in an argument or a path.
  return [...ids].slice(-REQUEST_IDS_MAX);
}

function hasTwoIds(text: string): boolean {
  const first = text.indexOf(' [id "');
  return first !== -1 && text.indexOf(' [id "', first + 1) !== -1;
}

/** Host and path stand behind the fields of the rule, even when those were cut. */
function takeRequest(found: Found, text: string, path: number): void {
  if (found.hostname === '') {
    const opening = ' [hostname "';
    const at = text.lastIndexOf(opening, path);
    if (at !== -1) found.hostname = text.slice(at + opening.length, path);
  }
  const uriAt = path + '"] [uri "'.length;
  const last = text.lastIndexOf('"] [unique_id "');
  const uriEnd = last >= uriAt ? last : text.indexOf('"]', uriAt);
  found.uri = text.slice(uriAt, uriEnd === -1 ? text.length : uriEnd);
}

/** Rules may be kept until the rest of their request has come, so they are kept small. CRS stays far below. */
const TAGS_MAX = 16;
const VALUE_LENGTH_MAX = 128;

function take(found: Found, name: string, value: string): void {
  const { rule } = found;
  // The end of a path says more than its beginning.
  if (name === 'file') rule.file = value.slice(-VALUE_LENGTH_MAX);
  else if (name === 'id') rule.id = RULE_ID_PATTERN.test(value) ? value : '';
  else if (name === 'severity' || name === 'ver') rule[name] = value.slice(0, VALUE_LENGTH_MAX);
  else if (name === 'msg' && rule.id.startsWith('980')) Object.assign(rule, scoresOf(value));
  else if (name === 'tag' && rule.tags.length < TAGS_MAX) rule.tags.push(value.slice(0, VALUE_LENGTH_MAX));
  else if (name === 'hostname') found.hostname = value;
}

const NAME_LENGTH_MAX = 16;

/** The name of a field that begins here, as in ` [name "`. */
function fieldNameAt(text: string, at: number): string | null {
  if (!text.startsWith(' [', at)) return null;
  const quote = text.slice(at + 2, at + 4 + NAME_LENGTH_MAX).indexOf(' "');
  if (quote <= 0) return null;
  const name = text.slice(at + 2, at + 2 + quote);
  return /^[a-z_]+$/.test(name) ? name : null;
}

/** A field ends where another begins or the text ends. A quote inside it may be escaped once, twice, or as \x22. */
function fieldEnd(text: string, from: number, end: number): number {
  for (let at = text.indexOf('"]', from); at !== -1 && at < end; at = text.indexOf('"]', at + 1)) {
    if (at + 2 >= end || fieldNameAt(text, at + 2) !== null) return at;
  }
  return -1;
}

function lastField(text: string, name: string, from: number): string {
  const opening = `"] [${name} "`;
  const at = text.lastIndexOf(opening);
  if (at < from) return '';
  const valueAt = at + opening.length;
  const end = text.indexOf('"]', valueAt);
  return end === -1 ? '' : text.slice(valueAt, end);
}
