/**
 * Bundles the compiled server and its dependencies, by default into packages/server/dist/bundle: Node.js takes longer to load
 * 400 small files than most commands run. Not minified, so that stack traces name functions; comments name the sources.
 * CommonJS, because V8 can only reuse compiled code of scripts (bundle-loader.cjs), not of ES modules.
 */
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';

const root = fileURLToPath(new URL('..', import.meta.url));
const compiled = join(root, 'packages/server/dist');
const bundle = join(compiled, 'bundle');
/** Native modules cannot be bundled; `pg` tries to load `pg-native`, which we do not use. */
const EXTERNAL = ['lmdb', '@node-rs/argon2', 'pg-native'];

/** Files that run in threads, by the URL that starts them. They are in the bundle, beside the main file. */
const THREADS = { './parser-thread.js': 'ingest/parser-thread.js' };

/** Files that a module finds by its own place, like package.json, stay where they are. Threads do not. */
const ownUrls = {
  name: 'own-urls',
  transform(code, id) {
    if (!id.startsWith(compiled)) return null;
    const url = `new URL(${JSON.stringify(relative(bundle, id))}, import.meta.url).href`;
    return code.replaceAll(/(?:new URL\(['"]([^'"]*\.js)['"], )?import\.meta\.url/g, (text, thread) => {
      if (thread === undefined) return url;
      if (THREADS[thread] === undefined) throw new Error(`${id} starts ${thread}: add it to THREADS`);
      return text;
    });
  },
};

/** The licenses of the bundled packages, which they want to be distributed with. */
function licensesOf(modules) {
  const directories = modules.flatMap((id) => /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+/.exec(id) ?? []);
  const texts = [...new Set(directories)].toSorted().map((directory) => {
    const { name, version, license } = JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'));
    const file = readdirSync(directory).find((entry) => /^licen[cs]e/i.test(entry));
    const text = file === undefined ? '' : readFileSync(join(directory, file), 'utf8');
    return `${name} ${version}, ${license}\n\n${text.trim()}\n`;
  });
  return texts.join(`\n${'-'.repeat(80)}\n\n`);
}

/** Required only by what the service does not use: compilers of schemas, and requests without a network. */
const UNUSED = ['@fastify/ajv-compiler', '@fastify/fast-json-stringify-compiler', 'light-my-request'];
const unused = {
  name: 'unused',
  resolveId: (id) => (UNUSED.includes(id) ? `unused:${id}` : null),
  load: (id) =>
    id.startsWith('unused:') ? `throw new Error(${JSON.stringify(`${id} is not in the bundle`)})` : null,
};

/** V8 keeps a source with one character beyond Latin-1 in two bytes per character: 1.6 MB more for the service. */
function toLatin1(code) {
  return code.replaceAll(/[^\0-\xff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** The directory is `dist/bundle` of a copy of packages/server, or of itself. */
export async function bundleTo(directory) {
  const threads = Object.fromEntries(
    Object.values(THREADS).map((path) => [basename(path, '.js'), join(compiled, path)]),
  );
  const building = await rolldown({
    input: { main: join(compiled, 'main.js'), ...threads },
    cwd: root,
    platform: 'node',
    external: EXTERNAL,
    plugins: [unused, ownUrls],
  });
  // As deep in the package as the final place, so that it finds what it needs and can run.
  mkdirSync(join(compiled, '../.cache'), { recursive: true });
  const unfinished = mkdtempSync(join(compiled, '../.cache/bundle-'));
  // All users can run the program.
  chmodSync(unfinished, 0o755);
  const { output } = await building.write({
    dir: unfinished,
    format: 'cjs',
    dynamicImportInCjs: false,
    chunkFileNames: '[name].js',
  });
  for (const { fileName, code } of output)
    if (code !== undefined) writeFileSync(join(unfinished, fileName), toLatin1(code));
  const modules = output.flatMap(({ moduleIds = [] }) => moduleIds);
  writeFileSync(join(unfinished, 'LICENSES.txt'), licensesOf(modules));
  writeFileSync(join(unfinished, 'package.json'), '{"type":"commonjs"}\n');
  copyFileSync(join(root, 'scripts/bundle-loader.cjs'), join(unfinished, 'load.js'));
  addCompiledCode(unfinished);
  replace(directory, unfinished);
  rmSync(unfinished, { recursive: true });
}

/** Commands may start meanwhile, so the directory is missing only between two renames. */
function replace(directory, source) {
  const [copy, old] = [`${directory}.new`, `${directory}.old`];
  for (const left of [copy, old]) rmSync(left, { recursive: true, force: true });
  cpSync(source, copy, { recursive: true });
  if (existsSync(directory)) renameSync(directory, old);
  renameSync(copy, directory);
  rmSync(old, { recursive: true, force: true });
}

/** With a fixed seed, so that the same sources give the same bytes. */
function addCompiledCode(directory) {
  const data = mkdtempSync(join(tmpdir(), 'wafstat-bundle-'));
  const args = ['--random-seed=1', join(root, 'scripts/code-cache.cjs'), directory, data];
  const { status, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', timeout: 60_000 });
  rmSync(data, { recursive: true });
  if (status !== 0) console.error(`the service will start slower, without a code cache: ${stderr}`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await bundleTo(bundle);
