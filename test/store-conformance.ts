/** One suite for all stores, by topic in store-conformance/. Random events and queries are compared with the memory store. */
import { afterEach, describe } from 'vitest';
import type { LimitOptions } from '../packages/server/src/store/store.ts';
import { scaled } from './random.ts';
import { attackTests } from './store-conformance/attacks.ts';
import { batchTests } from './store-conformance/batches.ts';
import { countTests } from './store-conformance/counts.ts';
import { NOW } from './store-conformance/data.ts';
import { durabilityTests } from './store-conformance/durability.ts';
import { flaggedRequestTests } from './store-conformance/flagged-requests.ts';
import { hostTests } from './store-conformance/hosts.ts';
import { lifecycleTests } from './store-conformance/lifecycle.ts';
import { sourceTests } from './store-conformance/sources.ts';
import type { Create, DurableStoreUnderTest, StoreUnderTest } from './store-conformance/suite.ts';
import { topListTests } from './store-conformance/top-lists.ts';

/** `share`: of the random cases to run. */
export function storeConformance(name: string, create: Create<StoreUnderTest>, share = 1): void {
  describe(`${name} fulfils the contract of a store`, () => {
    const opened: StoreUnderTest[] = [];
    async function fresh(limits?: LimitOptions): Promise<StoreUnderTest> {
      const created = await create(() => NOW, limits);
      opened.push(created);
      return created;
    }
    async function destroyAll(): Promise<void> {
      for (const { destroy } of opened.splice(0)) await destroy();
    }
    afterEach(destroyAll);

    const suite = { runs: runsOf(share), fresh, destroyAll };
    countTests(suite);
    batchTests(suite);
    flaggedRequestTests(suite);
    hostTests(suite);
    sourceTests(suite);
    topListTests(suite);
    attackTests(suite);
    lifecycleTests(suite);
  });
}

/** Additional tests for stores that outlive their process. */
export function durableStoreConformance(
  name: string,
  create: Create<DurableStoreUnderTest>,
  share = 1,
): void {
  storeConformance(name, create, share);
  describe(`${name} is durable`, () => durabilityTests({ runs: runsOf(share), create }));
}

function runsOf(share: number) {
  return (cases: number) => scaled(cases, share);
}
