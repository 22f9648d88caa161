/** Matched rules: from the messages of ModSecurity and Coraza, and from the rule IDs and names of other firewalls. */
import { matchedValue, TEXT_BYTES_MAX } from '../../attack-details.ts';
import type { Category } from '../../event.ts';
import { isSecretName, MASK } from '../../secrets.ts';
import { addScores, RULE_ID_PATTERN, type Rule } from '../categories/classify.ts';

/** A shorter line was not cut: nginx cuts at 2,048 bytes, Apache at 8,192, syslog possibly at 1,024. */
export const CUT_BYTES_MIN = 1_000;

export interface RuleText {
  /** Its ID is '' if the message was cut before it. */
  rule: Rule;
  /** '' if the text has none, or was cut before it. */
  hostname: string;
  /** The path of the request. */
  uri: string;
  uniqueId: string;
  /** The response code of a denial. */
  status: string | undefined;
}

type Found = RuleText & { rule: { tags: string[] } };

/** nginx cuts a line at 2,048 bytes, Apache at 8,192. The limit bounds the time of a megabyte of fields. */
const MESSAGE_LENGTH_MAX = 65_536;

/** Without the middle of a message beyond the limit: it begins with the outcome, and ends with the request. */
export function messageAfter(line: string, at: number): string {
  const message = line.slice(at);
  const half = MESSAGE_LENGTH_MAX / 2;
  return message.length <= MESSAGE_LENGTH_MAX ? message : message.slice(0, half) + message.slice(-half);
}

/** `ModSecurity: Warning. ..`, possibly after `[client ..] `. */
export function isRuleMessage(message: string): boolean {
  const at = message.startsWith('[client ') ? message.indexOf('] ') + 2 : 0;
  return message.startsWith('ModSecurity: ', at) || message.startsWith('Coraza: ', at);
}

/** The client in `[client 127.0.0.1] ModSecurity: ..`; Coraza writes `[client "127.0.0.1"]`. */
export function clientOf(message: string): string | undefined {
  return /^\[client "?([^"\]]{1,64})/.exec(message)?.[1];
}

/**
 * How messages about a match begin. Engines write others too: `Rule 7f4b [id "941160"][file ".."] - Execution error -
 * PCRE limits exceeded` is not about a match.
 */
const MATCH =
  /^(?:Message: )?(?:\[client [^\]]{0,64}\] )?(?:ModSecurity: |Coraza: )?(Warning|Access denied|Access )(?: with code (\d{3}))?/;

/** ModSecurity 2 cuts a message at 1,023 bytes, nginx a line at 2,048. Messages about set-up and scores are shorter. */
const DOUBTFUL_BYTES = 1_000;

/**
 * Parses `... [file ".."] [line ".."] [id ".."] [msg ".."] [data ".."] [severity ".."] [ver ".."] [tag ".."]*
 * [hostname ".."] [uri ".."] [unique_id ".."]`. Null if the message is not about a match.
 *
 * The client controls much of the text: the matched value precedes the fields, the path is among them, and ModSecurity 3
 * escapes quotes in neither. So the fields begin at the last `[file` before the path, and the request ID is the last one
 * after it. (A client that sends all fields can still forge which rule its own attack matched: `doubtful` keeps the
 * attack in the count, and a possibly forged host is ignored. ModSecurity 3's JSON audit log cannot be forged.)
 */
export function parseRuleText(text: string): RuleText | null {
  const begin = MATCH.exec(text);
  if (begin === null) return null;
  const [prefix, outcome = '', status] = begin;
  const path = text.indexOf('"] [uri "');
  const end = path === -1 ? text.length : path + 2;
  const lastFile = text.lastIndexOf(' [file "', end);
  const start = lastFile === -1 ? text.indexOf(' [id "') : lastFile;
  const found: Found = {
    rule: { id: '', severity: '', ver: '', file: '', tags: [] },
    hostname: '',
    uri: '',
    uniqueId: uniqueIdAfter(text, end - 2),
    status,
  };
  let data = '';
  for (let at = start; at !== -1 && at < end; ) {
    const name = fieldNameAt(text, at);
    if (name === null) break;
    const valueAt = at + name.length + 4;
    const valueEnd = fieldEnd(text, valueAt, end);
    if (valueEnd === -1) break;
    if (name === 'data') data = text.slice(valueAt, valueEnd);
    else setField(found, name, text.slice(valueAt, valueEnd));
    at = valueEnd + 2;
  }
  if (start !== -1) setMatchedPart(found.rule, text.slice(prefix.length, start), data);
  if (path !== -1) setRequest(found, text, path);
  const isForged = path !== text.lastIndexOf('"] [uri "');
  if (isForged) found.hostname = '';
  if (outcome === 'Access denied') found.rule.denied = true;
  const id = text.indexOf(' [id "');
  if (id !== text.lastIndexOf(' [id "')) found.rule.ambiguous = true;
  // The whole text: a client can write a path of its own before the real fields.
  const isLong = Buffer.byteLength(text) >= DOUBTFUL_BYTES;
  if (found.rule.id === '' || isLong || isForged || found.rule.ambiguous) found.rule.doubtful = true;
  return found;
}

const MATCHED_DATA = 'Matched Data: ';
const FOUND = ' found within ';
const AGAINST = 'against variable `';
const AGAINST_VALUE = "' (Value: `";
const VARIABLE = /^[A-Z][A-Z_]+(?:[:=]|$)/;
/** What Azure writes in brackets: collection, name and value. Other variables have no name. */
const IN_BRACKETS = /^\[((?:ARGS|REQUEST_(?:COOKIES|HEADERS))\w*:[^:\]]*|[A-Z][A-Z_]+):?(.*?)\](?:\}|,\[|$)/s;
/** The end of a text of ModSecurity 2: `.. at ARGS:q.`, `.. in ARGS:q outside range: 1-255.`, `.. against "ARGS:q" required.` */
const AT_VARIABLE =
  / (?:against|at|in) "?([A-Z][A-Z_]+(?::.*?)?)"?(?: outside range: [\d,-]+| required)?\.?$/s;

/**
 * Adds what matched, from the `data` of a rule: `Matched Data: a found within ARGS:q: abc` (Azure: `{a found within [ARGS:q:abc]}`)
 * or `ARGS:q=abc`; and from the text before it: ".. against variable `ARGS:q' (Value: `abc' )".
 */
export function setMatchedPart(rule: Rule, text: string, data: string): void {
  const found = data.indexOf(FOUND);
  const rest = found === -1 ? '' : data.slice(found + FOUND.length);
  if (VARIABLE.test(rest)) {
    const part = data.slice(data.startsWith(MATCHED_DATA) ? MATCHED_DATA.length : 0, found);
    const end = rest.indexOf(': ');
    const value = end === -1 ? '' : rest.slice(end + 2);
    setMatched(rule, end === -1 ? rest : rest.slice(0, end), matchedValue(value, part));
  } else if (rest.startsWith('[')) {
    const [, variable = '', value = ''] = IN_BRACKETS.exec(rest) ?? [];
    setMatched(rule, variable, matchedValue(value, data.slice(data.startsWith('{') ? 1 : 0, found)));
  } else if (VARIABLE.test(data) && data.includes('=')) {
    const equals = data.indexOf('=');
    setMatched(rule, data.slice(0, equals), data.slice(equals + 1));
  } else setMatchedAgainst(rule, text, data);
}

function setMatchedAgainst(rule: Rule, text: string, data: string): void {
  const at = text.indexOf(AGAINST);
  const end = at === -1 ? -1 : text.indexOf(AGAINST_VALUE, at);
  if (end === -1) {
    // The variable is at the end, which bounds the search.
    const variable = AT_VARIABLE.exec(text.slice(-2 * TEXT_BYTES_MAX).trimEnd())?.[1];
    setMatched(rule, variable ?? '', data);
    return;
  }
  const value = text.slice(end + AGAINST_VALUE.length).trimEnd();
  const whole = value.endsWith("' )") ? value.slice(0, -3) : value;
  setMatched(rule, text.slice(at + AGAINST.length, end), data || whole);
}

/**
 * Rules may be kept until their request is complete, so they are small. Secrets are masked later, in what is left, by the
 * name of the variable: without it, any value may be a secret.
 */
function setMatched(rule: Rule, variable: string, value: string): void {
  if (variable === '') return;
  const isCutSecret = variable.length > TEXT_BYTES_MAX && isSecretName(variable);
  rule.variable = variable.slice(0, TEXT_BYTES_MAX);
  if (value !== '') rule.value = isCutSecret ? MASK : value.slice(0, 2 * TEXT_BYTES_MAX);
}

/** Precedes the ID of the request. */
export const UNIQUE_ID = '"] [unique_id "';

/** More IDs than a request ever has; a client gains nothing by writing more. */
const REQUEST_IDS_MAX = 4;
const REQUEST_ID_LENGTH_MAX = 128;

/** Everything in a message that looks like a request ID, including what a client wrote. */
export function requestIds(message: string): string[] {
  const ids = new Set<string>();
  for (let at = message.indexOf(UNIQUE_ID); at !== -1; at = message.indexOf(UNIQUE_ID, at + 1)) {
    const end = message.indexOf('"', at + UNIQUE_ID.length);
    if (end === -1) break;
    ids.add(message.slice(at + UNIQUE_ID.length, end).slice(0, REQUEST_ID_LENGTH_MAX));
  }
  // The real one follows those in an argument or a path.
  return [...ids].slice(-REQUEST_IDS_MAX);
}

/** The last ID of the text; '' if it is before `from`. */
function uniqueIdAfter(text: string, from: number): string {
  const at = text.lastIndexOf(UNIQUE_ID);
  if (at < from) return '';
  const end = text.indexOf('"]', at + UNIQUE_ID.length);
  return end === -1 ? '' : text.slice(at + UNIQUE_ID.length, end);
}

/** Host and path follow the fields of the rule, even if those were cut. */
function setRequest(found: Found, text: string, path: number): void {
  found.hostname ||= hostnameBefore(text, path);
  const uriAt = path + '"] [uri "'.length;
  const last = text.lastIndexOf(UNIQUE_ID);
  const uriEnd = last >= uriAt ? last : text.indexOf('"]', uriAt);
  found.uri = text.slice(uriAt, uriEnd === -1 ? text.length : uriEnd);
}

/** The host before a path; '' if there is none. */
export function hostnameBefore(text: string, path: number): string {
  const opening = ' [hostname "';
  const at = path === -1 ? -1 : text.lastIndexOf(opening, path);
  return at === -1 ? '' : text.slice(at + opening.length, path);
}

/** Rules may be kept until their request is complete, so they are small. CRS stays far below these. */
const TAGS_MAX = 16;
const VALUE_LENGTH_MAX = 128;

function setField(found: Found, name: string, value: string): void {
  const { rule } = found;
  // The end of a path says more than its beginning.
  if (name === 'file') rule.file = value.slice(-VALUE_LENGTH_MAX);
  else if (name === 'id') rule.id = RULE_ID_PATTERN.test(value) ? value : '';
  else if (name === 'severity' || name === 'ver') rule[name] = value.slice(0, VALUE_LENGTH_MAX);
  else if (name === 'msg') addScores(rule, value);
  else if (name === 'tag' && rule.tags.length < TAGS_MAX) rule.tags.push(value.slice(0, VALUE_LENGTH_MAX));
  else if (name === 'hostname') found.hostname = value;
}

const FIELD_NAME_LENGTH_MAX = 16;

/** The name of a field that begins here, as in ` [name "`. */
function fieldNameAt(text: string, at: number): string | null {
  if (!text.startsWith(' [', at)) return null;
  const quote = text.slice(at + 2, at + 4 + FIELD_NAME_LENGTH_MAX).indexOf(' "');
  if (quote <= 0) return null;
  const name = text.slice(at + 2, at + 2 + quote);
  return /^[a-z_]+$/.test(name) ? name : null;
}

/** A field ends where another begins or the text ends. Quotes inside may be escaped once, twice, or as \x22. */
function fieldEnd(text: string, from: number, end: number): number {
  for (let at = text.indexOf('"]', from); at !== -1 && at < end; at = text.indexOf('"]', at + 1)) {
    if (at + 2 >= end || fieldNameAt(text, at + 2) !== null) return at;
  }
  return -1;
}

/** The number of a CRS rule, including verdicts. */
export function isCrsId(id: string): boolean {
  return /^9\d{5}$/.test(id);
}

/** A CRS rule that a vendor offers under its number. */
export function crsRule(id: string, file = ''): Rule {
  return { id, severity: '', ver: 'OWASP_CRS/3', file, tags: [] };
}

/** A rule whose category follows from the vendor's names. */
export function namedRule(id: string, category: Category, because: string): Rule {
  return {
    ...crsRule(id.slice(0, VALUE_LENGTH_MAX)),
    ver: '',
    named: { category, because: because.slice(0, VALUE_LENGTH_MAX) },
  };
}
