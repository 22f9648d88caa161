/** A defect to put into the sources: the tests that it names must notice it. */
export interface Mutant {
  /** Unique, in kebab case. */
  name: string;
  /** From the root of the repository. */
  file: string;
  /** Occurs exactly once in the file. */
  from: string;
  to: string;
  /** Tests that kill it. They must import sources: processes that they start run the build, which has no mutant. */
  tests: readonly Tests[];
  /** Why it survives: no test can tell it from the original. */
  survives?: string;
}

export interface Tests {
  /** The project of vitest.config.ts. */
  project: 'unit' | 'stores' | 'blackbox';
  file: string;
  /** Runs only the tests whose names match this pattern. */
  name?: string;
}
