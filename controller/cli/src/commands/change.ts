/** What changes a VM itself, or what is noted of a backup. */
import type { Command } from 'commander';
import type { Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { follow, runAction, type Started } from '../follow.ts';
import { clean, print, printJson } from '../output.ts';
import { type Named, resolve, resolveFile } from '../resolve.ts';

interface VmOptions {
  name?: string;
  description?: string;
  tag?: string[];
  tags?: boolean;
}

const isJson = (command: Command) => command.optsWithGlobals<GlobalOptions>().json === true;
const commandOf = (program: Command, name: string) => program.commands.find(one => one.name() === name)!;

/** `vms set`, `vms remove`, `backups set`. */
export function addChanges(program: Command): void {
  const vms = commandOf(program, 'vms');
  vms
    .command('set <vm>')
    .description('rename a VM that is off, describe it, or say which tags it bears')
    .option('--name <name>', 'another name')
    .option('--description <text>', 'free text')
    .option('--tag <tag...>', 'its tags from now on; a name that no tag has makes one')
    .option('--no-tags', 'it bears none')
    .action(async (nameOrId: string, options: VmOptions, command: Command) => {
      const json = isJson(command);
      const changed = await withClient(async client => {
        const { id } = await resolve(client, 'domains', nameOrId);
        const answer = await client.put<Named>(`/api/domains/${id}/`, vmBody(options), { async: 1 });
        if (!('_task' in answer)) return answer;
        await follow(client, (answer as unknown as Started)._task.id, json);
        return client.get<Named>(`/api/domains/${id}/`);
      });
      if (json) printJson(changed);
      else print(`${clean(changed.verbose_name)}: changed`);
    });
  vms
    .command('remove <vm>')
    .description('remove a VM with its saved states; its backups stay')
    .option('--disks', 'also its disks inside data pools, not images on which they were made')
    .option('--force', 'also when it runs')
    .action(async (nameOrId: string, options: { disks?: boolean; force?: boolean }, command: Command) => {
      const json = isJson(command);
      await withClient(async client => {
        const { id, verbose_name } = await resolve(client, 'domains', nameOrId);
        const body = { ...(options.disks ? { full: true } : {}), ...(options.force ? { force: true } : {}) };
        const task = await runAction(client, `/api/domains/${id}/remove/`, body, { quiet: json });
        if (json) printJson(task);
        else print(`${clean(verbose_name)}: removed`);
      });
    });
  commandOf(program, 'backups')
    .command('set <backup>')
    .description('describe a backup, or protect it from removal')
    .option('--protect', 'it cannot be removed')
    .option('--no-protect', 'it can')
    .option('--description <text>', 'free text')
    .action(
      async (nameOrId: string, options: { protect?: boolean; description?: string }, command: Command) => {
        const body = {
          ...(options.protect === undefined ? {} : { protected: options.protect }),
          ...(options.description === undefined ? {} : { description: options.description }),
        };
        const changed = await withClient(async client => {
          const { id } = await resolveFile(client, nameOrId);
          return client.put(`/api/library/${id}/`, body);
        });
        if (isJson(command)) printJson(changed);
        else print(`${clean(changed.filename)}: changed`);
      },
    );
}

function vmBody({ name, description, tag, tags }: VmOptions): Json {
  return {
    ...(name === undefined ? {} : { verbose_name: name }),
    ...(description === undefined ? {} : { description }),
    ...(tag === undefined ? {} : { tags: tag }),
    ...(tags === false ? { tags: [] } : {}),
  };
}
