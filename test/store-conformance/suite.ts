import type { Store } from '../../packages/server/src/store/store.ts';

export interface StoreUnderTest {
  store: Store;
  destroy(): Promise<void>;
}

export interface DurableStoreUnderTest extends StoreUnderTest {
  /** A second store on the same data, as another process would open it. */
  another(): Store;
  /** Closes the store and opens its data again. */
  reopen(): Promise<Store>;
}

/** `topKeys`: how many values a top list may keep per hour. */
export type Create<T extends StoreUnderTest> = (now: () => number, topKeys?: number) => Promise<T>;

export interface Suite {
  /** How many random cases to run. */
  runs(cases: number): number;
  /** A store that is destroyed after the test. */
  fresh(topKeys?: number): Promise<StoreUnderTest>;
  destroyAll(): Promise<void>;
}

export interface DurableSuite extends Pick<Suite, 'runs'> {
  create: Create<DurableStoreUnderTest>;
}
