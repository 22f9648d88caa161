/**
 * Bundles the compiled server and its dependencies, by default into packages/server/dist/bundle: Node.js takes longer to load
 * 400 small files than most commands run. Not minified, so that stack traces name functions; `#region` comments name the
 * sources.
 */
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
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

/** The directory is `dist/bundle` of a copy of packages/server, or of itself. */
export async function bundleTo(directory) {
  const building = await rolldown({
    input: { main: join(compiled, 'main.js'), 'parser-thread': join(compiled, 'ingest/parser-thread.js') },
    cwd: root,
    platform: 'node',
    external: EXTERNAL,
    plugins: [ownUrls],
  });
  rmSync(directory, { recursive: true, force: true });
  const { output } = await building.write({ dir: directory, format: 'esm', chunkFileNames: '[name].js' });
  const modules = output.flatMap(({ moduleIds = [] }) => moduleIds);
  writeFileSync(join(directory, 'LICENSES.txt'), licensesOf(modules));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await bundleTo(bundle);
