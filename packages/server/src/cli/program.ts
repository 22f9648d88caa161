/** The command line: every command by name, in one list. */
import { debuglog } from 'node:util';
import { Command as Commander, CommanderError, Option as CommanderOption, Help } from 'commander';
import {
  type Command,
  hasColors,
  type Io,
  type Subcommand,
  styled,
  userMessage,
  VERSION,
  warn,
} from './command.ts';
import {
  type Option,
  type Options,
  REPEATED,
  readOptions,
  type Source,
  sourceOf,
  UsageError,
  type Values,
} from './options.ts';

/** Descriptions by name with operands, in the order of the help text. Commands with `<command>` have subcommands. */
const COMMANDS: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  'Server commands:': {
    init: 'create a data directory, or an installation in PostgreSQL; adds a first domain, project and user',
    serve:
      'run the server; creates the data directory, or the installation in PostgreSQL, if it does not exist',
    demo: 'run a server with sample data: 30 days of generated traffic for six hosts; new events keep arriving',
  },
  'Log commands:': {
    'ingest <file...>':
      "count the lines of log files, also compressed ones, of directories, and of standard input ('-'); skips lines that were read before",
    'follow <file...>':
      'count the lines of log files as they are written; continues across log rotation and restarts',
    'explain [file]':
      'show how log lines are counted, and why; reads a file or standard input; stores nothing',
    categories: 'print the table that maps rules to attack categories',
  },
  'Query commands (client of a running service):': {
    status: 'show in one sentence whether there is an attack, and list the bursts of attacks',
    timeline: 'show requests and attacks over time; the time of an interval is its end',
    types: 'show attacks by category',
    events: 'list the attacks that the service keeps, newest first; or delete those of a source',
    'event <id>':
      'show everything that is kept of an attack: the request, and all rules with what they matched',
    tune: 'find rules that hit users; prints the narrowest exclusions for them, and what the firewall would block',
    peak: 'show the number of requests in the busiest second, and the minute in which it was',
    codes: 'show requests by response code',
    traffic: 'show the bytes per second that clients sent and got, over time',
    'top <sources|networks|urls|rules|countries|pages>':
      'show the sources, networks (with --geoip), URLs, rules or countries with the most attacks, or the pages with the most errors; counts cover whole hours if some attacks are not kept',
    hosts:
      "list the hosts of a project; to read the data directory without a service, use 'wafstat host list'",
    sources:
      "list the log sources of a project; to read the data directory without a service, use 'wafstat source list'",
    'annotate <text>':
      'add an annotation to the charts of the console: what happened at a time, such as a release',
    annotations: 'list the annotations of a project, newest first, or delete one',
    configure:
      'save URL, project and credentials as a profile; prompts for them on a terminal, and tests them with a query',
  },
  'Administration commands:': {
    'host <command>': 'manage the protected hosts of a project',
    'source <command>': 'show the log sources of a project',
    'domain <command>': 'manage domains: tenants with their own projects and users',
    'project <command>': 'manage projects: each has its own hosts, log sources and statistics',
    'user <command>': 'manage users and their roles',
    'key <command>': 'manage access keys, which sign API requests',
    'alert <command>': 'manage alerts: when to send a message, and where',
    report: 'write a report on a project as one page of HTML: totals, chart, top lists and incidents',
    audit: 'print the audit trail: who changed what, when, and from where',
  },
  'Maintenance commands:': {
    verify:
      'check the data directory: checksums, counters, references between tables; works while the server runs; exits with status 1 if there are problems',
    repair:
      'repair the data directory: recompute damaged counters, restore damaged users and keys, rebuild references, and list what is lost; back up the data directory first',
    backup:
      'back up the data directory; copies it while the server runs, and verifies the copy; to restore, start the server on the copy',
    compact:
      'return free space in the statistics file to the file system; stop the server and all other commands first',
    horizon: 'show the retention horizon, or move it back; use it after the server ran with a wrong clock',
    migrate: 'create the tables in PostgreSQL; can be repeated',
    copy: 'copy a project between the data directory and PostgreSQL; includes its top lists, its kept attacks and the read positions of its logs; verifies the copy; stop ingest and all services on both stores first',
    'copy-identity':
      'copy domains, projects, users and access keys from a data directory into PostgreSQL; keeps IDs, passwords and keys; verifies the copy; stop the service first',
  },
  'Other commands:': {
    'completion <shell> [words...]':
      'print a script that completes commands and options in bash, zsh or fish',
  },
};

type Load = () => Promise<Command | readonly Subcommand[]>;

/** Modules are loaded on demand, because loading one takes longer than most commands run. */
const LOADERS: Readonly<Record<string, Load>> = {
  init: async () => (await import('./init.ts')).initCommand,
  serve: async () => (await import('./serve.ts')).serveCommand,
  demo: async () => (await import('./demo.ts')).demoCommand,
  ingest: async () => (await import('./ingest.ts')).ingestCommand,
  follow: async () => (await import('./follow.ts')).followCommand,
  explain: async () => (await import('./explain.ts')).explainCommand,
  categories: async () => (await import('./categories.ts')).categoriesCommand,
  status: async () => (await import('./client/status.ts')).statusCommand,
  timeline: async () => (await import('./client/query.ts')).timelineCommand,
  types: async () => (await import('./client/query.ts')).typesCommand,
  events: async () => (await import('./client/events.ts')).eventsCommand,
  event: async () => (await import('./client/events.ts')).eventCommand,
  tune: async () => (await import('./client/tune.ts')).tuneCommand,
  peak: async () => (await import('./client/query.ts')).peakCommand,
  codes: async () => (await import('./client/query.ts')).codesCommand,
  traffic: async () => (await import('./client/query.ts')).trafficCommand,
  top: async () => (await import('./client/top.ts')).topCommand,
  hosts: async () => (await import('./client/lists.ts')).hostsCommand,
  sources: async () => (await import('./client/lists.ts')).sourcesCommand,
  annotate: async () => (await import('./client/annotations.ts')).annotateCommand,
  annotations: async () => (await import('./client/annotations.ts')).annotationsCommand,
  configure: async () => (await import('./client/configure.ts')).configureCommand,
  host: async () => (await import('./inventory.ts')).hostCommands,
  source: async () => (await import('./inventory.ts')).sourceCommands,
  domain: async () => (await import('./identity.ts')).domainCommands,
  project: async () => (await import('./identity.ts')).projectCommands,
  user: async () => (await import('./identity.ts')).userCommands,
  key: async () => (await import('./identity.ts')).keyCommands,
  alert: async () => (await import('./alert.ts')).alertCommands,
  report: async () => (await import('./alert.ts')).reportCommand,
  audit: async () => (await import('./audit.ts')).auditCommand,
  verify: async () => (await import('./maintenance.ts')).verifyCommand,
  repair: async () => (await import('./maintenance.ts')).repairCommand,
  backup: async () => (await import('./backup.ts')).backupCommand,
  compact: async () => (await import('./backup.ts')).compactCommand,
  horizon: async () => (await import('./maintenance.ts')).horizonCommand,
  migrate: async () => (await import('./stores.ts')).migrateCommand,
  copy: async () => (await import('./stores.ts')).copyCommand,
  'copy-identity': async () => (await import('./stores.ts')).copyIdentityCommand,
  completion: async () => (await import('./completion.ts')).completionCommand(createProgram),
};

const HELP = 'print the help of a command';

/** Runs one command and resolves to the exit status. */
export async function runProgram(argv: readonly string[], io: Io): Promise<number> {
  let status = 0;
  try {
    const called = argv[0] === 'help' ? argv[1] : argv[0];
    const program = await createProgram(
      (name) => name === called,
      io,
      (result) => {
        status = result;
      },
    );
    await program.parseAsync([...argv], { from: 'user' });
    return status;
  } catch (error) {
    return reportError(error, io);
  }
}

/** The command line. Commands that are not needed have no options and subcommands. */
export async function createProgram(
  isNeeded: (name: string) => boolean,
  io: Io,
  finish: (status: number) => void,
): Promise<Commander> {
  // Commands inherit the help settings, the output and exitOverride.
  const program = new Commander('wafstat')
    .usage('<command> [options]')
    .description('Statistics on the requests and attacks that a web application firewall sees.')
    .version(VERSION, '-V, --version', 'print the version')
    .exitOverride()
    .helpOption('-h, --help', 'print this help')
    .showHelpAfterError(helpHint('wafstat'))
    .configureOutput({
      writeOut: (text) => io.stdout.write(text),
      writeErr: (text) => io.stderr.write(text),
      outputError: (text, write) =>
        write(text.replace(/^error:/, styled('wafstat:', 'red', hasColors(io.stderr, io)))),
      getOutHelpWidth: () => io.stdout.columns ?? 80,
      getErrHelpWidth: () => io.stderr.columns ?? 80,
      getOutHasColors: () => hasColors(io.stdout, io),
      getErrHasColors: () => hasColors(io.stderr, io),
    })
    .configureHelp({
      subcommandTerm: termOf,
      styleTitle: (title) => styled(title, 'bold', true),
      formatItem,
      minWidthToWrap: DESCRIPTION_COLUMNS_MIN,
    })
    .addHelpText('after', "\nRun 'wafstat COMMAND --help' for the options of a command.");
  for (const [heading, commands] of Object.entries(COMMANDS)) {
    program.commandsGroup(heading);
    for (const [name, description] of Object.entries(commands)) {
      const [word = ''] = name.split(' ', 1);
      const isParent = name.endsWith('<command>');
      const added = describe(program.command(isParent ? word : name), description);
      added.showHelpAfterError(helpHint(`wafstat ${word}`));
      if (isParent) added.usage('<command>').helpCommand('help [command]', HELP);
      if (!isNeeded(word)) continue;
      for (const loaded of [(await LOADERS[word]?.()) ?? []].flat()) {
        if (!('name' in loaded)) addCommand(added, loaded, io, finish);
        else addCommand(describe(added.command(loaded.name), loaded.description), loaded, io, finish);
      }
    }
  }
  program.commandsGroup('Other commands:').helpCommand('help [command]', HELP);
  return program;
}

function addCommand(sub: Commander, command: Command, io: Io, finish: (status: number) => void): void {
  const path = [sub.parent?.parent?.name(), sub.parent?.name(), sub.name()].filter(Boolean).join(' ');
  sub.showHelpAfterError(helpHint(path));
  const operands = requiredOperands(sub);
  const attributes = new Map<string, string>();
  for (const [name, option] of Object.entries(command.options)) {
    const declared = declare(option);
    sub.addOption(declared);
    attributes.set(name, declared.attributeName());
  }
  if (command.examples)
    sub.addHelpText('after', `\nExamples:\n${command.examples.map((line) => `  ${line}`).join('\n')}`);
  sub.action(async () => {
    const onCommandLine = (name: string) => {
      const given: unknown = sub.getOptionValue(attributes.get(name) ?? '');
      return Array.isArray(given) ? given.join(REPEATED) : given?.toString();
    };
    const source = sourceOf(command.options, onCommandLine, io.env);
    const missing = operands
      .slice(sub.args.length)
      .map((name) => `<${name}> is missing: see '${path} --help'`);
    const values = await readAll(command, onCommandLine, source, io, missing);
    const given = (name: string) => onCommandLine(name) ?? io.env[command.options[name]?.env ?? ''];
    finish(await command.run(values, sub.args, io, source, given));
  });
}

/** Returns the names of required operands. We report those that are missing together with all other mistakes. */
function requiredOperands(sub: Commander): string[] {
  // Sets the usage that it returns now, with the required operands.
  sub.usage(sub.usage());
  return sub.registeredArguments.flatMap((operand) => {
    if (!operand.required) return [];
    operand.required = false;
    return [operand.name()];
  });
}

function helpHint(command: string): string {
  return `Try '${command} --help' for more information.`;
}

/** Reports all problems at once: of the options, and what the command itself finds with the valid ones. */
async function readAll(
  command: Command,
  onCommandLine: (name: string) => string | undefined,
  source: Source<Options>,
  io: Io,
  missing: readonly string[],
): Promise<Values<Options>> {
  // Loaded here, like the commands: it takes a tenth of the time of `wafstat --version`.
  const { serviceConflicts } = await import('../config.ts');
  let valid: Partial<Values<Options>> = {};
  try {
    return readOptions(command.options, onCommandLine, io.env, (read) => {
      valid = read;
      return [...missing, ...serviceConflicts(read, source), ...(command.check?.(read, source, io) ?? [])];
    });
  } catch (error) {
    if (!(error instanceof UsageError) || !command.inspect) throw error;
    throw new UsageError([...error.problems, ...(await command.inspect(valid, source, io))]);
  }
}

/** If beside the option there is less space for its description, the description is below it. */
const DESCRIPTION_COLUMNS_MIN = 24;

function formatItem(this: Help, term: string, termWidth: number, description: string, help: Help): string {
  const { helpWidth = 80 } = this;
  if (description === '' || helpWidth - termWidth - 4 >= DESCRIPTION_COLUMNS_MIN)
    return Help.prototype.formatItem.call(this, term, termWidth, description, help);
  return `  ${term}\n      ${help.boxWrap(description, helpWidth - 6).replaceAll('\n', '\n      ')}`;
}

/** Shortens `top <sources|urls|..>` to `top <list>`, because the column of commands must stay narrow. Shells give words. */
function termOf(sub: Commander): string {
  const term = `${sub.name()} ${sub.usage()}`.replace(' [options]', '').replace(' [words...]', '');
  return term.replace(/<[a-z]+\|[a-z|]+>/, '<list>');
}

/** Lists show the description up to its first `;` or `:`; the help of the command shows all of it, in sentences. */
function describe(commander: Commander, description: string): Commander {
  const sentences = description.split('; ').map((part) => `${part.charAt(0).toUpperCase()}${part.slice(1)}.`);
  return commander.summary(description.split(/[;:]/, 1)[0] ?? '').description(sentences.join(' '));
}

/** Commander does not get variables and defaults: readOptions() reports all mistakes at once and lets switches be false. */
function declare({ flags, description, env, default: fallback, required, group }: Option<unknown>) {
  const notes = [required ? '[required]' : '', fallback && `[default: ${fallback}]`, env && `[env: ${env}]`];
  const declared = new CommanderOption(flags, [description, ...notes].filter(Boolean).join(' '));
  return group === undefined ? declared : declared.helpGroup(group);
}

/** Prints where a defect is, with NODE_DEBUG=wafstat. */
const debug = debuglog('wafstat');

function unexpected(error: unknown): string {
  const { message } = error as Error;
  return `unexpected error: ${message || String(error)}; NODE_DEBUG=wafstat shows where`;
}

/** Resolves to the exit status. */
async function reportError(error: unknown, io: Io): Promise<number> {
  // Commander has printed its message; help and version end this way too, with status 0.
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
  if (error instanceof UsageError) {
    for (const problem of error.problems) warn(io, problem, 'red');
    return 2;
  }
  const message = await userMessage(error);
  if (message === null) debug('%O', error);
  warn(io, message ?? unexpected(error), 'red');
  return 1;
}
