import { type AuditRecord, allRecords, matches } from '../audit/audit-trail.ts';
import { LOCATION_OPTIONS } from '../config.ts';
import { command, printList, warn } from './command.ts';
import { withAuditTrail } from './installation.ts';
import { JSON_OUTPUT, option, text, timestamp } from './options.ts';

export const auditCommand = command({
  examples: ['wafstat audit --data ./data --since 2026-07-01T00:00:00Z --action user'],
  options: {
    ...LOCATION_OPTIONS,
    since: option(
      '--since <time>',
      'only entries from this time on, for example 2026-07-01T12:00:00+08:00',
      timestamp,
    ),
    user: option(
      '--user <user>',
      'only changes by this user, by ID or name; local:NAME for changes on the command line',
      text,
    ),
    action: option(
      '--action <action>',
      "only this action, like user.add; 'user' is all actions on users",
      text,
    ),
    json: JSON_OUTPUT,
  },
  async run({ since, user, action, json, ...location }, _operands, io) {
    const all = await withAuditTrail(location, io, allRecords);
    const whole = all.filter((record) => record !== 'damaged');
    const records = whole.filter((record) => matches(record, { from: since, user, action }));
    const damaged = all.length - whole.length;
    if (damaged > 0) warn(io, `${damaged} damaged lines in the audit trail were skipped`);
    return printList(io, json, records, (record) => [
      record.time,
      record.outcome,
      record.user ?? '(unknown user)',
      record.action,
      objectOf(record),
      record.address ?? record.via,
      detailsOf(record),
    ]);
  },
});

export function objectOf({ object: { type, id, name } }: AuditRecord): string {
  return [type, name ?? id ?? ''].filter(Boolean).join(' ');
}

function detailsOf({ before, after, reason, suppressed }: AuditRecord): string {
  return [
    reason ?? '',
    before ? `before ${JSON.stringify(before)}` : '',
    after ? `after ${JSON.stringify(after)}` : '',
    suppressed ? `and ${suppressed} more like this` : '',
  ]
    .filter(Boolean)
    .join('; ');
}
