import { storeConformance } from '../../../../test/store-conformance.ts';
import { memoryStore } from './memory.ts';

async function open(now: () => number) {
  const store = memoryStore(now);
  return { store, destroy: () => store.close() };
}

storeConformance('the memory store', open);
