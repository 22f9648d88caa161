/** Access logs of nginx and Apache: common, combined, what stands behind, and the virtual host in front. */
import {
  COMMON_TIME,
  type Context,
  dropped,
  type LogRecord,
  type Reading,
  type TextFormat,
} from './format.ts';

export const access: TextFormat = {
  name: 'access',
  about: 'access log of nginx or Apache: common, combined, or with the virtual host in front',
  traits: [
    ['client in front of the time', (line) => /^[^\s[{]+ /.test(line)],
    ['time in [dd/Mon/yyyy:HH:MM:SS +zone] form', (line) => COMMON_TIME.test(line)],
    ['quoted request behind the time', (line) => /\] "/.test(line)],
  ],
  recognizes: () => true,
  parse: parseAccess,
};

/**
 * `[host[:port] ]client ident user [time] "request" ...`. What comes behind the opening quote is not looked at: a
 * line that was cut on its way through syslog is a request all the same.
 */
export function parseAccess(line: string, { clock }: Context): Reading {
  for (let at = line.indexOf('['); at !== -1; at = line.indexOf('[', at + 1)) {
    // The user name is the client's to choose, a time in it too; but never with a quote behind it.
    if (!line.startsWith('] "', at + TIME_LENGTH)) continue;
    const time = clock.read(line, at + 1);
    if (time === null) continue;
    const client = line.indexOf(' ');
    return client < at - 1 ? { kind: 'record', record: request(time, hostOf(line, client, at)) } : UNKNOWN;
  }
  return UNKNOWN;
}

/** A request that nothing more is known of. */
export function request(time: number, host: string | undefined): LogRecord {
  return { time, host, hostId: undefined, request: true, attack: null, count: 1, evidence: undefined };
}

/** `[10/Dec/2025:09:25:32 +0000` */
const TIME_LENGTH = 27;
const DASH = 0x2d;
const SPACE = 0x20;
const COMMA = 0x2c;
const UNKNOWN = dropped('unknown_format');

/**
 * The second field is nearly always `-`, because identd is unused. When instead a `-` follows the second field, and
 * another field follows it, the line begins with the virtual host. The client may be a list out of X-Forwarded-For:
 * `a, b - - [` names no host, `host a, b - - [` does.
 */
function hostOf(line: string, firstSpace: number, timeAt: number): string | undefined {
  if (line.charCodeAt(firstSpace - 1) === COMMA || isDash(line, firstSpace + 1)) return undefined;
  let clientEnd = line.indexOf(' ', firstSpace + 1);
  while (line.charCodeAt(clientEnd - 1) === COMMA && clientEnd < timeAt) {
    clientEnd = line.indexOf(' ', clientEnd + 1);
  }
  const isHost = isDash(line, clientEnd + 1) && clientEnd + 3 < timeAt;
  return isHost ? line.slice(0, firstSpace) : undefined;
}

function isDash(line: string, at: number): boolean {
  return line.charCodeAt(at) === DASH && line.charCodeAt(at + 1) === SPACE;
}
