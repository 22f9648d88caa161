/** Access logs of reverse proxies: Envoy, Traefik, HAProxy, Nginx Proxy Manager and Zoraxy. */
import { attackDetails, type RawDetails } from '../../attack-details.ts';
import { judgement } from '../categories/classify.ts';
import {
  COMMON_TIME,
  dropped,
  field,
  hostOfUrl,
  type JsonFormat,
  type LogRecord,
  type Reading,
  requestReading,
  requestRecord,
  restAfter,
  type TextFormat,
} from './format.ts';
import { asText, firstText, firstTime, type JsonObject } from './json.ts';
import { compilePattern } from './pattern.ts';
import {
  COMMON_TIME_LENGTH,
  parseAnyTime,
  parseCommonTime,
  parseLocalTime,
  parseTime,
} from './timestamps.ts';

/** Envoy and Istio. A request that a rate limit rejected is also an attack. */
export const envoy: JsonFormat = {
  name: 'envoy',
  traits: [field('start_time'), ['response_flags, or authority and path', hasEnvoyFields]],
  recognizes: (fields) => 'start_time' in fields && hasEnvoyFields(fields),
  parse(fields, { zone }) {
    const time = parseAnyTime(fields.start_time, zone);
    if (time === null) return dropped('bad_time');
    const host = firstText(fields, ['authority', ':authority', 'requested_server_name']);
    const response = {
      status: asText(fields.response_code),
      bytesIn: asText(fields.bytes_received),
      bytesOut: asText(fields.bytes_sent),
      url: firstText(fields, ['path', 'x_envoy_original_path']),
    };
    return envoyRequest(requestRecord(time, host, response), asText(fields.response_flags), () => ({
      source: firstText(fields, ['downstream_remote_address']),
      id: firstText(fields, ['request_id']),
      method: firstText(fields, ['method']),
      url: firstText(fields, ['path', 'x_envoy_original_path']),
      status: asText(fields.response_code),
      userAgent: firstText(fields, ['user_agent']),
    }));
  },
};

/** Default text format of Envoy and Istio: `[2026-07-01T10:20:30.456Z] "GET / HTTP/1.1" 200 - .. "authority" "upstream" ..` */
export const envoyText: TextFormat = {
  name: 'envoy',
  traits: [
    ['time in [yyyy-mm-ddTHH:MM:SS.mmmZ] form at its start', (line) => ENVOY_START.test(line)],
    ['request, status and response flags after the time', (line) => /^\S+ "\S+ \S+ \S+" \d+ \S+ /.test(line)],
  ],
  recognizes: (line) => ENVOY_START.test(line),
  parse(line) {
    // A path has no spaces, but may have quotes: Envoy does not escape them.
    const [time = '', method = '', url, protocol, status = '', flags = ''] = line.split(' ', 6);
    if (!ENVOY_START.test(line) || !/^\d{1,3}$/.test(status)) return dropped('unknown_format');
    // A TCP connection: `"- - -"`.
    if (method === '"-' && protocol === '-"') return dropped('other_log_line');
    const startedAt = parseTime(time.slice(1, -1));
    if (startedAt === null) return dropped('bad_time');
    const [, bytesIn, bytesOut] = ENVOY_BYTES.exec(line) ?? [];
    const record = requestRecord(startedAt, envoyAuthority(line), { status, bytesIn, bytesOut, url });
    return envoyRequest(record, flags, () => ({ method: method.slice(1), url, status }));
  },
};

/** After status and flags, and the details that Istio and newer releases have there. */
const ENVOY_BYTES = /^\S+ "\S+ \S+ \S+ \d+ \S+ (?:\S+ \S+ "[^"]*" )?(\d+) (\d+) /;

const ENVOY_START = /^\[\d{4}-\d{2}-\d{2}T[\d:.]{8,18}Z\] "/;

/** The last but one value in quotes. Clients can write quotes into those before it. */
function envoyAuthority(line: string): string | undefined {
  const end = line.lastIndexOf('"', line.lastIndexOf('"', line.lastIndexOf('"') - 1) - 1);
  const authority = line.slice(line.lastIndexOf('"', end - 1) + 1, end);
  return authority === '' || authority === '-' ? undefined : authority;
}

/** RL: rejected by the rate limit filter. Not RLSE, an error of the rate limit service. */
function envoyRequest(record: LogRecord, flags: string, raw: () => RawDetails): Reading {
  if (!/(?:^|,)RL(?:,|$)/.test(flags)) return { kind: 'record', record };
  const details = attackDetails({ ...raw(), blocked: true });
  const evidence = [judgement('RL', 'cc', 'Envoy refused the request: rate limit')];
  return { kind: 'record', record: { ...record, attack: 'cc', details, evidence } };
}

function hasEnvoyFields(fields: JsonObject): boolean {
  return 'response_flags' in fields || ('authority' in fields && 'path' in fields);
}

const TRAEFIK_TIMES = ['StartUTC', 'StartLocal', 'time'];

/** Traefik as JSON. (In the common log format it is `access`.) */
export const traefik: JsonFormat = {
  name: 'traefik',
  traits: [field('request', ['DownstreamStatus', 'RequestHost']), field('time', TRAEFIK_TIMES)],
  recognizes: (fields) =>
    'DownstreamStatus' in fields || ('RequestHost' in fields && ('StartUTC' in fields || 'time' in fields)),
  parse: (fields, { zone }) => {
    const time = firstTime(fields, TRAEFIK_TIMES, zone);
    // RequestAddr is the host with its port.
    return time === null
      ? dropped('bad_time')
      : requestReading(time, firstText(fields, ['RequestHost', 'RequestAddr']), {
          status: asText(fields.DownstreamStatus),
          // 0 if no server was asked.
          upstream: 'OriginStatus' in fields ? asText(fields.OriginStatus) : undefined,
          bytesIn: asText(fields.RequestContentSize),
          bytesOut: asText(fields.DownstreamContentSize),
          url: asText(fields.RequestPath),
        });
  },
};

/** `[10/Dec/2025:09:25:32 +0000] - 200 200 - GET https shop.example.com "/" [Client 192.0.2.7] [Length 6] ..` */
export const nginxProxyManager: TextFormat = {
  name: 'nginx-proxy-manager',
  traits: [
    ['time in [dd/Mon/yyyy:HH:MM:SS +zone] form at its start', (line) => line.search(COMMON_TIME) === 0],
    ['[Client address]', (line) => line.includes(' [Client ')],
    [
      'status, method, scheme and host before the quoted path',
      (line) => /\d{3} - [A-Z-]+ \S+ \S+ "/.test(line),
    ],
  ],
  recognizes: (line) => line.startsWith('] ', 1 + COMMON_TIME_LENGTH) && line.includes(' [Client '),
  parse: compilePattern('nginx-proxy-manager').parse,
};

/** HTTP log of HAProxy (`option httplog`, `option httpslog`). */
export const haproxy: TextFormat = {
  name: 'haproxy',
  traits: [
    ['client with its port at its start', (line) => /^\S+:\d+ /.test(line)],
    [
      'time in [dd/Mon/yyyy:HH:MM:SS.mmm] form after the client',
      (line) => HAPROXY_TIME.test(line.slice(line.indexOf(' ') + 1)),
    ],
    ['timers like 0/0/0/1/2', (line) => / [+-]?\d+(?:\/[+-]?\d+){4} /.test(line)],
  ],
  recognizes: (line) => {
    const at = line.indexOf(' ') + 1;
    return line.startsWith('[', at) && HAPROXY_TIME.test(line.slice(at, at + 27));
  },
  /**
   * `client:port [time] frontend backend/server Tq/Tw/Tc/Tr/Ta status bytes - - ---- 1/1/1/1/0 0/0 {host|..} {..} "request"`;
   * httpslog appends ` errors sni/version/cipher`.
   */
  parse(line, { zone }) {
    // The fields before the captured headers.
    const fields = line.split(' ', 12);
    // HAProxy writes no offset: parsed as UTC, then converted.
    const local = parseCommonTime(`${fields[1]?.slice(1, 25)} +0000`);
    if (local === null) return dropped(HAPROXY_TIME.test(`${fields[1]} `) ? 'bad_time' : 'unknown_format');
    // Lines about TCP connections and errors begin the same way.
    if (!TIMERS.test(fields[4] ?? '') || !STATUS.test(fields[5] ?? '')) return dropped('other_log_line');
    const rest = restAfter(line, fields);
    return requestReading(zone.toUtc(local), haproxyHost(rest), {
      status: fields[5],
      // No time until the response of a server: HAProxy responded itself.
      upstream: fields[4]?.split('/')[3] === '-1' ? '-' : undefined,
      // With `option logasap`, a plus sign precedes what was sent until then.
      bytesOut: fields[6],
      url: haproxyTarget(rest),
    });
  },
};

/** `[06/Feb/2009:12:14:14.655] `, in local time. */
const HAPROXY_TIME = /^\[\d{2}\/[A-Z][a-z]{2}\/\d{4}:\d{2}:\d{2}:\d{2}\.\d{3}\] /;
const TIMERS = /^[+-]?\d+(?:\/[+-]?\d+){4}$/;
const STATUS = /^(?:\d{3}|-1)$/;

/** In captured text, HAProxy writes quotes, braces and bars as `#22`, `#7B`, `#7D` and `#7C`. */
function haproxyHost(rest: string): string | undefined {
  const requestEnd = rest.indexOf('"', rest.indexOf('"') + 1);
  // HTTP/2 requests have the whole URL.
  return hostOfUrl(haproxyTarget(rest)) ?? capturedHost(rest) ?? serverName(rest.slice(requestEnd + 1));
}

function haproxyTarget(rest: string): string {
  const quote = rest.indexOf('"');
  const [, target = ''] =
    quote === -1 ? [] : rest.slice(quote + 1, rest.indexOf('"', quote + 1)).split(' ', 2);
  return target;
}

/** The first captured header, if it looks like a host: the line does not name the header. */
function capturedHost(rest: string): string | undefined {
  const captured = /^\{([^|}]{1,260})[|}]/.exec(rest)?.[1] ?? '';
  return /^(?:\[[\da-f:.]+\]|[\w.-]*\w)(?::\d{1,5})?$/i.test(captured) ? captured : undefined;
}

function serverName(tail: string): string | undefined {
  const name = /^ [\da-f/]{1,64} ([^ /]{1,260})\/[^ /]+\/\S/i.exec(tail)?.[1];
  return name === '-' ? undefined : name;
}

/**
 * `[2026-07-01 10:20:30.456123] [router:host-http] [origin:host] [client: 192.0.2.7] [useragent: ..] GET / 200`, in local
 * time. After the first rotation of its log, Zoraxy writes another time in front.
 */
export const zoraxy: TextFormat = {
  name: 'zoraxy',
  traits: [
    ['time in [yyyy-mm-dd HH:MM:SS.mmmmmm] form', (line) => ZORAXY_TIME.test(line)],
    ['[router:..] and [origin:host] after the time', (line) => / \[router:[^\]]*\] \[origin:/.test(line)],
  ],
  recognizes: (line) => ZORAXY_LINE.test(line.slice(0, 160)),
  parse(line, { zone }) {
    const [, text] = ZORAXY_TIME.exec(line) ?? [];
    if (text === undefined) return dropped('unknown_format');
    const [, host] = / \[origin:(\S{0,260}?)\] \[client/.exec(line) ?? [];
    if (host === undefined) return dropped('other_log_line');
    const time = parseLocalTime(text, zone);
    if (time === null) return dropped('bad_time');
    const [, url, status] = / (\S{1,1024}) (\d{3})$/.exec(line.slice(-1_040)) ?? [];
    return requestReading(time, host || undefined, { status, url });
  },
};

const ZORAXY_TIME = /^(?:[\d/]{10} [\d:]{8} )?\[(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\.\d{6})\] /;
/** `[system:info]` and `[system:error]`: lines about Zoraxy itself. */
const ZORAXY_LINE =
  /^(?:[\d/]{10} [\d:]{8} )?\[\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\.\d{6}\] (?:\[router:[^\]]{0,64}\] \[origin:|\[[^\]]{0,64}\] \[system:)/;
