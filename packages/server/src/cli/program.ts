/** The command line: every command by name, in one list. */
import { createRequire } from 'node:module';
import { Command as Commander, CommanderError } from 'commander';
import { AuditUnavailable } from '../audit/audit-trail.ts';
import { originOf, readSettings, SETTINGS, type SettingName, SettingsError, variableOf } from '../config.ts';
import { IdentityError, IdentityNotWritable, WrongMasterKey } from '../identity/errors.ts';
import { SourceLimitReached } from '../ingest/pipeline.ts';
import { CommitFailed } from '../lmdb/commit.ts';
import { StoreUnavailable } from '../store/store.ts';
import { type Command, type Io, printLine, UserError } from './command.ts';

/**
 * By the first word of the command line, in the order in which help lists them. Only what is called is loaded: to load
 * all of them takes longer than most of them run.
 */
const COMMANDS: ReadonlyMap<string, () => Promise<readonly Command[]>> = new Map([
  ['init', async () => [(await import('./init.ts')).initCommand]],
  ['serve', async () => [(await import('./serve.ts')).serveCommand]],
  ['demo', async () => [(await import('./demo.ts')).demoCommand]],
  ['ingest', async () => [(await import('./ingest.ts')).ingestCommand]],
  ['follow', async () => [(await import('./follow.ts')).followCommand]],
  ['explain', async () => [(await import('./explain.ts')).explainCommand]],
  ['categories', async () => [(await import('./categories.ts')).categoriesCommand]],
  ['host', async () => (await import('./host.ts')).hostCommands],
  ['source', async () => (await import('./source.ts')).sourceCommands],
  ['domain', async () => (await import('./domain.ts')).domainCommands],
  ['project', async () => (await import('./project.ts')).projectCommands],
  ['user', async () => (await import('./user.ts')).userCommands],
  ['key', async () => (await import('./key.ts')).keyCommands],
  ['audit', async () => [(await import('./audit.ts')).auditCommand]],
  ['timeline', async () => [(await import('./client/timeline.ts')).timelineCommand]],
  ['types', async () => [(await import('./client/types.ts')).typesCommand]],
  ['configure', async () => [(await import('./client/configure.ts')).configureCommand]],
  ['horizon', async () => [(await import('./horizon.ts')).horizonCommand]],
  ['migrate', async () => [(await import('./migrate.ts')).migrateCommand]],
  ['verify', async () => [(await import('./verify.ts')).verifyCommand]],
  ['repair', async () => [(await import('./repair.ts')).repairCommand]],
  ['backup', async () => [(await import('./backup.ts')).backupCommand]],
  ['compact', async () => [(await import('./compact.ts')).compactCommand]],
  ['copy', async () => [(await import('./copy.ts')).copyCommand]],
]);

/** Of the package, read where it stands beside the compiled code. */
const { version: VERSION } = createRequire(import.meta.url)('../../package.json') as { version: string };

const GROUPS: Readonly<Record<string, string>> = {
  host: 'the protected hosts of a project',
  source: 'the log sources of a project',
  domain: 'customers, with their own projects and users',
  project: 'projects: each has its own hosts, sources and numbers',
  user: 'who may do what',
  key: 'access keys, with which programs sign their requests',
};

/** Runs one command and answers the exit status. */
export async function runProgram(argv: readonly string[], io: Io): Promise<number> {
  let status = 0;
  const program = frame(new Commander('wafstat'), io).description(
    'Statistics on the traffic and attacks that a web application firewall sees.',
  );
  program.version(VERSION);
  for (const command of await commandsFor(argv[0])) {
    addCommand(program, command, io, (result) => {
      status = result;
    });
  }
  try {
    await program.parseAsync([...argv], { from: 'user' });
    return status;
  } catch (error) {
    return explain(error, io);
  }
}

/** Help, and what is none of our commands, is about all of them. */
async function commandsFor(word: string | undefined): Promise<readonly Command[]> {
  const named = COMMANDS.get(word ?? '');
  if (named) return named();
  return (await Promise.all([...COMMANDS.values()].map((load) => load()))).flat();
}

function addCommand(program: Commander, command: Command, io: Io, finish: (status: number) => void): void {
  const words = command.name.split(' ');
  const parent =
    words.length > 1 && words[0] && words[0] in GROUPS ? group(program, words.shift() ?? '', io) : program;
  const sub = frame(parent.command(words.join(' ')), io).description(command.about);
  for (const name of command.settings) {
    const { flag, about, ...rest } = SETTINGS[name];
    const remarks = ['default' in rest && rest.default ? `default: ${rest.default}` : '', variableOf(name)]
      .filter(Boolean)
      .join(', ');
    sub.option(flag, `${about} (${remarks})`);
  }
  sub.action(async () => {
    const options = sub.opts<Record<string, string | true | undefined>>();
    const given = (name: SettingName) => options[optionKey(name)]?.toString();
    const origin = originOf(given, io.env);
    const problems = command.check?.(origin, io);
    const settings = readSettings(command.settings, command.required, given, io.env, problems);
    finish(await command.run(settings as never, sub.args, io, origin));
  });
}

function group(program: Commander, name: string, io: Io): Commander {
  const known = program.commands.find((candidate) => candidate.name() === name);
  return known ?? frame(program.command(name), io).description(GROUPS[name] ?? '');
}

function frame(commander: Commander, { stdout, stderr }: Io): Commander {
  return commander
    .exitOverride()
    .showHelpAfterError("(run 'wafstat COMMAND --help' for the options)")
    .configureOutput({ writeOut: (text) => stdout.write(text), writeErr: (text) => stderr.write(text) });
}

/** Commander keeps `--tls-cert <file>` as `tlsCert`; two settings may share a flag in different commands. */
function optionKey(name: SettingName): string {
  const flagName = SETTINGS[name].flag.split(' ')[0]?.slice(2) ?? '';
  return flagName.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function explain(error: unknown, { stderr }: Io): number {
  // Commander has printed its own; help and version come this way too, with status 0.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
  if (error instanceof SettingsError) {
    for (const problem of error.problems) printLine(stderr, `wafstat: ${problem}`);
    return 2;
  }
  if (isForTheUser(error)) {
    printLine(stderr, `wafstat: ${systemSentence(error) ?? error.message}`);
    return 1;
  }
  throw error;
}

/** What the operating system says, in words. */
function systemSentence(error: unknown): string | null {
  const { code, path } = error as NodeJS.ErrnoException;
  if (code === undefined || path === undefined) return null;
  if (code === 'EACCES' || code === 'EPERM')
    return `no permission for ${path}: run this as the user that the server runs as`;
  if (code === 'ENOENT') return `there is no ${path}`;
  if (code === 'EEXIST' || code === 'ENOTDIR') return `${path} is a file, or inside one: name a folder`;
  return null;
}

/** What a person can put right; anything else is a bug of ours, and shows where it happened. */
function isForTheUser(error: unknown): error is Error {
  const kinds = [
    UserError,
    IdentityError,
    IdentityNotWritable,
    WrongMasterKey,
    StoreUnavailable,
    CommitFailed,
    AuditUnavailable,
    SourceLimitReached,
  ];
  if (kinds.some((kind) => error instanceof kind)) return true;
  // The operating system's own: a folder that may not be written to, a disk that is full.
  return error instanceof Error && 'syscall' in error;
}
