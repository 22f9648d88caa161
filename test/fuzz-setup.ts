/** Repeats a failed property test: fast-check prints the seed of a failure, and FUZZ_SEED sets it. */
const { FUZZ_SEED: seed } = process.env;

if (seed !== undefined) {
  const { default: fc } = await import('fast-check');
  fc.configureGlobal({ ...fc.readConfigureGlobal(), seed: Number(seed) });
}

// Without an import the file needs this to be a module, which may await.
export {};
