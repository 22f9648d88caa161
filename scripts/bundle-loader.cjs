/**
 * Loads the modules of the bundle with the code that V8 has compiled before (code-cache.cjs): compiling it again would take a
 * quarter of the start of the service. V8 ignores code of another version or with other options, and compiles the source.
 */
const { createHash } = require('node:crypto');
const { readFileSync, writeFileSync } = require('node:fs');
const { join } = require('node:path');
const { Script } = require('node:vm');

/** V8 checks its version and options, but not the processor. */
const COMPILED = `.compiled-${process.arch}`;

const HASH_BYTES = 32;

const loaded = new Map();

/** Like `require`. */
function load(name) {
  const known = loaded.get(name);
  if (known !== undefined) return known.module.exports;
  const filename = join(__dirname, name);
  const bytes = readFileSync(filename);
  // The first line keeps its number, for stack traces.
  const source = `(function (exports, require, module, __filename, __dirname) {${bytes}\n})`;
  const script = new Script(source, {
    // Not the whole path: compiled code contains the name, and is the same wherever it was built.
    filename: `bundle/${name}`,
    cachedData: compiledBefore(filename, bytes),
  });
  const module = { exports: {} };
  loaded.set(name, { module, script });
  const requireHere = (id) => (id.startsWith('./') ? load(id.slice('./'.length)) : require(id));
  script.runInThisContext()(module.exports, requireHere, module, filename, __dirname);
  return module.exports;
}

/** V8 would run damaged code, and that of another source of the same length: so a hash of both comes first. */
function compiledBefore(filename, bytes) {
  let file;
  try {
    file = readFileSync(filename + COMPILED);
  } catch {
    return undefined;
  }
  const code = file.subarray(HASH_BYTES);
  return hash(bytes, code).equals(file.subarray(0, HASH_BYTES)) ? code : undefined;
}

/** Hashes bytes: for a string of a megabyte, Node.js allocates three, and glibc then keeps twice as much in the heap of each thread. */
function hash(bytes, code) {
  return createHash('sha256').update(bytes).update(code).digest();
}

/** Writes what V8 has compiled so far. */
function saveCompiled() {
  for (const [name, { script }] of loaded) {
    const bytes = readFileSync(join(__dirname, name));
    const code = script.createCachedData();
    writeFileSync(join(__dirname, name + COMPILED), Buffer.concat([hash(bytes, code), code]));
  }
}

module.exports = { load, saveCompiled };
