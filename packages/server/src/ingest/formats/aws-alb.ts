/** Access log of AWS Application Load Balancers: every line is a request, and says whether AWS WAF refused it. */
import { attackDetails } from '../attack-details.ts';
import { ALB_REFUSED } from '../categories/vendor-tables.ts';
import { request } from './access.ts';
import { dropped, type Reading, type TextFormat } from './format.ts';
import { hostOfUrl } from './request-url.ts';
import { parseTime } from './time.ts';

export const awsAlb: TextFormat = {
  name: 'aws-alb',
  about: 'access log of AWS Application Load Balancers',
  recognizes: (line) => /^(?:https?|h2|grpcs|wss?) \d{4}-\d{2}-\d{2}T/.test(line),
  parse: parseAlb,
};

/** Places of the fields. Later versions of the log add more at the end. */
const TIME = 1;
const CLIENT = 3;
const REQUEST = 12;
const DOMAIN = 18;
const CREATION_TIME = 21;
const ACTIONS = 22;
const FIELDS_MAX = ACTIONS + 1;

function parseAlb(line: string): Reading {
  const fields = splitFields(line);
  const time = parseTime(fields[CREATION_TIME]) ?? parseTime(fields[TIME]);
  if (time === null) return dropped('unknown_format');
  const [, url = ''] = (fields[REQUEST] ?? '').split(' ', 2);
  if (url === '') return dropped('bad_record');
  const domain = fields[DOMAIN];
  const record = request(time, hostOfUrl(url) ?? (domain === '-' ? undefined : domain));
  // `waf,forward`: AWS WAF let it through. Without an action behind it, AWS WAF refused the request.
  const isRefused = /(?:^|,)waf$/.test(fields[ACTIONS] ?? '');
  if (!isRefused) return { kind: 'record', record };
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

/** Separated by spaces, some of them in quotes; a quote inside has a backslash in front. */
function splitFields(line: string): string[] {
  const fields: string[] = [];
  for (let at = 0; at < line.length && fields.length < FIELDS_MAX; ) {
    const isQuoted = line[at] === '"';
    const start = isQuoted ? at + 1 : at;
    const found = isQuoted ? closingQuote(line, start) : line.indexOf(' ', start);
    const end = found === -1 ? line.length : found;
    fields.push(line.slice(start, end));
    at = isQuoted ? end + 2 : end + 1;
  }
  return fields;
}

function closingQuote(line: string, from: number): number {
  let at = line.indexOf('"', from);
  while (at !== -1 && line[at - 1] === '\\') at = line.indexOf('"', at + 1);
  return at;
}
