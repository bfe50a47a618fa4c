import type { Command } from 'commander';
import type { Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { clean, print, printJson, printTable } from '../output.ts';

/** `settings`: those of the controller that may be changed while it runs. */
export function addSettings(program: Command): void {
  const settings = program
    .command('settings')
    .description('settings of the controller that may be changed while it runs');
  const isJson = (command: Command) => command.optsWithGlobals<GlobalOptions>().json === true;
  const put = async (name: string, value: string | number | null, command: Command) => {
    const changed = await withClient(client => client.put('/api/settings/', { name, value }));
    if (isJson(command)) printJson(changed);
    else print(`${clean(changed.name)}: ${clean(changed.value)}`);
  };
  settings
    .command('list', { isDefault: true })
    .description('list them')
    .action(async (_options, command: Command) => {
      const all = await withClient(client => client.all<Json>('/api/settings/'));
      if (isJson(command)) return printJson(all);
      printTable(
        ['NAME', 'VALUE', 'IN THE FILE', 'CHANGED'],
        all.map(({ name, value, from_file, modified }) => [name, value, from_file, modified]),
      );
    });
  settings
    .command('set <name> <value>')
    .description('change one without a restart, for good')
    .action((name: string, value: string, _options, command: Command) =>
      put(name, /^-?\d+(\.\d+)?$/.test(value) ? Number(value) : value, command),
    );
  settings
    .command('reset <name>')
    .description("let that of the controller's file count again")
    .action((name: string, _options, command: Command) => put(name, null, command));
}
