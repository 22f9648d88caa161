/** The error log of nginx: lines of ModSecurity or Coraza about matched rules, and requests that limit_req refused. */
import { type Context, dropped, type Reading, type TextFormat } from './format.ts';
import { parseLocalTime } from './log-time.ts';
import { timeOfId } from './modsecurity-id.ts';
import { parseRuleText } from './rule-text.ts';

export const nginxError: TextFormat = {
  name: 'nginx-error',
  about: 'error log of nginx: rules of ModSecurity or Coraza, and `limiting requests`',
  recognizes: (line) => line.charCodeAt(4) === SLASH && line.charCodeAt(7) === SLASH,
  parse: parseNginxError,
};

const SLASH = 0x2f;
/** `2025/12/10 09:25:32` */
const TIME_LENGTH = 19;
/** nginx cuts messages at 2,048 bytes, and what it would say of the request behind them. */
const CUT_LENGTH = 2_000;

/** `2025/12/10 09:25:32 [error] 34#34: *8 message, client: .., server: .., request: "..", host: ".."` */
function parseNginxError(line: string, { zone }: Context): Reading {
  const local = parseLocalTime(line.slice(0, TIME_LENGTH), zone);
  if (local === null || !line.startsWith(' [', TIME_LENGTH)) return dropped('unknown_format');
  const process = line.indexOf('] ', TIME_LENGTH) + 2;
  const star = line.indexOf(': *', process);
  const space = line.indexOf(' ', star + 3);
  if (process < 2 || star === -1 || space === -1) return dropped('other_log_line');
  const message = line.slice(space + 1);
  if (message.startsWith('limiting requests, ')) return limited(message, local);
  if (!isRuleMessage(message)) return dropped('other_log_line');
  return hit(message, line.slice(process, space), local);
}

/** `ModSecurity: Warning. ..`, or with the client in front. */
export function isRuleMessage(message: string): boolean {
  const at = message.startsWith('[client ') ? message.indexOf('] ') + 2 : 0;
  return message.startsWith('ModSecurity: ', at) || message.startsWith('Coraza: ', at);
}

function limited(message: string, time: number): Reading {
  const evidence = [
    { rule: 'limit_req', points: 0, category: 'cc', because: 'nginx refused the request' },
  ] as const;
  const host = hostOf(message, 0);
  return {
    kind: 'record',
    record: { time, host, hostId: undefined, request: false, attack: 'cc', count: 1, evidence },
  };
}

function hit(message: string, connection: string, local: number): Reading {
  const suffix = message.indexOf('"], client: ');
  const found = parseRuleText(suffix === -1 ? message : message.slice(0, suffix + 2));
  if (found === null) return dropped('other_log_line');
  const { rule, uniqueId, hostname } = found;
  // A short line without an id is half a line: the rest of it may follow.
  if (uniqueId === '' && suffix === -1 && message.length < CUT_LENGTH) return dropped('bad_record');
  const time = timeOfId(uniqueId) ?? local;
  const host = hostOf(message, Math.max(suffix, 0)) ?? (hostname || undefined);
  return { kind: 'hit', hit: { id: uniqueId, time, host, rules: [rule], written: local, connection } };
}

function hostOf(message: string, from: number): string | undefined {
  const opening = ', host: "';
  const at = message.indexOf(opening, from);
  const end = message.indexOf('"', at + opening.length);
  return at === -1 || end === -1 ? undefined : message.slice(at + opening.length, end);
}
