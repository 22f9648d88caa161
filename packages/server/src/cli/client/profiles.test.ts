import { chmod, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Connection, profilesPath, readProfile, readProfiles, saveProfile } from './profiles.ts';

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
  test('is in the configuration directory of the user', () => {
    expect(profilesPath({ HOME: '/home/u' })).toBe('/home/u/.config/wafstat/profiles.json');
    expect(profilesPath({ HOME: '/home/u', XDG_CONFIG_HOME: '/etc/x' })).toBe('/etc/x/wafstat/profiles.json');
    expect(profilesPath({ HOME: '/home/u', XDG_CONFIG_HOME: 'x' })).toBe(
      '/home/u/.config/wafstat/profiles.json',
    );
    expect(() => profilesPath({})).toThrow('HOME is not set');
  });

  test('is readable only by its owner, like its directory, and leaves no temporary file', async () => {
    await saveProfile(path, 'prod', PROFILE);
    expect(await modeOf(path)).toBe('600');
    expect(await modeOf(dirname(path))).toBe('700');
    expect(await readdir(dirname(path))).toEqual(['profiles.json']);
    expect(await readProfile(path, 'prod')).toEqual(PROFILE);
  });

  test('removes the permissions of others from its directory', async () => {
    await saveProfile(path, 'prod', PROFILE);
    await chmod(dirname(path), 0o755);
    await saveProfile(path, 'prod', PROFILE);
    expect(await modeOf(dirname(path))).toBe('700');
  });

  test('keeps the other profiles, even one named __proto__', async () => {
    const other: Connection = { ...PROFILE, credentials: { kind: 'token', token: 't' } };
    await saveProfile(path, '__proto__', other);
    await saveProfile(path, 'prod', PROFILE);
    expect([...(await readProfiles(path)).keys()]).toEqual(['__proto__', 'prod']);
    expect(await readProfile(path, '__proto__')).toEqual(other);
  });

  test.each([0o644, 0o640, 0o604, 0o620])(
    'is refused with mode %o, with the command that fixes it',
    async (mode) => {
      await saveProfile(path, 'prod', PROFILE);
      await chmod(path, mode);
      await expect(readProfile(path, 'prod')).rejects.toThrow(`run 'chmod 600 ${path}'`);
      await expect(saveProfile(path, 'other', PROFILE)).rejects.toThrow(`run 'chmod 600 ${path}'`);
    },
  );

  test('that does not exist has no profiles; the message says how to create one', async () => {
    await expect(readProfile(path, 'prod')).rejects.toThrow(
      "there is no profile 'prod': create it with 'wafstat configure --profile prod'",
    );
    await saveProfile(path, 'test', PROFILE);
    await expect(readProfile(path, 'prod')).rejects.toThrow('(existing: test)');
  });

  test.each([
    ['', 'must contain one JSON object'],
    ['[]', 'must contain one JSON object'],
    ['{"a":{"url":"u","project":"p"}}', "profile 'a' is incomplete"],
    [
      '{"a":{"url":"u","project":"p","credentials":{"kind":"key","access":"a"}}}',
      "profile 'a' is incomplete",
    ],
  ])('with the content %s is refused', async (text, message) => {
    await saveProfile(path, 'prod', PROFILE);
    await writeFile(path, text);
    await expect(readProfiles(path)).rejects.toThrow(message);
  });

  test('that cannot be read is named', async () => {
    await writeFile(join(home, '.config'), 'not a directory');
    await expect(readProfiles(path)).rejects.toThrow(`cannot read ${path}: ENOTDIR`);
  });
});
