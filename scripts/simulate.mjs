// Runs the simulation: bundles it into .cache, because Node.js does not run TypeScript, and starts it with the arguments.
import { existsSync, rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const file = `${root}/.cache/simulation-${process.pid}.mjs`;
const bundle = await rolldown({
  input: `${root}/test/simulation/main.ts`,
  platform: 'node',
  external: [/^[^./]/],
  logLevel: 'warn',
});
await bundle.write({ file, codeSplitting: false, sourcemap: 'inline' });
process.on('exit', () => rmSync(file, { force: true }));
// The store is small. In memory, its commits do not wait for the disk.
if (existsSync('/dev/shm')) process.env.TMPDIR ??= '/dev/shm';
await import(file);
