/** All mutants: one-line changes of ingest, stores and identity that a test must notice. `npm run mutants` tries them. */
import { IDENTITY_MUTANTS } from './identity.ts';
import { INGEST_MUTANTS } from './ingest.ts';
import { KNOWN_DEFECTS } from './known-defects.ts';
import type { Mutant } from './mutant.ts';
import { STORE_MUTANTS } from './stores.ts';

export const MUTANTS: readonly Mutant[] = [
  ...KNOWN_DEFECTS,
  ...INGEST_MUTANTS,
  ...STORE_MUTANTS,
  ...IDENTITY_MUTANTS,
];
