// The manual page, from the commands that the program itself declares.
import { createProgram } from '../packages/server/dist/cli/program.js';

/** Every command with its options and operands; commands with subcommands have `commands` instead. */
export async function readCommands() {
  const noStream = { write: () => true };
  const io = { stdin: noStream, stdout: noStream, stderr: noStream, env: {}, now: Date.now };
  const program = await createProgram(
    () => true,
    io,
    () => {},
  );
  const read = (commander) => ({
    name: commander.name(),
    heading: commander.helpGroup(),
    description: commander.description(),
    usage: commander.usage(),
    examples: examplesOf(commander),
    options: commander.options.map((option) => ({
      flags: option.flags,
      description: option.description,
      heading: option.helpGroupHeading,
    })),
    commands: commander.commands.map(read),
  });
  return { description: program.description(), commands: program.commands.map(read) };
}

/** Commander keeps them as a listener that prints them below the help. */
function examplesOf(commander) {
  let text = '';
  commander.emit('afterHelp', {
    command: commander,
    error: false,
    write: (part) => {
      text += part;
    },
  });
  const [, examples = ''] = text.split('Examples:\n');
  return examples.split('\n').flatMap((line) => line.trim() || []);
}

/** Commands that can be run, with all their words. */
function runnable(commands, words = []) {
  return commands.flatMap((command) =>
    command.commands.length > 0
      ? runnable(command.commands, [...words, command.name])
      : [{ ...command, words: [...words, command.name] }],
  );
}

export function manPage({ description, commands }, version, date) {
  const lines = [
    `.TH WAFSTAT 1 "${date.toISOString().slice(0, 10)}" "wafstat ${version}" "User Commands"`,
    // No hyphens inside the names of options and variables.
    '.nh',
    '.SH NAME',
    'wafstat \\- statistics on the requests and attacks that a web application firewall sees',
    '.SH SYNOPSIS',
    '.B wafstat',
    '.I command',
    '.RI [ options ]',
    '.SH DESCRIPTION',
    roff(description),
    'An option that is described with [env: NAME] can also be set with this environment variable.',
    'The command line takes precedence over the environment.',
  ];
  let heading = '';
  for (const command of runnable(commands)) {
    const own = commands.find(({ name }) => name === command.words[0])?.heading;
    if (own !== heading) lines.push(`.SH ${roff(own.replace(/:$/, '').toUpperCase())}`);
    heading = own;
    lines.push('.SS', `wafstat ${roff(command.words.join(' '))} ${roff(command.usage)}`);
    lines.push(roff(command.description));
    let group;
    for (const { flags, description: text, heading: title } of command.options) {
      if (title !== group && title !== undefined) lines.push('.PP', `.I ${roff(title)}`);
      group = title;
      lines.push('.TP', `.B ${roff(flags)}`, roff(text));
    }
    if (command.examples.length > 0) {
      lines.push('.PP', 'Examples:', '.PP', '.nf', '.RS');
      lines.push(...command.examples.map(roff), '.RE', '.fi');
    }
  }
  lines.push('.SH EXIT STATUS', '0 for success, 1 for a failure, 2 for invalid options.');
  lines.push('.SH FILES');
  for (const [path, text] of [
    ['/etc/default/wafstat', 'Settings of the service, as environment variables (Debian package).'],
    ['/etc/wafstat/follow/NAME', 'Log files that wafstat-follow@NAME.service follows (Debian package).'],
    ['/var/lib/wafstat', 'Data directory (Debian package).'],
    ['~/.config/wafstat/profiles.json', 'Profiles of the query commands.'],
  ])
    lines.push('.TP', `.I ${roff(path)}`, roff(text));
  return `${lines.join('\n')}\n`;
}

/** A line that begins with a dot or an apostrophe would be a request. */
function roff(text) {
  return text
    .replace(/\\/g, '\\e')
    .replace(/-/g, '\\-')
    .replace(/^(?=[.'])/gm, '\\&');
}
