/** Access logs as JSON, with the names that people give the variables of nginx, Apache and Caddy, and those of ECS. */
import { request } from './access.ts';
import { anyOf, type Context, dropped, type JsonFormat, type Reading } from './format.ts';
import { asObject, asText, type JsonObject } from './json-line.ts';
import { type LocalZone, parseAnyTime } from './log-time.ts';

/** The first that is there counts; the most exact come first. */
const TIMES = [
  'msec',
  'time_iso8601',
  '@timestamp',
  'StartUTC',
  'start_time',
  'timestamp',
  'ts',
  'time_local',
  'time',
];
const HOSTS = [
  'host',
  'http_host',
  'server_name',
  'vhost',
  'authority',
  ':authority',
  'RequestHost',
  'domain',
];
const MARKS = [
  'status',
  'request_uri',
  'request_method',
  'method',
  'response_code',
  'upstream_addr',
  'DownstreamStatus',
  'RequestMethod',
  'http.request.method',
  'http.response.status_code',
];

export const accessJson: JsonFormat = {
  name: 'access-json',
  about: 'access log of nginx, Apache or Caddy as JSON, with the usual names of fields',
  traits: [
    anyOf('time', TIMES),
    [
      `request: request, ${MARKS.join(', ')} or http`,
      (fields) => fields.request !== undefined || MARKS.some((name) => name in fields) || isEcs(fields),
    ],
    anyOf('host', HOSTS),
  ],
  recognizes: isAccess,
  parse: parseAccessJson,
};

function isAccess(fields: JsonObject): boolean {
  // An event of the normal form may carry any further field.
  if (typeof fields.request === 'boolean' || 'attack' in fields || 'host_id' in fields) return false;
  const isMarked =
    typeof fields.request === 'string' || MARKS.some((name) => name in fields) || isEcs(fields);
  return isMarked && TIMES.some((name) => name in fields);
}

function parseAccessJson(fields: JsonObject, { zone }: Context): Reading {
  const time = firstTime(fields, TIMES, zone);
  return time === null ? dropped('bad_time') : { kind: 'record', record: request(time, hostOf(fields)) };
}

/** In the Elastic Common Schema `host` is the machine that wrote the log, so `url.domain` comes first. */
function hostOf(fields: JsonObject): string | undefined {
  return (
    firstText(fields, ['url.domain']) ??
    firstText(asObject(fields.url) ?? {}, ['domain']) ??
    firstText(fields, HOSTS) ??
    caddyHost(fields)
  );
}

/** `{"http": {"request": {"method": ..}, "response": {"status_code": ..}}}` */
function isEcs(fields: JsonObject): boolean {
  const http = asObject(fields.http);
  return http !== null && (asObject(http.request) !== null || asObject(http.response) !== null);
}

/** Of several names for the same thing, the first that says something. */
export function firstText(fields: JsonObject, names: readonly string[]): string | undefined {
  for (const name of names) {
    const value = fields[name];
    if (typeof value === 'string' && value !== '' && value !== '-') return value;
  }
  return undefined;
}

/** Of several names for the time, the first that says something. */
export function firstTime(fields: JsonObject, names: readonly string[], zone: LocalZone): number | null {
  const name = names.find((each) => asText(fields[each]) !== '');
  return name === undefined ? null : parseAnyTime(fields[name], zone);
}

function caddyHost(fields: JsonObject): string | undefined {
  const of = asObject(fields.request);
  return of === null ? undefined : firstText(of, ['host']);
}
