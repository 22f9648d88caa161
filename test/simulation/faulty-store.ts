/** A store as a task of a simulated process sees it: slow, sometimes failing, sometimes with an unknown outcome. */
import { type Store, StoreNotWritable, StoreUnavailable } from '../../packages/server/src/store/store.ts';
import type { Scheduler, Task } from './scheduler.ts';

const WRITES = ['append', 'putFollowedPath', 'resolveHosts', 'noteRetention', 'prune', 'restoreHorizon'];

/** How often a commit is slow without any trouble. */
const SLOW_CHANCE = 0.1;
const SLOW_MS_MAX = 1_000;

export interface StoreFaults {
  /** How often a write fails. */
  chance: number;
  /** How long a commit takes. */
  commitMsMax: number;
}

export type Executed = (by: Task, method: string, args: readonly unknown[], result: unknown) => Promise<void>;

/** `executed` is called for each call that has changed the store, or returned something of it. */
export function faultyStore(
  real: Store,
  task: Task,
  scheduler: Scheduler,
  faults: StoreFaults,
  executed: Executed,
): Store {
  const { random } = scheduler;

  async function call(method: string, run: (...args: unknown[]) => Promise<unknown>, args: unknown[]) {
    const isWrite = WRITES.includes(method);
    const msMax = isWrite ? Math.max(faults.commitMsMax, random.chance(SLOW_CHANCE) ? SLOW_MS_MAX : 0) : 1;
    await scheduler.pause(task, `store.${method}`, random.integer(0, msMax));
    const fault = isWrite && random.chance(faults.chance) ? random.integer(0, 2) : null;
    if (fault === 0) throw new StoreNotWritable('the disk is full (simulated)', 'the disk is full');
    const unknown = new StoreUnavailable('the outcome is unknown (simulated)', { outcomeUnknown: true });
    if (fault === 1) throw unknown;
    const given =
      method === 'prune' && random.chance(0.2) ? [args[0], stopped(args[1], random.integer(1, 6))] : args;
    const result = await scheduler.native(() => run.apply(real, given));
    await executed(task, method, args, result);
    if (fault === 2) throw unknown;
    await scheduler.pause(task, `store.${method} done`, random.integer(0, msMax));
    return result;
  }

  return new Proxy(real, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name);
      if (typeof member !== 'function' || typeof name !== 'string') return member;
      return (...args: unknown[]) => call(name, member as (...args: unknown[]) => Promise<unknown>, args);
    },
  });
}

/** Options of a prune that ends after some of its transactions, as if the process was killed. */
function stopped(options: unknown, transactions: number): unknown {
  let checks = 0;
  const stop = {
    get aborted() {
      return ++checks > transactions;
    },
  };
  return { ...(options as object), stop };
}
