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

const SOURCES = 'packages/server/src/';

/** Unit tests. The path is below the sources of the server. */
export function unit(file: string, name?: string): Tests {
  return { project: 'unit', file: `${SOURCES}${file}`, ...(name !== undefined && { name }) };
}

/** Tests with a PostgreSQL server. */
export function stores(file: string, name?: string): Tests {
  return { project: 'stores', file: `test/${file}`, ...(name !== undefined && { name }) };
}

/** A mutant of a file below the sources of the server. */
export function mutant(name: string, file: string, from: string, to: string, ...tests: Tests[]): Mutant {
  return { name, file: `${SOURCES}${file}`, from, to, tests };
}
