/** The audit log of Coraza as JSON: a line is a transaction. */
import { attackDetails } from '../../event.ts';
import type { Rule } from '../categories/classify.ts';
import { anyOf, type Context, dropped, type JsonFormat, objectField, type Reading } from './format.ts';
import { asArray, asObject, asText, type JsonObject } from './json-line.ts';
import { parseAnyTime, parseEpoch } from './log-time.ts';
import { hostHeader, markDenied, ruleOf, transactionField } from './modsecurity3-json.ts';
import { parseRuleText } from './rule-text.ts';

export const corazaJson: JsonFormat = {
  name: 'coraza-json',
  about: 'audit log of Coraza, JSON',
  traits: [
    objectField('transaction'),
    anyOf('messages array', ['messages']),
    transactionField('unix_timestamp'),
  ],
  recognizes: (fields) => asObject(fields.transaction)?.unix_timestamp !== undefined,
  parse: parseCoraza,
};

function parseCoraza(fields: JsonObject, { zone }: Context): Reading {
  const transaction = asObject(fields.transaction);
  if (transaction === null) return dropped('bad_record');
  // Nanoseconds in its code, seconds in its documentation.
  const time = parseEpoch(transaction.unix_timestamp) ?? parseAnyTime(transaction.timestamp, zone);
  if (time === null) return dropped('bad_time');
  const request = asObject(transaction.request);
  const host = hostOf(asObject(request?.headers));
  const rules = asArray(fields.messages).flatMap((message) => rulesOf(asObject(message)));
  const { is_interrupted, client_ip } = transaction;
  const blocked = typeof is_interrupted === 'boolean' ? is_interrupted : undefined;
  if (blocked) markDenied(rules);
  const details = attackDetails({ blocked, source: asText(client_ip), url: asText(request?.uri) });
  return { kind: 'transaction', transaction: { id: asText(transaction.id), time, host, rules, details } };
}

/** Every header has a list of values. */
function hostOf(headers: JsonObject | null): string | undefined {
  const [first] = asArray(headers?.host ?? headers?.Host);
  return typeof first === 'string' ? first : hostHeader(headers);
}

function rulesOf(message: JsonObject | null): Rule[] {
  const data = asObject(message?.data);
  const id = asText(data?.id);
  if (data !== null && id !== '' && id !== '0')
    return [ruleOf(id, data, asText(data.msg) || asText(message?.message))];
  const text = parseRuleText(asText(message?.error_message));
  return text === null ? [] : [text.rule];
}
