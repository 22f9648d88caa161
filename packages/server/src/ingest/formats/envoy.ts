/** Access log of Envoy and Istio as JSON: every object is a request; one that a rate limit refused is an attack too. */
import { attackDetails } from '../../event.ts';
import { request } from './access.ts';
import { firstText } from './access-json.ts';
import { anyOf, type Context, dropped, type JsonFormat, type Reading } from './format.ts';
import { asText, type JsonObject } from './json-line.ts';
import { parseAnyTime } from './log-time.ts';

export const envoy: JsonFormat = {
  name: 'envoy',
  about: 'access log of Envoy or Istio as JSON',
  traits: [
    anyOf('start_time', ['start_time']),
    [
      'response_flags, or authority and path',
      (fields) => 'response_flags' in fields || ('authority' in fields && 'path' in fields),
    ],
  ],
  recognizes: (fields) =>
    'start_time' in fields && ('response_flags' in fields || ('authority' in fields && 'path' in fields)),
  parse: parseEnvoy,
};

function parseEnvoy(fields: JsonObject, { zone }: Context): Reading {
  const time = parseAnyTime(fields.start_time, zone);
  if (time === null) return dropped('bad_time');
  const record = request(time, firstText(fields, ['authority', ':authority', 'requested_server_name']));
  // RL: the rate limit filter refused the request. RLSE, a fault of the rate limit service, is another flag.
  if (!/(?:^|,)RL(?:,|$)/.test(asText(fields.response_flags))) return { kind: 'record', record };
  const details = attackDetails({
    blocked: true,
    source: firstText(fields, ['downstream_remote_address']),
    url: firstText(fields, ['path', 'x_envoy_original_path']),
  });
  const evidence = [
    { rule: 'RL', points: 0, category: 'cc', because: 'Envoy refused the request: rate limit' },
  ] as const;
  return { kind: 'record', record: { ...record, attack: 'cc', details, evidence } };
}
