/** The error log of Apache: lines of ModSecurity or Coraza about matched rules. */
import { attackDetails } from '../attack-details.ts';
import { type Context, dropped, type Reading, type TextFormat } from './format.ts';
import { parseAsctime } from './log-time.ts';
import { clientOf, isRuleMessage } from './nginx-error.ts';
import { parseRuleText } from './rule-text.ts';

export const apacheError: TextFormat = {
  name: 'apache-error',
  about: 'error log of Apache: rules of ModSecurity or Coraza',
  recognizes: (line) => line.startsWith('[') && line.charCodeAt(4) === SPACE,
  parse: parseApacheError,
};

const SPACE = 0x20;

/** `[Sun Feb 21 22:27:04.221889 2021] [security2:error] [pid 16:tid 14] [client ..] [client ..] ModSecurity: ..` */
function parseApacheError(line: string, { zone }: Context): Reading {
  const timeEnd = line.slice(0, TIME_LENGTH_MAX).indexOf('] ');
  const time = parseAsctime(line.slice(1, Math.max(timeEnd, 1)), zone);
  if (time === null) return dropped('unknown_format');
  const messageStart = messageAt(line, timeEnd + 2);
  const message = line.slice(messageStart);
  if (!isRuleMessage(message)) return dropped('other_log_line');
  const found = parseRuleText(message.slice(0, textEnd(message)));
  if (found === null) return dropped('other_log_line');
  const { rule, uniqueId, hostname, uri } = found;
  // Apache cuts a line at 8,192 bytes, behind a long path. A short line without an id is half a line.
  if (uniqueId === '' && Buffer.byteLength(line) < CUT_BYTES_MIN) return dropped('bad_record');
  const host = hostname || undefined;
  const process = line.slice(timeEnd + 2, messageStart);
  const source = clientOf(process.slice(Math.max(process.indexOf('[client '), 0)));
  const details = attackDetails({ blocked: rule.denied === true, source, url: uri });
  return {
    kind: 'hit',
    hit: { id: uniqueId, time, host, rules: [rule], details, written: time, connection: process },
  };
}

/** Apache cuts at 8,192 bytes, syslog may do so at 1,024. */
const CUT_BYTES_MIN = 1_000;

/** `[Sun Feb 21 22:27:04.221889 2021] ` */
const TIME_LENGTH_MAX = 40;

/** Behind everything in brackets. */
function messageAt(line: string, from: number): number {
  let at = from;
  while (line.startsWith('[', at)) {
    const end = line.indexOf('] ', at);
    if (end === -1) break;
    at = end + 2;
  }
  return at;
}

/** Apache adds where the client said it came from. A quote that the client sent has a backslash in front. */
function textEnd(message: string): number {
  const suffix = '"], referer: ';
  let at = message.indexOf(suffix);
  while (at !== -1 && message[at - 1] === '\\') at = message.indexOf(suffix, at + 1);
  return at === -1 ? message.length : at + 2;
}
