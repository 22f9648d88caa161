/** Hides what may be a secret in text from logs, before anything is stored: passwords, tokens, cookies, credentials. */
import { printableStart } from './printable.ts';

/** Stands for a secret. */
export const MASK = '...';

/** Names of fields, arguments and headers that suggest a secret. A part of a longer name counts, except for short words. */
const SECRET_NAMES =
  'passw(?:or)?[dt]|passphrase|pwd|secret|token|(?:api|access|private|auth)[_-]?key|sess(?:ion|_?id)|credential|signature|' +
  '(?<=%5b|(?<![a-z]))(?:pass|auth|sid|jwt)(?![a-z])';
const SECRET_NAME = new RegExp(`authorization|cookie|${SECRET_NAMES}`, 'i');

/** What separates a name from its value in headers, forms, JSON, and messages of ModSecurity; also percent-encoded. */
const BEFORE_VALUE =
  String.raw`(?:["'\`\\\s\]]|%(?:2[027]|5[cd])){0,8}` +
  String.raw`(?:[:=]|%3[ad]|\(value:|,["'\\\s]{0,8}value["'\\\s]{0,8}:)` +
  String.raw`(?:["'\`\\\s[{]|%(?:2[027]|5[bc]|7b)){0,8}`;
/** Text in quotes, up to the next quote that is not escaped. */
const QUOTED = String.raw`(?<=")(?:\\.|[^"\\])*`;
const SECRET_HEADERS = new RegExp(`((?:authorization|cookie)${BEFORE_VALUE})(?:${QUOTED}|(?<!").*)`, 'gis');
const SECRET_FIELDS = new RegExp(
  String.raw`((?:${SECRET_NAMES})[\w.-]{0,32}${BEFORE_VALUE})(?:${QUOTED}|(?<!")[^\s"'\`\\&;,)}]*)`,
  'gis',
);
/** Without any of these, nothing is masked. Most text has none, and both are faster, the first one by far. */
const SEPARATOR = /[ :=@%+]|eyJ/;
const HINT = new RegExp(
  `//[^/]*@|(?:bearer|basic)[ +%]|eyJ|(?:${SECRET_NAME.source})(?=[^&]{0,64}(?:[:=]|%3[ad]))`,
  'i',
);

/** Whether the value of this argument, header or variable of a rule may be a secret. */
export function isSecretName(name: string): boolean {
  return SECRET_NAME.test(name);
}

/** Masks the values of secrets in any text. Masks too much rather than too little. */
export function maskSecrets(text: string): string {
  if (!SEPARATOR.test(text) || !HINT.test(text)) return text;
  return text
    .replace(/\/\/[^/\s"'@]{1,256}@/g, `//${MASK}@`)
    .replace(SECRET_HEADERS, `$1${MASK}`)
    .replace(/\b(bearer|basic)( |\+|%20)[\w.~+/=-]+/gi, `$1$2${MASK}`)
    .replace(/\beyJ[\w-]{8,}\.[\w.-]+/g, MASK)
    .replace(SECRET_FIELDS, `$1${MASK}`);
}

/** The query of a URL. Masks argument by argument, so that what follows a secret stays. */
export function maskQuery(query: string): string {
  if (!HINT.test(query)) return query;
  return query.replace(/[^&]+/g, (argument) => {
    const equals = argument.indexOf('=') + 1;
    const isSecret = equals > 0 && isSecretName(argument.slice(0, equals));
    return isSecret ? argument.slice(0, equals) + MASK : maskSecrets(argument);
  });
}

/** The length of the example that a source keeps of a dropped line. */
const DROP_EXAMPLE_BYTES_MAX = 256;

/** The beginning of a line, printable and without what can be a secret: queries of URLs, credentials and cookies. */
export function dropExample(line: string): string {
  const start = line.slice(0, 4 * DROP_EXAMPLE_BYTES_MAX).replace(/\?[^\s"'\\]*/g, `?${MASK}`);
  return printableStart(maskSecrets(start), DROP_EXAMPLE_BYTES_MAX);
}
