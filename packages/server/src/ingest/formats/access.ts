/** Access logs of nginx and Apache: common, combined, with the virtual host in front; and as JSON. */
import {
  COMMON_TIME,
  dropped,
  field,
  type JsonFormat,
  parseRequestLine,
  type RawResponse,
  REQUEST_LENGTH_MAX,
  requestReading,
  type TextFormat,
} from './format.ts';
import { asObject, asText, closingQuote, firstText, firstTime, firstValue, type JsonObject } from './json.ts';
import { COMMON_TIME_LENGTH } from './timestamps.ts';

export const access: TextFormat = {
  name: 'access',
  traits: [
    ['client before the time', (line) => /^(?:"[^"]*"|[^\s[{]+) /.test(line)],
    ['time in [dd/Mon/yyyy:HH:MM:SS +zone] form', (line) => COMMON_TIME.test(line)],
    ['quoted request after the time', (line) => /\] "/.test(line)],
  ],
  recognizes: () => true,
  /**
   * `["x-forwarded-for" ][host[:port] ]client ident user [time] "request" status bytes ...`. Needs nothing after the opening
   * quote of the request: a line that syslog cut is still a request.
   */
  parse(wholeLine, { commonTime }) {
    const line = wholeLine.slice(0, HEAD_LENGTH_MAX);
    const start = line.startsWith('"') ? quotedEnd(line) : 0;
    if (start === -1) return UNKNOWN;
    const client = line.indexOf(' ', start);
    let reading = UNKNOWN;
    for (let at = line.indexOf('[', start); at !== -1; at = line.indexOf('[', at + 1)) {
      // The client chooses the user name, which may contain a time, but no quote can follow it.
      if (!line.startsWith('] "', at + 1 + COMMON_TIME_LENGTH)) continue;
      const time = commonTime.parseAt(line, at + 1);
      if (time !== null)
        return client < at - 1
          ? requestReading(
              time,
              virtualHost(line, start, client, at),
              responseOf(wholeLine, at + COMMON_TIME_LENGTH + 4),
            )
          : UNKNOWN;
      // Second 60, or 30 February.
      if (client < at - 1 && COMMON_TIME.test(line.slice(at, at + COMMON_TIME_LENGTH + 2)))
        reading = BAD_TIME;
    }
    return reading;
  },
};

/** `start`: after the opening quote of the request. */
function responseOf(line: string, start: number): RawResponse | undefined {
  const end = closingQuote(line, start);
  if (end === -1) return undefined;
  const found = RESPONSE.exec(line.slice(end + 1, end + RESPONSE_LENGTH));
  if (found === null) return undefined;
  const [, status, bytesOut] = found;
  return { status, bytesOut, url: requestUrl(line.slice(start, end)) };
}

/** A code, which may be none, and what was sent, up to a space or the end of the line. */
const RESPONSE = /^ (\d{3}|-)(?![^\0- ])(?: (\d{1,13})(?![^\0- ]))?/;
const RESPONSE_LENGTH = 24;

/** The URL in a request line. */
export function requestUrl(request: string): string | undefined {
  return parseRequestLine(request.slice(0, REQUEST_LENGTH_MAX)).url;
}

/**
 * The request begins before this: servers accept headers of 8 KiB by default, and a line has at most two before it. Without
 * a limit, a megabyte of brackets could take half a minute, because V8 may move the search for a space into the loop.
 */
export const HEAD_LENGTH_MAX = 20_480;

/** Where the line continues after a header in quotes, whose content the client chooses; -1 if nothing follows it. */
function quotedEnd(line: string): number {
  const end = closingQuote(line, 1);
  return end !== -1 && line.charCodeAt(end + 1) === SPACE ? end + 2 : -1;
}

const DASH = 0x2d;
const SPACE = 0x20;
const COMMA = 0x2c;
const UNKNOWN = dropped('unknown_format');
const BAD_TIME = dropped('bad_time');

/**
 * The second field is nearly always `-`, because identd is unused. If a `-` follows the second field instead, and
 * another field follows that, the line begins with the virtual host. The client may be a list from X-Forwarded-For:
 * `a, b - - [` names no host, `host a, b - - [` does.
 */
function virtualHost(line: string, start: number, firstSpace: number, timeAt: number): string | undefined {
  if (line.charCodeAt(firstSpace - 1) === COMMA || isDash(line, firstSpace + 1)) return undefined;
  let clientEnd = line.indexOf(' ', firstSpace + 1);
  while (line.charCodeAt(clientEnd - 1) === COMMA && clientEnd < timeAt) {
    clientEnd = line.indexOf(' ', clientEnd + 1);
  }
  const isHost = isDash(line, clientEnd + 1) && clientEnd + 3 < timeAt;
  return isHost ? line.slice(start, firstSpace) : undefined;
}

function isDash(line: string, at: number): boolean {
  return line.charCodeAt(at) === DASH && line.charCodeAt(at + 1) === SPACE;
}

/** Names that people give to the variables of nginx, Apache and Caddy, and those of ECS. The most exact come first. */
const TIMES = 'msec time_iso8601 @timestamp StartUTC start_time timestamp ts time_local time'.split(' ');
const HOSTS = 'host http_host server_name vhost authority :authority RequestHost domain'.split(' ');
/** `status` comes first: wafstat's own events may have it, too. */
const REQUEST_FIELDS = (
  'status request_uri request_method method response_code upstream_addr DownstreamStatus RequestMethod ' +
  'http.request.method http.response.status_code'
).split(' ');
const FOREIGN_FIELDS = REQUEST_FIELDS.slice(1);

export const accessJson: JsonFormat = {
  name: 'access-json',
  traits: [
    field('time', TIMES),
    [
      `request: request, ${REQUEST_FIELDS.join(', ')} or http`,
      (fields) => fields.request !== undefined || hasRequestField(fields),
    ],
    field('host', HOSTS),
  ],
  recognizes: (fields) => {
    // wafstat's own events may have any additional field.
    if (typeof fields.request === 'boolean' || 'attack' in fields || 'host_id' in fields) return false;
    const mayBeOwn = typeof fields.count === 'number' && 'time' in fields;
    const isRequest =
      typeof fields.request === 'string' ||
      hasRequestField(fields, mayBeOwn ? FOREIGN_FIELDS : REQUEST_FIELDS);
    return isRequest && TIMES.some((name) => name in fields);
  },
  parse: (fields, { zone }) => {
    const time = firstTime(fields, TIMES, zone);
    return time === null ? dropped('bad_time') : requestReading(time, hostOf(fields), jsonResponse(fields));
  },
};

/** Under the names of REQUEST_FIELDS, of nginx and of ECS. */
function jsonResponse(fields: JsonObject): RawResponse {
  const http = asObject(fields.http);
  const [request, response] = [asObject(http?.request), asObject(http?.response)];
  return {
    status: firstValue(fields, STATUSES) ?? firstValue(response, ['status_code']),
    // nginx with `escape=json` writes '' if it asked no server.
    upstream: firstValue(fields, UPSTREAM) ?? (UPSTREAM.some((name) => name in fields) ? '' : undefined),
    bytesIn: firstValue(fields, BYTES_IN) ?? firstValue(request, ['bytes']),
    bytesOut: firstValue(fields, BYTES_OUT) ?? firstValue(response, ['bytes']),
    url:
      firstText(fields, PATHS) ??
      firstText(asObject(fields.url), ['path']) ??
      firstText(asObject(fields.request), ['uri']) ??
      requestUrl(asText(fields.request)),
  };
}

const STATUSES = ['status', 'response_code', 'DownstreamStatus', 'http.response.status_code'];
const UPSTREAM = ['upstream_status', 'OriginStatus'];
const BYTES_IN = ['request_length', 'bytes_received', 'bytes_read', 'bytes_in', 'http.request.bytes'];
const BYTES_OUT = ['body_bytes_sent', 'bytes_sent', 'size', 'bytes_out', 'http.response.bytes'];
const PATHS = ['request_uri', 'uri', 'url', 'url.path', 'path', 'RequestPath'];

/** Accepts `{"http": {"request": {"method": ..}, "response": {"status_code": ..}}}` too, as in ECS. */
function hasRequestField(fields: JsonObject, names = REQUEST_FIELDS): boolean {
  if (names.some((name) => name in fields)) return true;
  const http = asObject(fields.http);
  return asObject(http?.request) !== null || asObject(http?.response) !== null;
}

/** `url.domain` first: in ECS, `host` is the machine that wrote the log. */
function hostOf(fields: JsonObject): string | undefined {
  return (
    firstText(fields, ['url.domain']) ??
    firstText(asObject(fields.url), ['domain']) ??
    firstText(fields, HOSTS) ??
    firstText(asObject(fields.request), ['host'])
  );
}
