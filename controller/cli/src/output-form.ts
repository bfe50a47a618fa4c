/** In which form results are printed: `-o`, one for the whole command. */
import { type Command, Option } from 'commander';
import { CliError, ExitCode } from './exit-codes.ts';

export const FORMS = ['table', 'wide', 'json', 'yaml', 'name'] as const;
export type Form = (typeof FORMS)[number];

let present: Form = 'table';

export const outputForm = (): Form => present;

/** Of a command whose `-o` means something else. */
const TAKES_A_PATH = ['download'];

/** Adds `-o` for all commands. */
export function withOutputForm(program: Command): Command {
  return program
    .addOption(
      new Option('-o, --output <form>', `${FORMS.join(', ')} (wide: with ids; name: one name a line)`),
    )
    .hook('preAction', (_program, action) => {
      const { output, json } = action.optsWithGlobals<{ output?: string; json?: boolean }>();
      if (TAKES_A_PATH.includes(action.name())) return;
      const form = output ?? (json ? 'json' : 'table');
      if (!FORMS.some(known => known === form))
        throw new CliError(`"${form}" is no form of output: ${FORMS.join(', ')}.`, ExitCode.usage);
      present = form as Form;
      // commands know two kinds of output: for people, and the records
      program.setOptionValue('json', form !== 'table' && form !== 'wide');
    });
}
