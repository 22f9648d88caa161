/** Keeps a store within its retention time. */
import type { Store } from './store.ts';

/** Events live up to this much longer than the retention time says; queries cannot tell, clients hardly. */
const PRUNE_EVERY_MS = 10 * 60_000;

export function retainFor(
  store: Store,
  retention_ms: number,
  now: () => number,
  log: { error(details: object, message: string): void },
): { stop(): Promise<void> } {
  const stopping = new AbortController();
  let running = prune();

  async function prune(): Promise<void> {
    try {
      await store.prune(now() - retention_ms, stopping.signal);
    } catch (error) {
      log.error({ err: error }, 'pruning failed, it is tried again later');
    }
  }

  const timer = setInterval(() => {
    running = running.then(prune);
  }, PRUNE_EVERY_MS);
  timer.unref();
  return {
    async stop() {
      clearInterval(timer);
      stopping.abort();
      await running;
    },
  };
}
