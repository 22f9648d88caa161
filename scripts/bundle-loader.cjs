/**
 * Loads the modules of the bundle with the code that V8 has compiled before (code-cache.cjs): compiling it again would take a
 * quarter of the start of the service. V8 ignores code of another version or with other options, and compiles the source.
 */
const { readFileSync } = require('node:fs');
const { join } = require('node:path');
const { Script } = require('node:vm');

/** V8 checks its version and options, but not the processor. */
const COMPILED = `.compiled-${process.arch}`;

const loaded = new Map();

/** Like `require`. */
function load(name) {
  const known = loaded.get(name);
  if (known !== undefined) return known.module.exports;
  const filename = join(__dirname, name);
  // The first line keeps its number, for stack traces.
  const source = `(function (exports, require, module, __filename, __dirname) {${readFileSync(filename, 'utf8')}\n})`;
  const script = new Script(source, {
    // Not the whole path: compiled code contains the name, and is the same wherever it was built.
    filename: `bundle/${name}`,
    cachedData: compiledBefore(filename),
  });
  const module = { exports: {} };
  loaded.set(name, { module, script });
  const requireHere = (id) => (id.startsWith('./') ? load(id.slice('./'.length)) : require(id));
  script.runInThisContext()(module.exports, requireHere, module, filename, __dirname);
  return module.exports;
}

function compiledBefore(filename) {
  try {
    return readFileSync(filename + COMPILED);
  } catch {
    return undefined;
  }
}

/** What V8 has compiled so far, by file name. */
function compiledCode() {
  return [...loaded].map(([name, { script }]) => [name, script.createCachedData()]);
}

module.exports = { load, compiledCode, COMPILED };
