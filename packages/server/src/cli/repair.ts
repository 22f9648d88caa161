import { existsSync } from 'node:fs';
import { createAuditTrail, newAuditId } from '../audit/audit-trail.ts';
import { repairStatistics } from '../store/lmdb/repair.ts';
import { command, printLine, UserError } from './command.ts';
import { acceptStatistics, isInitialised, localActor, statisticsFile } from './data-folder.ts';
import { printReport, progressOn, sentenceOf, verifyFolder } from './verify.ts';

export const repairCommand = command({
  name: 'repair',
  about:
    'recompute counters from the exact times, drop orphaned links, add missing checksums, and list what cannot be repaired; ' +
    'make a copy of the data folder first',
  settings: ['data', 'acceptStatistics', 'json'],
  required: ['data'],
  async run({ data, acceptStatistics: accept, json }, _operands, io) {
    const file = statisticsFile(data);
    if (!existsSync(file) && !accept) {
      throw new UserError(
        `${file} is missing: restore it from a backup, or go on without it with --accept-statistics`,
      );
    }
    createAuditTrail(data, io.now).append({
      id: newAuditId(),
      ...localActor(),
      action: 'statistics.repair',
      object: { type: 'statistics' },
      after: { accept_statistics: accept === true },
      outcome: 'done',
    });
    if (accept) await acceptStatistics(data, io);
    const repaired = await repairStatistics(file, progressOn(io));
    if (accept && isInitialised(data)) await acceptStatistics(data, io);
    const verified = await verifyFolder(data, io);
    if (json) {
      printLine(io.stdout, JSON.stringify({ ...repaired, verified }));
    } else {
      for (const finding of repaired.repairs) printLine(io.stdout, `repaired: ${sentenceOf(finding)}`);
      const more = repaired.repaired - repaired.repairs.length;
      if (more > 0) printLine(io.stdout, `and ${more} more`);
      if (repaired.sealed > 0) printLine(io.stdout, `added a checksum to ${repaired.sealed} records`);
      for (const finding of repaired.lost) printLine(io.stdout, `lost: ${sentenceOf(finding)}`);
      printReport(io, verified);
    }
    return repaired.lost.length === 0 && verified.problems === 0 ? 0 : 1;
  },
});
