// The manual page and the shell completions, from the commands that the program itself declares.
import { createProgram } from '../packages/server/dist/cli/program.js';

/** Every command with its options and operands; commands with subcommands have `commands` instead. */
export async function readCommands() {
  const noStream = { write: () => true };
  const io = { stdin: noStream, stdout: noStream, stderr: noStream, env: {}, now: Date.now };
  const program = await createProgram(undefined, io, () => {});
  const read = (commander) => ({
    name: commander.name(),
    heading: commander.helpGroup(),
    summary: commander.summary(),
    description: commander.description(),
    usage: commander.usage(),
    examples: examplesOf(commander),
    options: commander.options.map((option) => ({
      flags: option.flags,
      long: option.long,
      summary: option.description.replace(/ \[(?:default|env|required).*$/s, ''),
      description: option.description,
      heading: option.helpGroupHeading,
      value: optionValue(option.flags),
    })),
    operand: commander.registeredArguments.some((argument) => /file/.test(argument.name())) ? 'file' : null,
    commands: commander.commands.map(read),
  });
  return { description: program.description(), commands: program.commands.map(read) };
}

/** Null for a switch; choices for `<a|b>`. */
function optionValue(flags) {
  const name = /<([^>]+)>/.exec(flags)?.[1];
  if (name === undefined) return null;
  if (name.includes('|')) return { name, kind: 'choice', choices: name.split('|') };
  return { name, kind: { file: 'file', dir: 'directory' }[name] ?? 'other' };
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

export function bashCompletion({ commands }) {
  const parents = commands.filter((command) => command.commands.length > 0);
  const quoted = (words) => `'${words.join(' ')}'`;
  const values = runnable(commands).flatMap(({ words, options }) =>
    options
      .filter(({ value }) => value !== null)
      .map(({ long, value }) => `    ${quoted([...words, long])}) ${bashValue(value)}; return ;;`),
  );
  const ofCommand = runnable(commands).map(
    ({ words, options, operand }) =>
      `    ${quoted(words)}) words=${quoted([...options.map(({ long }) => long), '--help'])}; operand=${operand ?? ''} ;;`,
  );
  return `# bash completion of wafstat. Generated from the commands of the program.
_wafstat() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD - 1]}
  local command=\${COMP_WORDS[1]} words= operand=
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    words=${quoted([...commands.map(({ name }) => name), 'help', '--help', '--version'])}
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    return
  fi
  case $command in
    ${parents.map(({ name }) => name).join('|')}) ((COMP_CWORD > 2)) && command+=" \${COMP_WORDS[2]}" ;;
  esac
  case "$command $previous" in
${values.join('\n')}
  esac
  case $command in
    help) words=${quoted(commands.map(({ name }) => name))} ;;
${parents.map((parent) => `    ${parent.name}) words=${quoted(parent.commands.map(({ name }) => name))} ;;`).join('\n')}
${ofCommand.join('\n')}
  esac
  if [[ $operand && $current != -* ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  fi
}
complete -F _wafstat wafstat
`;
}

function bashValue({ kind, choices }) {
  if (kind === 'choice') return `mapfile -t COMPREPLY < <(compgen -W '${choices.join(' ')}' -- "$current")`;
  if (kind === 'other') return ':';
  const flag = kind === 'directory' ? '-d' : '-f';
  return `compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen ${flag} -- "$current")`;
}

export function zshCompletion({ commands }) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const described = (list) =>
    list.map(({ name, summary }) => quoted(`${name}:${summary.replaceAll(':', '\\:')}`)).join(' ');
  const action = ({ kind, choices }) =>
    ({ choice: `(${choices?.join(' ')})`, file: '_files', directory: '_files -/', other: ' ' })[kind];
  const specs = ({ options, operand }) =>
    [
      ...options.map(({ long, summary, value }) => {
        const text = `${long}[${summary.replace(/[[\]:\\]/g, '\\$&')}]`;
        return quoted(
          value === null ? text : `${text}:${value.name.replaceAll(':', '\\:')}:${action(value)}`,
        );
      }),
      "'--help[print this help]'",
      ...(operand === null ? [] : ["'*:file:_files'"]),
    ].join(' ');
  const caseOf = (command, indent) =>
    command.commands.length === 0
      ? `${indent}${command.name}) _arguments ${specs(command)} ;;`
      : `${indent}${command.name})
${indent}  if ((CURRENT == 2)); then
${indent}    commands=(${described(command.commands)})
${indent}    _describe command commands
${indent}  else
${indent}    shift words
${indent}    ((CURRENT--))
${indent}    case $words[1] in
${command.commands.map((sub) => caseOf(sub, `${indent}      `)).join('\n')}
${indent}    esac
${indent}  fi ;;`;
  return `#compdef wafstat
# zsh completion of wafstat. Generated from the commands of the program.
_wafstat() {
  local -a commands
  if ((CURRENT == 2)); then
    commands=(${described([...commands, { name: 'help', summary: 'print the help of a command' }])})
    _describe command commands
    return
  fi
  shift words
  ((CURRENT--))
  case $words[1] in
${commands.map((command) => caseOf(command, '    ')).join('\n')}
  esac
}
_wafstat "$@"
`;
}

export function fishCompletion({ commands }) {
  const quoted = (text) => `'${text.replace(/[\\']/g, '\\$&')}'`;
  const lines = ['# fish completion of wafstat. Generated from the commands of the program.'];
  lines.push('complete -c wafstat -f');
  const add = (condition, rest) => lines.push(`complete -c wafstat -n ${quoted(condition)} ${rest}`);
  for (const { name, summary } of [...commands, { name: 'help', summary: 'print the help of a command' }])
    add('__fish_use_subcommand', `-a ${name} -d ${quoted(summary)}`);
  for (const parent of commands) {
    const names = parent.commands.map(({ name }) => name).join(' ');
    for (const { name, summary } of parent.commands) {
      const isNext = `__fish_seen_subcommand_from ${parent.name}; and not __fish_seen_subcommand_from ${names}`;
      add(isNext, `-a ${name} -d ${quoted(summary)}`);
    }
  }
  for (const { words, options, operand } of runnable(commands)) {
    const condition = words.map((word) => `__fish_seen_subcommand_from ${word}`).join('; and ');
    for (const { long, summary, value } of options) {
      const argument = {
        choice: `-x -a ${quoted(value?.choices?.join(' ') ?? '')}`,
        file: '-r -F',
        directory: "-x -a '(__fish_complete_directories)'",
        other: '-x',
      };
      add(
        condition,
        [`-l ${long.slice(2)}`, value && argument[value.kind], `-d ${quoted(summary)}`]
          .filter(Boolean)
          .join(' '),
      );
    }
    if (operand !== null) add(condition, '-F');
  }
  return `${lines.join('\n')}\n`;
}
