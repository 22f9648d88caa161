/** Log of Caddy: rules matched by Coraza. (Caddy's access log is `access-json`.) */
import { attackDetails } from '../attack-details.ts';
import {
  type Context,
  dropped,
  field,
  type JsonFormat,
  type Reading,
  ruleMatch,
  type TextFormat,
} from './format.ts';
import { asText, type JsonObject } from './json.ts';
import { clientOf, isRuleMessage, parseRuleText } from './rules.ts';
import { parseAnyTime, parseLocalTime } from './timestamps.ts';

/** `{"level":"error","ts":1668790188.22,"logger":"http.handlers.waf","msg":"[client ..] Coraza: Warning. .."}` */
export const caddyJson: JsonFormat = {
  name: 'caddy',
  traits: [field('logger'), field('level'), field('msg'), field('ts')],
  recognizes: ({ logger, level, msg, request }) =>
    typeof logger === 'string' &&
    typeof level === 'string' &&
    typeof msg === 'string' &&
    request === undefined,
  parse: parseCaddyJson,
};

/** On a terminal: `2025/12/10 09:25:32.123	ERROR	http.handlers.waf	[client ..] Coraza: ..` */
export const caddyText: TextFormat = {
  name: 'caddy',
  traits: [
    [
      'time in yyyy/mm/dd HH:MM:SS.mmm form at its start',
      (line) => /^\d{4}\/\d{2}\/\d{2} [\d:.]+/.test(line),
    ],
    ['tab between time, level and logger', (line) => line.includes('\t')],
    ['level like ERROR after the time', (line) => /^\S+ \S+\s+[A-Z]+\s/.test(line)],
  ],
  recognizes: (line) => line.startsWith('/', 4) && /^\d{4}\/\d{2}\/\d{2} [\d:.]{8,18}\t/.test(line),
  parse: parseCaddyText,
};

function parseCaddyJson(fields: JsonObject, { zone }: Context): Reading {
  const message = asText(fields.msg);
  if (!isRuleMessage(message)) return dropped('other_log_line');
  const time = parseAnyTime(fields.ts, zone);
  return time === null ? dropped('bad_time') : matchOf(message, time);
}

function parseCaddyText(line: string, { zone }: Context): Reading {
  const [timeText = '', level = '', logger = ''] = line.split('\t', 3);
  const time = parseLocalTime(timeText, zone);
  if (time === null) return dropped('unknown_format');
  const message = line.slice(timeText.length + level.length + logger.length + 3);
  return isRuleMessage(message) ? matchOf(message, time) : dropped('other_log_line');
}

function matchOf(message: string, time: number): Reading {
  // A message has a line for each value that matched; the rule is the same.
  const lineEnd = message.indexOf('\n');
  const found = parseRuleText(lineEnd === -1 ? message : message.slice(0, lineEnd));
  if (found === null) return dropped('other_log_line');
  const { rule, uniqueId, hostname, uri } = found;
  if (uniqueId === '') return dropped('bad_record');
  const details = attackDetails({ blocked: rule.denied === true, source: clientOf(message), url: uri });
  return ruleMatch({ id: uniqueId, time, host: hostname || undefined, rules: [rule], details });
}
