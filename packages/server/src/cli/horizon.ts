import { createAuditTrail, newAuditId } from '../audit/audit-trail.ts';
import { SettingsError } from '../config.ts';
import { command, printLine } from './command.ts';
import { FOLDER_REQUIRED, localActor, withStore } from './data-folder.ts';
import { STORE_SETTINGS } from './store.ts';

export const horizonCommand = command({
  name: 'horizon',
  about: 'show the retention horizon, or move it back after the service ran with a wrong clock',
  settings: ['data', 'horizonTime', 'json', ...STORE_SETTINGS],
  required: [],
  async run({ data, horizonTime, json, ...where }, _operands, io) {
    if (where.store === 'lmdb' && data === undefined) throw new SettingsError([FOLDER_REQUIRED]);
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
