/** What may stand at the end of a command line that is not finished; pure but for the names that it asks for. */
import type { Command, Option } from 'commander';

/** @param start of what is written already */
export type Names = (kind: string, start: string) => Promise<string[]>;

/**
 * @param words what stands after the name of the program; the last one is being written, and may be empty
 * @param names of things, by what an argument is called: vm, pool, node, task, backup, …
 */
export async function candidates(
  program: Command,
  words: readonly string[],
  names: Names,
): Promise<string[]> {
  const present = words.at(-1) ?? '';
  const before = words.slice(0, -1);
  if (before.includes('--')) return [];
  const { command, given } = commandOf(program, before);
  const last = optionOf(command, before.at(-1) ?? '');
  if (last?.required && !last.isBoolean()) return matching(await valuesOf(last, present, names), present);
  if (present.startsWith('-')) return matching(optionsOf(command).flatMap(longOf), present);
  const children = command.commands
    .filter(child => !child.name().startsWith('__'))
    .map(child => child.name());
  if (children.length > 0 && given === 0) return matching(children, present);
  const args = command.registeredArguments;
  const argument = args[Math.min(given, args.length - 1)];
  if (argument === undefined || (given >= args.length && !argument.variadic)) return [];
  return matching(argument.argChoices ?? (await names(argument.name(), present)), present);
}

/** The innermost command that is named, and how many arguments it has so far. */
function commandOf(program: Command, words: readonly string[]): { command: Command; given: number } {
  let command = program;
  let given = 0;
  for (let index = 0; index < words.length; index += 1) {
    const word = words[index]!;
    if (word.startsWith('-')) {
      const option = optionOf(command, word);
      if (option?.required && !word.includes('=')) index += 1;
      continue;
    }
    const child = given === 0 ? childOf(command, word) : undefined;
    if (child === undefined) given += 1;
    else command = child;
  }
  return { command, given };
}

const childOf = (command: Command, word: string) =>
  command.commands.find(child => child.name() === word || child.aliases().includes(word));

/** With those of the commands around it. */
function optionsOf(command: Command): Option[] {
  const own = command.options.filter(option => !option.hidden);
  return command.parent ? [...own, ...optionsOf(command.parent)] : own;
}

function optionOf(command: Command, word: string): Option | undefined {
  return optionsOf(command).find(option => option.long === word || option.short === word);
}

const longOf = ({ long }: Option): string[] => (long ? [long] : []);

/** The value of `--pool <pool>` is named as an argument would be. */
async function valuesOf(option: Option, present: string, names: Names): Promise<string[]> {
  if (option.argChoices) return option.argChoices;
  return names(/<([a-z]+)(\.{3})?>/.exec(option.flags)?.[1] ?? '', present);
}

function matching(all: readonly string[], start: string): string[] {
  return [...new Set(all)].filter(one => one.startsWith(start)).sort();
}

/** Scripts for shells, which ask the command itself. */
export const SCRIPTS = {
  bash: `_virtkeep() {
  local index
  mapfile -t COMPREPLY < <(virtkeep __complete -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  for index in "\${!COMPREPLY[@]}"; do COMPREPLY[index]=$(printf '%q' "\${COMPREPLY[index]}"); done
}
complete -o default -F _virtkeep virtkeep
`,
  zsh: `#compdef virtkeep
_virtkeep() {
  local -a found
  found=("\${(@f)$(virtkeep __complete -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if (( \${#found} == 1 )) && [[ -z \${found[1]} ]]; then _files; else compadd -a found; fi
}
compdef _virtkeep virtkeep
`,
  fish: `function __virtkeep_complete
  set -l words (commandline -opc) (commandline -ct)
  virtkeep __complete -- $words[2..-1] 2>/dev/null
end
complete -c virtkeep -a '(__virtkeep_complete)'
`,
} as const;
