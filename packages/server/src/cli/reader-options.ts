/** Options of `ingest`, `follow` and `explain` that say how log lines are read. */
import { SERVER_OPTIONS } from '../config.ts';
import { enteredHostname } from '../event.ts';
import { compilePattern, fitsPattern } from '../ingest/formats/pattern.ts';
import { parseZone } from '../ingest/formats/time-zone.ts';
import { FORMAT_NAMES, type ReaderOptions } from '../ingest/reader.ts';
import { oneOf, option, type Values } from './options.ts';

export const READER_OPTIONS = {
  format: option('--format <format>', `log format: ${FORMAT_NAMES.join(', ')}`, oneOf(...FORMAT_NAMES), {
    default: 'auto',
  }),
  pattern: option(
    '--pattern <log_format>',
    'access log format as in the web server configuration (nginx log_format, Apache LogFormat), or nginx-proxy-manager',
    compilePattern,
  ),
  host: option('--host <name>', 'host name for log lines without one', enteredHostname),
  timezone: option(
    '--timezone <zone>',
    'time zone of log times without one: an offset like +08:00 or a name like Europe/Berlin',
    parseZone,
    { default: '+00:00' },
  ),
  categories: SERVER_OPTIONS.categories,
};

type ReaderValues = Values<typeof READER_OPTIONS>;

export function patternProblems({ pattern, format }: Partial<ReaderValues>): string[] {
  return pattern === undefined || fitsPattern(format)
    ? []
    : [`--pattern is for access logs, but --format is ${format}`];
}

export function readerOptions({ format, pattern, host, timezone, categories }: ReaderValues): ReaderOptions {
  return { format, pattern, host, zone: timezone, overrides: categories };
}
