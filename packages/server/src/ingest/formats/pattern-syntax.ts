/** Log formats as they stand in the configuration of nginx and Apache: text and variables, one after the other. */

export interface PatternSyntax {
  server: 'nginx' | 'Apache';
  /** What the server does with quotes inside of values: `none` writes them as they are. */
  escaping: 'quotes' | 'none';
  parts: readonly PatternPart[];
}

export type PatternPart = { literal: string } | PatternVariable;

export interface PatternVariable {
  /** As the pattern spells it: `$host`, `%{Host}i`. */
  spelled: string;
  /** `host` of nginx, `i` of Apache. */
  name: string;
  /** What Apache has in braces. */
  argument: string;
}

/** A configuration line that is longer is none. */
const PATTERN_LENGTH_MAX = 4_096;

const NGINX_VARIABLE = /\$(?:\{([A-Za-z0-9_]+)\}|([A-Za-z0-9_]+))/g;
/** With its modifiers in any order: `%>s`, `%{Referer}i`, `%!200,304{User-Agent}i`, `%{Foo}^ti`. */
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
      'must hold variables like $time_local or %t; put it in single quotes, so that the shell leaves $ alone',
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

/** Takes off `log_format main escape=json '..' '..';` and `LogFormat ".." nickname`, and the quotes of either. */
function unwrapDirective(text: string): Unwrapped {
  const nginx = /^log_format\s+[^\s'"$]+\s+/.exec(text)?.[0];
  const apache = nginx === undefined ? /^LogFormat\s+/i.exec(text)?.[0] : undefined;
  let rest = text.slice((nginx ?? apache ?? '').length);
  const given = /^escape=(default|json|none)\s+/.exec(rest);
  rest = rest.slice(given?.[0].length ?? 0);
  const directive = nginx !== undefined ? 'log_format' : apache !== undefined ? 'LogFormat' : null;
  const format = unescaped(unquoted(rest, directive));
  return { format, escaping: given?.[1] === 'none' ? 'none' : 'quotes', directive };
}

const QUOTED = /'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"/gs;

function unquoted(text: string, directive: Unwrapped['directive']): string {
  const strings = [...text.matchAll(QUOTED)].map((match) => ({
    quote: match[0][0],
    inside: match[1] ?? match[2] ?? '',
  }));
  const [first] = strings;
  if (directive === 'LogFormat') return first === undefined ? text : first.inside;
  const isAllQuoted = first !== undefined && /^[\s;]*$/.test(text.replace(QUOTED, ''));
  // `"$host" "$request"` may be the format itself; in single quotes, or as one string, it cannot be meant.
  const isConfiguration =
    directive !== null || strings.length === 1 || strings.every(({ quote }) => quote === "'");
  return isAllQuoted && isConfiguration ? strings.map(({ inside }) => inside).join('') : text;
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
