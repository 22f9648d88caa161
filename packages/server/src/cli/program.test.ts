import { readFileSync } from 'node:fs';
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

/** Names of commands in the help text of the program or of a command. */
function commandsIn(help: string): string[] {
  const lists = help.slice(help.search(/^\w.*ommands.*:$/m));
  return [...lists.matchAll(/^ {2}([a-z-]+)/gm)]
    .map(([, name = '']) => name)
    .filter((name) => name !== 'help');
}

test('an error that nobody expected is one sentence and status 1', async () => {
  const stdout = new PassThrough();
  stdout.write = () => {
    throw new TypeError('a defect\nin two lines');
  };
  const stderr = new PassThrough();
  const stop = new AbortController().signal;
  const io = { stdin: Readable.from([]), stdout, stderr, env: {}, now: () => 0, stop };
  expect(await runProgram(['categories'], io)).toBe(1);
  expect(stderr.read().toString()).toBe(
    'wafstat: unexpected error: a defect\\u000ain two lines; NODE_DEBUG=wafstat shows where\n',
  );
});

test('a command that is loaded alone has the same help as among all commands', async () => {
  const { status, out } = await run('--help');
  expect(status).toBe(0);
  const names = commandsIn(out);
  expect(names.join(' ')).toBe(
    'init serve demo ingest follow explain categories status timeline types events event tune peak codes traffic top hosts sources annotate annotations configure ' +
      'host source domain project user key alert report audit verify repair backup compact horizon migrate copy copy-identity completion',
  );
  for (const name of names) {
    const alone = await run(name, '--help');
    expect(alone).toMatchObject({ status: 0, out: expect.stringContaining(`Usage: wafstat ${name}`) });
    expect(await run('help', name)).toEqual(alone);
  }
});

test('every option and every variable in the help texts is documented', async () => {
  const pages = ['configuration.md', 'command-line.md'].map((name) =>
    readFileSync(new URL(`../../../../docs/${name}`, import.meta.url), 'utf8'),
  );
  const words = new Set<string>();
  for (const name of commandsIn((await run('--help')).out)) {
    const { out } = await run(name, '--help');
    const nested = out.includes('\nCommands:\n') ? commandsIn(out) : [];
    const helpTexts = [
      out,
      ...(await Promise.all(nested.map(async (sub) => (await run(name, sub, '--help')).out))),
    ];
    for (const [word] of helpTexts.join('\n').matchAll(/^ {2}--[a-z-]+|WAFSTAT_[A-Z_]+/gm))
      words.add(word.trim());
  }
  expect(words.size).toBeGreaterThan(80);
  for (const word of words) expect(pages.join('\n')).toMatch(new RegExp(`\`${word}[^\\w-]`));
});

test('an unknown command is reported, with a similar one', async () => {
  for (const word of ['ingst', 'constructor', '--data']) {
    const { status, err } = await run(word);
    expect(status).toBe(2);
    expect(err).toContain(word);
  }
  expect((await run('ingst')).err).toContain('Did you mean ingest?');
});

test('a usage error points to the help of the command that was called', async () => {
  for (const [args, named] of [
    [['nothing'], 'wafstat'],
    [['serve', '--nothing'], 'wafstat serve'],
    [['host', 'nothing'], 'wafstat host'],
    [['host', 'add', '--nothing'], 'wafstat host add'],
  ] as const)
    expect((await run(...args)).err).toContain(`Try '${named} --help' for more information.`);
});
