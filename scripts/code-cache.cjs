/**
 * Starts the service from a bundle, and writes the code that V8 has compiled until it listens beside the sources.
 *
 *   node scripts/code-cache.cjs BUNDLE DATA      DATA: an empty directory
 */
const { join } = require('node:path');

const [bundle, data] = process.argv.splice(2);
const { load, saveCompiled } = require(join(bundle, 'load.js'));
process.argv.push('serve', '--data', data, '--listen', '127.0.0.1:0', '--log-level', 'error');
process.stdout.write = (text) => {
  if (text.includes('wafstat listens on')) {
    saveCompiled();
    process.kill(process.pid, 'SIGTERM');
  }
  return true;
};
load('main.js');
