/** Access log of Traefik as JSON. (In the common log format it is `access`.) */
import { request } from './access.ts';
import { firstText } from './access-json.ts';
import { anyOf, type Context, dropped, type JsonFormat, type Reading } from './format.ts';
import type { JsonObject } from './json-line.ts';
import { parseAnyTime } from './log-time.ts';

const TIMES = ['StartUTC', 'StartLocal', 'time'];

export const traefik: JsonFormat = {
  name: 'traefik',
  about: 'access log of Traefik as JSON',
  traits: [anyOf('request', ['DownstreamStatus', 'RequestHost']), anyOf('time', TIMES)],
  recognizes: (fields) =>
    'DownstreamStatus' in fields || ('RequestHost' in fields && ('StartUTC' in fields || 'time' in fields)),
  parse: parseTraefik,
};

function parseTraefik(fields: JsonObject, { zone }: Context): Reading {
  const stated = firstText(fields, TIMES);
  const time = stated === undefined ? null : parseAnyTime(stated, zone);
  // RequestAddr is the host with its port.
  return time === null
    ? dropped('bad_time')
    : { kind: 'record', record: request(time, firstText(fields, ['RequestHost', 'RequestAddr'])) };
}
