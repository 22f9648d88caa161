/** Hides what may be a secret in text from logs, before anything is stored: passwords, tokens, cookies, credentials. */
import { printableStart } from './printable.ts';

/** Stands for a secret. */
export const MASK = '...';

/** Names of fields, arguments and headers that suggest a secret. A part of a longer name counts, except for short words. */
const NAME =
  '(?:authorization|cookie|passw(?:or)?[dt]|passphrase|passcode|pwd|secret|token|(?:api|access|private|auth)[_-]?key|' +
  'sess(?:ion|_?id)|credential|signature|(?<![a-z])(?:pass|auth|sid|jwt|otp|pin|cvv|sig)(?![a-z]))';
const SECRET_NAME = new RegExp(NAME, 'i');

/** Without one of each of these in the decoded text, nothing is masked. Most text has none. The first ones are the fastest. */
const SEPARATOR = /[\s:=@%+>\\]|eyJ/;
const PART = /ss|pwd|secret|token|key|cred|sig|auth|sid|jwt|otp|pin|cvv|cook|bearer|basic|eyJ|\/\//i;
/** What can be one of these parts when it is decoded: letters, slashes, and what is encoded several times. */
const ENCODED_PART = /%(?:2[5f]|3\d|[4-7u])|\\/i;
const HINT = new RegExp(`(?:bearer|basic)[\\s+:=]|eyJ|${NAME}`, 'i');

/** An ASCII character in a URL or in JSON, and line ends and slashes in JSON. */
const ENCODED = /(?:%(?:u00)?|\\(?:x|u00))([0-7][0-9a-f])|\\([nr/])/gi;
/** Nobody encodes more often, except to take our time. */
const DECODINGS_MAX = 4;

/** The text with all ASCII characters decoded, also those that were encoded several times. */
export function decode(text: string): string {
  let decoded = text;
  for (let i = 0; i < DECODINGS_MAX && /[%\\]/.test(decoded); i++)
    decoded = decoded.replace(ENCODED, decodedCharacter);
  return decoded;
}

function decodedCharacter(_: string, code: string | undefined, escaped: string | undefined): string {
  return code === undefined ? (escaped === '/' ? '/' : '\n') : String.fromCharCode(Number.parseInt(code, 16));
}

/** Decoded text that knows where each of its characters is in the original. */
class DecodedText {
  readonly text: string;
  /** Where each character begins in the original, and where the last one ends. */
  readonly starts: readonly number[];

  constructor(original: string) {
    let text = original;
    let starts = Array<number>(text.length + 1);
    for (let i = 0; i <= text.length; i++) starts[i] = i;
    for (let i = 0; i < DECODINGS_MAX && /[%\\]/.test(text); i++) {
      const kept: number[] = [];
      let end = 0;
      const decoded = text.replace(ENCODED, (encoded, code, escaped, at: number) => {
        kept.push(...starts.slice(end, at + 1));
        end = at + encoded.length;
        return decodedCharacter(encoded, code, escaped);
      });
      if (decoded === text) break;
      starts = [...kept, ...starts.slice(end)];
      text = decoded;
    }
    this.text = text;
    this.starts = starts;
  }

  /** The length of a character in the original. It tells apart what has been encoded in different ways. */
  widthAt(index: number): number {
    return (this.starts[index + 1] ?? 0) - (this.starts[index] ?? 0);
  }

  /** The next of these characters that is not encoded, or encoded in the same way as the character at `like`. */
  endBefore(stops: string, start: number, like: number): number {
    const { text } = this;
    for (let i = start; i < text.length; i++) {
      if (!stops.includes(text.charAt(i))) continue;
      const width = this.widthAt(i);
      if (width === 1 || width === this.widthAt(like)) return i;
    }
    return text.length;
  }

  /** The quote or bracket that closes the one at `start`; the end of the text if there are more brackets inside. */
  closing(start: number): number {
    const { text } = this;
    const width = this.widthAt(start);
    const opened = text.charAt(start);
    const closing = CLOSING[opened];
    const isBracket = closing !== opened;
    let isQuoted = false;
    for (let i = start + 1; i < text.length; i++) {
      const character = text.charAt(i);
      if (character === '\\') i++;
      else if (this.widthAt(i) !== width) continue;
      else if (character === closing && !isQuoted) return i;
      else if (isBracket && character === '"') isQuoted = !isQuoted;
      else if (isBracket && !isQuoted && '[{'.includes(character)) break;
    }
    return text.length;
  }
}

const CLOSING: Readonly<Record<string, string>> = { '"': '"', "'": "'", '[': ']', '{': '}' };

/** The name of an argument in a form or a query, in which only & ends a value. */
const FORM = new RegExp(`(?:^|[?&])[^?&=\\s"<{:]*${NAME}[^?&=\\s"<{:]*=`, 'gi');
/** A name, and what separates it from its value in headers, JSON, programs, serialized PHP and messages of ModSecurity. */
const NAMED = new RegExp(
  String.raw`(${NAME}[\w.[\]"'\`\\-]*(?:[\s+]["'\`\\]*)*)` +
    String.raw`([:=]+>?|\(value:|,["'\\\s]*value["'\\\s]*:|;\w:)[\s+\\\`]*`,
  'gi',
);
/** <password> */
const ELEMENT = new RegExp(`<([\\w:.-]*${NAME}[\\w:.-]*)(?:\\s[^>]*)?>`, 'gi');
/** The head of a part of a form with files. */
const FORM_PART = new RegExp(
  `name=(?:\\\\?["'][^"']*${NAME}[^"']*["']|[^\\s"';&=]*${NAME}[^\\s"';&=]*(?=[;\\s]))\\s*`,
  'gi',
);
const CREDENTIALS = /(?<![a-z])(?:bearer|basic)[\s+:=]+["']?(?=[^\s"'&])/gi;
const JSON_WEB_TOKEN = /(?<![\w-])eyJ[\w-]{8,}\.[\w.-]+/g;

/** Where a secret is in decoded text; the end is exclusive. */
type Span = [start: number, end: number];

/** In a path, / and ; end a value, and a colon does not begin one: /tokens:revoke. */
function secretsIn(decoded: DecodedText, isPath: boolean): Span[] {
  const { text } = decoded;
  const spans: Span[] = [];
  const find = (pattern: RegExp, endOf: (start: number, match: RegExpExecArray) => number | Span) => {
    pattern.lastIndex = 0;
    for (let match = pattern.exec(text); match !== null; match = pattern.exec(text)) {
      const start = pattern.lastIndex;
      const end = endOf(start, match);
      const span: Span = typeof end === 'number' ? [start, end] : end;
      if (span[1] < span[0]) continue;
      spans.push(span);
      pattern.lastIndex = Math.max(start, span[1]);
    }
  };
  if (!isPath) find(FORM, (start) => decoded.endBefore('&', start, start - 1));
  find(NAMED, (start, { index, 1: name = '', 2: separator = '' }) => {
    const at = index + name.length;
    const isEncoded = decoded.widthAt(at) > 1;
    if (isPath && separator === ':' && !isEncoded && !/["']/.test(name)) return -1;
    // The strings of PHP may contain quotes.
    if (!separator.startsWith(';') && text.charAt(start) in CLOSING)
      return [start + 1, decoded.closing(start)];
    if (isPath) return decoded.endBefore(isEncoded ? '' : '/;', start, at);
    return decoded.endBefore(separator.startsWith('=') ? '&' : '', start, at);
  });
  find(ELEMENT, (start, { 1: name = '' }) => indexOrEnd(text, `</${name}`, start));
  find(FORM_PART, (start) => indexOrEnd(text, '\n--', start));
  find(CREDENTIALS, (start) => start + text.slice(start).search(/[\s"'&]|$/));
  find(JSON_WEB_TOKEN, (end, { index }) => [index, end]);
  // https://user:password@host
  find(/\/\/+/g, (start) => text.lastIndexOf('@', decoded.endBefore('/?#', start, start - 1)));
  return spans;
}

function indexOrEnd(text: string, part: string, start: number): number {
  const index = text.indexOf(part, start);
  return index === -1 ? text.length : index;
}

/** Whether the value of this argument, header or variable of a rule may be a secret. */
export function isSecretName(name: string): boolean {
  return SECRET_NAME.test(decode(name));
}

function hasHint(text: string): boolean {
  if (!SEPARATOR.test(text)) return false;
  if (!PART.test(text) && !ENCODED_PART.test(text)) return false;
  const decoded = decode(text);
  return PART.test(decoded) && (HINT.test(decoded) || /@/.test(decoded));
}

function mask(text: string, isPath: boolean): string {
  if (!hasHint(text)) return text;
  const decoded = new DecodedText(text);
  let masked = '';
  let end = -1;
  for (const span of secretsIn(decoded, isPath).sort(([a], [b]) => a - b)) {
    const [from = 0, to = 0] = span.map((index) => decoded.starts[index] ?? 0);
    if (from > end) masked += text.slice(Math.max(end, 0), from) + MASK;
    end = Math.max(end, to);
  }
  return masked + text.slice(Math.max(end, 0));
}

/** Masks the values of secrets in any text. Masks too much rather than too little. */
export function maskSecrets(text: string): string {
  return mask(text, false);
}

/** The query of a URL. Masks argument by argument, so that what follows a secret stays. */
export function maskQuery(query: string): string {
  if (!hasHint(query)) return query;
  return query.replace(/[^&]+/g, (argument) => {
    const equals = argument.indexOf('=') + 1;
    const isSecret = equals > 0 && isSecretName(argument.slice(0, equals));
    return isSecret ? argument.slice(0, equals) + MASK : maskSecrets(argument);
  });
}

/** The path of a URL. Its parts have no names, except for parameters such as ;jsessionid=. */
export function maskPath(path: string): string {
  return mask(path, true);
}

/** The length of the example that a source keeps of a dropped line. */
const DROP_EXAMPLE_BYTES_MAX = 256;

/** The beginning of a line, printable and without what can be a secret: queries of URLs, credentials and cookies. */
export function dropExample(line: string): string {
  const start = line.slice(0, 4 * DROP_EXAMPLE_BYTES_MAX).replace(/\?[^\s"'\\]*/g, `?${MASK}`);
  return printableStart(maskSecrets(start), DROP_EXAMPLE_BYTES_MAX);
}
