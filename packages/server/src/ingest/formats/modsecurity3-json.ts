/** The audit log of ModSecurity 3 as JSON: a line is a transaction. */
import { attackDetails } from '../../event.ts';
import { isVerdictRule, type Rule, scoresOf } from '../categories/classify.ts';
import { type Context, dropped, type JsonFormat, objectField, type Reading, type Traits } from './format.ts';
import { asArray, asObject, asText, type JsonObject } from './json-line.ts';
import { parseAsctime } from './log-time.ts';
import { timeOfId } from './modsecurity-id.ts';

export const modsecurity3Json: JsonFormat = {
  name: 'modsecurity3-json',
  about: 'audit log of ModSecurity 3, JSON',
  traits: [objectField('transaction'), transactionField('time_stamp')],
  recognizes: (fields) => asObject(fields.transaction)?.time_stamp !== undefined,
  parse: parseModsecurity3,
};

/** A trait: this field of `transaction`. */
export function transactionField(name: string): Traits<JsonObject>[number] {
  return [`transaction.${name}`, (fields) => asObject(fields.transaction)?.[name] !== undefined];
}

function parseModsecurity3(fields: JsonObject, { zone }: Context): Reading {
  const transaction = asObject(fields.transaction);
  if (transaction === null) return dropped('bad_record');
  const id = asText(transaction.unique_id);
  const time = timeOfId(id) ?? parseAsctime(asText(transaction.time_stamp), zone);
  if (time === null) return dropped('bad_time');
  const request = asObject(transaction.request);
  const host = hostHeader(asObject(request?.headers)) ?? (asText(request?.hostname) || undefined);
  const rules = rulesOf(transaction.messages);
  const blocked = isBlocked(transaction, rules);
  if (blocked) markDenied(rules);
  const details = attackDetails({
    blocked,
    source: asText(transaction.client_ip),
    url: asText(request?.uri),
  });
  return { kind: 'transaction', transaction: { id, time, host, rules, details } };
}

const FORBIDDEN = 403;
const FIRST_REDIRECT = 300;

/** Since 3.0.16 the log says it. Before, it follows from the status, when a rule matched that can have set it. */
function isBlocked(transaction: JsonObject, rules: readonly Rule[]): boolean | undefined {
  if (typeof transaction.is_interrupted === 'boolean') return transaction.is_interrupted;
  const engine = asText(asObject(transaction.producer)?.secrules_engine);
  if (engine === 'DetectionOnly') return false;
  const status = Number(asText(asObject(transaction.response)?.http_code));
  if (engine !== 'Enabled' || !(status > 0)) return undefined;
  if (status < FIRST_REDIRECT) return false;
  // Without a verdict, an own rule can have denied the request. It is the last then: the engine stops behind it.
  const canDeny = rules.some(isVerdict) || lastRule(rules)?.ver === '';
  return status === FORBIDDEN && canDeny ? true : undefined;
}

/** The log does not say which rule denied a request that was stopped: the verdict did, or the last rule before 980. */
export function markDenied(rules: readonly Rule[]): void {
  if (rules.some(({ denied }) => denied)) return;
  const rule = rules.find(isVerdict) ?? lastRule(rules);
  if (rule !== undefined) rule.denied = true;
}

function lastRule(rules: readonly Rule[]): Rule | undefined {
  return rules.findLast(({ id }) => !id.startsWith('980'));
}

function isVerdict({ id }: Rule): boolean {
  return isVerdictRule(id);
}

/** `Host`, in whatever case the client wrote it. */
export function hostHeader(headers: JsonObject | null): string | undefined {
  if (headers === null) return undefined;
  const usual = headers.Host ?? headers.host;
  if (typeof usual === 'string') return usual;
  const name = Object.keys(headers).find((key) => key.length === 4 && key.toLowerCase() === 'host');
  return name === undefined ? undefined : asText(headers[name]) || undefined;
}

function rulesOf(messages: unknown): Rule[] {
  const rules: Rule[] = [];
  for (const message of asArray(messages)) {
    const details = asObject(asObject(message)?.details);
    if (details === null) continue;
    const id = asText(details.ruleId);
    if (id !== '') rules.push(ruleOf(id, details, asText(asObject(message)?.message)));
  }
  return rules;
}

export function ruleOf(id: string, details: JsonObject, message: string): Rule {
  return {
    ...(id.startsWith('980') && scoresOf(message)),
    id,
    severity: asText(details.severity),
    ver: asText(details.ver),
    file: asText(details.file),
    tags: textsOf(details.tags),
  };
}

function textsOf(value: unknown): readonly string[] {
  const items = asArray(value);
  return items.every((item) => typeof item === 'string') ? items : items.map(asText);
}
