#!/usr/bin/env node
// No options of V8: with any, Node.js cannot use its compiled modules, and starts 20 ms later.
import { statSync } from 'node:fs';

try {
  if (isBundleCurrent()) (await import('../dist/bundle/load.js')).default.load('main.js');
  else await import('../dist/main.js');
} catch (error) {
  if (error.code !== 'ERR_MODULE_NOT_FOUND') throw error;
  console.error("wafstat: the program is not built; run 'npm run setup' in the repository");
  process.exitCode = 1;
}

/** False if `tsc -b` has compiled something since. Only a repository has build information. */
function isBundleCurrent() {
  const timeOf = (path) => statSync(new URL(path, import.meta.url), { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const builds = ['../dist', '../../signer/dist', '../../client/dist'].map((dist) =>
    timeOf(`${dist}/.tsbuildinfo`),
  );
  return timeOf('../dist/bundle/main.js') > Math.max(...builds);
}
