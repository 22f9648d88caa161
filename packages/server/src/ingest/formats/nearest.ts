/** For `explain`: which format an unknown line is nearest to, and what it lacks. */
import type { LogFormat } from './format.ts';
import { asObject, type JsonObject, parseJsonLine } from './json-line.ts';

/** What a line of a format has, in the order in which it is looked for. */
type Traits<T> = readonly (readonly [about: string, test: (value: T) => boolean])[];

/** Undefined when the line has nothing of any format. `wanted`: only this format is tried. */
export function nearestFormat(line: string, wanted: LogFormat | 'auto'): string | undefined {
  const [value] = /^[[{]/.test(line) ? parseJsonLine(line).values : [];
  const fields = asObject(value);
  // Enough for every trait, and bounds what an expression can cost.
  const start = line.slice(0, LOOKED_AT_LENGTH);
  const isJson = fields !== null && (wanted === 'auto' || wanted in JSON_TRAITS);
  return isJson ? nearest(JSON_TRAITS, fields, wanted) : nearest(TEXT_TRAITS, start, wanted);
}

const LOOKED_AT_LENGTH = 4_096;

function nearest<T>(
  formats: Partial<Record<LogFormat, Traits<T>>>,
  value: T,
  wanted: LogFormat | 'auto',
): string | undefined {
  let best: { text: string; share: number } | undefined;
  for (const [name, traits] of Object.entries(formats)) {
    if (wanted !== 'auto' && name !== wanted) continue;
    const missing = traits.filter(([, test]) => !test(value));
    const share = 1 - missing.length / traits.length;
    const [first] = missing;
    const isNearer = share > (best?.share ?? 0) || (wanted !== 'auto' && best === undefined);
    if (isNearer) best = { text: `${name} (no ${first?.[0] ?? 'valid date or time of day in it'})`, share };
  }
  return best?.text;
}

const COMMON_TIME = /\[\d{2}\/[A-Z][a-z]{2}\/\d{4}:\d{2}:\d{2}:\d{2} [+-]\d{4}\]/;

const TEXT_TRAITS: Partial<Record<LogFormat, Traits<string>>> = {
  access: [
    ['client in front of the time', (line) => /^[^\s[{]+ /.test(line)],
    ['time in [dd/Mon/yyyy:HH:MM:SS +zone] form', (line) => COMMON_TIME.test(line)],
    ['quoted request behind the time', (line) => /\] "/.test(line)],
  ],
  'nginx-proxy-manager': [
    ['time in [dd/Mon/yyyy:HH:MM:SS +zone] form at its start', (line) => line.search(COMMON_TIME) === 0],
    ['[Client address]', (line) => line.includes(' [Client ')],
    [
      'status, method, scheme and host before the quoted path',
      (line) => /\d{3} - [A-Z-]+ \S+ \S+ "/.test(line),
    ],
  ],
  'nginx-error': [
    [
      'time in yyyy/mm/dd HH:MM:SS form at its start',
      (line) => /^\d{4}\/\d{2}\/\d{2} \d{2}:\d{2}:\d{2} /.test(line),
    ],
    ['level like [error] behind the time', (line) => /^\S+ \S+ \[[a-z]+\] /.test(line)],
  ],
  'apache-error': [
    [
      'time like [Wed Jul 01 12:00:00.123456 2026] or [2026-07-01 12:00:00.123456] at its start',
      (line) => /^\[?(?:[A-Z][a-z]{2} [A-Z][a-z]{2} +\d|\d{4}-\d{2}-\d{2}[T ]\d)/.test(line),
    ],
    [
      'module and level like [security2:error]',
      (line) => /\[[a-z0-9_]*:?(?:emerg|alert|crit|error|warn|notice|info|debug)\] /.test(line),
    ],
    ['message of ModSecurity or Coraza', (line) => / (?:ModSecurity|Coraza): /.test(line)],
  ],
  caddy: [
    [
      'time in yyyy/mm/dd HH:MM:SS.mmm form at its start',
      (line) => /^\d{4}\/\d{2}\/\d{2} [\d:.]+/.test(line),
    ],
    ['tab between time, level and logger', (line) => line.includes('\t')],
  ],
  'modsecurity-native': [
    ['boundary like --622ca252-A--', (line) => /^--+[A-Za-z0-9]+-+[A-Z]--$/.test(line)],
    ['part A before it', () => false],
  ],
};

const has =
  (...names: string[]) =>
  (fields: JsonObject) =>
    names.some((name) => fields[name] !== undefined);
const transactionHas = (name: string) => (fields: JsonObject) =>
  asObject(fields.transaction)?.[name] !== undefined;

const JSON_TRAITS: Partial<Record<LogFormat, Traits<JsonObject>>> = {
  'access-json': [
    [
      'time: msec, time_iso8601, @timestamp, timestamp, ts, time_local or time',
      has('msec', 'time_iso8601', '@timestamp', 'timestamp', 'ts', 'time_local', 'time'),
    ],
    [
      'request: request, status, request_uri, request_method, method, response_code or upstream_addr',
      has('request', 'status', 'request_uri', 'request_method', 'method', 'response_code', 'upstream_addr'),
    ],
  ],
  'modsecurity3-json': [
    ['transaction object', has('transaction')],
    ['transaction.time_stamp', transactionHas('time_stamp')],
  ],
  'modsecurity2-json': [
    ['transaction object', has('transaction')],
    ['audit_data object', has('audit_data')],
    ['transaction.time', transactionHas('time')],
  ],
  'coraza-json': [
    ['transaction object', has('transaction')],
    ['messages array', has('messages')],
    ['transaction.unix_timestamp', transactionHas('unix_timestamp')],
  ],
  'aws-waf': [
    ['httpRequest object', has('httpRequest')],
    ['action', has('action')],
    ['webaclId', has('webaclId')],
  ],
  lts: [
    ['hostid', has('hostid')],
    ['category', has('category')],
    ['time: waf-time or attack-time', has('waf-time', 'attack-time')],
  ],
  caddy: [
    ['logger', has('logger')],
    ['level', has('level')],
    ['msg', has('msg')],
  ],
  events: [
    ['time', has('time')],
    ['field of the normal form beside the time', has('host', 'host_id', 'attack', 'count', 'request')],
  ],
};
