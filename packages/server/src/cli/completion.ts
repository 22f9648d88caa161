/** `completion`: completes commands, options and values in a shell, from what the program itself declares. */
import type { Command as Commander } from 'commander';
import { command, type Io } from './command.ts';
import { listOf, UsageError } from './options.ts';

/** Shells call the program for the words so far. If it knows none, or fails, they complete files. */
const SCRIPTS: Readonly<Record<string, string>> = {
  bash: `_wafstat() {
  mapfile -t COMPREPLY < <(wafstat completion words -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null | cut -f 1)
}
complete -o default -F _wafstat wafstat
`,
  zsh: `#compdef wafstat
_wafstat() {
  local -a found
  found=("\${(@f)$(wafstat completion words -- "\${(@)words[2,CURRENT]}" 2> /dev/null)}")
  found=("\${(@)found//:/\\\\:}")
  found=("\${(@)found/$'\\t'/:}")
  if [[ -n $found ]]; then _describe wafstat found; else _files; fi
}
if [[ $funcstack[1] == _wafstat ]]; then _wafstat "$@"; else compdef _wafstat wafstat; fi
`,
  fish: `function __wafstat
  set -l found (wafstat completion words -- (commandline -opc)[2..] (commandline -ct) 2> /dev/null)
  if set -q found[1]; printf '%s\\n' $found; else; __fish_complete_path (commandline -ct); end
end
complete -c wafstat -f -a '(__wafstat)'
`,
};
const SHELLS = Object.keys(SCRIPTS);

/** Creates the program, with the options of the commands that are needed. */
type CreateProgram = (isNeeded: (name: string) => boolean, io: Io, finish: () => void) => Promise<Commander>;

export const completionCommand = (createProgram: CreateProgram) =>
  command({
    examples: [
      'source <(wafstat completion bash)',
      'source <(wafstat completion zsh)',
      'wafstat completion fish | source',
    ],
    options: {},
    async run(_values, [shell = '', ...words], io) {
      if (shell === 'words') {
        const program = await createProgram(
          (name) => name === words[0],
          io,
          () => {},
        );
        for (const line of completionsOf(words, program)) io.stdout.write(`${line}\n`);
      } else if (Object.hasOwn(SCRIPTS, shell)) io.stdout.write(SCRIPTS[shell] ?? '');
      else throw new UsageError([`the shell is '${shell}', but must be ${listOf(SHELLS)}`]);
      return 0;
    },
  });

/** What the last word can become: each with its description, after a tab. */
function completionsOf(words: readonly string[], program: Commander): string[] {
  const [current = ''] = words.slice(-1);
  const before = words.slice(0, -1);
  let commander = program;
  for (const word of before) commander = commander.commands.find((each) => each.name() === word) ?? commander;
  const option = commander.options.find(({ flags, long }) => flags.includes('<') && long === before.at(-1));
  const values = choicesOf(option?.flags ?? commander.registeredArguments[0]?.name() ?? '');
  const options = commander.options.map(({ long, description }) => [long ?? '', description]);
  const commands = commander.commands.map((each) => [each.name(), each.summary()]);
  const others = current.startsWith('-') ? options : commands;
  return [...values.map((value) => [value]), ...(option ? [] : others)]
    .filter(([word]) => word?.startsWith(current))
    .map((found) => found.join('\t'));
}

/** Of `<a|b>`. */
function choicesOf(flags: string): string[] {
  return /[a-z]+(?:\|[a-z]+)+/.exec(flags)?.[0].split('|') ?? [];
}
