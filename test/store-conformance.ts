/** One suite for all stores, by topic in store-conformance/. Random events and queries are compared with the memory store. */
import { afterEach, test as define, describe } from 'vitest';
import { scaled } from './random.ts';
import { batchTests } from './store-conformance/batches.ts';
import { countTests } from './store-conformance/counts.ts';
import { NOW } from './store-conformance/data.ts';
import { durabilityTests } from './store-conformance/durability.ts';
import { hostTests } from './store-conformance/hosts.ts';
import { lifecycleTests } from './store-conformance/lifecycle.ts';
import { sourceTests } from './store-conformance/sources.ts';
import type {
  Create,
  Definitions,
  DurableStoreUnderTest,
  StoreUnderTest,
} from './store-conformance/suite.ts';
import { topListTests } from './store-conformance/top-lists.ts';

interface Effort {
  /** The share of random cases to run; if it is more than a half, at least 30 of each. */
  share?: number;
  /** For another release of an engine that runs the whole suite elsewhere: leaves out `OUR_LOGIC` and top lists. */
  isOtherRelease?: boolean;
}

export function storeConformance(name: string, create: Create<StoreUnderTest>, effort: Effort = {}): void {
  describe(`${name} fulfils the contract of a store`, () => {
    const opened: StoreUnderTest[] = [];
    async function fresh(topKeys?: number): Promise<StoreUnderTest> {
      const created = await create(() => NOW, topKeys);
      opened.push(created);
      return created;
    }
    async function destroyAll(): Promise<void> {
      for (const { destroy } of opened.splice(0)) await destroy();
    }
    afterEach(destroyAll);

    const suite = { ...definitions(effort), fresh, destroyAll };
    countTests(suite);
    batchTests(suite);
    hostTests(suite);
    sourceTests(suite);
    topListTests(suite);
    lifecycleTests(suite);
  });
}

/** Additional tests for stores that outlive their process. */
export function durableStoreConformance(
  name: string,
  create: Create<DurableStoreUnderTest>,
  effort: Effort = {},
): void {
  storeConformance(name, create, effort);
  describe(`${name} is durable`, () => durabilityTests({ ...definitions(effort), create }));
}

/** What our code decides, between statements that the other tests run too. It cannot depend on the engine's release. */
const OUR_LOGIC: readonly string[] = [
  'the order and the size of batches do not matter',
  'an event at an edge counts in the point that begins there',
  'an event that stands for several log records counts them all',
  'an unknown category is an error that names it, and nothing of the batch is counted',
  'a chunk that has grown replaces its earlier state',
  'a link is a conflict if another process has counted chunks of the same file',
  'a host name has one ID, an ID has one name, and the limit is respected',
  'a renamed host keeps its ID and its counts, and its old name becomes available',
  'the counts of a deleted host stay in the project; a host of the same name counts from zero',
  'concurrent callers that add the same host get the same ID',
  'concurrent callers that resolve the same new names get the same IDs, and the limit is respected',
  'projects are separate, and unknown hosts count nothing',
  'a source reports its events, its dropped records, and its first and last event',
  'a closed store rejects every call',
  'resolving a flood of names in a full project finds the known ones and yields to the event loop',
  'the first chunk of a file is kept as long as a later chunk is',
];

function definitions({ share = 1, isOtherRelease = false }: Effort): Definitions {
  return {
    test(name, run) {
      if (!isOtherRelease || !OUR_LOGIC.includes(name)) define(name, run);
    },
    // PostgreSQL keeps them, also for ClickHouse.
    topTest(name, run) {
      if (!isOtherRelease) define(name, run);
    },
    runs: (cases) => scaled(Math.max(cases * share, share > 0.5 ? Math.min(cases, 30) : 1)),
  };
}
