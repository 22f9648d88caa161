/** The log of Caddy: lines of Coraza about matched rules. (Caddy's access log is `access-json`.) */
import { attackDetails } from '../../event.ts';
import { anyOf, type Context, dropped, type JsonFormat, type Reading, type TextFormat } from './format.ts';
import { asText, type JsonObject } from './json-line.ts';
import { parseAnyTime, parseLocalTime } from './log-time.ts';
import { clientOf, isRuleMessage } from './nginx-error.ts';
import { parseRuleText } from './rule-text.ts';

const SLASH = 0x2f;
const about = 'log of Caddy: rules of Coraza';

/** `{"level":"error","ts":1668790188.22,"logger":"http.handlers.waf","msg":"[client ..] Coraza: Warning. .."}` */
export const caddyJson: JsonFormat = {
  name: 'caddy',
  about,
  traits: [
    anyOf('logger', ['logger']),
    anyOf('level', ['level']),
    anyOf('msg', ['msg']),
    anyOf('ts', ['ts']),
  ],
  recognizes: ({ logger, level, msg, request }) =>
    typeof logger === 'string' &&
    typeof level === 'string' &&
    typeof msg === 'string' &&
    request === undefined,
  parse: parseCaddyJson,
};

/** The same as on a terminal: `2025/12/10 09:25:32.123	ERROR	http.handlers.waf	[client ..] Coraza: ..` */
export const caddyText: TextFormat = {
  name: 'caddy',
  about,
  traits: [
    [
      'time in yyyy/mm/dd HH:MM:SS.mmm form at its start',
      (line) => /^\d{4}\/\d{2}\/\d{2} [\d:.]+/.test(line),
    ],
    ['tab between time, level and logger', (line) => line.includes('\t')],
    ['level like ERROR behind the time', (line) => /^\S+ \S+\s+[A-Z]+\s/.test(line)],
  ],
  recognizes: (line) => line.charCodeAt(4) === SLASH && /^\d{4}\/\d{2}\/\d{2} [\d:.]{8,18}\t/.test(line),
  parse: parseCaddyText,
};

function parseCaddyJson(fields: JsonObject, { zone }: Context): Reading {
  const message = asText(fields.msg);
  if (!isRuleMessage(message)) return dropped('other_log_line');
  const time = parseAnyTime(fields.ts, zone);
  return time === null ? dropped('bad_time') : hit(message, time);
}

function parseCaddyText(line: string, { zone }: Context): Reading {
  const [moment = '', level = '', logger = ''] = line.split('\t', 3);
  const time = parseLocalTime(moment, zone);
  if (time === null) return dropped('unknown_format');
  const message = line.slice(moment.length + level.length + logger.length + 3);
  return isRuleMessage(message) ? hit(message, time) : dropped('other_log_line');
}

/** Coraza puts a line for each value that matched in one message: the rule is the same. */
function hit(message: string, time: number): Reading {
  const lineEnd = message.indexOf('\n');
  const found = parseRuleText(lineEnd === -1 ? message : message.slice(0, lineEnd));
  if (found === null) return dropped('other_log_line');
  const { rule, uniqueId, hostname, uri } = found;
  if (uniqueId === '') return dropped('bad_record');
  const host = hostname || undefined;
  const details = attackDetails({ blocked: rule.denied === true, source: clientOf(message), url: uri });
  return {
    kind: 'hit',
    hit: { id: uniqueId, time, host, rules: [rule], details, written: time, connection: '' },
  };
}
