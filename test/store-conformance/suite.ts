import type { LimitOptions, Store } from '../../packages/server/src/store/store.ts';

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

export type Create<T extends StoreUnderTest> = (now: () => number, limits?: LimitOptions) => Promise<T>;

export interface Suite {
  /** How many random cases to run. */
  runs(cases: number): number;
  /** A store that is destroyed after the test. */
  fresh(limits?: LimitOptions): Promise<StoreUnderTest>;
  destroyAll(): Promise<void>;
}

export interface DurableSuite extends Pick<Suite, 'runs'> {
  create: Create<DurableStoreUnderTest>;
}
