/** The audit log of ModSecurity 2 as JSON: a line is a transaction, its rules are text. */
import { attackDetails } from '../../event.ts';
import { dropped, type JsonFormat, objectField, type Reading } from './format.ts';
import { asArray, asObject, asText, type JsonObject } from './json-line.ts';
import { parseCommonTime } from './log-time.ts';
import { hostHeader, transactionField } from './modsecurity3-json.ts';
import { parseRuleText } from './rule-text.ts';

export const modsecurity2Json: JsonFormat = {
  name: 'modsecurity2-json',
  about: 'audit log of ModSecurity 2, JSON',
  traits: [objectField('transaction'), objectField('audit_data'), transactionField('time')],
  recognizes: (fields) => asObject(fields.transaction)?.time !== undefined,
  parse: parseModsecurity2,
};

function parseModsecurity2(fields: JsonObject): Reading {
  const transaction = asObject(fields.transaction);
  if (transaction === null) return dropped('bad_record');
  const time = parseCommonTime(asText(transaction.time));
  if (time === null) return dropped('bad_time');
  const request = asObject(fields.request);
  const host = hostHeader(asObject(request?.headers));
  // `error_messages` says the same again.
  const audit = asObject(fields.audit_data);
  const messages = asArray(audit?.messages);
  const rules = messages.flatMap((message) => parseRuleText(asText(message))?.rule ?? []);
  const details = attackDetails({
    blocked: audit === null ? undefined : asObject(audit.action)?.intercepted === true,
    source: asText(transaction.remote_address),
    url: pathOfRequestLine(asText(request?.request_line)),
  });
  return {
    kind: 'transaction',
    transaction: { id: asText(transaction.transaction_id), time, host, rules, details },
  };
}

/** `GET /path?query HTTP/1.1` */
export function pathOfRequestLine(line: string): string | undefined {
  const start = line.indexOf(' ') + 1;
  const end = line.indexOf(' ', start);
  return start === 0 ? undefined : line.slice(start, end === -1 ? line.length : end);
}
