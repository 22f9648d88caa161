/** Hides what may be a secret in text from logs, before anything is stored: passwords, tokens, cookies, credentials. */
import { printableStart } from './printable.ts';

/** Stands for a secret. */
export const MASK = '...';

/** Names of fields, arguments and headers that suggest a secret. A part of a longer name counts, except for short words. */
const NAMES =
  'passw(?:or)?[dt]|passphrase|passcode|pwd|secret|token|(?:api|access|private|auth)[_-]?key|sess(?:ion|_?id)|credential|' +
  'signature|(?<=%5b|(?<![a-z]))(?:pass|auth|sid|jwt|otp|pin|cvv|sig)(?![a-z])';
const SECRET_NAME = new RegExp(`authorization|cookie|${NAMES}`, 'i');

/** What separates a name from its value in headers, forms, JSON, and messages of ModSecurity; also percent-encoded. */
const BEFORE_VALUE =
  String.raw`(?:["'\`\\\s\]]|%(?:2[027]|5[cd])){0,8}` +
  String.raw`(?:[:=]|%3[ad]|\(value:|,["'\\\s]{0,8}value["'\\\s]{0,8}:)` +
  String.raw`(?:["'\`\\\s]|%(?:2[027]|5[bc]|7b)){0,8}[[{]?`;
const NAME_END = String.raw`(?:[\w.[\]-]|%5[bd]){0,32}`;
/** Text in quotes, up to the next quote that is not escaped. */
const QUOTED = String.raw`(?<=")(?:\\.|[^"\\])*`;
/** What is in brackets; everything that follows if there are more brackets inside. */
const IN_BRACKETS = String.raw`(?<=[[{])(?:"(?:\\.|[^"\\])*"?|[^"[\]{}])*(?:[[{].*)?`;
const QUOTE = String.raw`(?:\\?"|\\x22)`;
const NESTED = `${IN_BRACKETS}|${QUOTED}`;

/** Credentials under any name; the second is a JSON Web Token. */
const CREDENTIALS: readonly [pattern: RegExp, replacement: string][] = [
  [/\b(bearer|basic)( |\+|%20)[\w.~+/=-]+/gi, `$1$2${MASK}`],
  [/\beyJ[\w-]{8,}\.[\w.-]+/g, MASK],
];
/** In this order. */
const MASKED: readonly [pattern: RegExp, replacement: string][] = [
  // In a form or the query of a URL, only & ends a value.
  [
    new RegExp(`((?:^|[?&])[^?&=\\s]{0,64}(?:${SECRET_NAME.source})[^?&=\\s]{0,64}=)[^&\\s]*`, 'gi'),
    `$1${MASK}`,
  ],
  // https://user:password@host
  [/(\/\/|%2f%2f)(?:(?!%[23]f)[^/\s"'?#])+(@|%40)/gi, `$1${MASK}$2`],
  [new RegExp(`((?:authorization|cookie)${BEFORE_VALUE})(?:${NESTED}|(?<!["[{]).*)`, 'gis'), `$1${MASK}`],
  ...CREDENTIALS,
  // <password>..</password>, and a part of a form with files.
  [new RegExp(`(<[\\w:.-]{0,32}(?:${NAMES})[^<>]{0,64}>)[^<]+`, 'gi'), `$1${MASK}`],
  [
    new RegExp(
      `(name=${QUOTE}[^"]{0,64}(?:${NAMES})[^"]{0,64}?${QUOTE})(?:(?!(?:[\\r\\n]|\\\\n|\\\\x0a)--).)+`,
      'gis',
    ),
    `$1 ${MASK}`,
  ],
  [
    new RegExp(`((?:${NAMES})${NAME_END}${BEFORE_VALUE})(?:${NESTED}|(?<!["[{])[^\\s"'\`\\\\&;,)}]*)`, 'gis'),
    `$1${MASK}`,
  ],
];

/** Without one of each of these, nothing is masked. Most text has none. The first ones are the fastest. */
const SEPARATOR = /[ :=@%+>]|eyJ/;
const PART = /ss|pwd|secret|token|key|cred|sig|auth|sid|jwt|otp|pin|cvv|cook|bearer|basic|eyJ|\/\/|%2f/i;
const HINT = new RegExp(
  `//[^/]*@|%2f%2f|(?:bearer|basic)[ +%]|eyJ|(?:${SECRET_NAME.source})(?=[^&]{0,64}(?:[:=>"]|%3[ad]|\\\\x22))`,
  'i',
);

/** A letter that was encoded without need, as in pass%77ord or pass\u0077ord. */
const ENCODED_LETTER = /(?:%|%u00|\\u00)([46][1-9a-f]|[57][0-9a]|5f)/i;
const ENCODED_LETTERS = new RegExp(ENCODED_LETTER, 'gi');

function decodeLetters(text: string): string {
  if (!ENCODED_LETTER.test(text)) return text;
  return text.replace(ENCODED_LETTERS, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)));
}

/** An ASCII character in a URL or in JSON, and line ends and slashes in JSON. */
const ENCODED = /(?:%(?:u00)?|\\(?:x|u00))([0-7][0-9a-f])|\\([nr/])/gi;
/** Nobody encodes more often, except to take our time. */
const DECODINGS_MAX = 4;

/** The text with all ASCII characters decoded, also those that were encoded several times. */
export function decode(text: string): string {
  if (!/[%\\]/.test(text)) return text;
  let decoded = text;
  for (let i = 0; i < DECODINGS_MAX; i++) {
    const before = decoded;
    decoded = before.replace(ENCODED, decodedCharacter);
    if (decoded === before) break;
  }
  return decoded;
}

function decodedCharacter(_: string, code: string | undefined, escaped: string | undefined): string {
  return code === undefined ? (escaped === '/' ? '/' : '\n') : String.fromCharCode(Number.parseInt(code, 16));
}

/** Whether the value of this argument, header or variable of a rule may be a secret. */
export function isSecretName(name: string): boolean {
  return SECRET_NAME.test(decodeLetters(name));
}

function hasHint(text: string): boolean {
  return PART.test(text) && HINT.test(text);
}

/** Masks the values of secrets in any text. Masks too much rather than too little. */
export function maskSecrets(text: string): string {
  if (!SEPARATOR.test(text)) return text;
  const decoded = decodeLetters(text);
  if (!hasHint(decoded)) return text;
  let masked = decoded;
  for (const [pattern, replacement] of MASKED) masked = masked.replace(pattern, replacement);
  return masked === decoded ? text : masked;
}

/** The query of a URL. Masks argument by argument, so that what follows a secret stays. */
export function maskQuery(query: string): string {
  if (!hasHint(decodeLetters(query))) return query;
  return query.replace(/[^&]+/g, (argument) => {
    const equals = argument.indexOf('=') + 1;
    const isSecret = equals > 0 && isSecretName(argument.slice(0, equals));
    return isSecret ? argument.slice(0, equals) + MASK : maskSecrets(argument);
  });
}

/** The path of a URL. Its parts have no names, except for parameters such as ;jsessionid=. */
export function maskPath(path: string): string {
  // A space follows bearer and basic.
  if (!/=|eyJ|[rc](?:[ +]|%20)/i.test(path)) return path;
  const masked = path.replace(/(?<=[/;])([^/;=]+)=[^/;]*/g, (parameter, name: string) =>
    isSecretName(name) ? `${name}=${MASK}` : parameter,
  );
  return CREDENTIALS.reduce((text, [pattern, replacement]) => text.replace(pattern, replacement), masked);
}

/** The length of the example that a source keeps of a dropped line. */
const DROP_EXAMPLE_BYTES_MAX = 256;

/** The beginning of a line, printable and without what can be a secret: queries of URLs, credentials and cookies. */
export function dropExample(line: string): string {
  const start = line.slice(0, 4 * DROP_EXAMPLE_BYTES_MAX).replace(/\?[^\s"'\\]*/g, `?${MASK}`);
  return printableStart(maskSecrets(start), DROP_EXAMPLE_BYTES_MAX);
}
