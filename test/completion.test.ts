/** The completion scripts in real shells. */
import { execFile, spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PROGRAM } from './process.ts';
import { Sandbox } from './sandbox.ts';

/** In CI, a missing program is a failure. */
const has = (program: string) =>
  process.env.CI === 'true' || spawnSync(program, ['--version'], { stdio: 'ignore' }).status === 0;

const sandbox = new Sandbox();
afterAll(() => sandbox.clear());

async function shell(command: string, ...args: string[]): Promise<string> {
  const { directory } = sandbox;
  const env = { ...process.env, HOME: directory, TERM: 'dumb', PATH: `${directory}/bin:${process.env.PATH}` };
  return (await promisify(execFile)(command, args, { cwd: directory, env })).stdout;
}

beforeAll(async () => {
  for (const name of ['bin', 'logs']) mkdirSync(sandbox.path(name));
  symlinkSync(PROGRAM, sandbox.path('bin/wafstat'));
  sandbox.write('logs/access.log', '');
  for (const [name, file] of [
    ['bash', 'wafstat.bash'],
    ['zsh', '_wafstat'],
    ['fish', 'wafstat.fish'],
  ] as const) {
    const { status, stdout, stderr } = await sandbox.run(['completion', name]);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    sandbox.write(file, stdout);
  }
});

const COMPLETIONS: readonly (readonly [line: string, completions: string[]])[] = [
  ['wafstat ser', ['serve']],
  ['wafstat host ', ['add', 'delete', 'list', 'rename']],
  ['wafstat serve --store ', ['lmdb', 'postgres']],
  ['wafstat user add --pass', ['--password-stdin']],
  ['wafstat even', ['event', 'events']],
  ['wafstat events --action ', ['block', 'log']],
  ['wafstat user add --role ', ['admin', 'ingest', 'reader']],
  ['wafstat user add --access ', ['both', 'console', 'programmatic']],
  ['wafstat top ', ['countries', 'networks', 'pages', 'rules', 'sources', 'urls']],
];

test('bash completes commands, options and values, and files otherwise', async () => {
  const complete = async (line: string) => {
    const words = line.split(' ').map((word) => `'${word}'`);
    const script = `source wafstat.bash; COMP_WORDS=(${words.join(' ')}); COMP_CWORD=${words.length - 1}
      _wafstat; printf '%s\\n' "\${COMPREPLY[@]}"; complete -p wafstat`;
    return (await shell('bash', '-c', script)).trim().split('\n');
  };
  for (const [line, expected] of COMPLETIONS) {
    const found = (await complete(line)).slice(0, -1);
    expect({ line, found: found.toSorted() }).toEqual({ line, found: expected });
  }
  // Without a result, `-o default` completes files.
  expect(await complete('wafstat ingest logs/ac')).toEqual(['complete -o default -F _wafstat wafstat']);
});

const FILE = ['wafstat ingest logs/ac', ['logs/access.log']] as const;

test.runIf(has('fish'))('fish completes commands, options, values and files', async () => {
  for (const [line, expected] of [...COMPLETIONS, FILE]) {
    const script = `source wafstat.fish; complete --do-complete '${line}'`;
    const lines = (await shell('fish', '--no-config', '-c', script)).trim().split('\n');
    const found = lines.map((each) => each.split('\t')[0]).toSorted();
    expect({ line, found }).toEqual({ line, found: expected });
  }
});

test.runIf(has('zsh')).each([
  ['wafstat ser', 'wafstat serve '],
  ['wafstat host a', 'wafstat host add '],
  ['wafstat serve --store p', 'wafstat serve --store postgres '],
  ['wafstat user add --pass', 'wafstat user add --password-stdin '],
  ['wafstat top so', 'wafstat top sources '],
  ['wafstat ingest logs/ac', 'wafstat ingest logs/access.log '],
])('zsh completes %j', async (line, expected) => {
  // Completion works in an interactive shell only, which needs a terminal: completes the line when the editor starts.
  const completed = sandbox.path('completed');
  const setup = sandbox.write(
    'setup.zsh',
    `PS1=; fpath=(${sandbox.directory} $fpath); autoload -Uz compinit; compinit -u -d ${sandbox.path('zcompdump')}
     complete_line() { BUFFER='${line}'; CURSOR=$#BUFFER; zle complete-word; print -rn -- $BUFFER > ${completed}; exit }
     zle -N zle-line-init complete_line`,
  );
  const script = `zmodload zsh/zpty; zpty z zsh -f -i; zpty -w z 'source ${setup}'; while zpty -r z text; do :; done`;
  await shell('zsh', '-f', '-c', script);
  expect(readFileSync(completed, 'utf8')).toBe(expected);
});

test('another shell is refused', async () => {
  expect(await sandbox.run(['completion', 'tcsh'])).toMatchObject({
    status: 2,
    stdout: '',
    stderr: "wafstat: the shell is 'tcsh', but must be one of bash, zsh, fish\n",
  });
});
