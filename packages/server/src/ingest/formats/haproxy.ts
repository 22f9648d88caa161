/** HTTP log of HAProxy (`option httplog`, `option httpslog`): every line is a request. */
import { request } from './access.ts';
import { type Context, dropped, type Reading, type TextFormat } from './format.ts';
import { parseCommonTime } from './log-time.ts';
import { hostOfUrl } from './request-url.ts';

export const haproxy: TextFormat = {
  name: 'haproxy',
  about: 'HTTP log of HAProxy',
  traits: [
    ['client with its port at its start', (line) => /^\S+:\d+ /.test(line)],
    [
      'time in [dd/Mon/yyyy:HH:MM:SS.mmm] form behind the client',
      (line) => STAMP.test(line.slice(line.indexOf(' ') + 1)),
    ],
    ['timers like 0/0/0/1/2', (line) => / [+-]?\d+(?:\/[+-]?\d+){4} /.test(line)],
  ],
  recognizes: (line) => {
    const space = line.indexOf(' ');
    return line.charCodeAt(space + 1) === OPENING && STAMP.test(line.slice(space + 1, space + 28));
  },
  parse: parseHaproxy,
};

const OPENING = 0x5b;
/** `[06/Feb/2009:12:14:14.655] `, in local time. */
const STAMP = /^\[\d{2}\/[A-Z][a-z]{2}\/\d{4}:\d{2}:\d{2}:\d{2}\.\d{3}\] /;
const STAMP_LENGTH = 24;
const TIMERS = /^[+-]?\d+(?:\/[+-]?\d+){4}$/;
const STATUS = /^(?:\d{3}|-1)$/;
/** Fields in front of the captured headers. */
const FIELDS = 12;

/**
 * `client:port [time] frontend backend/server Tq/Tw/Tc/Tr/Ta status bytes - - ---- 1/1/1/1/0 0/0 {host|..} {..} "request"`,
 * and with httpslog behind it ` errors sni/version/cipher`.
 */
function parseHaproxy(line: string, { zone }: Context): Reading {
  const fields = line.split(' ', FIELDS);
  const stamp = fields[1]?.slice(1, 1 + STAMP_LENGTH) ?? '';
  // HAProxy writes a time like that of other access logs, without the offset: read as UTC, then moved.
  const local = parseCommonTime(`${stamp} +0000`);
  if (local === null) return dropped('unknown_format');
  // Lines of TCP connections and of errors have the same beginning.
  if (!TIMERS.test(fields[4] ?? '') || !STATUS.test(fields[5] ?? '')) return dropped('other_log_line');
  const rest = line.slice(fields.reduce((length, field) => length + field.length + 1, 0));
  return { kind: 'record', record: request(zone.toUtc(local), hostOf(rest)) };
}

/** HAProxy writes quotes, braces and bars inside of captured text as `#22`, `#7B`, `#7D` and `#7C`. */
function hostOf(rest: string): string | undefined {
  const quote = rest.indexOf('"');
  const requestEnd = rest.indexOf('"', quote + 1);
  const [, target = ''] = quote === -1 ? [] : rest.slice(quote + 1, requestEnd).split(' ', 2);
  // HTTP/2 requests have the whole URL.
  return hostOfUrl(target) ?? capturedHost(rest) ?? serverName(rest.slice(requestEnd + 1));
}

/** The first captured header, when it looks like a host: which header it is, the line does not say. */
function capturedHost(rest: string): string | undefined {
  const captured = /^\{([^|}]{1,260})[|}]/.exec(rest)?.[1] ?? '';
  return /^(?:\[[\da-f:.]+\]|[\w.-]*\w)(?::\d{1,5})?$/i.test(captured) ? captured : undefined;
}

function serverName(tail: string): string | undefined {
  const name = /^ [\da-f/]{1,64} ([^ /]{1,260})\/[^ /]+\/\S/i.exec(tail)?.[1];
  return name === '-' ? undefined : name;
}
