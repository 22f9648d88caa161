/** Access log of IIS, in the W3C extended format: columns separated by spaces and named by a `#Fields:` line. */
import { type Context, dropped, requestReading, type TextFormat } from './format.ts';
import { parseTime } from './timestamps.ts';

export const iis: TextFormat = {
  name: 'iis',
  traits: [
    ['date and time in yyyy-mm-dd HH:MM:SS form at its start', (line) => IIS_START.test(line)],
    // Known to the reader only. Without the names of the columns, any log of an application looks like this.
    ['#Fields: line before it, with as many names as the line has columns', () => false],
  ],
  recognizes: (line, { columns }) => isW3cHeader(line) || (columns !== null && IIS_START.test(line)),
  parse(line, context) {
    if (isW3cHeader(line)) {
      readW3cHeader(line, context);
      return { kind: 'header' };
    }
    const { columns } = context;
    if (columns === null) return dropped('unknown_format');
    const values = line.split(' ', columns.length + 1);
    // IIS writes `-` for a missing value, and `+` for a space in a header.
    if (values.length !== columns.length) return dropped('bad_record');
    const column = (name: string) => values[columns.indexOf(name)] ?? '-';
    const time = parseTime(`${column('date')}T${column('time')}Z`);
    // The site and the computer (s-sitename, s-computername) are no hosts.
    const host = [column('cs-host'), column('cs(Host)')].find((name) => name !== '-');
    if (time === null) return dropped('bad_time');
    return requestReading(time, host, {
      status: column('sc-status'),
      bytesIn: column('cs-bytes'),
      bytesOut: column('sc-bytes'),
      url: column('cs-uri-stem'),
    });
  },
};

const IIS_START = /^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2} /;

/** IIS writes all of these whenever it starts, and CloudFront the first two. */
const W3C_HEADER = /^#(?:Version|Fields|Software|Date): /;

export function isW3cHeader(line: string): boolean {
  return W3C_HEADER.test(line);
}

/** Above any real header: the columns are part of the reader's state. */
const COLUMNS_MAX = 128;
const COLUMN_LENGTH_MAX = 48;

export function readW3cHeader(line: string, context: Context): void {
  if (!line.startsWith('#Fields: ')) return;
  const names = line.slice('#Fields: '.length, COLUMNS_MAX * COLUMN_LENGTH_MAX).split(/\s+/, COLUMNS_MAX);
  context.columns = names.map((name) => name.slice(0, COLUMN_LENGTH_MAX));
}
