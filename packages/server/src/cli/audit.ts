import { type AuditRecord, hasAuditTrail, readAuditTrail } from '../audit/audit-trail.ts';
import { command, printLine, UserError } from './command.ts';
import { isInitialised } from './data-folder.ts';
import { printList } from './list.ts';

export const auditCommand = command({
  name: 'audit',
  about: 'print the audit trail: who changed what, when, and from where',
  settings: ['data', 'since', 'auditUser', 'auditAction', 'json'],
  required: ['data'],
  async run({ data, since, auditUser, auditAction, json }, _operands, io) {
    // A process whose identity is elsewhere records its starts in a folder without an identity.
    if (!isInitialised(data) && !hasAuditTrail(data))
      throw new UserError(
        `${data} is not a wafstat data directory: it holds neither identity.mdb nor audit.log`,
      );
    const records: AuditRecord[] = [];
    let damaged = 0;
    for await (const record of readAuditTrail(data)) {
      if (record === 'damaged') damaged++;
      else if (
        (since === undefined || Date.parse(record.time) >= since) &&
        (auditUser === undefined || [record.user, record.user_id].includes(auditUser)) &&
        (auditAction === undefined || isAction(record.action, auditAction))
      )
        records.push(record);
    }
    if (damaged > 0)
      printLine(io.stderr, `wafstat: ${damaged} damaged lines in the audit trail were skipped`);
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

/** `user` stands for all of `user.add`, `user.delete`, ... */
function isAction(action: string, wanted: string): boolean {
  return action === wanted || action.startsWith(`${wanted}.`);
}

function objectOf({ object: { type, id, name } }: AuditRecord): string {
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
