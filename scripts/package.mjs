// `npm run package`: the npm tarball, the Debian package, the SBOM and SHA256SUMS, in dist/.
// The same sources give the same bytes: times are those of the last commit, or SOURCE_DATE_EPOCH.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  cpSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { bundleTo } from './bundle.mjs';
import { manPage, readCommands } from './command-docs.mjs';

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const server = join(root, 'packages/server');
const { values: options } = parseArgs({
  options: {
    out: { type: 'string', default: join(root, 'dist') },
    // Only one of them: npm, debian or sbom.
    only: { type: 'string' },
    // For tests: neither compressed nor stripped, which takes most of the time.
    quick: { type: 'boolean', default: false },
  },
});
const out = resolve(options.out);
const manifest = readJson(join(server, 'package.json'));
const { version } = manifest;
const architecture = { x64: 'amd64', arm64: 'arm64' }[process.arch];
const lastCommit = () => execFileSync('git', ['log', '-1', '--format=%ct'], { cwd: root, encoding: 'utf8' });
const epoch = Number(process.env.SOURCE_DATE_EPOCH ?? lastCommit());
const date = new Date(epoch * 1_000);
/** Dependencies with a binary for each platform, of which npm installs the right one. */
const NATIVE = ['@node-rs/argon2', 'lmdb'];

if (process.platform !== 'linux' || architecture === undefined) {
  console.error(
    `packages are built on Linux for x64 and arm64, but this is ${process.platform} ${process.arch}`,
  );
  process.exit(1);
}
process.umask(0o022);
const stage = mkdtempSync(join(tmpdir(), 'wafstat-package-'));
try {
  mkdirSync(out, { recursive: true });
  const { packages } = readJson(join(root, 'package-lock.json'));
  const completion = (shell) =>
    execFileSync(process.execPath, [join(server, 'bin/wafstat.js'), 'completion', shell], {
      encoding: 'utf8',
    });
  const documents = {
    'man/wafstat.1': manPage(await readCommands(), version, date),
    'completions/wafstat.bash': completion('bash'),
    'completions/_wafstat': completion('zsh'),
    'completions/wafstat.fish': completion('fish'),
  };
  const isWanted = (kind) => options.only === undefined || options.only === kind;
  const built = [];
  if (isWanted('npm')) built.push(await npmTarball(packages, documents));
  if (isWanted('debian')) built.push(await debianPackage(packages, documents));
  if (isWanted('sbom')) built.push(sbom(packages));
  const sums = built.map((file) => `${sha256(readFileSync(file))}  ${basename(file)}\n`);
  writeFileSync(join(out, 'SHA256SUMS'), sums.join(''));
  for (const file of [...built, join(out, 'SHA256SUMS')])
    console.log(`${relative(process.cwd(), file)} (${lstatSync(file).size} bytes)`);
} finally {
  rmSync(stage, { recursive: true, force: true });
}

/** What some dependencies of the program need at run time, by path in its node_modules: entries of the lock file. */
function productionPackages(packages, names) {
  const found = new Map();
  const add = (from, name) => {
    const path = resolveLocked(packages, from, name);
    if (path === undefined) throw new Error(`the lock file has no ${name}, which ${from} needs`);
    const target = path.replace(/^packages\/server\//, '');
    const known = found.get(target);
    if (known !== undefined && known.path !== path) throw new Error(`there are two packages for ${target}`);
    if (known !== undefined) return;
    const entry = packages[path];
    const source = entry.link ? entry.resolved : path;
    found.set(target, { path, source, entry });
    const { dependencies, optionalDependencies, peerDependencies, peerDependenciesMeta } = packages[source];
    const peers = Object.keys(peerDependencies ?? {}).filter(
      (peer) => !peerDependenciesMeta?.[peer]?.optional,
    );
    for (const each of [...Object.keys({ ...dependencies, ...optionalDependencies }), ...peers])
      add(source, each);
  };
  for (const name of names) add('packages/server', name);
  return [...found.entries()]
    .map(([target, { source, entry }]) => ({ target, source, entry }))
    .filter(({ entry }) => isForThisMachine(entry))
    .sort((a, b) => (a.target < b.target ? -1 : 1));
}

/** As Node.js resolves it. */
function resolveLocked(packages, from, name) {
  for (
    let directory = from;
    ;
    directory = directory.replace(/(?:^|\/)(?:node_modules\/(?:@[^/]+\/)?|packages\/)[^/]+$/, '')
  ) {
    const path = `${directory}${directory === '' ? '' : '/'}node_modules/${name}`;
    if (packages[path] !== undefined) return path;
    if (directory === '') return undefined;
  }
}

/** The program without its dependencies. Leaves out builds of sources that no longer exist, and makes a current bundle. */
async function copyProgram(target) {
  const isNeeded = (source) => {
    const path = relative(server, source);
    if (!path.startsWith('dist/') || path.startsWith('dist/web') || lstatSync(source).isDirectory())
      return true;
    return (
      path.endsWith('.js') &&
      existsSync(join(server, 'src', `${path.slice('dist/'.length, -'.js'.length)}.ts`))
    );
  };
  for (const name of ['bin', 'dist', 'LICENSE', 'README.md'])
    cpSync(join(server, name), join(target, name), { recursive: true, filter: isNeeded });
  await bundleTo(join(target, 'dist/bundle'));
  chmodSync(join(target, 'bin/wafstat.js'), 0o755);
}

/** Without nested packages, which have entries of their own, and without what only developers use. */
function copyDependency({ target, source, entry }, directory) {
  const from = join(root, source);
  const isNeeded = (path) => {
    const inside = relative(from, path);
    const name = basename(inside);
    if (
      /^(?:node_modules|tests?(?:\.js)?|__tests__|benchmarks?|examples?|docs|\..*|.*\.test\.[cm]?js)$/.test(
        name,
      )
    )
      return false;
    // Ours have sources and builds.
    if (entry.link && (inside === 'src' || name === 'tsconfig.json')) return false;
    if (entry.link && inside.startsWith('dist/'))
      return name.endsWith('.js') && existsSync(join(from, 'src', `${basename(name, '.js')}.ts`));
    if (/^licen[cs]e/i.test(name)) return true;
    return !/\.(?:[cm]?tsx?|map|md|markdown|c|cc|cpp|h|gypi?|yml|musl\.node)$/i.test(name);
  };
  cpSync(from, join(directory, target), { recursive: true, filter: isNeeded });
}

/**
 * Dependencies are bundled, so that what was tested is what runs: npm ignores lock files in packages. Those with native code
 * come from the registry.
 */
async function npmTarball(packages, documents) {
  const directory = join(stage, 'npm');
  await copyProgram(directory);
  const bundled = Object.keys(manifest.dependencies).filter((name) => !NATIVE.includes(name));
  for (const each of productionPackages(packages, bundled)) copyDependency(each, directory);
  writeFiles(directory, documents);
  const { devDependencies, files, ...own } = manifest;
  const published = {
    ...own,
    version,
    man: ['man/wafstat.1'],
    files: [...files, 'man', 'completions'],
    bundleDependencies: bundled,
  };
  writeFileSync(join(directory, 'package.json'), json(published));
  const [{ filename }] = JSON.parse(
    run('npm', 'pack', directory, '--json', '--ignore-scripts', '--pack-destination', out),
  );
  return join(out, filename);
}

async function debianPackage(packages, documents) {
  const dependencies = productionPackages(packages, Object.keys(manifest.dependencies));
  const directory = join(stage, 'debian');
  const program = join(directory, 'usr/lib/wafstat');
  const doc = join(directory, 'usr/share/doc/wafstat');
  const deploy = join(root, 'deploy');
  await copyProgram(program);
  rmSync(join(program, 'README.md'));
  rmSync(join(program, 'LICENSE'));
  const { name, type } = manifest;
  writeFileSync(join(program, 'package.json'), json({ name, version, type }));
  const starter = readFileSync(join(program, 'bin/wafstat.js'), 'utf8');
  const shebang = '#!/usr/bin/env node\n';
  if (!starter.startsWith(shebang)) throw new Error('bin/wafstat.js has another first line than expected');
  writeFileSync(join(program, 'bin/wafstat.js'), starter.replace(shebang, '#!/usr/lib/wafstat/node\n'));
  for (const each of dependencies) copyDependency(each, program);
  cpSync(process.execPath, join(program, 'node'), { dereference: true });
  chmodSync(join(program, 'node'), 0o755);
  if (!options.quick) run('strip', join(program, 'node'));

  writeFiles(directory, {
    'usr/share/man/man1/wafstat.1.gz': gzip(documents['man/wafstat.1']),
    'usr/share/bash-completion/completions/wafstat': documents['completions/wafstat.bash'],
    'usr/share/zsh/vendor-completions/_wafstat': documents['completions/_wafstat'],
    'usr/share/fish/vendor_completions.d/wafstat.fish': documents['completions/wafstat.fish'],
    'etc/default/wafstat': readFileSync(join(deploy, 'debian/default')),
    'usr/sbin/wafstat-admin': readFileSync(join(deploy, 'debian/wafstat-admin')),
    'usr/share/doc/wafstat/examples/follow-nginx': readFileSync(join(deploy, 'debian/follow-example')),
    'usr/share/doc/wafstat/changelog.gz': gzip(readFileSync(join(root, 'CHANGELOG.md'))),
    'usr/share/doc/wafstat/copyright': copyright(dependencies),
    'usr/share/doc/wafstat/LICENSE.node.gz': gzip(nodeLicense()),
  });
  for (const unit of ['wafstat.service', 'wafstat-follow@.service'])
    cpSync(join(deploy, 'systemd', unit), join(directory, 'usr/lib/systemd/system', unit));
  for (const tree of ['prometheus', 'grafana'].filter((tree) => existsSync(join(deploy, tree))))
    cpSync(join(deploy, tree), join(doc, 'examples', tree), { recursive: true });
  mkdirSync(join(directory, 'usr/bin'));
  symlinkSync('../lib/wafstat/bin/wafstat.js', join(directory, 'usr/bin/wafstat'));
  mkdirSync(join(directory, 'etc/wafstat/follow'), { recursive: true });
  setModes(directory);
  chmodSync(join(directory, 'usr/sbin/wafstat-admin'), 0o755);
  // May contain passwords.
  chmodSync(join(directory, 'etc/default/wafstat'), 0o640);
  chmodSync(join(directory, 'etc/wafstat/follow'), 0o750);

  const files = filesIn(directory).map((file) => ({ file, path: relative(directory, file) }));
  const bytes = files.reduce((sum, { file }) => sum + Math.ceil(lstatSync(file).size / 1_024) * 1_024, 0);
  const regular = files.filter(({ file, path }) => lstatSync(file).isFile() && !path.startsWith('etc/'));
  writeFiles(join(directory, 'DEBIAN'), {
    control: control(Math.ceil(bytes / 1_024), glibcVersion(program)),
    conffiles: '/etc/default/wafstat\n',
    md5sums: regular.map(({ file, path }) => `${md5(readFileSync(file))}  ${path}\n`).join(''),
  });
  chmodSync(join(directory, 'DEBIAN'), 0o755);
  for (const script of ['postinst', 'prerm', 'postrm']) {
    cpSync(join(deploy, 'debian', script), join(directory, 'DEBIAN', script));
    chmodSync(join(directory, 'DEBIAN', script), 0o755);
  }
  const file = join(out, `wafstat_${version}_${architecture}.deb`);
  const compression = options.quick ? '-Znone' : '-Zxz';
  run('dpkg-deb', '--build', '--root-owner-group', compression, directory, file);
  return file;
}

function isForThisMachine({ os = ['linux'], cpu = [process.arch], libc = ['glibc'] }) {
  return os.includes('linux') && cpu.includes(process.arch) && libc.includes('glibc');
}

function control(kibibytes, glibc) {
  return `Package: wafstat
Version: ${version}
Architecture: ${architecture}
Maintainer: The wafstat developers <wafstat@localhost>
Installed-Size: ${kibibytes}
Depends: libc6 (>= ${glibc}), libgcc-s1, libstdc++6 (>= 9), adduser
Recommends: ca-certificates
Suggests: postgresql, prometheus
Section: httpd
Priority: optional
Description: ${manifest.description}
 wafstat counts the requests and attacks in the logs of web application
 firewalls and web servers. It implements the WAF statistics API of Huawei
 Cloud and Open Telekom Cloud, and has a web console.
 .
 This package contains Node.js ${process.versions.node}.
`;
}

/** The newest version of glibc that a binary requires. */
function glibcVersion(directory) {
  const binaries = filesIn(directory).filter((file) => /(?:\.node|\/node)$/.test(file));
  const versions = binaries.flatMap((file) =>
    [...readFileSync(file, 'latin1').matchAll(/\0GLIBC_2\.(\d+)(?=\0)/g)].map(([, minor]) => Number(minor)),
  );
  return `2.${Math.max(...versions)}`;
}

function copyright(dependencies) {
  const licenses = dependencies
    .filter(({ entry }) => !entry.link)
    .map(
      ({ target, entry }) => ` ${target.split('node_modules/').at(-1)} ${entry.version}: ${entry.license}`,
    );
  return `wafstat is licensed under the Apache License, Version 2.0:
 /usr/share/common-licenses/Apache-2.0

/usr/lib/wafstat/node is Node.js ${process.versions.node}; its license is in LICENSE.node.gz.

The directory /usr/lib/wafstat/node_modules has these packages, with their license files:
${licenses.join('\n')}
`;
}

function nodeLicense() {
  const prefix = dirname(dirname(process.execPath));
  const candidates = [
    join(prefix, 'LICENSE'),
    join(prefix, 'share/doc/nodejs/LICENSE'),
    join(prefix, 'share/doc/nodejs/copyright'),
  ];
  const found = candidates.find((path) => existsSync(path));
  if (found === undefined)
    throw new Error(
      `the license of Node.js, which the package must include, is in none of ${candidates.join(', ')}`,
    );
  return readFileSync(found);
}

/** CycloneDX, with Node.js, and without the random number and the time of npm. */
function sbom(packages) {
  // npm takes the name of the directory as that of the program.
  const directory = join(stage, 'sbom/wafstat');
  const { devDependencies, ...own } = manifest;
  const lock = {
    name: own.name,
    version,
    lockfileVersion: 3,
    requires: true,
    packages: { '': { ...own, version } },
  };
  for (const { target, source, entry } of productionPackages(packages, Object.keys(own.dependencies))) {
    const { name, version: released, license } = packages[source];
    lock.packages[target] = entry.link ? { name, version: released, license } : entry;
  }
  writeFiles(directory, { 'package.json': json({ ...own, version }), 'package-lock.json': json(lock) });
  const settings = ['--sbom-format=cyclonedx', '--sbom-type=application', '--package-lock-only'];
  const printed = run('npm', 'sbom', ...settings, '--prefix', directory);
  const { serialNumber, metadata, ...bom } = JSON.parse(printed);
  const node = {
    type: 'platform',
    name: 'node',
    version: process.versions.node,
    'bom-ref': `node@${process.versions.node}`,
  };
  const whole = {
    ...bom,
    metadata: { ...metadata, timestamp: date.toISOString() },
    components: [...bom.components, node],
  };
  const file = join(out, `wafstat-${version}.cdx.json`);
  writeFileSync(file, json(whole));
  return file;
}

function setModes(directory) {
  for (const file of [directory, ...filesIn(directory, true)]) {
    const stats = lstatSync(file);
    if (stats.isSymbolicLink()) continue;
    const isProgram = /(?:\/wafstat\/node|\/bin\/wafstat\.js)$/.test(file);
    chmodSync(file, stats.isDirectory() || isProgram ? 0o755 : 0o644);
  }
}

function filesIn(directory, withDirectories = false) {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => withDirectories || !entry.isDirectory())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .sort();
}

function writeFiles(directory, contents) {
  for (const [path, content] of Object.entries(contents)) {
    mkdirSync(dirname(join(directory, path)), { recursive: true });
    writeFileSync(join(directory, path), content);
  }
}

function run(command, ...args) {
  const settings = Object.entries(process.env).filter(([name]) => !name.toLowerCase().startsWith('npm_'));
  const env = { ...Object.fromEntries(settings), SOURCE_DATE_EPOCH: String(epoch) };
  return execFileSync(command, args, {
    cwd: root,
    encoding: 'utf8',
    env,
    stdio: ['ignore', 'pipe', 'inherit'],
  });
}

function gzip(content) {
  return gzipSync(content, { level: 9 });
}

function readJson(path) {
  return JSON.parse(readFileSync(path, 'utf8'));
}

function json(value) {
  return `${JSON.stringify(value, null, 2)}\n`;
}

function sha256(content) {
  return createHash('sha256').update(content).digest('hex');
}

function md5(content) {
  return createHash('md5').update(content).digest('hex');
}
