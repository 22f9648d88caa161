import { memoryStore } from '../../../../test/memory-store.ts';
import { storeConformance } from '../../../../test/store-conformance.ts';

async function open(now: () => number) {
  const store = memoryStore(now);
  return { store, destroy: () => store.close() };
}

/** The other stores are compared with this one, so only the cases without an oracle matter here. */
storeConformance('the memory store', open, 0.1);
