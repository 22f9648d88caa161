/** The packages of `npm run package`, installed as users install them: into an empty prefix, and into a clean Debian. */
import { execFile, spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { login } from './api.ts';
import { eventually, Process } from './process.ts';
import { type Installation, ndjson, Sandbox } from './sandbox.ts';

const repository = fileURLToPath(new URL('..', import.meta.url));
const { version } = JSON.parse(readFileSync(join(repository, 'packages/server/package.json'), 'utf8'));
const NEXT = '99.0.0';
const architecture = { x64: 'amd64', arm64: 'arm64' }[process.arch as string];

/** In CI, a missing program is a failure. */
const has = (program: string) =>
  process.env.CI === 'true' || spawnSync(program, ['--version'], { stdio: 'ignore' }).status === 0;
const isRoot = process.getuid?.() === 0;

/** A Debian has devices, such as /dev/null, which /dev/shm forbids on most machines (`nodev`). */
const DIRECTORY_WITH_DEVICES = '/var/tmp';
const sandbox = new Sandbox();
const debian = new Sandbox(DIRECTORY_WITH_DEVICES);
const out = sandbox.path('dist');
const started: Process[] = [];

afterAll(async () => {
  await Promise.all(started.map((each) => each.kill()));
  await Promise.all([sandbox.clear(), debian.clear()]);
});

function build(...args: string[]) {
  return run(process.execPath, [join(repository, 'scripts/package.mjs'), '--quick', '--out', out, ...args]);
}

/** Without the variables of the npm that runs the tests. */
async function run(command: string, args: readonly string[], env: Record<string, string> = {}) {
  const settings = Object.entries(process.env).filter(([name]) => !/^(?:npm|wafstat)_/i.test(name));
  const options = { env: { ...Object.fromEntries(settings), ...env }, cwd: sandbox.directory };
  const { stdout } = await promisify(execFile)(command, args, options).catch((error) => {
    throw new Error(`${command} ${args.join(' ')} failed: ${error.message}\n${error.stdout}${error.stderr}`);
  });
  return stdout;
}

const EVENTS = [
  { time: Date.now() - 60_000, host: 'a.example' },
  { time: Date.now() - 60_000, host: 'a.example', attack: 'sqli' },
];

/** Starts the service, and resolves to what it has counted. */
async function counts(program: readonly [string, ...string[]], installation: Installation): Promise<unknown> {
  const service = new Process(['serve', '--listen', '127.0.0.1:0', '--workers', '2'], { program });
  started.push(service);
  const line = await service.line('wafstat listens on ');
  const api = await login(line.slice('wafstat listens on '.length), installation);
  const range = `from=${EVENTS[0]?.time}&to=${Date.now()}`;
  const counted = await api.distribution(range);
  service.signal('SIGTERM');
  expect((await service.end()).status).toBe(0);
  return counted;
}

const prefix = sandbox.path('prefix');
const installed = join(prefix, 'lib/node_modules/wafstat');

beforeAll(async () => {
  await build('--only', 'npm');
  const tarball = join(out, `wafstat-${version}.tgz`);
  await run('npm', ['install', '--global', '--prefix', prefix, '--prefer-offline', '--no-audit', tarball]);
}, 600_000);

describe('npm tarball', () => {
  const data = sandbox.path('npm-data');
  const program = join(prefix, 'bin/wafstat');

  test('has what the program needs, and no development files', () => {
    const files = readdirSync(installed, { recursive: true }) as string[];
    const own = files.filter((file) => !/^node_modules\/(?!@wafstat\/)/.test(file));
    expect(own.filter((file) => /\.(?:ts|map|tsbuildinfo)$|\.test\.|^src\b|fixtures/.test(file))).toEqual([]);
    expect(own).toEqual(
      expect.arrayContaining([
        'dist/bundle/main.js',
        'dist/bundle/parser-thread.js',
        'dist/bundle/LICENSES.txt',
        'dist/web/index.html',
        'man/wafstat.1',
        'completions/_wafstat',
      ]),
    );
    expect(existsSync(join(installed, 'node_modules/vitest'))).toBe(false);
    expect(statSync(join(prefix, 'share/man/man1/wafstat.1')).isFile()).toBe(true);
  });

  test('its threads start', async () => {
    const thread = JSON.stringify(join(installed, 'dist/bundle/parser-thread.js'));
    const data = '{ setup: { limits: {}, format: "auto" }, lastId: new SharedArrayBuffer(68) }';
    const start = `new (require('node:worker_threads').Worker)(${thread}, { workerData: ${data} })`;
    const report = `.once('message', (message) => { console.log(message); process.exit(); })`;
    expect(await run(process.execPath, ['-e', start + report])).toBe('ready\n');
  });

  test('installs alone, and the service counts', async () => {
    expect(await run(program, ['--version'])).toBe(`${version}\n`);
    const installation = JSON.parse(await run(program, ['init', '--data', data, '--json']));
    const events = sandbox.write('events.ndjson', ndjson(EVENTS));
    await run(program, ['ingest', '--data', data, '--project', 'default', events]);
    expect(await counts(['/usr/bin/env', `WAFSTAT_DATA=${data}`, program], installation)).toMatchObject({
      sqli: 1,
    });
  });
});

describe.runIf(isRoot && architecture && has('mmdebstrap') && has('systemd-analyze'))(
  'Debian package',
  () => {
    const root = debian.path('root');
    const inRoot = (...args: string[]) =>
      run('chroot', [root, ...args], { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' });
    const exists = (path: string) => existsSync(join(root, path));
    const admin = ['/usr/sbin/chroot', root, '/usr/sbin/wafstat-admin'] as const;
    const install = async (of: string) => {
      const name = `wafstat_${of}_${architecture}.deb`;
      await run('mv', [join(out, name), join(root, 'var/cache', name)]);
      return inRoot('dpkg', '--install', `/var/cache/${name}`);
    };
    /** The installed package with a newer version: building another one takes much longer. */
    const repack = async () => {
      const directory = debian.path('next');
      const [from, to] = [version, NEXT].map((of) => `wafstat_${of}_${architecture}.deb`) as [string, string];
      await run('dpkg-deb', ['--raw-extract', join(root, 'var/cache', from), directory]);
      for (const [name, field] of [
        ['DEBIAN/control', 'Version: '],
        ['usr/lib/wafstat/package.json', '"version": "'],
      ] as const) {
        const path = join(directory, name);
        const text = readFileSync(path, 'utf8');
        expect(text).toContain(`${field}${version}`);
        writeFileSync(path, text.replace(`${field}${version}`, `${field}${NEXT}`));
      }
      await run('dpkg-deb', ['--build', '--root-owner-group', '-Znone', directory, join(out, to)]);
    };
    const listed = () => inRoot('wafstat-admin', 'host', 'list', '--project', 'default');
    let installation: Installation;

    beforeAll(async () => {
      mkdirSync(root);
      const [archive] = await Promise.all([cleanDebian(), build('--only', 'debian')]);
      await run('tar', ['--extract', '--file', archive, '--directory', root]);
      await install(version);
    }, 600_000);

    test('installs with a user, a private data directory and settings that may contain passwords', async () => {
      expect(await inRoot('getent', 'passwd', 'wafstat')).toMatch(
        /:\/var\/lib\/wafstat:\/usr\/sbin\/nologin\n$/,
      );
      const stat = (path: string) => inRoot('stat', '--format=%U:%G %a', path);
      expect(await stat('/var/lib/wafstat')).toBe('wafstat:wafstat 700\n');
      expect(await stat('/etc/default/wafstat')).toBe('root:root 640\n');
      expect(await stat('/usr/lib/wafstat/node')).toBe('root:root 755\n');
      expect(
        await inRoot('find', '/usr/lib/wafstat', '/etc/wafstat', '-perm', '/022', '!', '-type', 'l'),
      ).toBe('');
      expect(await inRoot('find', '/usr/lib/wafstat', '!', '-user', 'root')).toBe('');
      expect(await inRoot('dpkg', '--verify', 'wafstat')).toBe('');
      expect(exists('usr/lib/wafstat/dist/bundle/main.js')).toBe(true);
    });

    test('the units are valid and hardened', async () => {
      const units = ['wafstat.service', 'wafstat-follow@test.service'].map((name) => {
        const unit = readFileSync(join(root, 'usr/lib/systemd/system', name.replace('test', '')), 'utf8');
        // This machine has systemd, but not the program.
        return sandbox.write(name, unit.replaceAll('/usr/bin/wafstat', process.execPath));
      });
      // Prints what it finds.
      expect(await run('systemd-analyze', ['verify', '--man=no', ...units])).toBe('');
      await run('systemd-analyze', ['security', '--no-pager', '--offline=true', '--threshold=20', ...units]);
    });

    test('wafstat-admin runs commands as the user of the service, with its settings', async () => {
      installation = JSON.parse(await inRoot('wafstat-admin', 'init', '--json'));
      expect(await inRoot('stat', '--format=%U %a', '/var/lib/wafstat/master.key')).toBe('wafstat 600\n');
      expect(await inRoot('wafstat-admin', 'serve', '--check', '--listen', '127.0.0.1:0')).toBe(
        'no problems found\n',
      );
      writeFileSync(join(root, 'var/events.ndjson'), ndjson(EVENTS));
      await inRoot('wafstat-admin', 'ingest', '--project', 'default', '/var/events.ndjson');
      expect(await counts(admin, installation)).toMatchObject({ sqli: 1 });
    });

    test('an upgrade keeps settings and data', async () => {
      const settings = join(root, 'etc/default/wafstat');
      writeFileSync(settings, `${readFileSync(settings, 'utf8')}WAFSTAT_REGION=changed\n`);
      await repack();
      await install(NEXT);
      expect(await inRoot('wafstat', '--version')).toBe(`${NEXT}\n`);
      expect(readFileSync(settings, 'utf8')).toContain('WAFSTAT_REGION=changed');
      expect(await listed()).toContain('a.example');
      expect(await counts(admin, installation)).toMatchObject({ sqli: 1 });
    });

    test('a removal keeps data and settings, a purge deletes them', async () => {
      await inRoot('dpkg', '--remove', 'wafstat');
      expect(exists('usr/bin/wafstat')).toBe(false);
      expect(exists('usr/lib/wafstat')).toBe(false);
      expect(exists('var/lib/wafstat/statistics.mdb')).toBe(true);
      expect(exists('etc/default/wafstat')).toBe(true);
      await inRoot('dpkg', '--purge', 'wafstat');
      const left = await inRoot('find', '/', '-xdev', '-name', '*wafstat*', '-not', '-path', '/var/cache/*');
      expect(left).toBe('');
    });
  },
);

test('the SBOM lists what is installed, and Node.js; the checksums are right', async () => {
  await build('--only', 'sbom');
  const file = `wafstat-${version}.cdx.json`;
  const { bomFormat, components } = JSON.parse(readFileSync(join(out, file), 'utf8'));
  expect(bomFormat).toBe('CycloneDX');
  const names = components.map(({ group, name }: Record<string, string>) =>
    group ? `${group}/${name}` : name,
  );
  expect(names).toEqual(expect.arrayContaining(['fastify', 'lmdb', '@wafstat/signer', 'node']));
  expect(names).not.toContain('vitest');
  expect(await run('sh', ['-c', `cd ${out} && sha256sum --check SHA256SUMS`])).toBe(`${file}: OK\n`);
});

/** A Debian of the release of this machine, with what every Debian has. Made once. */
async function cleanDebian(): Promise<string> {
  const release = /^VERSION_CODENAME=(\w+)$/m.exec(readFileSync('/etc/os-release', 'utf8'))?.[1] ?? 'stable';
  const archive = join(repository, '.cache', `debian-${release}.tar`);
  if (!existsSync(archive)) {
    mkdirSync(dirname(archive), { recursive: true });
    const made = `${archive}.${process.pid}.tar`;
    // The hook saves installing Perl, which a package that merges /bin into /usr needs: a quarter of the time.
    const options = ['--hook-dir=/usr/share/mmdebstrap/hooks/maybe-merged-usr', '--dpkgopt=force-unsafe-io'];
    const packages = '--include=usr-is-merged,adduser,libstdc++6';
    await run('mmdebstrap', ['--variant=essential', ...options, packages, release, made], {
      TMPDIR: DIRECTORY_WITH_DEVICES,
    });
    renameSync(made, archive);
  }
  return archive;
}

describe('manual page', () => {
  test.runIf(has('man'))('the manual page is readable and has every command', async () => {
    const page = await run('man', ['--warnings', '--local-file', join(installed, 'man/wafstat.1')], {
      MANWIDTH: '200',
    });
    for (const text of [
      'wafstat serve [options]',
      'wafstat user add [options] <name>',
      '--check',
      'EXIT STATUS',
    ])
      expect(page).toContain(text);
  });
});

describe.runIf(has('systemd-notify'))('systemd', () => {
  /** Receives datagrams, which Node.js cannot. */
  const RECEIVER = `
import socket, sys
receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
receiver.bind(sys.argv[1])
print("bound", flush=True)
while True: print(receiver.recv(4096).decode().replace("\\n", " "), flush=True)
`;
  const receive = async (name: string) => {
    const socket = sandbox.path(name);
    const receiver = new Process([socket], { program: ['/usr/bin/python3', '-c', RECEIVER] });
    started.push(receiver);
    await receiver.line('bound');
    return { receiver, env: { NOTIFY_SOCKET: socket, WATCHDOG_USEC: '1000000' } };
  };
  const got = (receiver: Process, message: string) =>
    eventually(() => receiver.stdout.includes(message) || undefined, `${message} in ${receiver.stdout}`);

  test.each([['1'], ['2']])(
    'serve with %s workers reports that it is ready, alive and stopping',
    async (workers) => {
      const { receiver, env } = await receive(`notify-${workers}`);
      const { process: service } = await sandbox.serve(['--workers', workers], { env });
      await got(receiver, 'READY=1');
      await got(receiver, 'WATCHDOG=1');
      service.signal('SIGTERM');
      await got(receiver, 'STOPPING=1');
      expect((await service.end()).status).toBe(0);
      expect(receiver.stdout.match(/READY=1/g)).toHaveLength(1);
    },
  );

  test('messages that systemd does not read do not delay the end', async () => {
    const { receiver, env } = await receive('notify-stopped');
    const { process: service } = await sandbox.serve([], { env });
    await got(receiver, 'READY=1');
    receiver.signal('SIGSTOP');
    service.signal('SIGTERM');
    expect(await service.end()).toMatchObject({ status: 0, signal: null });
  });

  test('follow does, too', async () => {
    const { receiver, env } = await receive('notify-follow');
    const log = sandbox.write('access.log', '');
    const follower = sandbox.start(['follow', '--data', sandbox.data, '--project', 'default', log], { env });
    await got(receiver, 'READY=1');
    await got(receiver, 'WATCHDOG=1');
    follower.signal('SIGTERM');
    await got(receiver, 'STOPPING=1');
    expect((await follower.end()).status).toBe(0);
  });
});
