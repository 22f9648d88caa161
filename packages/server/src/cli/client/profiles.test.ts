import { chmod, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Connection } from './connection.ts';
import { profilesPath, readProfile, readProfiles, saveProfile } from './profiles.ts';

let home: string;
let path: string;

beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'wafstat-profiles-'));
  path = profilesPath({ HOME: home });
});

afterEach(() => rm(home, { recursive: true }));

const PROFILE: Connection = {
  url: 'https://waf.example.com',
  project: 'p1',
  credentials: { kind: 'key', access: 'AK', secret: 'SK' },
};

const modeOf = async (of: string) => ((await stat(of)).mode & 0o777).toString(8);

describe('the file of profiles', () => {
  test('is in the configuration folder of the user', () => {
    expect(profilesPath({ HOME: '/home/u' })).toBe('/home/u/.config/wafstat/profiles.json');
    expect(profilesPath({ HOME: '/home/u', XDG_CONFIG_HOME: '/etc/x' })).toBe('/etc/x/wafstat/profiles.json');
    expect(profilesPath({ HOME: '/home/u', XDG_CONFIG_HOME: 'x' })).toBe(
      '/home/u/.config/wafstat/profiles.json',
    );
    expect(() => profilesPath({})).toThrow('HOME does not say');
  });

  test('is readable by its owner only, with its folder, and leaves nothing half-written behind', async () => {
    await saveProfile(path, 'prod', PROFILE);
    expect(await modeOf(path)).toBe('600');
    expect(await modeOf(dirname(path))).toBe('700');
    expect(await readdir(dirname(path))).toEqual(['profiles.json']);
    expect(await readProfile(path, 'prod')).toEqual(PROFILE);
  });

  test('closes a folder that was open', async () => {
    await saveProfile(path, 'prod', PROFILE);
    await chmod(dirname(path), 0o755);
    await saveProfile(path, 'prod', PROFILE);
    expect(await modeOf(dirname(path))).toBe('700');
  });

  test('keeps the other profiles, whatever their names', async () => {
    const other: Connection = { ...PROFILE, credentials: { kind: 'token', token: 't' } };
    await saveProfile(path, '__proto__', other);
    await saveProfile(path, 'prod', PROFILE);
    expect([...(await readProfiles(path)).keys()]).toEqual(['__proto__', 'prod']);
    expect(await readProfile(path, '__proto__')).toEqual(other);
  });

  test.each([0o644, 0o640, 0o604, 0o620])('is refused with mode %o, and says what to do', async (mode) => {
    await saveProfile(path, 'prod', PROFILE);
    await chmod(path, mode);
    await expect(readProfile(path, 'prod')).rejects.toThrow(`run 'chmod 600 ${path}'`);
    await expect(saveProfile(path, 'other', PROFILE)).rejects.toThrow(`run 'chmod 600 ${path}'`);
  });

  test('that is missing holds no profiles, and the way to make one is told', async () => {
    await expect(readProfile(path, 'prod')).rejects.toThrow(
      "there is no profile 'prod' (there is none yet): make it with 'wafstat configure --profile prod'",
    );
    await saveProfile(path, 'test', PROFILE);
    await expect(readProfile(path, 'prod')).rejects.toThrow('(there is test)');
  });

  test.each([
    ['', 'must hold one JSON object'],
    ['[]', 'must hold one JSON object'],
    ['{"a":{"url":"u","project":"p"}}', "the profile 'a' is incomplete"],
    [
      '{"a":{"url":"u","project":"p","credentials":{"kind":"key","access":"a"}}}',
      "the profile 'a' is incomplete",
    ],
  ])('that holds %s is refused', async (text, message) => {
    await saveProfile(path, 'prod', PROFILE);
    await writeFile(path, text);
    await expect(readProfiles(path)).rejects.toThrow(message);
  });

  test('that cannot be written is told by its name', async () => {
    await writeFile(join(home, '.config'), 'not a folder');
    await expect(readProfiles(path)).rejects.toThrow(`${path} cannot be read: ENOTDIR`);
  });
});
