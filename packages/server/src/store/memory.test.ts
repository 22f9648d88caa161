import { storeConformance } from '../../../../test/store-conformance.ts';
import { memoryStore } from './memory.ts';

storeConformance('the memory store', async (now) => {
  const store = memoryStore(now);
  return { store, destroy: () => store.close() };
});
