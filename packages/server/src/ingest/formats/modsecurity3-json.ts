/** The audit log of ModSecurity 3 as JSON: a line is a transaction. */
import type { Rule } from '../categories/judge.ts';
import { type Context, dropped, type JsonFormat, type Reading } from './format.ts';
import { asArray, asObject, asText, type JsonObject } from './json-line.ts';
import { parseAsctime } from './log-time.ts';
import { timeOfId } from './modsecurity-id.ts';

export const modsecurity3Json: JsonFormat = {
  name: 'modsecurity3-json',
  about: 'audit log of ModSecurity 3, JSON',
  recognizes: (fields) => asObject(fields.transaction)?.time_stamp !== undefined,
  parse: parseModsecurity3,
};

function parseModsecurity3(fields: JsonObject, { zone }: Context): Reading {
  const transaction = asObject(fields.transaction);
  if (transaction === null) return dropped('bad_record');
  const id = asText(transaction.unique_id);
  const time = timeOfId(id) ?? parseAsctime(asText(transaction.time_stamp), zone);
  if (time === null) return dropped('bad_time');
  const request = asObject(transaction.request);
  const host = hostHeader(asObject(request?.headers)) ?? (asText(request?.hostname) || undefined);
  return { kind: 'transaction', transaction: { id, time, host, rules: rulesOf(transaction.messages) } };
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
    if (id !== '') rules.push(ruleOf(id, details));
  }
  return rules;
}

export function ruleOf(id: string, details: JsonObject): Rule {
  return {
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
