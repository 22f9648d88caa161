/** AWS WAF: a JSON object is a request with its verdict, so it gives the request and, if there was one, the attack. */
import { judgeAws } from './aws-evidence.ts';
import { dropped, type JsonFormat, type Reading } from './format.ts';
import { asArray, asObject, asText, type JsonObject } from './json-line.ts';
import { parseEpoch } from './log-time.ts';

export const awsWaf: JsonFormat = {
  name: 'aws-waf',
  about: 'AWS WAF, JSON: one object a line, or many',
  recognizes: (fields) => fields.webaclId !== undefined && fields.httpRequest !== undefined,
  parse: parseAwsWaf,
};

function parseAwsWaf(fields: JsonObject): Reading {
  const time = parseEpoch(fields.timestamp);
  if (time === null) return dropped('bad_time');
  const evidence = judgeAws(fields);
  const attack = evidence.find(({ category }) => category !== null)?.category ?? null;
  return {
    kind: 'record',
    record: {
      time,
      host: hostOf(asObject(fields.httpRequest)),
      hostId: undefined,
      request: true,
      attack,
      count: 1,
      evidence: evidence.length > 0 ? evidence : undefined,
    },
  };
}

function hostOf(request: JsonObject | null): string | undefined {
  for (const header of asArray(request?.headers)) {
    const { name, value } = asObject(header) ?? {};
    if (typeof name === 'string' && name.length === 4 && name.toLowerCase() === 'host') {
      return asText(value) || undefined;
    }
  }
  return asText(request?.host) || undefined;
}
