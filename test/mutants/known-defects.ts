import type { Mutant } from './mutant.ts';

/** Defects that earlier releases had, reintroduced. */
export const KNOWN_DEFECTS: readonly Mutant[] = [];
