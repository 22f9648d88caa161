/** Reads alerts as people and programs write them. Every mistake is an Error whose message names the field and the fix. */
import { isIP } from 'node:net';
import { CATEGORIES, isCategory, normalHostname } from '../event.ts';
import type { NewAlert } from '../identity/administration.ts';
import type { AlertRule } from '../identity/records.ts';
import { isLoopback } from '../loopback.ts';
import { isSourceName } from '../printable.ts';
import { SENSITIVITY } from '../statistics/bursts.ts';
import { zoneOf } from '../zone.ts';
import { isPrivateAddress } from './addresses.ts';

const MINUTE_S = 60;
/** Longer windows react too late, and read more than a chunk of minutes. */
const WINDOW_S_MAX = 86_400;
const ATTACKS_MAX = 1_000_000_000;
const SENSITIVITY_MAX = 100;
/** Longer ones are cut off by mail servers (RFC 5321) and proxies. */
const ADDRESS_LENGTH_MAX = 254;
const URL_LENGTH_MAX = 2_048;
const DAYS = ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun'];
const DAY_MINUTES = 1_440;

export const RULE_KINDS = ['threshold', 'spike', 'errors', 'silent', 'dropped', 'report'] as const;

type Fields = Readonly<Record<string, unknown>>;

/** `allowPrivate`: whether webhooks may be on private addresses. */
export function parseAlert(value: unknown, allowPrivate: boolean): NewAlert {
  const fields = objectOf(value, 'the alert');
  const { name, rule, webhook, mail } = fields;
  checkFields(fields, ['name', 'rule', 'webhook', 'mail'], '');
  if (typeof name !== 'string') throw new Error('name must be a string');
  if ((webhook === undefined) === (mail === undefined))
    throw new Error('the alert needs a webhook or a mail address: one of both');
  const parsed = parseRule(objectOf(rule, 'rule'));
  if (parsed.kind === 'report' && mail === undefined)
    throw new Error('a report is sent by mail: set a mail address instead of a webhook');
  const channel =
    mail === undefined ? { webhook: webhookUrl(webhook, allowPrivate) } : { mail: mailAddress(mail) };
  return { name, rule: parsed, channel };
}

function parseRule(fields: Fields): AlertRule {
  const kind = RULE_KINDS.find((one) => one === fields.kind);
  const allow = (...names: string[]) => checkFields(fields, ['kind', ...names], 'rule.');
  const seconds = (name: string) => wholeNumber(fields, name, MINUTE_S, WINDOW_S_MAX, MINUTE_S);
  const percent = () => wholeNumber(fields, 'percent', 1, 100);
  switch (kind) {
    case 'threshold':
      allow('attacks', 'within_s', 'category', 'host', 'not_blocked');
      return {
        kind,
        attacks: wholeNumber(fields, 'attacks', 1, ATTACKS_MAX),
        within_s: seconds('within_s'),
        ...selection(fields),
        ...(notBlocked(fields) && { not_blocked: true }),
      };
    case 'spike':
      allow('sensitivity', 'category', 'host');
      return { kind, sensitivity: sensitivity(fields), ...selection(fields) };
    case 'errors':
      allow('percent', 'within_s', 'host');
      return { kind, percent: percent(), within_s: seconds('within_s'), ...selection({ host: fields.host }) };
    case 'dropped':
      allow('percent', 'within_s');
      return { kind, percent: percent(), within_s: seconds('within_s') };
    case 'silent':
      allow('source', 'for_s');
      if (typeof fields.source !== 'string' || !isSourceName(fields.source))
        throw new Error('rule.source must be the name of a log source');
      return { kind, source: fields.source, for_s: seconds('for_s') };
    case 'report':
      allow('at', 'timezone');
      return { kind, ...schedule(fields) };
    default:
      throw new Error(`rule.kind must be one of ${RULE_KINDS.join(', ')}`);
  }
}

function selection({ category, host }: Fields): { category?: string; host?: string } {
  if (category !== undefined && !isCategory(category))
    throw new Error(`rule.category must be one of ${CATEGORIES.join(', ')}`);
  const hostname = typeof host === 'string' ? normalHostname(host) : null;
  if (host !== undefined && hostname === null)
    throw new Error('rule.host must be a host name, such as www.example.com');
  return { ...(category !== undefined && { category }), ...(hostname !== null && { host: hostname }) };
}

function notBlocked({ not_blocked = false }: Fields): boolean {
  if (typeof not_blocked !== 'boolean') throw new Error('rule.not_blocked must be true or false');
  return not_blocked;
}

function sensitivity({ sensitivity: given = SENSITIVITY }: Fields): number {
  if (typeof given === 'number' && given >= 1 && given <= SENSITIVITY_MAX) return given;
  throw new Error(
    `rule.sensitivity must be a number from 1 to ${SENSITIVITY_MAX}; a higher one alerts less often`,
  );
}

/** `Mon 08:00`, by the clock of the time zone. */
function schedule({ at = 'Mon 08:00', timezone = '+00:00' }: Fields): { minute: number; timezone: string } {
  const [, day = '', hour, minute] = /^([A-Z][a-z]{2}) ([01]\d|2[0-3]):([0-5]\d)$/.exec(String(at)) ?? [];
  const index = DAYS.indexOf(day);
  if (index === -1) throw new Error("rule.at must be a day and a time, like 'Mon 08:00'");
  try {
    const { name } = zoneOf(String(timezone));
    return { minute: index * DAY_MINUTES + Number(hour) * 60 + Number(minute), timezone: name };
  } catch (error) {
    throw new Error(`rule.timezone ${(error as Error).message}`);
  }
}

/** The rule as programs write it. */
export function ruleFields(rule: AlertRule): Fields {
  if (rule.kind !== 'report') return rule;
  const { minute, timezone } = rule;
  const digits = (number: number) => String(number).padStart(2, '0');
  const [day, rest] = [Math.floor(minute / DAY_MINUTES), minute % DAY_MINUTES];
  return {
    kind: 'report',
    at: `${DAYS[day]} ${digits(Math.floor(rest / 60))}:${digits(rest % 60)}`,
    timezone,
  };
}

/** Names are checked again when they are resolved. */
function webhookUrl(value: unknown, allowPrivate: boolean): string {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : null;
  if (url === null || !/^https?:$/.test(url.protocol) || url.href.length > URL_LENGTH_MAX)
    throw new Error(
      `webhook must be a URL like https://hooks.example.com/x, with at most ${URL_LENGTH_MAX} characters`,
    );
  if (url.username || url.password) throw new Error('webhook must not contain a user or password');
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1');
  if (allowPrivate) return url.href;
  if (isLoopback(host) || /(^|\.)localhost\.?$/.test(host) || (isIP(host) && isPrivateAddress(host)))
    throw new Error(
      `webhook ${host} is a loopback, link-local or private address: use a public one, or --alert-allow-private of the service and of this command`,
    );
  if (url.protocol === 'http:')
    throw new Error(
      'webhook must be https; plain http needs --alert-allow-private of the service and of this command',
    );
  return url.href;
}

/** One plain address: names, lists and comments of RFC 5322 are refused. */
export function mailAddress(value: unknown): string {
  const text = typeof value === 'string' ? value : '';
  const isValid = /^[\w.!#$%&'*+/=?^`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?$/.test(text);
  if (isValid && text.length <= ADDRESS_LENGTH_MAX) return text;
  throw new Error('mail must be one address, like ops@example.com');
}

function objectOf(value: unknown, name: string): Fields {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Fields;
  throw new Error(`${name} must be a JSON object`);
}

function checkFields(fields: Fields, known: readonly string[], prefix: string): void {
  const unknown = Object.keys(fields).find((name) => !known.includes(name));
  if (unknown !== undefined)
    throw new Error(`unknown field ${prefix}${unknown.slice(0, 64)}: use ${known.join(', ')}`);
}

function wholeNumber(fields: Fields, name: string, min: number, max: number, step = 1): number {
  const value = fields[name];
  if (typeof value === 'number' && Number.isInteger(value / step) && value >= min && value <= max)
    return value;
  const rule = step === 1 ? 'a whole number' : `a multiple of ${step}`;
  throw new Error(`rule.${name} must be ${rule} from ${min} to ${max}`);
}
