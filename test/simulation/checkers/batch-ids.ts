/** A batch ID counts once, as long as the store must know it. */
import { DAY_MS } from '../scheduler.ts';
import { type Checked, type Checker, CheckFailed } from './checker.ts';

export function checkBatchIds({ horizon, now }: Checked): Checker {
  /** When the batch may be forgotten: its own time, or that of its newest event. */
  const known = new Map<string, number>();
  return {
    appended({ source, id, events }) {
      if (id === undefined) return;
      const key = `${source.name} ${id}`;
      const before = known.get(key);
      if (before !== undefined && Math.floor(before / DAY_MS) >= Math.floor(horizon().freedBefore / DAY_MS))
        throw new CheckFailed(`batch ${id} of ${source.name} is counted again`);
      known.set(
        key,
        events.reduce((newest, { time }) => Math.max(newest, time), now()),
      );
    },

    async settled() {
      const { freedBefore } = horizon();
      for (const [key, time] of known) if (time < freedBefore - 2 * DAY_MS) known.delete(key);
    },
  };
}
