/** The kept attacks are those that were counted, each once. None is missing that is younger than the retention of details. */
import { detailsMs } from '../processes.ts';
import { HOUR_MS } from '../scheduler.ts';
import { type Checked, type Checker, CheckFailed, JUMP_MS_MAX } from './checker.ts';

const ALL = { filter: { include: {}, exclude: {} }, isAscending: true };
const PAGE = 500;

export function checkAttacks({ scheduler, ledger, reader, project, horizon, retentionMs }: Checked): Checker {
  return {
    async settled() {
      const attacks = ledger.since(horizon()).filter(({ isCounted, attack }) => isCounted && attack !== null);
      const missing = new Map(attacks.map((line) => [line.time, line]));
      const range = { from: horizon().horizon, to: Math.max(scheduler.now, ...missing.keys()) + 1 };
      await scheduler.native(async () => {
        for (let offset = 0, total = 1; offset < total; offset += PAGE) {
          const list = await reader.attacks({ project, ...range, ...ALL, offset, limit: PAGE });
          total = list.total;
          for (const { time, category, count } of list.items) {
            if (missing.get(time)?.attack !== category || count !== 1)
              throw new CheckFailed(`${count} ${category} at ${time} are kept, but were not counted once`);
            missing.delete(time);
          }
        }
      });
      const keptFrom = scheduler.now - detailsMs(retentionMs) + JUMP_MS_MAX + HOUR_MS;
      const lost = [...missing.keys()].filter((time) => time >= keptFrom);
      if (lost.length > 0)
        throw new CheckFailed(`${lost.length} attacks are not kept, for example at ${lost[0]}`);
    },
  };
}
