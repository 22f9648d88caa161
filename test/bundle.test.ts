/** The bundle that the program runs from, and the compiled code beside its sources. */
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { Process } from './process.ts';

const server = fileURLToPath(new URL('../packages/server', import.meta.url));
let copy: string;

beforeEach(() => {
  // As deep as the original, so that it finds package.json and the native modules.
  mkdirSync(join(server, '.cache'), { recursive: true });
  copy = mkdtempSync(join(server, '.cache/bundle-'));
  cpSync(join(server, 'dist/bundle'), copy, { recursive: true });
});
afterEach(() => rmSync(copy, { recursive: true }));

function version(): Promise<unknown> {
  const start = join(copy, 'start.js');
  writeFileSync(start, "require('./load.js').load('main.js');");
  return new Process(['--version'], { program: [process.execPath, start] }).end();
}

/** Runs the program, which prints whether V8 has accepted each file of compiled code that it was given. */
function runWatched() {
  const watch = join(copy, 'watch.js');
  writeFileSync(
    watch,
    `const vm = require('node:vm');
     const { Script } = vm;
     vm.Script = class extends Script {
       constructor(source, options) {
         super(source, options);
         if (options.cachedData) console.log(this.cachedDataRejected ? 'rejected' : 'accepted');
       }
     };
     require('./load.js').load('main.js');`,
  );
  return new Process(['--version'], { program: [process.execPath, watch] }).end();
}

test('V8 accepts the compiled code', async () => {
  const { status, stdout } = await runWatched();
  expect(status).toBe(0);
  expect(stdout).toContain('accepted');
  expect(stdout).not.toContain('rejected');
});

test.each(['', `.compiled-${process.arch}`])(
  'compiled code is not used if a byte of main.js%s has changed',
  async (suffix) => {
    const path = join(copy, `main.js${suffix}`);
    const bytes = readFileSync(path);
    // In the source, a letter of a comment.
    const at = suffix === '' ? bytes.indexOf('/**') + 5 : bytes.length >> 1;
    bytes[at] = (bytes[at] ?? 0) ^ 1;
    writeFileSync(path, bytes);
    const before = (await runWatched()).stdout;
    rmSync(join(copy, `main.js.compiled-${process.arch}`));
    expect(before).toBe((await runWatched()).stdout);
  },
);

test('the compiled code does not contain where it was built', () => {
  const compiled = readFileSync(join(copy, `main.js.compiled-${process.arch}`));
  expect(compiled.includes('main.js')).toBe(true);
  expect(compiled.includes(server)).toBe(false);
});

test.each([
  ['no compiled code', (path: string) => rmSync(path)],
  ['damaged compiled code', (path: string) => writeFileSync(path, 'x'.repeat(10_000))],
  ['empty compiled code', (path: string) => writeFileSync(path, '')],
])('the program runs with %s', async (_name, damage) => {
  const compiled = readdirSync(copy).filter((name) => name.endsWith(`.compiled-${process.arch}`));
  expect(compiled).toContain(`main.js.compiled-${process.arch}`);
  for (const name of compiled) damage(join(copy, name));
  expect(await version()).toMatchObject({ status: 0, stdout: expect.stringMatching(/^\d+\.\d+\.\d+/) });
});

test('a thread does not load the program', () => {
  const found = new Set(['parser-thread.js']);
  for (const name of found) {
    const source = readFileSync(join(copy, name), 'utf8');
    for (const [, required] of source.matchAll(/require\("\.\/([\w-]+\.js)"\)/g)) found.add(required ?? '');
  }
  expect([...found]).toContain('batch-reader.js');
  expect([...found]).not.toContain('main.js');
});

test('all sources are Latin-1, which V8 keeps in one byte per character', () => {
  const sources = readdirSync(copy).filter((name) => name.endsWith('.js'));
  expect(sources).toContain('app.js');
  const wide = sources.filter((name) => /[^\0-\xff]/.test(readFileSync(join(copy, name), 'utf8')));
  expect(wide).toEqual([]);
});
