/** Access log of AWS Application Load Balancers: every line is a request, and says whether AWS WAF refused it. */
import { attackDetails } from '../../event.ts';
import { ALB_REFUSED } from '../categories/vendor-tables.ts';
import { request } from './access.ts';
import { dropped, type Reading, type TextFormat } from './format.ts';
import { hostOfUrl } from './request-url.ts';
import { parseTime } from './time.ts';

export const awsAlb: TextFormat = {
  name: 'aws-alb',
  about: 'access log of AWS Application Load Balancers',
  traits: [
    ['type like https or h2 at its start', (line) => /^(?:https?|h2|grpcs|wss?) /.test(line)],
    ['time in ISO 8601 as its second field', (line) => /^\S+ \d{4}-\d{2}-\d{2}T\S+Z /.test(line)],
    ['quoted request with the whole URL', (line) => / "[A-Z-]+ \w+:\/\//.test(line)],
  ],
  recognizes: (line) => /^(?:https?|h2|grpcs|wss?) \d{4}-\d{2}-\d{2}T/.test(line),
  parse: parseAlb,
};

/** Fields in front of the request, none of which the client chooses. */
const FIELDS = 12;
const TIME = 1;
const CLIENT = 3;
/**
 * `"domain" "certificate" priority time "actions"`. Not by counting fields: a client that sends quotes or backslashes in its
 * user agent must not be able to move them. No quote of a client stands bare in the log.
 */
const ACTIONS = / "([^"]*)" "[^"]*" -?\d* ?(\d{4}-\d{2}-\d{2}T[\d:.]{8,18}Z) "([a-z\d,-]*)"/;

function parseAlb(line: string): Reading {
  const fields = line.split(' ', FIELDS);
  const written = parseTime(fields[TIME]);
  if (written === null) return dropped('unknown_format');
  const rest = line.slice(fields.reduce((length, field) => length + field.length + 1, 0));
  const [method, target] = rest.split(' ', 2);
  if (!method?.startsWith('"') || !target) return dropped('bad_record');
  // A request that is no HTTP: `"- http://shop.example.com:80- -"`.
  const url = method === '"-' && target.endsWith('-') ? target.slice(0, -1) : target;
  const [, domain, created, actions = ''] = ACTIONS.exec(rest) ?? [];
  // As in other logs: when the request came. The first time in the line is that of the response.
  const time = parseTime(created) ?? written;
  const record = request(time, hostOfUrl(url) ?? (domain === '-' ? undefined : domain));
  // `waf,forward`: AWS WAF let it through. Without an action behind it, AWS WAF refused the request.
  if (!/(?:^|,)waf$/.test(actions)) return { kind: 'record', record };
  return {
    kind: 'record',
    record: {
      ...record,
      attack: ALB_REFUSED,
      details: attackDetails({ blocked: true, source: fields[CLIENT], url }),
      evidence: [{ rule: 'waf', points: 0, category: ALB_REFUSED, because: 'AWS WAF refused the request' }],
    },
  };
}
