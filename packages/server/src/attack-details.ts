/**
 * Normalizes what is kept of an attack. All of it is attacker input: malformed fields are omitted, the others are limited,
 * printable, and without secrets.
 */
import { isIP, isIPv4, SocketAddress } from 'node:net';
import { copyOf } from './copy-of.ts';
import { type AttackDetails, type MatchedRule, networkOf } from './event.ts';
import { printableStart } from './printable.ts';
import { decode, isSecretName, MASK, maskPath, maskQuery, maskSecrets } from './secrets.ts';

/** Path and query together. */
const URL_BYTES_MAX = 512;
const RULE_BYTES_MAX = 64;
/** IDs, variables, matched values, user agents. */
export const TEXT_BYTES_MAX = 128;
const SEVERITY_BYTES_MAX = 16;
const ADDRESS_LENGTH_MAX = 64;
/** More distinct rules than a real request matches. */
export const RULES_MAX = 32;
const SCORE_MAX = 1_000_000;

/** How much of a long text is searched for secrets, because what is kept of it is far shorter. */
const MASKED_LENGTH_MAX = 1_024;

type Raw<T> = { [K in keyof T]: T[K] | undefined };

/**
 * The details in a log. `url` is a path, with or without a query, or a whole URL. `query` is that of the URL if `url` is only
 * the path. '' is an absent field.
 */
export type RawDetails = Raw<Omit<AttackDetails, 'rules' | 'status'>> & {
  status?: string | number | undefined;
  rules?: readonly RawRule[] | undefined;
};

export type RawRule = { id: string } & Raw<Omit<MatchedRule, 'id'>>;

export function attackDetails(raw: RawDetails): AttackDetails | undefined {
  const details: AttackDetails = {};
  if (raw.blocked !== undefined) details.blocked = raw.blocked;
  const source = canonicalAddress(raw.source);
  if (source !== undefined) details.source = source;
  setUrl(details, raw);
  if (raw.userAgent && raw.userAgent !== '-') details.userAgent = maskedText(raw.userAgent);
  if (raw.rule) details.rule = normalRule(raw.rule);
  if (raw.rules) {
    const secrets: string[] = [];
    const rules = raw.rules
      .slice(0, RULES_MAX)
      .map((rule) => matchedRule(rule, normalRule(rule.id), secrets));
    setRules(details, rules, secrets);
  }
  if (raw.country && /^[A-Za-z]{2}$/.test(raw.country)) details.country = raw.country.toUpperCase();
  if (raw.id) details.id = normalText(raw.id);
  const method = raw.method && normalMethod(raw.method);
  if (method) details.method = method;
  const status = raw.status === undefined ? 0 : Number(raw.status);
  if (Number.isInteger(status) && status >= 100 && status <= 999) details.status = status;
  const { score = -1 } = raw;
  if (Number.isInteger(score) && score >= 0 && score <= SCORE_MAX) details.score = score;
  return Object.keys(details).length === 0 ? undefined : details;
}

/** A token of HTTP; '' if it is none. */
const normalMethod = remembered((text) => (/^[\w!#$%&'*+.^`|~-]{1,32}$/.test(text) ? copyOf(text) : ''));

/**
 * Puts the rule that decided the category first. `details` are complete except for the ID and the score. `matched`: at most
 * RULES_MAX. `secrets`: from `matchedRule`; what repeats one is masked.
 */
export function setRules(
  details: AttackDetails,
  matched: readonly MatchedRule[],
  secrets: readonly string[],
): void {
  const { rule = matched[0]?.id } = details;
  if (rule === undefined) return;
  details.rule = rule;
  const rules = secrets.length === 0 ? matched : withoutRepeats(details, matched, secrets);
  if (rules[0]?.id === rule) {
    details.rules = rules;
    return;
  }
  const decisive = rules.find(({ id }) => id === rule) ?? { id: rule };
  const others = rules.filter((each) => each !== decisive);
  details.rules = [decisive, ...others.slice(0, RULES_MAX - 1)];
}

/** Also masks what repeats a secret in URL and user agent. */
function withoutRepeats(
  details: AttackDetails,
  rules: readonly MatchedRule[],
  secrets: readonly string[],
): readonly MatchedRule[] {
  const repeats = repeatsOf(secrets);
  const withoutParts = (text: string, part: RegExp) => {
    if (!repeats(text)) return text;
    const masked = text.replace(part, (each) => (repeats(each) ? MASK : each));
    return repeats(masked) ? MASK : masked;
  };
  const { url, query, userAgent } = details;
  if (url && repeats(url)) details.url = `/${withoutParts(url.slice(1), /[^/]+/g)}`;
  if (query) details.query = withoutParts(query, /[^&=]+/g);
  if (userAgent && repeats(userAgent)) details.userAgent = MASK;
  return rules.map((rule) => (rule.value && repeats(rule.value) ? { ...rule, value: MASK } : rule));
}

/** Tells whether a text has a part of a secret. */
function repeatsOf(secrets: readonly string[]): (text: string) => boolean {
  // `normalText` has encoded what is invisible.
  const decoded = secrets.map(withoutEncoding);
  const parts = new Set(decoded.flatMap(partsOf));
  const short = decoded.filter(({ length }) => length < SECRET_PART_LENGTH);
  return (text) => {
    const plain = withoutEncoding(text);
    return partsOf(plain).some((part) => parts.has(part)) || short.some((secret) => plain.includes(secret));
  };
}

function partsOf(text: string): string[] {
  const count = Math.max(text.length - SECRET_PART_LENGTH + 1, 0);
  return Array.from({ length: count }, (_, i) => text.slice(i, i + SECRET_PART_LENGTH));
}

function withoutEncoding(text: string): string {
  return decode(text).replaceAll('+', ' ').toLowerCase();
}

/** Shorter parts, and shorter secrets, occur in other values by chance. */
const SECRET_PART_LENGTH = 6;
const SECRET_LENGTH_MIN = 4;
/** More than the secrets of a real request. */
const SECRETS_MAX = 8;

/** `id`: normalized. Adds the value of a secret variable to `secrets`, decoded, because other fields may repeat it. */
export function matchedRule(raw: RawRule, id: string, secrets: string[]): MatchedRule {
  const { variable, value, severity } = raw;
  const rule: MatchedRule = { id };
  const known = variable ? normalVariable(variable) : undefined;
  if (known) rule.variable = known.text;
  if (value) rule.value = known?.isSecret ? MASK : maskedText(value);
  if (value && known?.isSecret && value.length >= SECRET_LENGTH_MIN && secrets.length < SECRETS_MAX)
    secrets.push(normalText(withoutEncoding(value.slice(0, MASKED_LENGTH_MAX))));
  // ModSecurity 3 writes 0 if a rule has none.
  if (severity && severity !== '0')
    rule.severity =
      SEVERITIES[Number(severity)] ?? printableStart(severity.toLowerCase(), SEVERITY_BYTES_MAX);
  return rule;
}

/** As ModSecurity numbers them. */
const SEVERITIES = ['emergency', 'alert', 'critical', 'error', 'warning', 'notice', 'info', 'debug'];

/** The ID or name of a rule, as in AttackDetails. */
export function normalRule(text: string): string {
  return printableStart(text, RULE_BYTES_MAX);
}

const normalVariable = remembered((text) => ({ text: normalText(text), isSecret: isSecretName(text) }));
const maskedText = remembered((text) => normalText(masked(text)));

export function normalText(text: string): string {
  return printableStart(text, TEXT_BYTES_MAX);
}

function masked(text: string): string {
  return maskSecrets(text.slice(0, MASKED_LENGTH_MAX));
}

/** Results that are remembered, of each function. */
const REMEMBERED_MAX = 256;

/** Attacks repeat rules, variables, values and user agents: remembering them takes a third of the time. */
export function remembered<T>(compute: (text: string) => T): (text: string) => T {
  const results = new Map<string, T>();
  return (text) => {
    const known = results.get(text);
    if (known !== undefined) return known;
    const result = compute(text);
    // A long text would take long to compare, and memory.
    if (text.length > MASKED_LENGTH_MAX) return result;
    if (results.size === REMEMBERED_MAX) results.clear();
    results.set(copyOf(text), result);
    return result;
  };
}

/** The value of a variable; of a long one only the part that matched, unless that is a part of a secret. */
export function matchedValue(value: string, part: string): string {
  if (value.length <= TEXT_BYTES_MAX || part === '') return value || part;
  return masked(value).includes(part) ? part : value;
}

/** The address without port and brackets, in one spelling, so that it is counted under one key. */
export function canonicalAddress(text: string | undefined): string | undefined {
  if (text === undefined || text.length > ADDRESS_LENGTH_MAX) return undefined;
  if (isIPv4(text)) return copyOf(text);
  const address = /^(?:\[([^\]]+)\](?::\d+)?|(\d+\.\d+\.\d+\.\d+):\d+)$/.exec(text);
  const bare = address?.[1] ?? address?.[2] ?? text;
  const family = isIP(bare);
  if (family === 0 || bare.includes('%')) return undefined;
  if (family === 4) return copyOf(bare);
  const canonical = new SocketAddress({ address: bare, family: 'ipv6' }).address;
  // An IPv4 client of an IPv6 socket.
  return canonical.startsWith('::ffff:') && canonical.includes('.') ? canonical.slice(7) : canonical;
}

function setUrl(details: AttackDetails, { url, query }: Pick<RawDetails, 'url' | 'query'>): void {
  if (!url || url === '-') return;
  // Enough for URL_BYTES_MAX, after the longest scheme and host name.
  const start = url.slice(0, 4 * URL_BYTES_MAX);
  const whole = start.startsWith('/') ? start : start.replace(/^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i, '');
  const end = endOfPath(whole);
  const path = whole.slice(0, end);
  // Lists show it after the host name, which it must not seem to continue.
  const rooted = path.startsWith('/') || path === '*' ? path : `/${path}`;
  details.url = urlText(maskPath(rooted), URL_BYTES_MAX);
  const text = query ?? (whole[end] === '?' ? whole.slice(end) : '');
  if (text !== '') setQuery(details, text, URL_BYTES_MAX - Buffer.byteLength(details.url));
}

/** From the question mark on; '' if there is none. */
export function queryOf(url: string): string {
  const end = endOfPath(url);
  return url[end] === '?' ? url.slice(end) : '';
}

function endOfPath(url: string): number {
  const query = url.indexOf('?');
  const fragment = url.lastIndexOf('#', query === -1 ? url.length : query) === -1 ? -1 : url.indexOf('#');
  return fragment === -1 ? (query === -1 ? url.length : query) : fragment;
}

/** `text` may begin with a question mark. */
function setQuery(details: AttackDetails, text: string, bytesMax: number): void {
  const end = text.indexOf('#');
  const query = text.slice(text.startsWith('?') ? 1 : 0, end === -1 ? 4 * URL_BYTES_MAX : end);
  const kept = urlText(maskQuery(query), bytesMax);
  if (kept !== '') details.query = kept;
}

function urlText(text: string, bytesMax: number): string {
  return printableStart(text.includes(' ') ? text.replaceAll(' ', '%20') : text, bytesMax);
}

/** What to keep of attacks. */
export interface Privacy {
  /** Of client addresses: all (the default), their network, or nothing. */
  attackSources?: 'full' | 'prefix' | 'off' | undefined;
  /** Of URLs: path and query (the default), or the path only. */
  attackQueries?: 'on' | 'off' | undefined;
  /** Of matched rules: values, too (the default), or only variables. */
  attackValues?: 'on' | 'off' | undefined;
}

/** Variables whose values have the address of a client, and those that have the query or may be arguments of it. */
const ADDRESS_VARIABLE =
  /addr|forwarded|(?<![a-z])(?:ip|via)(?![a-z])|(?:client|connecting|real|remote|socket)[_-]?(?:host|ip)/i;
const QUERY_VARIABLE =
  /^(?:arg(?!s_post)|param|[^:]*(?:query|ur[il]|full_?request|request_?line|matched_?var))|referer|:x-.*ur[il]/i;

export function applyPrivacy(details: AttackDetails, privacy: Privacy): void {
  const { attackSources = 'full', attackQueries = 'on', attackValues = 'on' } = privacy;
  if (attackSources === 'full' && attackQueries === 'on' && attackValues === 'on') return;
  const { source, rules, userAgent } = details;
  if (attackSources === 'off') delete details.source;
  else if (attackSources === 'prefix' && source) details.source = networkOf(source, { ipv4: 24, ipv6: 48 });
  if (attackQueries === 'off') delete details.query;
  const hasSource = (text: string) =>
    attackSources !== 'full' && source !== undefined && decode(text).toLowerCase().includes(source);
  if (userAgent !== undefined && hasSource(userAgent)) delete details.userAgent;
  if (rules === undefined) return;
  details.rules = rules.map(({ value, ...rule }) => {
    const { variable = '' } = rule;
    const isHidden =
      value === undefined ||
      attackValues === 'off' ||
      (attackSources !== 'full' && ADDRESS_VARIABLE.test(variable)) ||
      (attackQueries === 'off' && QUERY_VARIABLE.test(variable)) ||
      hasSource(value);
    return isHidden ? rule : { ...rule, value };
  });
}
