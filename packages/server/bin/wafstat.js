#!/usr/bin/env node
// No options of V8: with any, Node.js cannot use its compiled modules, and starts 20 ms later. CommonJS (package.json beside
// this file), because the loader of ES modules takes a fifth of `wafstat --version`.
const { statSync } = require('node:fs');
const { join } = require('node:path');

const dist = join(__dirname, '../dist');
start();

async function start() {
  try {
    if (isBundleCurrent()) require('../dist/bundle/load.js').load('main.js');
    else await import('../dist/main.js');
  } catch (error) {
    if (error.code !== 'ERR_MODULE_NOT_FOUND') throw error;
    console.error("wafstat: the program is not built; run 'npm run setup' in the repository");
    process.exitCode = 1;
  }
}

/** False if `tsc -b` has compiled something since. Only a repository has build information. */
function isBundleCurrent() {
  const timeOf = (path) => statSync(join(dist, path), { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const builds = ['.tsbuildinfo', '../../signer/dist/.tsbuildinfo', '../../client/dist/.tsbuildinfo'].map(
    timeOf,
  );
  return timeOf('bundle/main.js') > Math.max(...builds);
}
