/**
 * Bundles the compiled server and its dependencies, by default into packages/server/dist/bundle: Node.js takes longer to load
 * 400 small files than most commands run. Not minified, so that stack traces name functions; comments name the sources.
 * CommonJS, because V8 can only reuse compiled code of scripts (bundle-loader.cjs), not of ES modules.
 */
import { spawnSync } from 'node:child_process';
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';

const root = fileURLToPath(new URL('..', import.meta.url));
const compiled = join(root, 'packages/server/dist');
const bundle = join(compiled, 'bundle');
/** Native modules cannot be bundled; `pg` tries to load `pg-native`, which we do not use. */
const EXTERNAL = ['lmdb', '@node-rs/argon2', 'pg-native'];

/** Files that a module finds by its own place, like package.json, stay where they are. */
const ownUrls = {
  name: 'own-urls',
  transform(code, id) {
    if (!id.startsWith(compiled)) return null;
    const url = `new URL(${JSON.stringify(relative(bundle, id))}, import.meta.url).href`;
    // Except threads, which are in the bundle.
    return code.replaceAll(/(?<!'\.\/parser-thread\.js', )import\.meta\.url/g, url);
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

/** The directory is `dist/bundle` of a copy of packages/server, or of itself. */
export async function bundleTo(directory) {
  const building = await rolldown({
    input: { main: join(compiled, 'main.js'), 'parser-thread': join(compiled, 'ingest/parser-thread.js') },
    cwd: root,
    platform: 'node',
    external: EXTERNAL,
    plugins: [unused, ownUrls],
  });
  // As deep in the package as the final place, so that it finds what it needs and can run.
  mkdirSync(join(compiled, '../.cache'), { recursive: true });
  const unfinished = mkdtempSync(join(compiled, '../.cache/bundle-'));
  const { output } = await building.write({
    dir: unfinished,
    format: 'cjs',
    dynamicImportInCjs: false,
    chunkFileNames: '[name].js',
  });
  const modules = output.flatMap(({ moduleIds = [] }) => moduleIds);
  writeFileSync(join(unfinished, 'LICENSES.txt'), licensesOf(modules));
  writeFileSync(join(unfinished, 'package.json'), '{"type":"commonjs"}\n');
  copyFileSync(join(root, 'scripts/bundle-loader.cjs'), join(unfinished, 'load.js'));
  addCompiledCode(unfinished);
  rmSync(directory, { recursive: true, force: true });
  cpSync(unfinished, directory, { recursive: true });
  rmSync(unfinished, { recursive: true });
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
