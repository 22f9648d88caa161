import { storeConformance } from '../../../../test/store-conformance.ts';
import { memoryStore } from './memory.ts';

async function open(now: () => number) {
  const store = memoryStore(now);
  return { store, destroy: () => store.close() };
}

/** The other stores are compared with this one: here, the cases matter that have no oracle. */
storeConformance('the memory store', open, { share: 0.6 });
