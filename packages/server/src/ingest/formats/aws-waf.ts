/** AWS WAF: a JSON object is a request with its verdict, so it gives the request and, if there was one, the attack. */
import { attackDetails } from '../../event.ts';
import { judgeAws } from './aws-evidence.ts';
import { anyOf, dropped, type JsonFormat, objectField, type Reading } from './format.ts';
import { asArray, asObject, asText, type JsonObject } from './json-line.ts';
import { parseEpoch } from './log-time.ts';

export const awsWaf: JsonFormat = {
  name: 'aws-waf',
  about: 'AWS WAF, JSON: one object a line, or many',
  traits: [
    objectField('httpRequest'),
    anyOf('action', ['action']),
    anyOf('webaclId', ['webaclId']),
    anyOf('timestamp', ['timestamp']),
  ],
  recognizes: (fields) => fields.webaclId !== undefined && fields.httpRequest !== undefined,
  parse: parseAwsWaf,
};

function parseAwsWaf(fields: JsonObject): Reading {
  const time = parseEpoch(fields.timestamp);
  if (time === null) return dropped('bad_time');
  const evidence = judgeAws(fields);
  const decided = evidence.find(({ category }) => category !== null);
  const request = asObject(fields.httpRequest);
  const details = attackDetails({
    blocked: isBlocked(asText(fields.action)),
    source: asText(request?.clientIp),
    url: asText(request?.uri),
    rule: decided?.rule,
    country: asText(request?.country),
  });
  return {
    kind: 'record',
    record: {
      time,
      host: hostOf(request),
      hostId: undefined,
      request: true,
      attack: decided?.category ?? null,
      count: 1,
      details: decided === undefined ? undefined : details,
      evidence: evidence.length > 0 ? evidence : undefined,
    },
  };
}

/** CAPTCHA and CHALLENGE are logged as the action only when they stopped the request. */
function isBlocked(action: string): boolean | undefined {
  return action === '' ? undefined : action !== 'ALLOW' && action !== 'COUNT';
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
