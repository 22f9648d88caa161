import { PassThrough } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { originOf, type SettingName } from '../../config.ts';
import type { Io } from '../command.ts';
import { signInProblems } from './sign-in.ts';

/** What is said to these flags and variables. */
function problems(
  flags: Partial<Record<SettingName, string>>,
  env: Record<string, string> = {},
  isTTY = false,
): string[] {
  const io: Io = {
    stdin: Object.assign(new PassThrough(), { isTTY }),
    stdout: new PassThrough(),
    stderr: new PassThrough(),
    env,
    now: () => 0,
    stop: new AbortController().signal,
  };
  return signInProblems(
    originOf((name) => flags[name], env),
    io,
  );
}

const PLACE = { url: 'https://waf.example.com', projectId: 'p1' };

describe('signing in', () => {
  test.each([
    [{ ...PLACE, ak: 'a', skStdin: 'true' }, {}],
    [{ ...PLACE, ak: 'a' }, { WAFSTAT_SK: 's' }],
    [{ ...PLACE, signInUser: 'u', signInPasswordStdin: 'true' }, {}],
    [{ ...PLACE, signInUser: 'u', signInDomain: 'd' }, { WAFSTAT_PASSWORD: 'p' }],
    [{ ...PLACE, token: 't' }, {}],
    [{ profile: 'p' }, {}],
    [{ profile: 'p', token: 't' }, {}],
    [{}, { WAFSTAT_URL: 'https://x', WAFSTAT_PROJECT: 'p', WAFSTAT_TOKEN: 't' }],
    [{}, { WAFSTAT_PROFILE: 'p' }],
  ])('works with %o and %o', (flags, env) => {
    expect(problems(flags, env)).toEqual([]);
  });

  test('everything that is missing is told at once', () => {
    expect(problems({})).toEqual([
      '--url (or WAFSTAT_URL, or a --profile that has it) is required',
      '--project (or WAFSTAT_PROJECT, or a --profile that has it) is required',
      'say how to sign in: --ak with --sk-stdin, --user with --password-stdin, --token, or --profile',
    ]);
  });

  test('two ways are one too many', () => {
    expect(problems({ ...PLACE, ak: 'a', skStdin: 'true', token: 't' })).toEqual([
      '--ak and --token are different ways to sign in: give one of them',
    ]);
    const env = { WAFSTAT_USER: 'u', WAFSTAT_PASSWORD: 'p', WAFSTAT_TOKEN: 't' };
    expect(problems(PLACE, env)).toEqual([
      'WAFSTAT_USER and WAFSTAT_TOKEN are different ways to sign in: give one of them',
    ]);
  });

  test('the command line wins over the environment, and so does a profile that it names', () => {
    expect(problems({ ...PLACE, token: 't' }, { WAFSTAT_AK: 'a', WAFSTAT_USER: 'u' })).toEqual([]);
    expect(problems({ profile: 'p' }, { WAFSTAT_AK: 'a', WAFSTAT_TOKEN: 't' })).toEqual([]);
  });

  test('a key or a user needs a secret, which a terminal is asked for', () => {
    expect(problems({ ...PLACE, ak: 'a' })).toEqual([
      '--ak needs the secret access key: give it to standard input with --sk-stdin, or in WAFSTAT_SK',
    ]);
    expect(problems({ ...PLACE, signInUser: 'u' })).toEqual([
      '--user needs the password: give it to standard input with --password-stdin, or in WAFSTAT_PASSWORD',
    ]);
    expect(problems({ ...PLACE, ak: 'a' }, {}, true)).toEqual([]);
  });

  test('a flag without the one that it goes with is a mistake, a variable is not', () => {
    expect(problems({ ...PLACE, token: 't', skStdin: 'true', signInDomain: 'd' })).toEqual([
      '--sk-stdin goes with --ak',
      '--domain goes with --user',
    ]);
    expect(problems({ ...PLACE, token: 't' }, { WAFSTAT_DOMAIN: 'd' })).toEqual([]);
  });
});
