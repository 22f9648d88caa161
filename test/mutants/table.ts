/** All mutants: one-line changes of ingest, stores and identity that a test must notice. `npm run mutants` tries them. */
import { KNOWN_DEFECTS } from './known-defects.ts';
import type { Mutant } from './mutant.ts';

export const MUTANTS: readonly Mutant[] = [...KNOWN_DEFECTS];
