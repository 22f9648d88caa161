/** The audit log of ModSecurity 2 as JSON: a line is a transaction, its rules are text. */
import { dropped, type JsonFormat, type Reading } from './format.ts';
import { asArray, asObject, asText, type JsonObject } from './json-line.ts';
import { parseCommonTime } from './log-time.ts';
import { hostHeader } from './modsecurity3-json.ts';
import { parseRuleText } from './rule-text.ts';

export const modsecurity2Json: JsonFormat = {
  name: 'modsecurity2-json',
  about: 'audit log of ModSecurity 2, JSON',
  recognizes: (fields) => asObject(fields.transaction)?.time !== undefined,
  parse: parseModsecurity2,
};

function parseModsecurity2(fields: JsonObject): Reading {
  const transaction = asObject(fields.transaction);
  if (transaction === null) return dropped('bad_record');
  const time = parseCommonTime(asText(transaction.time));
  if (time === null) return dropped('bad_time');
  const host = hostHeader(asObject(asObject(fields.request)?.headers));
  // `error_messages` says the same again.
  const messages = asArray(asObject(fields.audit_data)?.messages);
  const rules = messages.flatMap((message) => parseRuleText(asText(message))?.rule ?? []);
  return { kind: 'transaction', transaction: { id: asText(transaction.transaction_id), time, host, rules } };
}
