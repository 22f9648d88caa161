// Programs besides Node.js and npm that tests run, as Debian packages. Installs missing ones on Debian, as root.
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The headless shell is preferred: the same engine without windows, which take a third of the processor time. */
export const BROWSERS = ['/usr/bin/chromium-headless-shell', '/usr/bin/chromium'];

/** The path of the browser; undefined if none is installed. */
export function findBrowser() {
  return BROWSERS.find((path) => existsSync(path));
}

/** Whether Debian's Python has a module; importing it would take seconds. */
const pythonModule = (name) => [
  '/usr/bin/python3',
  '-c',
  `import importlib.util, sys; sys.exit(importlib.util.find_spec('${name}') is None)`,
];

/** A component is installed if its probe succeeds. */
export const COMPONENTS = [
  { package: 'curl', probe: ['curl', '--version'] },
  { package: 'openssl', probe: ['openssl', 'version'] },
  { package: 'jq', probe: ['jq', '--version'] },
  { package: 'chromium-headless-shell', probe: ['test', '-x', '/usr/bin/chromium-headless-shell'] },
  { package: 'python3-keystoneauth1', probe: pythonModule('keystoneauth1') },
  { package: 'python3-openstacksdk', probe: pythonModule('openstack') },
  { package: 'python3-openstackclient', probe: pythonModule('openstackclient') },
  { package: 'postgresql', probe: ['sh', '-c', 'test -x /usr/lib/postgresql/*/bin/initdb'] },
  { package: 'pgbouncer', probe: ['test', '-x', '/usr/sbin/pgbouncer'] },
  { package: 'libfaketime', probe: ['sh', '-c', 'test -e /usr/lib/*/faketime/libfaketime.so.1'] },
  { package: 'nginx', probe: ['/usr/sbin/nginx', '-v'] },
  {
    package: 'libnginx-mod-http-modsecurity',
    probe: ['test', '-e', '/usr/lib/nginx/modules/ngx_http_modsecurity_module.so'],
  },
  { package: 'apache2', probe: ['/usr/sbin/apache2', '-v'] },
  { package: 'libapache2-mod-security2', probe: ['test', '-e', '/usr/lib/apache2/modules/mod_security2.so'] },
  { package: 'haproxy', probe: ['/usr/sbin/haproxy', '-v'] },
  { package: 'prometheus', probe: ['prometheus', '--version'] },
  { package: 'prometheus-alertmanager', probe: ['prometheus-alertmanager', '--version'] },
  { package: 'mmdebstrap', probe: ['mmdebstrap', '--version'] },
  { package: 'systemd', probe: ['systemd-analyze', '--version'] },
  { package: 'man-db', probe: ['man', '--version'] },
  { package: 'fish', probe: ['fish', '--version'] },
  { package: 'zsh', probe: ['zsh', '--version'] },
  { package: 'modsecurity-crs', probe: ['test', '-e', '/usr/share/modsecurity-crs/rules'] },
];

export function isInstalled({ probe: [command, ...args] }) {
  return spawnSync(command, args, { stdio: 'ignore' }).status === 0;
}

/** Returns the packages that are still missing. */
export function installComponents(components = COMPONENTS) {
  const findMissing = () =>
    components.filter((component) => !isInstalled(component)).map(({ package: name }) => name);
  const missing = findMissing();
  if (missing.length === 0 || !existsSync('/usr/bin/apt-get') || process.getuid?.() !== 0) return missing;
  // RUNLEVEL 1 keeps Debian from starting the servers: tests and measurements start their own.
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', RUNLEVEL: '1' };
  const options = { stdio: ['ignore', 'ignore', 'inherit'], env };
  try {
    execFileSync('apt-get', ['update', '-q'], options);
    execFileSync('apt-get', ['install', '-y', '-q', '--no-install-recommends', ...missing], options);
  } catch (error) {
    console.error(`apt-get failed: ${error.message}`);
  }
  return findMissing();
}

const root = dirname(dirname(fileURLToPath(import.meta.url)));

/** Debian has no package of Citus. This is a script that installs it, as root; undefined if there is none. */
function findCitusInstaller() {
  const shared = ['..', '../..'].map((parent) => join(root, parent, 'shared/components/install-citus'));
  return [process.env.CITUS_INSTALL, ...shared].find((path) => path && existsSync(path));
}

const CITUS = { probe: ['sh', '-c', 'test -e /usr/share/postgresql/*/extension/citus.control'] };

/** Returns whether Citus is `installed`, `failed` to install, or `missing` because there is no script to install it. */
export function installCitus() {
  if (isInstalled(CITUS)) return 'installed';
  const installer = findCitusInstaller();
  if (installer === undefined || process.getuid?.() !== 0) return 'missing';
  spawnSync(installer, { stdio: ['ignore', 'ignore', 'inherit'] });
  return isInstalled(CITUS) ? 'installed' : 'failed';
}
