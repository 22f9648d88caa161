import { PassThrough, Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { runProgram } from './program.ts';

async function run(...argv: string[]) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const stop = new AbortController().signal;
  const status = await runProgram(argv, {
    stdin: Readable.from([]),
    stdout,
    stderr,
    env: {},
    now: () => 0,
    stop,
  });
  stdout.end();
  stderr.end();
  return { status, out: await text(stdout), err: await text(stderr) };
}

test('a command that is loaded alone says the same of itself as among all', async () => {
  const { status, out } = await run('--help');
  expect(status).toBe(0);
  const names = [...out.slice(out.indexOf('Commands:')).matchAll(/^ {2}([a-z]+)/gm)].map(
    ([, name = '']) => name,
  );
  expect(names.join(' ')).toBe(
    'init serve demo ingest follow explain categories host source domain project user key audit ' +
      'timeline types configure horizon migrate verify repair backup compact copy help',
  );
  for (const name of names.slice(0, -1)) {
    const alone = await run(name, '--help');
    expect(alone).toMatchObject({ status: 0, out: expect.stringContaining(`Usage: wafstat ${name}`) });
    expect(await run('help', name)).toEqual(alone);
  }
});

test('what is no command is told so, with those that there are', async () => {
  for (const word of ['ingst', 'constructor', '--data']) {
    const { status, err } = await run(word);
    expect(status).toBe(2);
    expect(err).toContain(word);
  }
  expect((await run('ingst')).err).toContain('Did you mean ingest?');
});
