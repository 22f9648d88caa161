// Programs beyond Node.js and npm that tests run for real. Installs those that Debian has, where that is possible.
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';

/** A component is there when the command succeeds. */
export const COMPONENTS = [
  { package: 'curl', probe: ['curl', '--version'] },
  { package: 'python3-keystoneauth1', probe: ['/usr/bin/python3', '-c', 'import keystoneauth1'] },
];

export function isThere({ probe: [command, ...args] }) {
  return spawnSync(command, args, { stdio: 'ignore' }).status === 0;
}

/** Installs what is missing if this is Debian and we are root; answers the packages that are still missing. */
export function installComponents() {
  const missing = COMPONENTS.filter((component) => !isThere(component)).map((component) => component.package);
  if (missing.length > 0 && existsSync('/usr/bin/apt-get') && process.getuid?.() === 0) {
    const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
    const options = { stdio: ['ignore', 'ignore', 'inherit'], env };
    try {
      execFileSync('apt-get', ['update', '-q'], options);
      execFileSync('apt-get', ['install', '-y', '-q', '--no-install-recommends', ...missing], options);
    } catch (error) {
      console.error(`apt-get failed: ${error.message}`);
    }
  }
  return COMPONENTS.filter((component) => !isThere(component)).map((component) => component.package);
}
