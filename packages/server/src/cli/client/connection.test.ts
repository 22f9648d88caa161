import { PassThrough } from 'node:stream';
import { describe, expect, test } from 'vitest';
import type { Io } from '../command.ts';
import { sourceOf } from '../options.ts';
import { CONNECTION_OPTIONS, connectionProblems } from './connection.ts';

function problems(
  flags: Partial<Record<keyof typeof CONNECTION_OPTIONS, string>>,
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
  return connectionProblems(
    sourceOf(CONNECTION_OPTIONS, (name) => flags[name], env),
    io,
  );
}

const PLACE = { url: 'https://waf.example.com', project: 'p1' };

describe('the options of a connection', () => {
  test.each([
    [{ ...PLACE, ak: 'a', skStdin: 'true' }, {}],
    [{ ...PLACE, ak: 'a' }, { WAFSTAT_SK: 's' }],
    [{ ...PLACE, user: 'u', passwordStdin: 'true' }, {}],
    [{ ...PLACE, user: 'u', domain: 'd' }, { WAFSTAT_PASSWORD: 'p' }],
    [{ ...PLACE, token: 't' }, {}],
    [{ profile: 'p' }, {}],
    [{ profile: 'p', token: 't' }, {}],
    [{}, { WAFSTAT_URL: 'https://x', WAFSTAT_PROJECT: 'p', WAFSTAT_TOKEN: 't' }],
    [{}, { WAFSTAT_PROFILE: 'p' }],
  ])('are complete with %o and %o', (flags, env) => {
    expect(problems(flags, env)).toEqual([]);
  });

  test('are reported at once if some are missing; without any, the default profile is used', () => {
    expect(problems({})).toEqual([]);
    expect(problems({ url: 'https://waf.example.com' })).toEqual([
      '--project (or WAFSTAT_PROJECT) is required, or --profile',
      'credentials are required: use --ak with --sk-stdin, --user with --password-stdin, --token, or --profile',
    ]);
  });

  test('contain one way to authenticate', () => {
    expect(problems({ ...PLACE, ak: 'a', skStdin: 'true', token: 't' })).toEqual([
      '--ak and --token are different ways to authenticate: use one of them',
    ]);
    const env = { WAFSTAT_AK: 'a', WAFSTAT_SK: 's', WAFSTAT_TOKEN: 't' };
    expect(problems(PLACE, env)).toEqual([
      'WAFSTAT_AK and WAFSTAT_TOKEN are different ways to authenticate: use one of them',
    ]);
  });

  test('on the command line win over the environment, and so does a profile there', () => {
    expect(problems({ ...PLACE, token: 't' }, { WAFSTAT_AK: 'a' })).toEqual([]);
    expect(problems({ profile: 'p' }, { WAFSTAT_AK: 'a', WAFSTAT_TOKEN: 't' })).toEqual([]);
  });

  test('require a secret for a key or a user, unless a terminal can prompt for it', () => {
    expect(problems({ ...PLACE, ak: 'a' })).toEqual([
      '--ak requires the secret access key: use --sk-stdin or set WAFSTAT_SK',
    ]);
    expect(problems({ ...PLACE, user: 'u' })).toEqual([
      '--user requires the password: use --password-stdin or set WAFSTAT_PASSWORD',
    ]);
    expect(problems({ ...PLACE, ak: 'a' }, {}, true)).toEqual([]);
  });

  test('are invalid without the option that they belong to', () => {
    expect(problems({ ...PLACE, token: 't', skStdin: 'true', domain: 'd' })).toEqual([
      '--sk-stdin requires --ak',
      '--domain requires --user',
    ]);
    expect(problems({ ...PLACE, token: 't' }, { WAFSTAT_SK: 's', WAFSTAT_PASSWORD: 'p' })).toEqual([]);
  });
});
