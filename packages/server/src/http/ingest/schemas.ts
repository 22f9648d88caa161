/** The parameters of a log source, as the command line has them too. */
import { FORMAT_NAMES } from '../../ingest/reader.ts';

export const INGEST_PARAMETERS = {
  source: { type: 'string', default: 'default', description: 'Name under which the log source is known' },
  format: { type: 'string', enum: [...FORMAT_NAMES], default: 'auto', description: 'Format of the lines' },
  pattern: {
    type: 'string',
    maxLength: 4_096,
    description:
      "Format of access lines as in the server's configuration: an nginx log_format or an Apache LogFormat string",
  },
  host: { type: 'string', description: 'Host name for logs that do not name one' },
  timezone: {
    type: 'string',
    default: '+00:00',
    description:
      'Time zone of logs that do not name one: an offset like +08:00, or an IANA name like Europe/Berlin',
  },
  hosts: {
    type: 'string',
    enum: ['auto', 'registered'],
    default: 'auto',
    description:
      'Whether unknown host names are registered; if not, they count in the total of the project only',
  },
} as const;
