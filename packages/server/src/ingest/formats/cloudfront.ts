/** Standard access log of AWS CloudFront: columns with tabs between them, named by a `#Fields:` line, or JSON. */
import { request } from './access.ts';
import { anyOf, type Context, dropped, type JsonFormat, type Reading, type TextFormat } from './format.ts';
import { asText } from './json-line.ts';
import { parseEpoch } from './log-time.ts';
import { parseTime } from './time.ts';

const about = 'standard access log of AWS CloudFront, text or JSON';

export const cloudfrontText: TextFormat = {
  name: 'cloudfront',
  about,
  traits: [
    ['tab between the columns', (line) => line.includes('\t')],
    ['date or timestamp as its first column', (line) => STARTS.test(line)],
  ],
  recognizes: (line) => line.startsWith('#Fields: ') || line.startsWith('#Version: ') || STARTS.test(line),
  parse: parseText,
};

export const cloudfrontJson: JsonFormat = {
  name: 'cloudfront',
  about,
  traits: [
    anyOf('request', ['x-edge-request-id', 'x-edge-result-type']),
    anyOf('time', ['date', 'timestamp(ms)', 'timestamp']),
  ],
  recognizes: (fields) => 'x-edge-request-id' in fields || 'x-edge-result-type' in fields,
  parse: (fields) => recordOf((name) => asText(fields[name])),
};

/** A date, or a count of seconds or milliseconds, and a tab. */
const STARTS = /^(?:\d{4}-\d{2}-\d{2}|\d{10}(?:\d{3})?)\t/;

/** The beginning of a line without a `#Fields:` line before it: the order has never changed, new columns come last. */
const DEFAULT_COLUMNS = [
  'date',
  'time',
  'x-edge-location',
  'sc-bytes',
  'c-ip',
  'cs-method',
  'cs(Host)',
  'cs-uri-stem',
  'sc-status',
  'cs(Referer)',
  'cs(User-Agent)',
  'cs-uri-query',
  'cs(Cookie)',
  'x-edge-result-type',
  'x-edge-request-id',
  'x-host-header',
] as const;

/** More than there are, each longer than any: the columns are part of the state of a source. */
const COLUMNS_MAX = 128;
const COLUMN_LENGTH_MAX = 48;

function parseText(line: string, context: Context): Reading {
  if (line.startsWith('#Fields: ')) {
    const names = line.slice('#Fields: '.length, COLUMNS_MAX * COLUMN_LENGTH_MAX).split(/\s+/, COLUMNS_MAX);
    context.columns = names.map((name) => name.slice(0, COLUMN_LENGTH_MAX));
    return { kind: 'header' };
  }
  if (line.startsWith('#Version: ')) return { kind: 'header' };
  if (!line.includes('\t')) return dropped('unknown_format');
  const columns: readonly string[] = context.columns ?? DEFAULT_COLUMNS;
  const values = line.split('\t', columns.length);
  return recordOf((name) => values[columns.indexOf(name)] ?? '');
}

function recordOf(read: (name: string) => string): Reading {
  const time =
    parseTime(`${read('date')}T${read('time')}Z`) ??
    parseEpoch(read('timestamp(ms)')) ??
    parseEpoch(read('timestamp'));
  if (time === null) return dropped('bad_time');
  // The Host header of the visitor; cs(Host) is the name of the distribution.
  const host = [read('x-host-header'), read('cs(Host)')].find((name) => name !== '' && name !== '-');
  return { kind: 'record', record: request(time, host) };
}
