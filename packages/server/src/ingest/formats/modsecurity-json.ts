/** JSON audit logs of ModSecurity 3, ModSecurity 2 and Coraza: a line is a transaction. */
import { addScores, isVerdict, type Rule } from '../categories/classify.ts';
import { dropped, field, type JsonFormat, objectField, parseRequestLine, type Trait } from './format.ts';
import { asArray, asObject, asText, type JsonObject, objectsOf } from './json.ts';
import { parseRuleText, setMatchedPart } from './rules.ts';
import { parseAnyTime, parseAsctime, parseCommonTime, timeOfModsecurityId } from './timestamps.ts';

export const modsecurity3Json: JsonFormat = {
  name: 'modsecurity3-json',
  traits: [objectField('transaction'), transactionField('time_stamp')],
  recognizes: (fields) => asObject(fields.transaction)?.time_stamp !== undefined,
  parse(fields, { zone }) {
    const transaction = asObject(fields.transaction);
    if (transaction === null) return dropped('bad_record');
    const id = asText(transaction.unique_id);
    const time = timeOfModsecurityId(id) ?? parseAsctime(asText(transaction.time_stamp), zone);
    if (time === null) return dropped('bad_time');
    const request = asObject(transaction.request);
    const headers = asObject(request?.headers);
    const host = headerOf(headers, 'Host') ?? (asText(request?.hostname) || undefined);
    const rules = modsecurity3Rules(transaction.messages);
    const blocked = isBlocked(transaction, rules);
    if (blocked) markDenied(rules);
    const details = {
      blocked,
      source: asText(transaction.client_ip),
      method: asText(request?.method),
      url: asText(request?.uri),
      status: asText(asObject(transaction.response)?.http_code),
      userAgent: headerOf(headers, 'User-Agent'),
    };
    return { kind: 'transaction', transaction: { id, time, host, rules, details } };
  },
};

function transactionField(name: string): Trait<JsonObject> {
  return [`transaction.${name}`, (fields) => asObject(fields.transaction)?.[name] !== undefined];
}

function modsecurity3Rules(messages: unknown): Rule[] {
  const rules: Rule[] = [];
  for (const { details, message } of objectsOf(messages)) {
    const fields = asObject(details);
    const id = asText(fields?.ruleId);
    if (fields !== null && id !== '') rules.push(ruleOf(id, fields, asText(message)));
  }
  return rules;
}

function ruleOf(id: string, details: JsonObject, message: string): Rule {
  const rule: Rule = {
    id,
    severity: asText(details.severity),
    ver: asText(details.ver),
    file: asText(details.file),
    tags: asArray(details.tags).map(asText),
    variable: undefined,
    value: undefined,
  };
  setMatchedPart(rule, asText(details.match), asText(details.data));
  addScores(rule, message);
  return rule;
}

/** Logged since 3.0.16. For earlier releases, it follows from the status, if a rule matched that can have set it. */
function isBlocked(transaction: JsonObject, rules: readonly Rule[]): boolean | undefined {
  if (typeof transaction.is_interrupted === 'boolean') return transaction.is_interrupted;
  const engine = asText(asObject(transaction.producer)?.secrules_engine);
  if (engine === 'DetectionOnly') return false;
  const status = Number(asText(asObject(transaction.response)?.http_code));
  if (engine !== 'Enabled' || !(status > 0)) return undefined;
  if (status < 300) return false;
  // Without a verdict, a custom rule can have denied the request. The engine stops there, so it is the last rule.
  const canDeny = rules.some(isVerdict) || lastRule(rules)?.ver === '';
  return status === 403 && canDeny ? true : undefined;
}

/** The log does not say which rule denied the request: the verdict did, or the last rule before 980. */
function markDenied(rules: readonly Rule[]): void {
  if (rules.some(({ denied }) => denied)) return;
  const rule = rules.find(isVerdict) ?? lastRule(rules);
  if (rule !== undefined) rule.denied = true;
}

function lastRule(rules: readonly Rule[]): Rule | undefined {
  return rules.findLast(({ id }) => !id.startsWith('980'));
}

/** In any case. Coraza has a list of values for every header. */
function headerOf(headers: JsonObject | null, name: string): string | undefined {
  if (headers === null) return undefined;
  const lower = name.toLowerCase();
  const value = headers[name] ?? headers[lower] ?? headers[keyOf(headers, lower)];
  return asText(Array.isArray(value) ? value[0] : value) || undefined;
}

function keyOf(headers: JsonObject, lower: string): string {
  const isSame = (key: string) => key.length === lower.length && key.toLowerCase() === lower;
  return Object.keys(headers).find(isSame) ?? '';
}

export const modsecurity2Json: JsonFormat = {
  name: 'modsecurity2-json',
  traits: [objectField('transaction'), objectField('audit_data'), transactionField('time')],
  recognizes: (fields) => asObject(fields.transaction)?.time !== undefined,
  parse(fields) {
    const transaction = asObject(fields.transaction);
    if (transaction === null) return dropped('bad_record');
    const time = parseCommonTime(asText(transaction.time));
    if (time === null) return dropped('bad_time');
    const request = asObject(fields.request);
    const headers = asObject(request?.headers);
    // `error_messages` repeats these messages.
    const audit = asObject(fields.audit_data);
    const rules = asArray(audit?.messages).flatMap((message) => parseRuleText(asText(message))?.rule ?? []);
    const details = {
      blocked: audit === null ? undefined : asObject(audit.action)?.intercepted === true,
      source: asText(transaction.remote_address),
      ...parseRequestLine(asText(request?.request_line)),
      status: asText(asObject(fields.response)?.status),
      userAgent: headerOf(headers, 'User-Agent'),
    };
    const id = asText(transaction.transaction_id);
    const host = headerOf(headers, 'Host');
    return { kind: 'transaction', transaction: { id, time, host, rules, details } };
  },
};

export const corazaJson: JsonFormat = {
  name: 'coraza-json',
  traits: [
    objectField('transaction'),
    field('messages array', ['messages']),
    transactionField('unix_timestamp'),
  ],
  recognizes: (fields) => asObject(fields.transaction)?.unix_timestamp !== undefined,
  parse(fields, { zone }) {
    const transaction = asObject(fields.transaction);
    if (transaction === null) return dropped('bad_record');
    // Nanoseconds in Coraza's code, seconds in its documentation.
    const time = parseAnyTime(transaction.unix_timestamp, zone) ?? parseAnyTime(transaction.timestamp, zone);
    if (time === null) return dropped('bad_time');
    const request = asObject(transaction.request);
    const headers = asObject(request?.headers);
    const host = headerOf(headers, 'Host');
    const rules = objectsOf(fields.messages).flatMap(corazaRule);
    const { id, is_interrupted, client_ip } = transaction;
    const blocked = typeof is_interrupted === 'boolean' ? is_interrupted : undefined;
    if (blocked) markDenied(rules);
    const details = {
      blocked,
      source: asText(client_ip),
      method: asText(request?.method),
      url: asText(request?.uri),
      status: asText(asObject(transaction.response)?.status),
      userAgent: headerOf(headers, 'User-Agent'),
    };
    return { kind: 'transaction', transaction: { id: asText(id), time, host, rules, details } };
  },
};

function corazaRule(message: JsonObject): Rule[] {
  const data = asObject(message.data);
  const id = asText(data?.id);
  if (data !== null && id !== '' && id !== '0')
    return [ruleOf(id, data, asText(data.msg) || asText(message.message))];
  const text = parseRuleText(asText(message.error_message));
  return text === null ? [] : [text.rule];
}
