import { existsSync } from 'node:fs';
import { createAuditTrail, newAuditId } from '../audit/audit-trail.ts';
import { SettingsError } from '../config.ts';
import { command, printLine, UserError } from './command.ts';
import { FOLDER_REQUIRED, localActor, statisticsFile, withStore } from './data-folder.ts';
import { STORE_SETTINGS } from './store.ts';

export const horizonCommand = command({
  name: 'horizon',
  about: 'show the retention horizon, or move it back after the service ran with a wrong clock',
  settings: ['data', 'horizonTime', 'json', ...STORE_SETTINGS],
  required: [],
  async run({ data, horizonTime, json, ...where }, _operands, io) {
    if (where.store === 'lmdb' && data === undefined) throw new SettingsError([FOLDER_REQUIRED]);
    if (where.store === 'lmdb' && data !== undefined && !existsSync(statisticsFile(data))) {
      throw new UserError(`${data} holds no statistics: check --data`);
    }
    return withStore(data ?? null, io, where, async (store) => {
      if (horizonTime !== undefined) {
        const before = (await store.retention()).horizon;
        createAuditTrail(data ?? null, io.now).append({
          id: newAuditId(),
          ...localActor(),
          action: 'horizon.set',
          object: { type: 'statistics' },
          before: { horizon: before },
          after: { horizon: horizonTime },
          outcome: 'done',
        });
        await store.restoreHorizon(horizonTime);
      }
      const { horizon, freedBefore } = await store.retention();
      if (json) {
        printLine(io.stdout, JSON.stringify({ horizon, freed_before: freedBefore }));
        return 0;
      }
      const isUnchanged = horizonTime !== undefined && horizon < horizonTime;
      if (isUnchanged) printLine(io.stderr, 'wafstat: the horizon is already earlier; nothing was changed');
      printLine(io.stdout, `events count from        ${new Date(horizon).toISOString()}`);
      printLine(io.stdout, `can be set back to       ${new Date(freedBefore).toISOString()}`);
      if (horizonTime !== undefined && horizon > horizonTime) {
        printLine(io.stderr, 'wafstat: the space before that has been freed, so the horizon stays there');
        return 1;
      }
      return 0;
    });
  },
});
