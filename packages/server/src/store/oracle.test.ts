import { memoryStore } from '../../../../test/memory-store.ts';
import { storeConformance } from '../../../../test/store-conformance.ts';
import type { LimitOptions } from './store.ts';

async function open(now: () => number, limits?: LimitOptions) {
  const store = memoryStore(now, limits);
  return { store, destroy: () => store.close() };
}

/** The other stores are compared with this one, so only the cases without an oracle matter here. */
storeConformance('the memory store', open, 0.1);
