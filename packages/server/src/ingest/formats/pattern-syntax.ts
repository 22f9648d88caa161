/** Log formats as configured in nginx and Apache: text and variables, and what the values of a variable can be. */
import { apacheTime, nginxTime, type TimeVariable } from './pattern-time.ts';

export interface PatternSyntax {
  server: 'nginx' | 'Apache';
  /** How the server writes quotes in values: `none` does not escape them. */
  escaping: 'quotes' | 'none';
  parts: readonly PatternPart[];
}

type PatternPart = { literal: string } | PatternVariable;

export interface PatternVariable {
  /** The spelling in the pattern: `$host`, `%{Host}i`. */
  spelled: string;
  /** `host` in nginx, `i` in Apache. */
  name: string;
  /** The text in braces, Apache only. */
  argument: string;
}

/** Longer than any configuration line. */
const PATTERN_LENGTH_MAX = 4_096;

const NGINX_VARIABLE = /\$(?:\{([A-Za-z0-9_]+)\}|([A-Za-z0-9_]+))/g;
/** Modifiers may be in any order: `%>s`, `%{Referer}i`, `%!200,304{User-Agent}i`, `%{Foo}^ti`. */
const APACHE_VARIABLE = /%((?:[<>!,\d]|\{[^}]*\})*)(\^[A-Za-z]{2}|[A-Za-z%])/g;
const NGINX_TIME = /\$\{?(?:time_local|time_iso8601|msec)\b/;

/** Throws an Error whose message says what is wrong with the pattern. */
export function parsePattern(text: string): PatternSyntax {
  if (text.length > PATTERN_LENGTH_MAX) throw new Error(`must have at most ${PATTERN_LENGTH_MAX} characters`);
  const { format, escaping, directive } = unwrapDirective(text.trim());
  const isNginx = format.search(NGINX_VARIABLE) !== -1;
  const isApache = format.search(APACHE_VARIABLE) !== -1;
  if (!isNginx && !isApache) {
    throw new Error(
      'must contain variables like $time_local or %t; put it in single quotes so that the shell does not expand $',
    );
  }
  const server =
    directive === 'log_format' ||
    (directive !== 'LogFormat' && isNginx && (!isApache || NGINX_TIME.test(format)))
      ? 'nginx'
      : 'Apache';
  return { server, escaping, parts: server === 'nginx' ? nginxParts(format) : apacheParts(format) };
}

interface Unwrapped {
  format: string;
  escaping: PatternSyntax['escaping'];
  directive: 'log_format' | 'LogFormat' | null;
}

/** Removes `log_format main escape=json '..' '..';` or `LogFormat ".." nickname` around the format. */
function unwrapDirective(text: string): Unwrapped {
  const nginx = /^log_format\s+[^\s'"$]+\s+/.exec(text)?.[0];
  const apache = nginx === undefined ? /^LogFormat\s+/i.exec(text)?.[0] : undefined;
  let rest = text.slice((nginx ?? apache ?? '').length);
  const escapeOption = /^escape=(default|json|none)\s+/.exec(rest);
  rest = rest.slice(escapeOption?.[0].length ?? 0);
  const directive = nginx !== undefined ? 'log_format' : apache !== undefined ? 'LogFormat' : null;
  const format = unescaped(unquoted(rest, directive));
  return { format, escaping: escapeOption?.[1] === 'none' ? 'none' : 'quotes', directive };
}

const QUOTED = /'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"/gs;

function unquoted(text: string, directive: Unwrapped['directive']): string {
  const strings = [...text.matchAll(QUOTED)].map((match) => ({
    quote: match[0][0],
    content: match[1] ?? match[2] ?? '',
  }));
  const [first] = strings;
  if (directive === 'LogFormat') return first === undefined ? text : first.content;
  const isAllQuoted = first !== undefined && /^[\s;]*$/.test(text.replace(QUOTED, ''));
  // `"$host" "$request"` may be the format itself; single quotes or one string can only be configuration syntax.
  const isConfiguration =
    directive !== null || strings.length === 1 || strings.every(({ quote }) => quote === "'");
  return isAllQuoted && isConfiguration ? strings.map(({ content }) => content).join('') : text;
}

const ESCAPES: Readonly<Record<string, string>> = {
  n: '\n',
  r: '\r',
  t: '\t',
  '"': '"',
  "'": "'",
  '\\': '\\',
};

function unescaped(text: string): string {
  return text.replace(/\\(.)/gs, (both, escaped: string) => ESCAPES[escaped] ?? both);
}

function nginxParts(format: string): PatternPart[] {
  return split(format, NGINX_VARIABLE, ([spelled, braced, plain]) => ({
    spelled,
    name: braced ?? plain ?? '',
    argument: '',
  }));
}

function apacheParts(format: string): PatternPart[] {
  return split(format, APACHE_VARIABLE, ([spelled, modifiers = '', name = '']) =>
    name === '%' ? { literal: '%' } : { spelled, name, argument: /\{([^}]*)\}/.exec(modifiers)?.[1] ?? '' },
  );
}

function split(
  format: string,
  variable: RegExp,
  part: (match: RegExpExecArray) => PatternPart,
): PatternPart[] {
  const parts: PatternPart[] = [];
  let at = 0;
  for (const match of format.matchAll(variable)) {
    if (match.index > at) addLiteral(parts, format.slice(at, match.index));
    const found = part(match);
    if ('literal' in found) addLiteral(parts, found.literal);
    else parts.push(found);
    at = match.index + match[0].length;
  }
  if (at < format.length) addLiteral(parts, format.slice(at));
  return parts;
}

function addLiteral(parts: PatternPart[], literal: string): void {
  const last = parts.at(-1);
  if (last !== undefined && 'literal' in last) last.literal += literal;
  else parts.push({ literal });
}

export const RESPONSE_FIELDS = ['status', 'upstream', 'bytesIn', 'bytesOut', 'url', 'request'] as const;
export type ResponseField = (typeof RESPONSE_FIELDS)[number];
type Responses = Partial<Record<ResponseField, readonly string[]>>;

/** A variable of a pattern: what its value can be, and the text that follows it. */
export interface Field {
  name: string;
  kind: 'time' | 'number' | 'word' | 'text';
  time: TimeVariable | null;
  /** The lower the rank, the better the variable names the host; null if it does not. */
  hostRank: number | null;
  /** What the variable says about the response. */
  response: ResponseField | null;
  /** A character that ends the value and belongs to the next one. */
  until: string | null;
  literal: string;
}

/** Throws an Error for a time that cannot be read. */
export function fieldOf(server: PatternSyntax['server'], variable: PatternVariable): Field {
  const time = server === 'nginx' ? nginxTime(variable) : apacheTime(variable);
  const key = server === 'nginx' ? variable.name : apacheKey(variable);
  const { hosts, numbers, words, responses } = KINDS[server];
  const rank = hosts.indexOf(key);
  const kind = numbers.includes(key) ? 'number' : words.includes(key) ? 'word' : 'text';
  return {
    name: variable.spelled,
    kind: time === null ? kind : 'time',
    time,
    hostRank: rank === -1 ? null : rank,
    response: RESPONSE_FIELDS.find((name) => responses[name]?.includes(key)) ?? null,
    until: null,
    literal: '',
  };
}

function apacheKey({ name, argument }: PatternVariable): string {
  if (name === 'i') return `i ${argument.toLowerCase()}`;
  return name === 'P' && argument === 'hextid' ? '' : name;
}

/**
 * Hosts, the best first: what the server made of the request, what the client sent, what the configuration says.
 * Numbers and words are values of the server itself: no client can put a space into them.
 */
const KINDS = {
  nginx: {
    hosts: words('host http_host ssl_server_name server_name'),
    numbers: words(
      'status body_bytes_sent bytes_sent request_length request_time server_port remote_port connection ' +
        'connection_requests gzip_ratio pid',
    ),
    words: words(
      'host server_name remote_addr realip_remote_addr proxy_protocol_addr server_addr scheme request_method ' +
        'request_id ssl_protocol ssl_cipher upstream_cache_status',
    ),
    responses: {
      status: ['status'],
      upstream: ['upstream_status'],
      bytesIn: ['request_length'],
      bytesOut: words('body_bytes_sent bytes_sent'),
      url: words('request_uri uri'),
      request: ['request'],
    } as Responses,
  },
  Apache: {
    hosts: ['i host', 'V', 'v'],
    numbers: words('s b B D T p P k O I S'),
    words: words('v h a A m X L'),
    responses: {
      status: ['s'],
      bytesIn: ['I'],
      bytesOut: words('b B O'),
      url: ['U'],
      request: ['r'],
    } as Responses,
  },
};

function words(list: string): readonly string[] {
  return list.split(' ');
}
