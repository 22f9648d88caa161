/** The file of saved connections. It contains secrets, so only its owner may read it. */
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, open, rename, rm } from 'node:fs/promises';
import { dirname, isAbsolute, join } from 'node:path';
import { valueAt } from '../../json-path.ts';
import { type Io, UserError } from '../command.ts';

export interface Connection {
  url: string;
  project: string;
  credentials: Credentials;
}

export type Credentials =
  | { kind: 'key'; access: string; secret: string }
  | { kind: 'password'; user: string; domain: string; password: string }
  | { kind: 'token'; token: string };

export function profilesPath(env: Io['env']): string {
  const { XDG_CONFIG_HOME: configuration, HOME: home } = env;
  // The XDG specification says to ignore relative paths.
  if (configuration && isAbsolute(configuration)) return join(configuration, 'wafstat', 'profiles.json');
  if (home) return join(home, '.config', 'wafstat', 'profiles.json');
  throw new UserError('cannot find the profiles: HOME is not set');
}

export async function readProfile(path: string, name: string): Promise<Connection> {
  const profiles = await readProfiles(path);
  const profile = profiles.get(name);
  if (profile !== undefined) return profile;
  const known = profiles.size === 0 ? '' : ` (existing: ${[...profiles.keys()].join(', ')})`;
  throw new UserError(
    `there is no profile '${name}'${known}: create it with 'wafstat configure --profile ${name}'`,
  );
}

/** Refuses a file that others can read: its secrets may be known already. */
export async function readProfiles(path: string): Promise<Map<string, Connection>> {
  const file = await open(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null;
    throw new UserError(`cannot read ${path}: ${error.code}`);
  });
  if (file === null) return new Map();
  try {
    // Checks the open file, so that it cannot be replaced between check and read.
    const mode = (await file.stat()).mode & 0o777;
    if ((mode & 0o077) !== 0) {
      throw new UserError(
        `${path} contains secrets, but its mode ${mode.toString(8)} lets others read it: run 'chmod 600 ${path}'`,
      );
    }
    return parseProfiles(path, await file.readFile('utf8'));
  } finally {
    await file.close();
  }
}

/** Replaces the file atomically. */
export async function saveProfile(path: string, name: string, connection: Connection): Promise<void> {
  const profiles = (await readProfiles(path)).set(name, connection);
  const directory = dirname(path);
  const unfinished = `${path}.${randomBytes(6).toString('hex')}`;
  try {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    await chmod(directory, 0o700);
    const file = await open(unfinished, 'wx', 0o600);
    try {
      await file.writeFile(`${JSON.stringify(Object.fromEntries(profiles), null, 2)}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(unfinished, path);
  } catch (error) {
    await rm(unfinished, { force: true });
    throw new UserError(`cannot write ${path}: ${(error as NodeJS.ErrnoException).code}`);
  }
}

function parseProfiles(path: string, text: string): Map<string, Connection> {
  let json: unknown = null;
  try {
    json = JSON.parse(text);
  } catch {
    // Reported below, like any content that is not an object.
  }
  if (typeof json !== 'object' || json === null || Array.isArray(json))
    throw new UserError(`${path} is not a profile file: it must contain one JSON object`);
  const profiles = new Map<string, Connection>();
  for (const [name, value] of Object.entries(json)) {
    if (!isConnection(value)) throw new UserError(`${path}: profile '${name}' is incomplete`);
    profiles.set(name, value);
  }
  return profiles;
}

const CREDENTIAL_FIELDS: ReadonlyMap<unknown, readonly string[]> = new Map([
  ['key', ['access', 'secret']],
  ['password', ['user', 'domain', 'password']],
  ['token', ['token']],
]);

function isConnection(value: unknown): value is Connection {
  const fields = CREDENTIAL_FIELDS.get(valueAt(value, 'credentials.kind'));
  const paths = ['url', 'project', ...(fields ?? []).map((name) => `credentials.${name}`)];
  return fields !== undefined && paths.every((path) => typeof valueAt(value, path) === 'string');
}
